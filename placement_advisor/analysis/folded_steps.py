"""Steps of equal devices at many sizes: put together once, simulated at any share of the batch.

With one replica for all but the first (`SplitTraces.folded`), a family's graph is the same on two
devices and on a thousand, at any share: sizes and costs differ, which come from the traces. In the
simulation each device of a host has ops of its own (`Repetition`), so nothing is approximated: the
step is to the nanosecond that of `simulated`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from placement_advisor.analysis.scaled_steps import (
    costs_of_collectives,
    slowest_of_used,
    step_ns_if_wrong,
)
from placement_advisor.analysis.step_memory import SizedOps, StepMemory, bytes_of_ops
from placement_advisor.candidates.batch_split.data_parallel import ONE_BY_ONE, DataParallelSteps
from placement_advisor.candidates.batch_split.split_graph import SPREAD
from placement_advisor.candidates.by_layer import NotApplicable
from placement_advisor.cost.rings import ALL_DEVICES, with_collectives
from placement_advisor.cost.roofline import roofline_by_place
from placement_advisor.cost.table import CostTable
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.simulator.arrays import UNKNOWN, Repetition
from placement_advisor.simulator.memory import Constants
from placement_advisor.simulator.simulator import Simulator

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from placement_advisor.analysis.scaled_steps import StepNsIfWrong
    from placement_advisor.analysis.step_memory import OpBytes
    from placement_advisor.candidates.batch_split.data_parallel import DataParallel
    from placement_advisor.candidates.batch_split.split_graph import SplitTraces
    from placement_advisor.graph.op import Op
    from placement_advisor.graph.placement import Placement
    from placement_advisor.machine.devices import Cluster
    from placement_advisor.machine.nccl_rings import Ring
    from placement_advisor.simulator.arrays import ScheduleArrays

    Ints = NDArray[np.int64]

# Where the ops of a split step come from.
_WHOLE, _SHARE, _ADDED = range(3)


class _PricedOps(NamedTuple):
    """Ops with the number of each by its name, what each takes on each place, what each holds.

    Ops of the same names in the same order share one ``number_of``.
    """

    ops: Sequence[Op]
    number_of: Mapping[str, int]
    cost_ns: Mapping[str, Ints]
    op_bytes: Mapping[str, OpBytes]
    most_bytes: int


class _Adds(NamedTuple):
    """What puts ops into a split step that are of no trace; families that do the same share it."""

    family: str
    on_hosts: bool


class FoldedSteps:
    """The steps of a model on the devices of a host, and of many such hosts."""

    def __init__(self, host: Cluster) -> None:
        """Take the host with all of its devices."""
        self._host = host
        self._steps: dict[int, DataParallelSteps] = {}
        self._of_hosts: dict[bool, DataParallelSteps] = {}
        self._structures: dict[tuple[str, bool, int, int | None], _Structure | NotApplicable] = {}
        self._priced: dict[int, tuple[OpGraph, _PricedOps]] = {}
        self._numbers: dict[tuple[str, ...], Mapping[str, int]] = {}
        self._added: dict[tuple[_Adds, int], tuple[SplitTraces, _PricedOps]] = {}

    def simulated(
        self, family: str, traces: SplitTraces, cluster: Cluster, rings: Sequence[Ring]
    ) -> FoldedStep | NotApplicable:
        """Simulate a family's step on the first devices of the host, with ``traces`` folded.

        ``rings`` say of how many hosts that is one, by level.
        """
        on_hosts, replicas = len(rings) > 1, len(traces.wiring.made)
        steps = self._steps.setdefault(replicas, DataParallelSteps(traces))
        # Where variables are spread alone, further devices have more than a replica like the last.
        key = family, on_hosts, replicas, len(cluster.devices) if family == SPREAD else None
        if key not in self._structures:
            propose = steps.propose_on_hosts if on_hosts else steps.propose
            answer = propose(family, cluster.devices, ALL_DEVICES)
            self._structures[key] = (
                answer
                if isinstance(answer, NotApplicable)
                else _Structure(answer, self._host, steps, _Adds(steps.merges_as(family), on_hosts))
            )
        structure = self._structures[key]
        if isinstance(structure, NotApplicable):
            return structure
        return self._step(structure, traces, cluster, rings)

    def laid_out(
        self, within: Placement, traces: SplitTraces, cluster: Cluster, rings: Sequence[Ring]
    ) -> FoldedStep:
        """Simulate the step of one replica, which ``within`` lays out on the devices of the host.

        ``rings`` say of how many hosts with a replica each that is one, by level.
        """
        on_hosts = len(rings) > 1
        steps = self._of_hosts.setdefault(on_hosts, DataParallelSteps(traces))
        key = within.family, on_hosts, 1, len(cluster.devices)
        if key not in self._structures:
            host = {name: name for name in cluster.place_names()}
            answer = steps.laid_out(within, [host], ALL_DEVICES)
            adds = _Adds(ONE_BY_ONE, on_hosts)
            self._structures[key] = _Structure(answer, self._host, steps, adds)
        structure = self._structures[key]
        assert not isinstance(structure, NotApplicable)
        return self._step(structure, traces, cluster, rings)

    def _step(
        self, structure: _Structure, traces: SplitTraces, cluster: Cluster, rings: Sequence[Ring]
    ) -> FoldedStep:
        def sized(other: SplitTraces) -> SizedOps:
            return structure.sized(self._pools(structure, other), other)

        pools = self._pools(structure, traces)
        return structure.step(pools, traces, cluster, rings)._replace(sized=sized)

    def _pools(self, structure: _Structure, traces: SplitTraces) -> Sequence[_PricedOps]:
        share = traces.replicas[0]
        return (
            self._of_trace(traces.whole),
            self._of_trace(share),
            self._added_to(structure, traces),
        )

    def _added_to(self, structure: _Structure, traces: SplitTraces) -> _PricedOps:
        key = structure.adds, id(traces)
        if key not in self._added:
            ops = structure.added(traces).values()
            self._added[key] = traces, self._price(OpGraph(ops, []))
        return self._added[key][1]

    def _of_trace(self, graph: OpGraph) -> _PricedOps:
        # Graphs are kept, and traces, so that no other one gets its identity.
        if id(graph) not in self._priced:
            self._priced[id(graph)] = graph, self._price(graph)
        return self._priced[id(graph)][1]

    def _price(self, graph: OpGraph) -> _PricedOps:
        names = tuple(op.name for op in graph.ops)
        if names not in self._numbers:
            self._numbers[names] = {name: number for number, name in enumerate(names)}
        tables = roofline_by_place(graph, self._host)
        of_table: dict[int, Ints] = {}
        for table in tables.values():
            if id(table) not in of_table:
                costs = map(table.costs.get, names)
                costs_ns = [UNKNOWN if cost is None else cost.time_ns for cost in costs]
                of_table[id(table)] = np.array(costs_ns, np.int64)
        cost_ns = {place: of_table[id(table)] for place, table in tables.items()}
        op_bytes = bytes_of_ops(graph)
        most_bytes = sum(map(sum, op_bytes.values()))
        return _PricedOps(graph.ops, self._numbers[names], cost_ns, op_bytes, most_bytes)


class _Structure:
    """A family's folded step on the first devices of a host, without sizes and costs."""

    def __init__(
        self, proposed: DataParallel, host: Cluster, steps: DataParallelSteps, adds: _Adds
    ) -> None:
        self._split, placement = proposed
        self._steps, self.adds = steps, adds
        self._constants = Constants(self._split.graph)
        self._host = host
        self._places = frozenset(placement.device_of.values())
        there = with_collectives(host)
        unpriced = CostTable(costs={}).everywhere(there)
        graph, together = self._split.graph, self._split.collective_of
        self._simulator = Simulator(graph, unpriced, there, collective_of=together)
        self._device = self._simulator.devices_of(placement)
        source = self._split.source
        self._origin = [
            (_ADDED, op.name)
            if op.name not in source
            else (_WHOLE if source[op.name][0] is None else _SHARE, source[op.name][1])
            for op in self._simulator.ops
        ]
        self._numbers: dict[tuple[int, ...], Ints] = {}

    def added(self, traces: SplitTraces) -> Mapping[str, Op]:
        """Return the ops that are of no trace."""
        return self._steps.added(self.adds.family, traces, on_hosts=self.adds.on_hosts)

    def step(
        self,
        pools: Sequence[_PricedOps],
        traces: SplitTraces,
        cluster: Cluster,
        rings: Sequence[Ring],
    ) -> FoldedStep:
        sized = self.sized(pools, traces)
        like_last = traces.wiring.like_last
        cost_ns = self._cost_ns(pools, like_last, cluster, rings)
        repetition = replace(self._repetition, times=like_last) if like_last > 1 else None
        simulator = self._simulator.resized(sized.ops, cost_ns)
        outline = simulator.outline(self._device, repetition)
        held = StepMemory(
            outline,
            sized,
            lambda: [pools[pool].op_bytes[name] for pool, name in self._origin],
            sum(pool.most_bytes for pool in pools),
            self._constants,
            cluster.devices,
        )
        return FoldedStep(outline, held, step_ns_if_wrong(simulator, self._device, repetition))

    def sized(self, pools: Sequence[_PricedOps], traces: SplitTraces) -> SizedOps:
        ops = [op for pool in pools for op in pool.ops]
        found = [ops[number] for number in self._number(pools).tolist()]
        return SizedOps(traces.wiring.shares[0], found)

    def _number(self, pools: Sequence[_PricedOps]) -> Ints:
        """Return the number that each op has where those of all pools stand one after the other."""
        alike = tuple(id(pool.number_of) for pool in pools)
        if alike not in self._numbers:
            first = np.cumsum([0, *(len(pool.ops) for pool in pools)]).tolist()
            self._numbers[alike] = np.array(
                [first[pool] + pools[pool].number_of[name] for pool, name in self._origin], np.int64
            )
        return self._numbers[alike]

    def _cost_ns(
        self, pools: Sequence[_PricedOps], like_last: int, cluster: Cluster, rings: Sequence[Ring]
    ) -> dict[str, Ints]:
        number = self._number(pools)
        rows: dict[int, Ints] = {}
        found = {}
        for place in self._host.place_names():
            costs_ns = [pool.cost_ns[place] for pool in pools]
            if id(costs_ns[0]) not in rows:
                rows[id(costs_ns[0])] = np.concatenate(costs_ns)[number]
            found[place] = rows[id(costs_ns[0])]
        # The last replica stands for those of all further devices.
        places = self._places if like_last == 1 else cluster.device_names()
        last, slowest = slowest_of_used(places, cluster, rings)
        slower = np.rint(found[last] * slowest).astype(np.int64)
        found[last] = np.where(found[last] == UNKNOWN, UNKNOWN, slower)
        costs = costs_of_collectives(pools[_ADDED].ops, self._split, rings).costs
        found[ALL_DEVICES] = np.full(len(self._origin), UNKNOWN, np.int64)
        for i, name in self._of_no_trace:
            if name in costs:
                found[ALL_DEVICES][i] = costs[name].time_ns
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

    There are no others where shares differ. ``if_wrong`` says how long the step takes if costs are
    wrong.
    """

    outline: ScheduleArrays
    memory: StepMemory
    if_wrong: StepNsIfWrong
    sized: Callable[[SplitTraces], SizedOps] | None = None
