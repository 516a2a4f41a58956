from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
from sample_calibration import IN_ONE_PROCESS, W0, W1, WORKERS, copy, summary_of
from sample_hosts import summary_of_hosts

from placement_advisor.files.contract import plain
from placement_advisor.results.calibration import Calibration as Published
from placement_advisor.results.contracts import load_schema

if TYPE_CHECKING:
    from placement_advisor.cost.calibration_summary import CalibrationSummary

VALIDATOR = jsonschema.Draft202012Validator(load_schema("calibration"))


def told(summary: CalibrationSummary) -> dict[str, Any]:
    content = plain(Published.of(summary))
    read: dict[str, Any] = json.loads(json.dumps(content, allow_nan=False))
    assert read == content
    VALIDATOR.validate(read)
    return read


def test_a_line_stands_beside_what_it_was_fitted_to() -> None:
    there, back = told(summary_of(WORKERS))["links"]
    assert (there["source"], there["target"]) == (W0, W1)
    # 200.5, 700 and 2,200 µs for 1 kB, 1 MB and 4 MB lie on 200 µs and 2 GB/s.
    assert (there["latency_ns"], there["bandwidth_bytes_per_s"]) == (200_000, 2_000_000_000)
    assert there["sender"] == {"per_copy_ns": 50_000, "ns_per_byte": pytest.approx(0.2)}
    assert all(abs(one["residual"]) < 1e-6 for one in there["copies"])
    # Those back lie on no line: the one in the middle is too short for 1,500 µs.
    assert [one["residual"] < 0 for one in back["copies"]] == [False, True, False]


def test_directions_that_meet_have_a_ratio() -> None:
    (pair,) = told(summary_of(WORKERS))["both_ways"]
    assert pair["between"] == [W0, W1]
    assert pair["ratio"] == pytest.approx(640 / 400)


def test_hosts_stand_with_their_devices_and_each_way_between_them_once() -> None:
    content = told(summary_of_hosts())
    assert content["hosts"] == [
        {"name": "a", "address": "10.0.0.1", "devices": ["a:0", "a:1"], "remote_ns": None},
        {"name": "b", "address": "10.0.0.2", "devices": ["b:0"], "remote_ns": 10_000_001},
    ]
    assert content["testbed"]["host_link"] == "tls"
    within, _, there, back = content["links"]
    assert [(link["source"], link["target"]) for link in (within, there, back)] == [
        ("a:0", "a:1"),
        ("a:0", "b:0"),
        ("b:0", "a:0"),
    ]
    assert (within["request_ns"], within["channel"]) == (0, None)
    assert (there["request_ns"], there["channel"]) == (back["latency_ns"], "out of a")
    assert [pairs["ratio"] for pairs in content["at_once"]] == [2.0, pytest.approx(1.2)]


def test_one_machine_has_no_hosts() -> None:
    content = told(summary_of(WORKERS))
    assert content["hosts"] == content["at_once"] == []
    assert content["testbed"]["host_link"] is None


def test_what_is_not_known_is_null() -> None:
    content = told(replace(summary_of(IN_ONE_PROCESS), kept_in=None))
    for link in content["links"]:
        assert link["sender"] is link["receiver"] is None
        assert link["copies"][0]["send_ns"] is link["copies"][0]["receive_ns"] is None
    assert content["kept_in"] is content["cluster_file"] is None


def test_what_noise_hid_is_null() -> None:
    ends = (W0, W1)
    noisy = replace(
        WORKERS,
        links=WORKERS.links | {ends: (copy(500, -40), *WORKERS.links[ends])},
        both_ways={ends: replace(WORKERS.both_ways[ends], both_ways_ns=0)},
    )
    content = told(summary_of(noisy))
    assert content["links"][0]["copies"][0]["copy_ns"] == -40
    assert content["links"][0]["copies"][0]["residual"] is None
    assert content["both_ways"][0]["ratio"] is None
