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

from placement_advisor.analysis.scaled_steps import costs_of_collectives, slowest_of_used
from placement_advisor.candidates.batch_split.data_parallel import ONE_BY_ONE, DataParallelSteps
from placement_advisor.candidates.not_applicable import NotApplicable
from placement_advisor.cost.rings import ALL_DEVICES, with_collectives
from placement_advisor.cost.roofline import roofline_by_place
from placement_advisor.cost.table import CostTable
from placement_advisor.graph.op_graph import OpGraph, Role
from placement_advisor.simulator.arrays import UNKNOWN
from placement_advisor.simulator.outline import most_at_once
from placement_advisor.simulator.repetition import Repetition
from placement_advisor.simulator.simulator import Simulator

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from placement_advisor.candidates.batch_split.data_parallel import DataParallel
    from placement_advisor.candidates.batch_split.split_traces import SplitTraces
    from placement_advisor.graph.op_graph import Op
    from placement_advisor.graph.placement import Placement
    from placement_advisor.machine.devices import Cluster
    from placement_advisor.machine.nccl_rings import Ring
    from placement_advisor.simulator.outline import Outline

    Ints = NDArray[np.int64]

# Where the ops of a split step come from.
_WHOLE, _SHARE, _ADDED = range(3)


class _PricedOps(NamedTuple):
    """Ops by name, and what each takes on each place of a host, by its identity."""

    ops: Mapping[str, Op]
    cost_ns: Mapping[str, dict[int, int]]


class FoldedSteps:
    """The steps of a model on the devices of a host, and of many such hosts."""

    def __init__(self, host: Cluster) -> None:
        """Take the host with all of its devices."""
        self._host = host
        self._steps: dict[int, DataParallelSteps] = {}
        self._of_hosts: dict[bool, DataParallelSteps] = {}
        self._structures: dict[tuple[str, bool, int, int], _Structure | NotApplicable] = {}
        self._priced: dict[int, tuple[OpGraph, _PricedOps]] = {}

    def simulated(
        self, family: str, traces: SplitTraces, cluster: Cluster, rings: Sequence[Ring]
    ) -> FoldedStep | NotApplicable:
        """Simulate a family's step on the first devices of the host, with ``traces`` folded.

        ``rings`` say of how many hosts that is one, by level.
        """
        on_hosts, replicas = len(rings) > 1, len(traces.wiring.made)
        steps = self._steps.setdefault(replicas, DataParallelSteps(traces))
        key = family, on_hosts, replicas, len(cluster.devices)
        if key not in self._structures:
            propose = steps.propose_on_hosts if on_hosts else steps.propose
            answer = propose(family, cluster.devices, ALL_DEVICES)
            self._structures[key] = (
                answer if isinstance(answer, NotApplicable) else _Structure(answer, cluster)
            )
        structure = self._structures[key]
        if isinstance(structure, NotApplicable):
            return structure
        added = steps.added(family, traces, on_hosts=on_hosts)
        return structure.simulated(self._pools(traces, added), traces.wiring.like_last, rings)

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
            self._structures[key] = _Structure(steps.laid_out(within, [host], ALL_DEVICES), cluster)
        structure = self._structures[key]
        assert not isinstance(structure, NotApplicable)
        added = steps.added(ONE_BY_ONE, traces, on_hosts=on_hosts)
        return structure.simulated(self._pools(traces, added), 1, rings)

    def _pools(self, traces: SplitTraces, added: Mapping[str, Op]) -> Sequence[_PricedOps]:
        share = traces.replicas[0]
        return self._of_trace(traces.whole), self._of_trace(share), self._price(added.values())

    def _of_trace(self, graph: OpGraph) -> _PricedOps:
        # The graph is kept, so that no other one gets its identity.
        if id(graph) not in self._priced:
            self._priced[id(graph)] = graph, self._price(graph.ops, graph)
        return self._priced[id(graph)][1]

    def _price(self, ops: Iterable[Op], graph: OpGraph | None = None) -> _PricedOps:
        by_name = {op.name: op for op in ops}
        tables = roofline_by_place(graph or OpGraph(by_name.values(), []), self._host)
        of_table: dict[int, dict[int, int]] = {}
        for table in tables.values():
            if id(table) not in of_table:
                costs = table.costs.items()
                of_table[id(table)] = {id(by_name[name]): cost.time_ns for name, cost in costs}
        return _PricedOps(by_name, {place: of_table[id(table)] for place, table in tables.items()})


class _Structure:
    """A family's folded step on so many devices, without sizes and costs."""

    def __init__(self, proposed: DataParallel, cluster: Cluster) -> None:
        self._split, self._placement = proposed
        self._cluster = cluster
        there = with_collectives(cluster)
        unpriced = CostTable(costs={}).everywhere(there)
        graph, together = self._split.graph, self._split.collective_of
        self._simulator = Simulator(graph, unpriced, there, collective_of=together)
        self._device = self._simulator.devices_of(self._placement)
        source = self._split.source
        self._origin = [
            (_ADDED, op.name)
            if op.name not in source
            else (_WHOLE if source[op.name][0] is None else _SHARE, source[op.name][1])
            for op in self._simulator.ops
        ]

    def simulated(
        self, pools: Sequence[_PricedOps], like_last: int, rings: Sequence[Ring]
    ) -> FoldedStep:
        ops = [pools[pool].ops[name] for pool, name in self._origin]
        simulator = self._simulator.resized(ops, self._cost_ns(ops, pools, rings))
        repetition = replace(self._repetition, times=like_last) if like_last > 1 else None
        outline = simulator.outline(self._device, repetition)
        fits = _surely_fits(outline, ops, pools, self._cluster)
        return FoldedStep(outline, fits)

    def _cost_ns(
        self, ops: Sequence[Op], pools: Sequence[_PricedOps], rings: Sequence[Ring]
    ) -> dict[str, Ints]:
        rows: dict[int, Ints] = {}
        found = {}
        for place in self._cluster.place_names():
            tables = [pool.cost_ns[place] for pool in pools]
            if id(tables[0]) not in rows:
                merged = tables[_WHOLE] | tables[_SHARE] | tables[_ADDED]
                rows[id(tables[0])] = _row(ops, merged)
            found[place] = rows[id(tables[0])]
        last, slowest = slowest_of_used(self._placement, self._cluster, rings)
        slower = np.rint(found[last] * slowest).astype(np.int64)
        found[last] = np.where(found[last] == UNKNOWN, UNKNOWN, slower)
        added = pools[_ADDED].ops
        costs = costs_of_collectives(added.values(), self._split, rings).costs
        found[ALL_DEVICES] = _row(ops, {id(added[name]): c.time_ns for name, c in costs.items()})
        return found

    @cached_property
    def _repetition(self) -> Repetition:
        split, last = self._split, self._split.last
        return Repetition(
            times=split.like_last,
            ops={name for name, replica in split.replica_of.items() if replica == last},
            on_next={op.name for op in self._simulator.ops if split.place_replica(op) == last},
            dealt=split.dealt,
        )


class FoldedStep(NamedTuple):
    """A simulated step, and whether it fits even if no op hands its buffers on.

    If not, it may fit all the same: `peak_memory` tells.
    """

    outline: Outline
    surely_fits: bool


def _row(ops: Iterable[Op], cost_ns: Mapping[int, int]) -> Ints:
    return np.array([cost_ns.get(id(op), UNKNOWN) for op in ops], np.int64)


def _surely_fits(
    step: Outline, ops: Sequence[Op], pools: Sequence[_PricedOps], cluster: Cluster
) -> bool:
    """Say whether tensors fit, each with a buffer of its own as long as someone wants it."""
    known = [op for pool in pools for op in pool.ops.values()]
    constants = [op.output_bytes for op in known if op.role is Role.CONSTANT]
    everywhere_bytes = sum(size or 0 for sizes in constants for size in sizes)
    parameter_bytes = {op.name: op.parameter_bytes for op in known if op.parameter_bytes}
    # Variables stay, and so does the batch; an update may take a new buffer for its variable.
    stays, makes = np.zeros((2, len(ops)), np.int64)
    for number, op in enumerate(ops):
        stays[number] = op.parameter_bytes
        if op.role is Role.UPDATE and op.variable is not None:
            stays[number] += parameter_bytes.get(op.variable, 0)
        made_bytes = sum(size or 0 for size in op.output_bytes)
        (stays if op.role is Role.INPUT else makes)[number] += made_bytes
    for number, device in enumerate(cluster.devices):
        if device.memory_bytes is None:
            continue
        runs, tensors = step.place == number, step.held_place == number
        free_bytes = device.memory_bytes - everywhere_bytes - stays[step.op[runs]].sum()
        # While an op runs it has all that it makes, also what nobody reads.
        sizes = np.concatenate([makes[step.op[runs]], step.held_bytes[tensors]])
        if sizes.sum() > free_bytes:
            spans_ns = np.concatenate([step.run_ns[runs], step.held_ns[tensors]])
            if most_at_once(spans_ns, sizes) > free_bytes:
                return False
    return True
