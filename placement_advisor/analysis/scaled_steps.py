"""Simulated steps of equal devices at many sizes: their time, their memory, and what limits them.

With one replica for all but the first (`SplitTraces.folded`), a family's graph is the same on two
devices and on a thousand, at any share of the batch; sizes and costs come from the traces. In the
simulation every device of a host has its own ops (`Repetition`), so nothing is approximated: the
step equals that of a graph with all ops to the nanosecond. Where replicas have different shares,
the graph has all of them.

Memory: a bound is cheap, with a buffer for each tensor as long as an op needs it. A peak is
replayed device by device, as in `simulator.memory`. At another batch the step is replayed in the
same order with tensor sizes that follow from those at two batches: on a line, or, where they grow
faster than the batch, with a part that grows with it and a part that grows with its square.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace
from enum import StrEnum
from functools import cached_property
from math import prod
from statistics import NormalDist
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from placement_advisor.candidates.batch_split.data_parallel import ONE_BY_ONE, DataParallelSteps
from placement_advisor.candidates.batch_split.mirrored_graph import ALL_GATHER, ALL_REDUCE
from placement_advisor.candidates.batch_split.split_graph import SPREAD, SplitGraph, SplitTraces
from placement_advisor.candidates.by_layer import NotApplicable
from placement_advisor.cost import collectives
from placement_advisor.cost.batch import fit_batch_memory
from placement_advisor.cost.roofline import roofline_by_place
from placement_advisor.cost.table import CostTable
from placement_advisor.graph.op import Op, Role
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.machine.gpu_facts import gpu_facts
from placement_advisor.machine.presets import hardware_figures
from placement_advisor.simulator.arrays import UNKNOWN, Repetition, most_at_once, union_ns
from placement_advisor.simulator.memory import Constants, DeviceFlow
from placement_advisor.simulator.simulator import Simulator

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from placement_advisor.candidates.batch_split.data_parallel import DataParallel
    from placement_advisor.graph.placement import Placement
    from placement_advisor.machine.devices import Cluster, Device
    from placement_advisor.machine.hierarchy import Ring
    from placement_advisor.simulator.arrays import ScheduleArrays

    Ints: TypeAlias = NDArray[np.int64]
    StepNsIfWrong: TypeAlias = Callable[[float, float], int]


# Below this share of a step, what is lost is not worth a word.
_NEGLIGIBLE_LOSS = 0.05


class Limit(StrEnum):
    """What a step on several devices loses most of its time to."""

    EXCHANGE = "exchange"
    LAUNCHES = "launches"
    SHARED_WORK = "work that is not shared"


def step_ns_if_wrong(
    simulator: Simulator, device: Ints, repetition: Repetition | None = None
) -> StepNsIfWrong:
    """Return what says how long an `outline` takes if copies and launches cost otherwise.

    Both are in times of what they are taken to cost. A collective is a copy.
    """

    def step_ns(copies: float, launches: float) -> int:
        cluster = simulator.cluster.scaled(copies=copies, launches=launches)
        wrong = simulator.on(cluster).scaled_at(collectives.ALL_DEVICES, copies)
        return wrong.outlined_step_ns(device, repetition)

    return step_ns


def slowest_of_used(
    places: Collection[str], cluster: Cluster, rings: Sequence[Ring]
) -> tuple[str, float]:
    """Return the last device that computes, and how many times as long as usual it takes.

    It is the slowest of all that do, of as many clusters as ``rings`` say; ``places`` are those
    that do, hosts among them.
    """
    used = [device for device in cluster.devices if device.name in places]
    devices = prod(ring.members for ring in rings) * len(used) // len(cluster.devices)
    return used[-1].name, slowest_of(devices, used[-1])


def slowest_of(devices: int, like: Device) -> float:
    """Return how many times as long as one the slowest of devices takes that are equal to one.

    Their times are taken to be normally distributed. How far the clock of a GPU may be above its
    base says how much they differ.

    Source: Blom, Statistical estimates and transformed beta-variables (1958).
    """
    if devices == 1:
        return 1.0
    quantile = NormalDist().inv_cdf((devices - 0.375) / (devices + 0.25))
    figures = hardware_figures()["alike"]
    spread: float = figures["spread"]
    if like.gpu is not None:
        clocks = min(gpu_facts(like.gpu).clock_range, figures["widest_clock_range"])
        spread = figures["spread_of_clock_range"] * clocks
    return 1 + spread * quantile


def costs_of_collectives(ops: Iterable[Op], split: SplitGraph, rings: Sequence[Ring]) -> CostTable:
    """Return what those among the ops of a split step take that are its collectives."""
    kinds: dict[str, list[Op]] = {ALL_REDUCE: [], ALL_GATHER: []}
    for op in ops:
        if op.kind in kinds:
            kinds[op.kind].append(op)
    taking_part = collectives.between_hosts(rings) if split.is_of_hosts else rings
    return collectives.collective_costs(kinds[ALL_REDUCE], kinds[ALL_GATHER], taking_part)


def limit_of(step: ScheduleArrays, cluster: Cluster, ideal_ns: float, share: float) -> Limit | None:
    """Return what is lost most to, of a step that does a ``share`` of the work of one device."""
    lost_ns = step.step_ns - ideal_ns
    if lost_ns < _NEGLIGIBLE_LOSS * step.step_ns:
        return None
    devices = range(len(cluster.devices))
    run_ns = [step.run_ns[step.place == device] for device in devices]
    busiest = max(devices, key=lambda device: np.diff(run_ns[device]).sum())
    # What does not shrink with the batch: launches of ops that are as many as before.
    launch_ns = cluster.devices[busiest].launch_overhead_ns
    launches_ns = len(run_ns[busiest]) * launch_ns * (1 - share)
    # A collective is a copy to each device.
    places = {name: number for number, name in enumerate(step.places)}
    collectives_ns = step.run_ns[step.place == places.get(collectives.ALL_DEVICES, len(places))]
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


# Peaks are greatest of several lines, so one through two of them is not followed far beyond.
_MAX_EXTRAPOLATION = 1.5


class BusiestDevice(NamedTuple):
    """The most that a device of a step holds, and the most samples for each device that fit.

    ``largest_batch`` is None where memory is not known, or is not what limits the batch.
    """

    peak_bytes: int
    largest_batch: int | None


class SizedOps(NamedTuple):
    """The ops of a step, by number, with so many samples on each device."""

    batch: int
    ops: Sequence[Op]


def bytes_of_ops(graph: OpGraph) -> dict[str, tuple[int, int]]:
    """Return the bytes that each op holds for a whole step at most, and those that it makes.

    Constants are not counted.
    """
    found = {}
    for op in graph.ops:
        if op.role is Role.CONSTANT:
            continue
        stays, makes = op.parameter_bytes, sum(size or 0 for size in op.output_bytes)
        # Variables stay, and so does the batch; an update may take a new buffer for its variable.
        if op.role is Role.UPDATE and op.variable is not None and op.variable in graph:
            stays += graph.op(op.variable).parameter_bytes
        if op.role is Role.INPUT:
            stays, makes = stays + makes, 0
        found[op.name] = stays, makes
    return found


class StepMemory:
    """The memory of the devices of a step."""

    def __init__(
        self,
        step: ScheduleArrays,
        ops: SizedOps,
        op_bytes: Sequence[tuple[int, int]],
        constants: Constants,
        devices: Sequence[Device],
    ) -> None:
        """Take the ops of the graph that was simulated, as `DeviceFlow` does.

        ``op_bytes`` has what each holds at most (`bytes_of_ops`).
        """
        self._step, self._ops, self._constants, self._devices = step, ops, constants, devices
        self._stays, self._makes = np.array(op_bytes, np.int64).reshape(-1, 2).T

    def fits(self) -> bool:
        """Return whether each device has the memory for what it holds; if unknown, it has."""
        return all(
            device.memory_bytes is None or self._holds_at_most(number, device.memory_bytes)
            for number, device in enumerate(self._devices)
        )

    def busiest(self, other: SizedOps) -> BusiestDevice:
        """Return what the device holds that holds most, as far as bounds tell.

        ``other`` are the same ops with other samples.
        """
        bounds: dict[tuple[int, int], tuple[int, int]] = {}
        for number in range(len(self._devices)):
            # Of devices that do the same, one will do.
            load = self._stays_bytes(number), self._made_bytes(number)
            if load not in bounds:
                bounds[load] = self._bound_bytes(number), number
        _, most = max(bounds.values(), key=lambda each: (each[0], -each[1]))
        flow = self._flow(most)
        peak_bytes = flow.peak().size_bytes
        memory_bytes = self._devices[most].memory_bytes
        if memory_bytes is None:
            return BusiestDevice(peak_bytes, None)

        def held_bytes(batch: int) -> int:
            return flow.resized(_ops_at_batch(batch, self._ops, other)).peak().size_bytes

        return BusiestDevice(
            peak_bytes, _largest_batch(self._ops.batch, peak_bytes, memory_bytes, held_bytes)
        )

    def _holds_at_most(self, number: int, memory_bytes: int) -> bool:
        return (
            self._bound_bytes(number) <= memory_bytes
            or self._flow(number).peak().size_bytes <= memory_bytes
        )

    def _flow(self, number: int) -> DeviceFlow:
        return DeviceFlow(self._step, number, self._ops.ops, self._constants)

    def _stays_bytes(self, number: int) -> int:
        runs = self._step.op[self._step.place == number]
        return self._constants.size_bytes + int(self._stays[runs].sum())

    def _made_bytes(self, number: int) -> int:
        return int(sum(sizes.sum() for sizes, _ in self._held(number)))

    def _bound_bytes(self, number: int) -> int:
        """Return what a device holds if each tensor has a buffer of its own while it is wanted."""
        sizes, spans_ns = zip(*self._held(number), strict=True)
        most = most_at_once(np.concatenate(spans_ns), np.concatenate(sizes))
        return self._stays_bytes(number) + most

    def _held(self, number: int) -> Iterator[tuple[Ints, Ints]]:
        """Yield sizes of what a device holds, and from when to when."""
        step, held = self._step, self._step.held
        runs, tensors = step.place == number, held.place == number
        # While an op runs it has all that it makes, also what nobody reads.
        yield self._makes[step.op[runs]], step.run_ns[runs]
        yield held.size_bytes[tensors], held.span_ns[tensors]


def _largest_batch(
    batch: int, peak_bytes: int, memory_bytes: int, held_bytes: Callable[[int], int]
) -> int | None:
    peaks = {batch: peak_bytes}
    # What fits if all grew with the batch. What does not grow leaves room for more.
    further = max(1, memory_bytes * batch // max(1, peak_bytes))
    while True:
        if further not in peaks:
            peaks[further] = held_bytes(further)
        if further > batch and peaks[further] > memory_bytes:
            # It grows faster than the batch, so no line says where it is full.
            sizes = range(batch, further)
            return sizes[bisect_right(sizes, memory_bytes, key=held_bytes) - 1]
        largest = fit_batch_memory(peaks).largest_batch(memory_bytes)
        if largest is None or largest <= _MAX_EXTRAPOLATION * further:
            return largest
        further = largest


def _ops_at_batch(batch: int, ops: SizedOps, other: SizedOps) -> list[Op]:
    """Return ops at another batch, with sizes that follow from those at two batches."""
    share = (batch - ops.batch) / (other.batch - ops.batch)

    def size(one: int | None, another: int | None) -> int | None:
        if one is None or another is None:
            return None
        each, of_other = one / ops.batch, another / other.batch
        # What grows faster than the batch has more for each sample.
        if (of_other - each) * (other.batch - ops.batch) > 0:
            return round((each + (of_other - each) * share) * batch)
        return max(0, round(one + (another - one) * share))

    return [
        one
        if one.output_bytes == another.output_bytes
        else one._replace(output_bytes=tuple(map(size, one.output_bytes, another.output_bytes)))
        for one, another in zip(ops.ops, other.ops, strict=True)
    ]


# Where the ops of a split step come from, among the pools of `FoldedSteps`: what no trace has
# stands last, the traces of shares between.
_WHOLE, _FIRST_SHARE, _ADDED = 0, 1, -1


class _OpsWithCosts(NamedTuple):
    """Ops with the number of each by its name, what each takes on each place, what each holds."""

    ops: Sequence[Op]
    number_of: Mapping[str, int]
    cost_ns: Mapping[str, Ints]
    op_bytes: Mapping[str, tuple[int, int]]


class FoldedSteps:
    """The steps of a model on the devices of a host, and of many such hosts."""

    def __init__(self, host: Cluster) -> None:
        """Take the host with all of its devices."""
        self._host = host
        self._steps: dict[tuple[object, ...], DataParallelSteps] = {}
        self._structures: dict[tuple[object, ...], _FoldedGraph | NotApplicable] = {}
        self._priced: dict[int, tuple[OpGraph, _OpsWithCosts]] = {}

    def simulated(
        self, family: str, traces: SplitTraces, cluster: Cluster, rings: Sequence[Ring]
    ) -> FoldedStep | NotApplicable:
        """Simulate a family's step on the first devices of the host, with ``traces`` folded.

        ``rings`` say of how many hosts that is one, by level.
        """

        def propose(steps: DataParallelSteps) -> DataParallel | NotApplicable:
            proposed = steps.propose_on_hosts if len(rings) > 1 else steps.propose
            return proposed(family, cluster.devices, collectives.ALL_DEVICES)

        # Where variables are spread alone, further devices have more than a replica like the last.
        key = family, len(cluster.devices) if family == SPREAD else None
        return self._simulated(key, family, propose, traces, cluster, rings)

    def laid_out(
        self, within: Placement, traces: SplitTraces, cluster: Cluster, rings: Sequence[Ring]
    ) -> FoldedStep:
        """Simulate the step of one replica, which ``within`` lays out on the devices of the host.

        ``rings`` say of how many hosts with a replica each that is one, by level.
        """
        host = {name: name for name in cluster.place_names()}
        found = self._simulated(
            (within.family, len(cluster.devices)),
            ONE_BY_ONE,
            lambda steps: steps.laid_out(within, [host], collectives.ALL_DEVICES),
            traces,
            cluster,
            rings,
        )
        assert not isinstance(found, NotApplicable)
        return found

    def _simulated(
        self,
        key: tuple[str, int | None],
        family: str,
        propose: Callable[[DataParallelSteps], DataParallel | NotApplicable],
        traces: SplitTraces,
        cluster: Cluster,
        rings: Sequence[Ring],
    ) -> FoldedStep | NotApplicable:
        """Simulate what is proposed; graphs are kept by ``key`` and by the shares of replicas."""
        on_hosts, sizes, wiring = len(rings) > 1, sorted(traces.shares), traces.wiring
        share_of = tuple(sizes.index(wiring.shares[replica]) for replica in wiring.made)
        alike = bool(wiring.plan.merged), len(sizes), share_of
        steps = self._steps.setdefault(alike, DataParallelSteps(traces))
        if (alike, on_hosts, key) not in self._structures:
            answer = propose(steps)
            self._structures[alike, on_hosts, key] = (
                answer
                if isinstance(answer, NotApplicable)
                else _FoldedGraph(answer, self._host, steps, family, on_hosts, share_of)
            )
        structure = self._structures[alike, on_hosts, key]
        if isinstance(structure, NotApplicable):
            return structure

        def sized(other: SplitTraces) -> SizedOps:
            return structure.sized(self._pools(structure, other), other)

        pools = self._pools(structure, traces)
        return structure.step(pools, sized, traces, cluster, rings)

    def _pools(self, structure: _FoldedGraph, traces: SplitTraces) -> Sequence[_OpsWithCosts]:
        shares = (self._of_trace(share) for _, share in sorted(traces.shares.items()))
        added = OpGraph(structure.added(traces).values(), [])
        return self._of_trace(traces.whole), *shares, self._price(added)

    def _of_trace(self, graph: OpGraph) -> _OpsWithCosts:
        # Graphs are kept, so that no other one gets its identity.
        if id(graph) not in self._priced:
            self._priced[id(graph)] = graph, self._price(graph)
        return self._priced[id(graph)][1]

    def _price(self, graph: OpGraph) -> _OpsWithCosts:
        number_of = {op.name: number for number, op in enumerate(graph.ops)}
        tables = roofline_by_place(graph, self._host)
        of_table: dict[int, Ints] = {}
        for table in tables.values():
            if id(table) not in of_table:
                costs = map(table.costs.get, number_of)
                costs_ns = [UNKNOWN if cost is None else cost.time_ns for cost in costs]
                of_table[id(table)] = np.array(costs_ns, np.int64)
        cost_ns = {place: of_table[id(table)] for place, table in tables.items()}
        return _OpsWithCosts(graph.ops, number_of, cost_ns, bytes_of_ops(graph))


class _FoldedGraph:
    """A family's folded step on the first devices of a host, without sizes and costs."""

    def __init__(
        self,
        proposed: DataParallel,
        host: Cluster,
        steps: DataParallelSteps,
        family: str,
        on_hosts: bool,
        share_of: Sequence[int],
    ) -> None:
        self._split, placement = proposed
        self._steps, self._family, self._on_hosts = steps, family, on_hosts
        self._constants = Constants(self._split.graph)
        self._host = host
        self._places = frozenset(placement.device_of.values())
        there = collectives.with_collectives(host)
        unpriced = CostTable(costs={}).everywhere(there)
        graph, together = self._split.graph, self._split.collective_of
        self._simulator = Simulator(graph, unpriced, there, collective_of=together)
        self._device = self._simulator.devices_of(placement)
        source = self._split.source
        self._origin = [
            (_WHOLE if replica is None else _FIRST_SHARE + share_of[replica], name)
            if op.name in source
            else (_ADDED, op.name)
            for op in self._simulator.ops
            for replica, name in [source.get(op.name, (None, ""))]
        ]

    def added(self, traces: SplitTraces) -> Mapping[str, Op]:
        """Return the ops that are of no trace."""
        return self._steps.added(self._family, traces, on_hosts=self._on_hosts)

    def step(
        self,
        pools: Sequence[_OpsWithCosts],
        sized: Callable[[SplitTraces], SizedOps],
        traces: SplitTraces,
        cluster: Cluster,
        rings: Sequence[Ring],
    ) -> FoldedStep:
        ops = self.sized(pools, traces)
        like_last = traces.wiring.like_last
        cost_ns = self._cost_ns(pools, like_last, cluster, rings)
        repetition = replace(self._repetition, times=like_last) if like_last > 1 else None
        simulator = self._simulator.resized(ops.ops, cost_ns)
        outline = simulator.outline(self._device, repetition)
        held = StepMemory(
            outline,
            ops,
            [pools[pool].op_bytes[name] for pool, name in self._origin],
            self._constants,
            cluster.devices,
        )
        if_wrong = step_ns_if_wrong(simulator, self._device, repetition)
        return FoldedStep(outline, held, if_wrong, sized)

    def sized(self, pools: Sequence[_OpsWithCosts], traces: SplitTraces) -> SizedOps:
        ops = [op for pool in pools for op in pool.ops]
        found = [ops[number] for number in self._number(pools).tolist()]
        return SizedOps(traces.wiring.shares[0], found)

    def _number(self, pools: Sequence[_OpsWithCosts]) -> Ints:
        """Return the number that each op has where those of all pools stand one after the other."""
        first = np.cumsum([0, *(len(pool.ops) for pool in pools[:-1])]).tolist()
        numbers = [first[pool] + pools[pool].number_of[name] for pool, name in self._origin]
        return np.array(numbers, np.int64)

    def _cost_ns(
        self,
        pools: Sequence[_OpsWithCosts],
        like_last: int,
        cluster: Cluster,
        rings: Sequence[Ring],
    ) -> dict[str, Ints]:
        number = self._number(pools)
        found: dict[str, Ints] = {
            place: np.concatenate([pool.cost_ns[place] for pool in pools])[number]
            for place in self._host.place_names()
        }
        # The last replica stands for those of all further devices.
        places = self._places if like_last == 1 else cluster.device_names()
        last, slowest = slowest_of_used(places, cluster, rings)
        slower = np.rint(found[last] * slowest).astype(np.int64)
        found[last] = np.where(found[last] == UNKNOWN, UNKNOWN, slower)
        costs = costs_of_collectives(pools[_ADDED].ops, self._split, rings).costs
        found[collectives.ALL_DEVICES] = np.full(len(self._origin), UNKNOWN, np.int64)
        for i, name in self._of_no_trace:
            if name in costs:
                found[collectives.ALL_DEVICES][i] = costs[name].time_ns
        return found

    @cached_property
    def _of_no_trace(self) -> list[tuple[int, str]]:
        return [(i, name) for i, (pool, name) in enumerate(self._origin) if pool == _ADDED]

    @cached_property
    def _repetition(self) -> Repetition:
        split, last, ops = self._split, self._split.last, self._simulator.ops
        return Repetition(
            times=split.like_last,
            ops=np.array([split.replica_of[op.name] == last for op in ops], bool),
            on_next=np.array([split.place_replica(op) == last for op in ops], bool),
            dealt=np.array([op.name in split.dealt for op in ops], bool),
        )


class FoldedStep(NamedTuple):
    """A simulated step, what its devices hold, and its ops as other traces have them, by number.

    ``if_wrong`` says how long the step takes if costs are wrong.
    """

    outline: ScheduleArrays
    memory: StepMemory
    if_wrong: StepNsIfWrong
    sized: Callable[[SplitTraces], SizedOps]
