"""What is said of GPUs, on profiles that were built by hand: right ones, and ones that lie."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import jsonschema
import numpy as np
import pytest
import sample_hosts
from gpu_runs import (
    CARDS,
    COPIED,
    GRAPH,
    KERNELS,
    NO_ACCESS,
    PLAN,
    PREPARED,
    STEPS,
    Copy,
    GpuOp,
    acceptance,
    over_host,
    run,
)
from recorded_profiles import crossing

from placement_advisor.analysis.acceptance import (
    AcceptanceCheck,
    Cards,
    CheckOutcome,
    judge_values,
    planned_pairs,
)
from placement_advisor.files.contract import plain
from placement_advisor.machine.devices import Device
from placement_advisor.machine.testbed_plan import HostLink, plan_hosts
from placement_advisor.machine.this_machine import gpu_slots
from placement_advisor.report.machine_texts import render_acceptance
from placement_advisor.results.contracts import load_schema
from placement_advisor.results.machine import Acceptance
from placement_advisor.tf.known_step import outputs

if TYPE_CHECKING:
    from pathlib import Path

    from placement_advisor.analysis.acceptance import DevicePair


def named(pair: DevicePair, outcome: CheckOutcome) -> set[str]:
    return {each.name for each in pair.findings if each.outcome is outcome}


def words(pair: DevicePair, name: str) -> str:
    (found,) = (each.finding for each in pair.findings if each.name == name)
    return found


def published(tmp_path: Path, *pairs: DevicePair) -> Acceptance:
    return Acceptance.of(acceptance(*pairs), tmp_path / "it.zip")


def ops(**changes: dict[str, Any]) -> tuple[GpuOp, ...]:
    """Return the kernels with changes to some, by the last part of their names."""
    return tuple(replace(each, **changes.get(each.op.replace("/", "_"), {})) for each in KERNELS)


def copied(producer: str, **changes: Any) -> tuple[Copy, ...]:
    return tuple(replace(each, **changes) if each.producer == producer else each for each in COPIED)


def test_a_right_profile_is_trusted(tmp_path: Path) -> None:
    pair = run(tmp_path)
    assert named(pair, CheckOutcome.OK) == {each.name for each in pair.findings}
    assert words(pair, "copies") == "there 3 of 3, back 3 of 3"
    assert words(pair, "bytes") == "there 4,457,472 of 4,457,472, back 4,718,592 of 4,718,592"
    assert words(pair, "ops") == "15 of 15 seen in the profile"
    assert "by the op model of Tesla V100-SXM2-16GB (within 2.00)" in words(pair, "op times")
    assert published(tmp_path, pair).trusted


def test_copies_over_the_host_are_right_where_the_driver_gives_no_access(tmp_path: Path) -> None:
    pair = run(tmp_path, copies=over_host(COPIED), cards=NO_ACCESS)
    assert named(pair, CheckOutcome.OFF) == set()
    assert words(pair, "copies") == "there 3 of 3, back 3 of 3"
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
    "a step is missing": ({"steps": STEPS + 1}, {"steps"}),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_profile_that_lies_is_found_out(tmp_path: Path, lie: str) -> None:
    changes, off = LIES[lie]
    pair = run(tmp_path, **changes)
    assert named(pair, CheckOutcome.OFF) == off
    assert not published(tmp_path, pair).trusted


def test_marks_that_leave_out_most_of_a_step_are_found_out(tmp_path: Path) -> None:
    pair = run(tmp_path, step_us=340)
    assert "the profile does not cover the steps" in words(pair, "steps")
    assert {"steps", "ops", "copies"} <= named(pair, CheckOutcome.OFF)


def test_what_tensorflow_moved_or_sends_besides_is_off(tmp_path: Path) -> None:
    more = crossing("near/product_2", "GPU:0", "GPU:1", size_bytes=8)
    prepared = replace(
        PREPARED,
        moved_ops=("far/large_sum: task 0 GPU:1 → task 0 CPU:0", "near_input: a → b"),
        crossings=(*PREPARED.crossings[1:], more),
    )
    pair = run(tmp_path, prepared=prepared)
    assert named(pair, CheckOutcome.OFF) == {"placed"}
    assert words(pair, "placed") == (
        "14 of 15 ops where they were put; 5 of 6 tensors cross; TensorFlow moved "
        "far/large_sum: task 0 GPU:1 → task 0 CPU:0; near/product_2 leaves GPU:0 too; "
        "near/product_3 should leave GPU:0"
    )


def test_an_output_with_one_wrong_element_is_off() -> None:
    total, other = outputs().values()
    wrong = np.array(total)
    wrong[3, 4] += 1
    told = "1 of 2 outputs are what they must be, to the last bit"
    assert judge_values([wrong, other]) == AcceptanceCheck("values", CheckOutcome.OFF, told)


def test_what_nothing_is_known_of_is_unknown(tmp_path: Path) -> None:
    pair = run(tmp_path, cards=Cards("NVIDIA GeForce GT 710"))
    assert named(pair, CheckOutcome.UNKNOWN) == {"op times", "peer access"}
    assert named(pair, CheckOutcome.OFF) == set()


def test_each_two_gpus_have_what_datasheet_and_driver_say() -> None:
    devices = tuple(Device(name=f"GPU:{number}", kind="GPU") for number in range(3))
    pairs = planned_pairs(replace(PLAN, devices=devices), GRAPH, CARDS, {})
    assert [(pair.title, pair.peer_access) for pair in pairs] == [
        ("GPU:0 and GPU:1", "OK"),
        ("GPU:0 and GPU:2", None),
        ("GPU:1 and GPU:2", None),
    ]
    assert all(pair.expected.keys() == {"GPU:0", "GPU:1", "GPU:2"} for pair in pairs)


def test_cores_must_take_what_a_product_takes_without_the_profiler() -> None:
    (pair,) = planned_pairs(PLAN, GRAPH, Cards(), {"GPU:0": 300_000, "GPU:1": 400_000})
    assert [time.time_ns for time in pair.expected.values()] == [300_000, 400_000]


def test_of_gpus_of_hosts_nothing_is_known() -> None:
    hosts = (replace(host, slots=gpu_slots(1)) for host in sample_hosts.TWO_HOSTS.hosts)
    (pair,) = planned_pairs(plan_hosts(tuple(hosts), HostLink.TLS), GRAPH, Cards(), {})
    assert (pair.expected, pair.peer_access) == ({}, None)


def test_the_text_says_that_gpus_are_untried_and_ends_with_trust(tmp_path: Path) -> None:
    text = render_acceptance(published(tmp_path, run(tmp_path)))
    assert "\nuntried on GPUs: " in text
    assert text.endswith(
        f"\nbundle: {tmp_path / 'it.zip'}\ntrust: all that can be known here is as it must be\n"
    )
    assert max(map(len, text.splitlines()[:-3])) <= 100


def test_the_text_ends_with_what_is_off_and_on_which_devices(tmp_path: Path) -> None:
    text = render_acceptance(published(tmp_path, run(tmp_path, copies=COPIED[1:])))
    assert text.splitlines()[-2:] == [
        "off: copies, bytes (GPU:0 and GPU:1)",
        f"do not trust what is measured here; attach {tmp_path / 'it.zip'} to an issue",
    ]


def test_the_json_keeps_its_contract(tmp_path: Path) -> None:
    pair = run(tmp_path)
    failed = replace(pair, findings=(AcceptanceCheck("run", CheckOutcome.OFF, "no"),), files=None)
    content = plain(published(tmp_path, pair, failed))
    jsonschema.Draft202012Validator(load_schema("acceptance")).validate(content)
    assert (content["trusted"], content["untried_on_gpus"]) == (False, True)
    assert [len(each["findings"]) for each in content["pairs"]] == [9, 1]
