"""What is known beforehand of each two devices."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import sample_hosts
from gpu_runs import CARDS, GRAPH, run

from placement_advisor.analysis.acceptance.accept import planned_pairs
from placement_advisor.analysis.acceptance.finding import Outcome
from placement_advisor.analysis.acceptance.judge import findings_of
from placement_advisor.machine.devices import Device
from placement_advisor.machine.slots import gpu_slots
from placement_advisor.machine.testbed_plan import HostLink, plan_hosts, plan_testbed

if TYPE_CHECKING:
    from pathlib import Path

GPUS_OF_HOSTS = plan_hosts(
    tuple(replace(host, slots=gpu_slots(1)) for host in sample_hosts.TWO_HOSTS.hosts),
    HostLink.TLS,
)


def test_cores_must_take_what_a_product_takes_without_the_profiler() -> None:
    plan = plan_testbed(None, 2)
    (pair,) = planned_pairs(plan, GRAPH, None, {"worker:0": 300_000, "worker:1": 400_000})
    assert [(each.device, each.time_ns) for each in pair.expected] == [
        ("worker:0", 300_000),
        ("worker:1", 400_000),
    ]
    assert pair.gpus is None


def test_gpus_of_one_process_have_what_datasheet_and_driver_say() -> None:
    plan = replace(
        plan_testbed(None, 2),
        devices=tuple(Device(name=f"GPU:{i}", kind="GPU") for i in range(3)),
    )
    first, *others = planned_pairs(plan, GRAPH, CARDS, {})
    assert [each.device for each in first.expected] == ["GPU:0", "GPU:1"]
    assert first.gpus is not None
    assert first.gpus.topology is not None
    assert [pair.title for pair in others] == ["GPU:0 and GPU:2", "GPU:1 and GPU:2"]
    assert all(pair.gpus is not None and pair.gpus.topology is None for pair in others)


def test_of_gpus_of_hosts_nothing_is_known_and_they_are_not_said_to_be_none(
    tmp_path: Path,
) -> None:
    assert GPUS_OF_HOSTS.on_gpus
    (pair,) = planned_pairs(GPUS_OF_HOSTS, GRAPH, None, {})
    seen = replace(run(tmp_path), expected=pair.expected, gpus=pair.gpus)
    unknown = {
        each.name: each.finding for each in findings_of(seen) if each.outcome is Outcome.UNKNOWN
    }
    assert unknown == {
        "op times": "no table says what they must be here",
        "peer access": "no two GPUs of one process here",
        "topology": "no two GPUs of one process here",
    }
