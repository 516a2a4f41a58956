"""What is said of GPUs, on profiles that were built by hand: right ones, and ones that lie."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
from gpu_runs import (
    CARDS,
    COPIED,
    KERNELS,
    NO_ACCESS,
    STEPS,
    Copy,
    GpuOp,
    acceptance,
    over_host,
    run,
)

from placement_advisor.analysis.acceptance.expected_times import Cards
from placement_advisor.analysis.acceptance.finding import Outcome
from placement_advisor.analysis.acceptance.judge import findings_of, is_trusted
from placement_advisor.files.contract import plain
from placement_advisor.profile.timeline.worker_steps import Crossing
from placement_advisor.report.acceptance_text import render_acceptance
from placement_advisor.results.acceptance import Acceptance as Published
from placement_advisor.results.contracts import load_schema

if TYPE_CHECKING:
    from pathlib import Path

    from placement_advisor.analysis.acceptance.observed import PairRun


def named(pair: PairRun, outcome: Outcome) -> set[str]:
    return {each.name for each in findings_of(pair) if each.outcome is outcome}


def words(pair: PairRun, name: str) -> str:
    (found,) = (each.finding for each in findings_of(pair) if each.name == name)
    return found


def ops(**changes: dict[str, Any]) -> tuple[GpuOp, ...]:
    """Return the kernels with changes to some, by the last part of their names."""
    return tuple(replace(each, **changes.get(each.op.replace("/", "_"), {})) for each in KERNELS)


def copied(producer: str, **changes: Any) -> tuple[Copy, ...]:
    return tuple(replace(each, **changes) if each.producer == producer else each for each in COPIED)


def test_a_right_profile_is_trusted(tmp_path: Path) -> None:
    pair = run(tmp_path)
    assert named(pair, Outcome.OK) == {each.name for each in findings_of(pair)}
    assert words(pair, "copies") == "there 3 of 3, back 3 of 3"
    assert words(pair, "bytes") == "there 4,457,472 of 4,457,472, back 4,718,592 of 4,718,592"
    assert words(pair, "ops") == "15 of 15 seen in the profile, all where they were put"
    assert words(pair, "topology") == "NV2, nvlink"
    assert "nine in ten within" in words(pair, "op times")
    assert is_trusted(acceptance(pair))


def test_copies_over_the_host_are_right_where_the_driver_gives_no_access(tmp_path: Path) -> None:
    pair = run(tmp_path, copies=over_host(COPIED), cards=NO_ACCESS)
    assert named(pair, Outcome.OFF) == set()
    assert words(pair, "copies") == "there 3 of 3 over the host, back 3 of 3 over the host"
    assert words(pair, "peer access") == "copies go over the host; the driver says CNS"


LIES: dict[str, tuple[dict[str, Any], set[str]]] = {
    "a copy is missing": ({"copies": COPIED[1:]}, {"copies", "bytes"}),
    "a copy is there twice": ({"copies": (*COPIED, COPIED[1])}, {"copies", "bytes"}),
    "a copy has other bytes": ({"copies": copied("near/row_sums", size_bytes=1_020)}, {"bytes"}),
    "a copy is of no known kind": (
        {"copies": copied("far/product_3", name="MemcpyOther")},
        {"copies", "bytes"},
    ),
    "a copy goes the other way": (
        {"copies": copied("far/product_3", gpu=0, dest=1)},
        {"copies", "bytes"},
    ),
    "an op is on the other device": (
        {"kernels": ops(far_sums_added={"gpu": 0})},
        {"ops"},
    ),
    "an op is missing": (
        {"kernels": [each for each in KERNELS if each.op != "far/product_2"]},
        {"ops"},
    ),
    "a tensor is read before it is made": (
        {"kernels": ops(far_product_1={"start_us": 44, "end_us": 48})},
        {"order"},
    ),
    "a tensor is read before it arrives": (
        {"kernels": ops(near_last_product={"start_us": 150, "end_us": 160})},
        {"order"},
    ),
    "a tensor is sent before it is made": (
        {"copies": copied("near/large_product", start_us=200)},
        {"order"},
    ),
    "a copy takes no time": ({"copies": copied("near/row_sums", end_us=55)}, {"order"}),
    "copies go from GPU to GPU without access": ({"cards": NO_ACCESS}, {"peer access"}),
    "copies go over the host with access": ({"copies": over_host(COPIED)}, {"peer access"}),
    "products take a tenth": (
        {"kernels": ops(far_large_product={"start_us": 400, "end_us": 418})},
        {"op times"},
    ),
    "a step is missing": ({"profiled_steps": STEPS + 1}, {"steps"}),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_profile_that_lies_is_found_out(tmp_path: Path, lie: str) -> None:
    changes, off = LIES[lie]
    pair = run(tmp_path, **changes)
    assert named(pair, Outcome.OFF) == off
    assert not is_trusted(acceptance(pair))


def test_marks_that_leave_out_most_of_a_step_are_found_out(tmp_path: Path) -> None:
    pair = run(tmp_path, step_us=340)
    assert "the profile does not cover the steps" in words(pair, "steps")
    assert {"steps", "ops", "copies", "bytes"} <= named(pair, Outcome.OFF)


def test_what_tensorflow_moved_or_sends_besides_is_off(tmp_path: Path) -> None:
    pair = run(tmp_path)
    assert pair.prepared is not None
    more = Crossing(
        send_node="s",
        recv_node="r",
        producer="near/product_2",
        port=0,
        source="GPU:0",
        target="GPU:1",
        size_bytes=8,
    )
    prepared = replace(
        pair.prepared,
        moved_ops=("far/large_sum: task 0 GPU:1 → task 0 CPU:0", "near_input: a → b"),
        crossings=(*pair.prepared.crossings[1:], more),
    )
    changed = replace(pair, prepared=prepared)
    assert named(changed, Outcome.OFF) == {"placed"}
    assert words(changed, "placed") == (
        "14 of 15 ops where they were put; 2 of 3 tensors cross there, 3 of 3 back; TensorFlow "
        "moved far/large_sum: task 0 GPU:1 → task 0 CPU:0; near/product_2 leaves GPU:0 too; "
        "near/product_3 should cross"
    )


def test_wrong_results_and_failures_are_off(tmp_path: Path) -> None:
    wrong = replace(run(tmp_path), wrong_outputs=("far/large_sum",))
    assert named(wrong, Outcome.OFF) == {"values"}
    failed = replace(wrong, problem="GPU:1 ran out of memory", wrong_outputs=None, profile=None)
    assert named(failed, Outcome.OFF) == {"run"}


def test_what_nothing_is_known_of_is_unknown(tmp_path: Path) -> None:
    pair = run(tmp_path, cards=Cards(name="NVIDIA GeForce GT 710"))
    assert named(pair, Outcome.UNKNOWN) == {"op times", "peer access", "topology"}
    assert named(pair, Outcome.OFF) == set()


def test_the_text_says_that_gpus_are_untried_and_ends_with_trust(tmp_path: Path) -> None:
    text = render_acceptance(acceptance(run(tmp_path)), tmp_path / "it.zip")
    assert "\nuntried on GPUs: " in text
    assert text.endswith(
        f"\nbundle: {tmp_path / 'it.zip'}\ntrust: all that can be known here is as it must be\n"
    )
    assert max(map(len, text.splitlines()[:-3])) <= 100


def test_the_text_ends_with_what_is_off_and_on_which_devices(tmp_path: Path) -> None:
    lying = run(tmp_path, copies=COPIED[1:])
    text = render_acceptance(acceptance(lying), tmp_path / "it.zip")
    assert text.splitlines()[-2:] == [
        "off: copies, bytes (GPU:0 and GPU:1)",
        f"do not trust what is measured here; attach {tmp_path / 'it.zip'} to an issue",
    ]


def test_the_json_keeps_its_contract_with_a_profile_and_without(tmp_path: Path) -> None:
    validator = jsonschema.Draft202012Validator(load_schema("acceptance"))
    pair = run(tmp_path, cards=CARDS)
    failed = replace(
        pair, problem="no", prepared=None, wrong_outputs=None, profile=None, step_ns=None
    )
    content = plain(Published.of(acceptance(pair, failed), tmp_path))
    validator.validate(content)
    assert content["trusted"] is False
    assert content["untried_on_gpus"] is True
    assert [each["count"] for each in content["pairs"][0]["copies"]] == [3, 3]
    assert [each["count"] for each in content["pairs"][1]["copies"]] == [None, None]
