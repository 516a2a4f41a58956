from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
import sample_analysis
from contract_schemas import SCHEMAS, TYPES, schema_text

from placement_advisor.graph.op_graph import Edge, Op, OpGraph
from placement_advisor.graph.placement import Placement
from placement_advisor.results.contracts import SCHEMA_NAMES, load_schema

if TYPE_CHECKING:
    from collections.abc import Iterator

    from placement_advisor.analysis.analysis_result import Analysis


def _validate(content: object, name: str) -> None:
    schema = load_schema(name)
    jsonschema.Draft202012Validator(schema).validate(content)


def _objects(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        if "properties" in schema:
            yield schema
        for part in schema.values():
            yield from _objects(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from _objects(part)


@pytest.fixture
def content(analysis: Analysis) -> dict[str, Any]:
    return sample_analysis.as_json(analysis)


def test_measured_analysis_fits_its_schema(content: dict[str, Any]) -> None:
    _validate(json.loads(json.dumps(content, allow_nan=False)), "analysis")


def test_unmeasured_analysis_fits_its_schema_and_measures_nothing(unmeasured: Analysis) -> None:
    content = sample_analysis.as_json(unmeasured)
    _validate(content, "analysis")
    assert [candidate["measured"] for candidate in content["candidates"]] == [None, None, None]
    assert content["as_is"] is None
    assert content["recommendation"]["basis"] == "simulated"
    assert content["timings_ns"]["run"] is None


def test_candidate_without_placement_fits_the_schema(not_applicable: Analysis) -> None:
    content = sample_analysis.as_json(not_applicable)
    _validate(content, "analysis")
    towers = content["candidates"][1]
    assert (towers["placement_file"], towers["predicted"], towers["measured"]) == (None, None, None)
    assert towers["failure"]["kind"] == "not-applicable"


def test_the_bound_says_what_is_left_to_gain(content: dict[str, Any]) -> None:
    assert content["bound"] == {
        "step_ns": 29_200_000,
        "split_ns": 29_200_000,
        "alone_ns": {"worker:0": 52_000_000, "worker:1": 52_600_000},
        "single_ns": 52_000_000,
        "most_to_gain": pytest.approx(1 - 29.2 / 52),
        "proves_single": False,
        "most_to_gain_if_wrong": None,
        "proves_single_if_wrong": False,
        "costs_from": "measured",
        "reason": "critical path: 3 ops need one another in turn, 28.7 ms",
        "graph_file": "graph.json.gz",
    }


def test_single_is_once_as_slow_as_itself(content: dict[str, Any]) -> None:
    single, towers, alternating = content["candidates"]
    assert single["measured"]["ratio_to_single"] == {"median": 1.0, "ci95": [1.0, 1.0]}
    assert 0.5 < towers["measured"]["ratio_to_single"]["median"] < 0.7
    assert alternating["measured"] is None
    assert alternating["failure"]["kind"] == "crashed"
    assert towers["placement_file"] == "placements/towers.json"


def test_step_times_keep_every_sample_and_are_integers(content: dict[str, Any]) -> None:
    steps = content["candidates"][0]["measured"]["step_ns"]
    assert len(steps["samples"]) == 36
    assert steps["samples"][0] == 50_300_000  # 51.0 - 0.6 - 0.1 ms
    assert steps["ci95"][0] <= steps["median"] <= steps["ci95"][1]
    assert all(type(time) is int for time in [steps["median"], *steps["ci95"]])


def test_copies_are_listed_by_direction(content: dict[str, Any]) -> None:
    forth, back = content["candidates"][1]["measured"]["transfers"]
    assert (forth["source"], forth["target"]) == ("worker:0", "worker:1")
    # 160,000 for the lookup and 8,192 for the dot
    assert (forth["count"], forth["bytes"]) == (2, 168_192)
    assert (back["count"], back["bytes"]) == (2, 8_192 + 1_240_000)


def test_without_a_profile_its_figures_are_null(analysis: Analysis) -> None:
    towers = analysis.candidates[1]
    assert towers.measured is not None
    bare = replace(towers, measured=replace(towers.measured, profile=None, profile_run=None))
    content = sample_analysis.as_json(replace(analysis, candidates=(bare,)))
    _validate(content, "analysis")
    measured = content["candidates"][0]["measured"]
    for field in ("compute_ns", "transfer_ns", "transfers", "profiler_overhead", "profile"):
        assert measured[field] is None


def test_a_run_without_a_timed_step_is_not_a_measurement(analysis: Analysis) -> None:
    towers = analysis.candidates[1]
    assert towers.measured is not None
    cut = replace(towers, measured=replace(towers.measured, rounds=()), comparison=None)
    content = sample_analysis.as_json(replace(analysis, candidates=(cut,)))
    _validate(content, "analysis")
    assert content["candidates"][0]["measured"] is None


def test_saving_is_absent_where_it_is_not_known(analysis: Analysis) -> None:
    finding = analysis.findings[0]
    known, unknown = sample_analysis.as_json(
        replace(analysis, findings=(finding, replace(finding, saving=None, where={})))
    )["findings"]
    assert known["saving_ns"] == 1_100_000
    assert (known["saving_low_ns"], known["saving_high_ns"]) == (700_000, 1_500_000)
    assert known["saving_basis"] == "simulated"
    assert not {name for name in unknown if name.startswith("saving")}


@pytest.mark.parametrize("name", SCHEMA_NAMES)
def test_schemas_are_valid_closed_to_other_fields(name: str) -> None:
    schema = load_schema(name)
    jsonschema.Draft202012Validator.check_schema(schema)
    optional = {"layer", "op", "tensor", "device", "candidate", "file", "line"}
    optional |= {
        "saving_ns",
        "saving_step_ns",
        "saving_low_ns",
        "saving_high_ns",
        "saving_basis",
        "command",
    }
    optional |= {"structure", "traced_as"}  # An older advisor wrote neither.
    for part in _objects(schema):
        assert part["additionalProperties"] is False
        assert set(part["properties"]) - set(part.get("required", ())) <= optional


@pytest.mark.parametrize("name", TYPES)
def test_schemas_are_those_of_the_types(name: str) -> None:
    kept = SCHEMAS / f"{name}.schema.json"
    assert kept.read_text(encoding="utf-8") == schema_text(name), "run `make docs`"


def test_an_unknown_schema_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="analysis, difference, placement"):
        load_schema("baseline")


@pytest.fixture
def placement_file() -> dict[str, Any]:
    graph = OpGraph(
        [
            Op(name="a", kind="MatMul", layer="dense"),
            Op(name="b", kind="Relu", layer="dense"),
            Op(name="c", kind="Mul", layer="dense"),
            Op(name="d", kind="NoOp"),
        ],
        [Edge(producer="a", consumer="b", port=0, size_bytes=4)],
    )
    placement = Placement(
        label="towers",
        family="towers",
        device_of={"a": "GPU:0", "b": "GPU:0", "c": "GPU:1", "d": "GPU:0"},
        rationale="by hand",
    )
    return placement.as_json(graph, ("GPU:0", "GPU:1"))


def test_a_placement_file_fits_its_schema(placement_file: dict[str, Any]) -> None:
    _validate(placement_file, "placement")
    assert placement_file["by_layer"] == {"dense": "GPU:0", "": "GPU:0"}
    assert placement_file["by_op"] == {"c": "GPU:1"}
