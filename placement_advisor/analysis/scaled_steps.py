"""The simulated step of a batch that is split among equal devices, and what limits it.

Equal devices are not quite equal, and all wait for the slowest: the last one is slowed down as the
slowest of so many is expected to be. Of many equal hosts one is simulated.
"""

from __future__ import annotations

from enum import StrEnum
from math import prod
from statistics import NormalDist
from typing import TYPE_CHECKING

from placement_advisor.candidates.batch_split.joint import ALL_GATHER, ALL_REDUCE
from placement_advisor.cost.rings import ALL_DEVICES, collective_costs, with_collectives
from placement_advisor.cost.roofline import roofline_by_place
from placement_advisor.machine.presets import hardware_figures
from placement_advisor.simulator.exposure import SeenCopy, exposed_by_device
from placement_advisor.simulator.simulator import Simulator

if TYPE_CHECKING:
    from collections.abc import Sequence

    from placement_advisor.candidates.batch_split.data_parallel import DataParallel
    from placement_advisor.cost.rings import Ring
    from placement_advisor.cost.table import CostTable
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.machine.devices import Cluster
    from placement_advisor.simulator.schedule import Schedule

# Below this share of a step, what is lost is not worth a word.
_LITTLE = 0.05


class Limit(StrEnum):
    """What a step on several devices loses most of its time to."""

    EXCHANGE = "exchange"
    LAUNCHES = "launches"
    SHARED_WORK = "work that is not shared"
    MEMORY = "memory"


def simulated(
    proposed: DataParallel, cluster: Cluster, rings: Sequence[Ring], *, op_factor: float = 1.0
) -> Schedule:
    """Return the schedule of a step whose batch is split among the devices of a cluster.

    The cluster is one of as many equal ones as ``rings`` say, by level: all do the same at once,
    and differ in what their collectives wait for alone. Ops of devices take ``op_factor`` times as
    long as their figures say.
    """
    split, placement = proposed
    there = with_collectives(cluster)
    costs = roofline_by_place(split.graph, cluster)
    for device in cluster.devices:
        is_last = device == cluster.devices[-1]
        slowest = slowest_of(prod(ring.members for ring in rings)) if is_last else 1.0
        costs[device.name] = costs[device.name].scaled(op_factor * slowest)
    costs[ALL_DEVICES] = _collectives(split.graph, rings)
    simulator = Simulator(split.graph, costs, there, collective_of=split.collective_of)
    return simulator.schedule(placement)


def slowest_of(devices: int) -> float:
    """Return how many times as long as one the slowest of equal devices takes, as expected.

    Their times are taken to be normally distributed.

    Source: Blom, Statistical estimates and transformed beta-variables (1958).
    """
    if devices == 1:
        return 1.0
    quantile = NormalDist().inv_cdf((devices - 0.375) / (devices + 0.25))
    spread: float = hardware_figures()["alike"]["spread"]
    return 1 + spread * quantile


def _collectives(graph: OpGraph, rings: Sequence[Ring]) -> CostTable:
    kinds = {kind: [op for op in graph.ops if op.kind == kind] for kind in (ALL_REDUCE, ALL_GATHER)}
    return collective_costs(kinds[ALL_REDUCE], kinds[ALL_GATHER], rings)


def limit_of(
    proposed: DataParallel, cluster: Cluster, schedule: Schedule, ideal_ns: float, share: float
) -> Limit | None:
    """Return what is lost most to, of a step that does a ``share`` of the work of one device."""
    lost_ns = schedule.step_ns - ideal_ns
    if lost_ns < _LITTLE * schedule.step_ns:
        return None
    devices = cluster.device_names()
    busiest = max(devices, key=lambda device: schedule.compute_ns[device])
    launch_ns = {device.name: device.launch_overhead_ns for device in cluster.devices}
    ops = sum(place == busiest for place in proposed.placement.device_of.values())
    # What does not shrink with the batch: launches of ops that are as many as before.
    launches_ns = ops * launch_ns[busiest] * (1 - share)
    # A collective is a copy to each device.
    collectives = [
        SeenCopy(ALL_DEVICES, device, (), run.start_ns, run.end_ns)
        for run in schedule.runs
        if run.device == ALL_DEVICES
        for device in devices
    ]
    copies = [*schedule.copies, *collectives]
    waiting_ns = max(exposed_by_device(schedule.runs, copies, devices).values())
    others_ns = lost_ns - launches_ns - waiting_ns
    losses = {
        Limit.EXCHANGE: waiting_ns,
        Limit.LAUNCHES: launches_ns,
        Limit.SHARED_WORK: others_ns,
    }
    return max(losses, key=lambda limit: losses[limit])
