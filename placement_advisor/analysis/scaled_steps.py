"""The simulated step of a batch that is split among equal devices, and what limits it.

Equal devices are not quite equal, and all wait for the slowest: the last one is slowed down as the
slowest of so many is expected to be. Of many equal hosts one is simulated.
"""

from __future__ import annotations

from enum import StrEnum
from math import prod
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from placement_advisor.candidates.batch_split.mirrored_graph import ALL_GATHER, ALL_REDUCE
from placement_advisor.cost.rings import (
    ALL_DEVICES,
    between_hosts,
    collective_costs,
    with_collectives,
)
from placement_advisor.cost.roofline import roofline_by_place
from placement_advisor.machine.presets import hardware_figures
from placement_advisor.simulator.arrays import union_ns
from placement_advisor.simulator.simulator import Simulator

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence
    from typing import TypeAlias

    from numpy.typing import NDArray

    from placement_advisor.candidates.batch_split.data_parallel import DataParallel
    from placement_advisor.candidates.batch_split.split_graph import SplitGraph
    from placement_advisor.cost.table import CostTable
    from placement_advisor.graph.op import Op
    from placement_advisor.machine.devices import Cluster
    from placement_advisor.machine.nccl_rings import Ring
    from placement_advisor.simulator.arrays import Repetition, ScheduleArrays

    Ints: TypeAlias = NDArray[np.int64]
    # (copies, launches), in times of what they are taken to cost -> how long the step takes
    StepNsIfWrong: TypeAlias = Callable[[float, float], int]

# Below this share of a step, what is lost is not worth a word.
_LITTLE = 0.05


class Limit(StrEnum):
    """What a step on several devices loses most of its time to."""

    EXCHANGE = "exchange"
    LAUNCHES = "launches"
    SHARED_WORK = "work that is not shared"


def simulated(
    proposed: DataParallel, cluster: Cluster, rings: Sequence[Ring], *, op_factor: float = 1.0
) -> ScheduleArrays:
    """Simulate a step whose batch is split among the devices of a cluster.

    The cluster is one of as many equal ones as ``rings`` say, by level: all do the same at once,
    and differ in what their collectives wait for alone. Ops of devices take ``op_factor`` times as
    long as their figures say.
    """
    simulator = simulator_of(proposed, cluster, rings, op_factor)
    return simulator.outline(simulator.devices_of(proposed.placement))


def simulator_of(
    proposed: DataParallel, cluster: Cluster, rings: Sequence[Ring], op_factor: float
) -> Simulator:
    """Return what simulates a split step; arguments are those of `simulated`."""
    split, placement = proposed
    factor_of = dict.fromkeys(cluster.device_names(), op_factor)
    last, slower = slowest_of_used(set(placement.device_of.values()), cluster, rings)
    factor_of[last] *= slower
    costs = roofline_by_place(split.graph, cluster)
    scaled = {}
    for name, factor in factor_of.items():
        # Devices that are alike share a table.
        alike = id(costs[name]), factor
        if alike not in scaled:
            scaled[alike] = costs[name].scaled(factor)
        costs[name] = scaled[alike]
    costs[ALL_DEVICES] = costs_of_collectives(split.graph.ops, split, rings)
    there = with_collectives(cluster)
    return Simulator(split.graph, costs, there, collective_of=split.collective_of)


def step_ns_if_wrong(
    simulator: Simulator, device: Ints, repetition: Repetition | None = None
) -> StepNsIfWrong:
    """Return what says how long an `outline` takes if copies and launches cost otherwise.

    Both are in times of what they are taken to cost. A collective is a copy.
    """

    def step_ns(copies: float, launches: float) -> int:
        cluster = simulator.cluster.scaled(copies=copies, launches=launches)
        wrong = simulator.on(cluster).scaled_at(ALL_DEVICES, copies)
        return wrong.outlined_step_ns(device, repetition)

    return step_ns


def slowest_of_used(
    places: Collection[str], cluster: Cluster, rings: Sequence[Ring]
) -> tuple[str, float]:
    """Return the last device that computes, and how many times as long as usual it takes.

    It is the slowest of all that do, of as many clusters as ``rings`` say; ``places`` are those
    that do, hosts among them.
    """
    used = [name for name in cluster.device_names() if name in places]
    devices = prod(ring.members for ring in rings)
    return used[-1], slowest_of(devices * len(used) // len(cluster.devices))


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


def costs_of_collectives(ops: Iterable[Op], split: SplitGraph, rings: Sequence[Ring]) -> CostTable:
    """Return what those among the ops of a split step take that are its collectives."""
    kinds: dict[str, list[Op]] = {ALL_REDUCE: [], ALL_GATHER: []}
    for op in ops:
        if op.kind in kinds:
            kinds[op.kind].append(op)
    taking_part = between_hosts(rings) if split.is_of_hosts else rings
    return collective_costs(kinds[ALL_REDUCE], kinds[ALL_GATHER], taking_part)


def limit_of(step: ScheduleArrays, cluster: Cluster, ideal_ns: float, share: float) -> Limit | None:
    """Return what is lost most to, of a step that does a ``share`` of the work of one device."""
    lost_ns = step.step_ns - ideal_ns
    if lost_ns < _LITTLE * step.step_ns:
        return None
    devices = range(len(cluster.devices))
    run_ns = [step.run_ns[step.place == device] for device in devices]
    busiest = max(devices, key=lambda device: np.diff(run_ns[device]).sum())
    # What does not shrink with the batch: launches of ops that are as many as before.
    launch_ns = cluster.devices[busiest].launch_overhead_ns
    launches_ns = len(run_ns[busiest]) * launch_ns * (1 - share)
    # A collective is a copy to each device.
    places = {name: number for number, name in enumerate(step.places)}
    collectives_ns = step.run_ns[step.place == places.get(ALL_DEVICES, len(places))]
    waiting_ns = 0
    for device in devices:
        copied_ns = np.concatenate([step.copy_ns[step.target == device], collectives_ns])
        covered_ns = union_ns(np.concatenate([copied_ns, run_ns[device]]))
        waiting_ns = max(waiting_ns, covered_ns - union_ns(run_ns[device]))
    others_ns = lost_ns - launches_ns - waiting_ns
    losses = {
        Limit.EXCHANGE: waiting_ns,
        Limit.LAUNCHES: launches_ns,
        Limit.SHARED_WORK: others_ns,
    }
    return max(losses, key=lambda limit: losses[limit])
