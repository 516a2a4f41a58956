from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from simulated_steps import towers

from placement_advisor.cost.table import CostBasis
from placement_advisor.files.contract import plain
from placement_advisor.results.contracts import load_schema
from placement_advisor.results.simulation import Simulation
from placement_advisor.simulator.critical_path import PathKind

SCHEMA = load_schema("simulation")
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


@pytest.fixture
def content() -> dict[str, Any]:
    content = plain(Simulation.of(towers(renamed={"worker:0": "GPU:0"})))
    read: dict[str, Any] = json.loads(json.dumps(content, allow_nan=False))
    assert read == content
    return read


def test_a_simulation_fits_its_schema(content: dict[str, Any]) -> None:
    VALIDATOR.validate(content)
    fields = SCHEMA["properties"]
    assert list(fields["cost_shares"]["properties"]) == [basis.value for basis in CostBasis]
    kinds = [kind.value for kind in PathKind]
    assert fields["path"]["items"]["properties"]["kind"]["enum"] == kinds
    assert list(fields["path_ns"]["properties"]) == kinds


def test_times_add_up_to_the_step(content: dict[str, Any]) -> None:
    parts = ("compute", "copy_work", "before_first", "waits_for_copy", "waits_for_launch")
    parts = (*parts, "waits_for_device")
    for device in content["devices"]:
        assert sum(device[f"{part}_ns"] for part in (*parts, "after_last")) == content["step_ns"]
    assert sum(content["path_ns"].values()) == content["step_ns"]
    assert content["path"][0]["start_ns"] == 0
    assert content["path"][-1]["end_ns"] == content["step_ns"]


def test_what_is_unknown_is_null_and_a_signal_carries_nothing(content: dict[str, Any]) -> None:
    by_ends = {(each["source"], each["target"]): each for each in content["transfers"]}
    assert by_ends["GPU:1", "GPU:0"] | {"source": 0, "target": 0} == {
        "source": 0, "target": 0, "count": 1, "bytes": None, "unknown": 1,
    }  # fmt: skip
    assert (by_ends["GPU:0", "GPU:1"]["bytes"], by_ends["GPU:0", "GPU:1"]["unknown"]) == (0, 0)
    assert content["devices"][2]["memory_bytes"] is None
