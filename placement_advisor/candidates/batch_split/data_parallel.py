"""Families that split the batch over machines, also over many equal hosts.

A family settles where variables stand and who adds up gradients. `across_hosts` makes the
step of one host the step of many equal ones.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from placement_advisor.candidates.batch_split import split_graph as batch_graph
from placement_advisor.candidates.batch_split.mirrored_graph import (
    ALL_GATHER,
    ALL_REDUCE,
    SUMMED,
    AllReduceMode,
    exchange_ops,
    exchanged,
    exchanged_gradients,
    mirrored_graph,
)
from placement_advisor.candidates.batch_split.mirrored_graph import FAMILY as MIRRORED
from placement_advisor.candidates.batch_split.split_graph import FAMILY as BATCH
from placement_advisor.candidates.by_layer import NotApplicable
from placement_advisor.graph.op import PASS_ROLES, STANDING_ROLES, Edge, Op, Role, WorkBasis
from placement_advisor.graph.op_graph import OpGraph

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from placement_advisor.candidates.batch_split.mirrored_graph import Exchanged
    from placement_advisor.candidates.batch_split.plan import Tensor
    from placement_advisor.graph.placement import Placement
    from placement_advisor.machine.devices import Device


class DataParallel(NamedTuple):
    """A split step and where its ops stand."""

    split: batch_graph.SplitGraph
    placement: Placement


def across_hosts(step: DataParallel, traces: batch_graph.SplitTraces, place: str) -> DataParallel:
    """Return a split step with exchanges of merged gradients on a ``place``."""
    graph = step.split.graph
    merged = {op.name: op for op in graph.ops}
    exchange = exchanges(merged, traces.wiring, exchanged_gradients(traces))
    edges = []
    for edge in graph.edges:
        of_all = exchange.get(edge.tensor)
        edges.append(edge if of_all is None else edge._replace(producer=of_all.name, port=0))
    edges += [
        Edge(name, op.name, port, op.output_bytes[0]) for (name, port), op in exchange.items()
    ]
    added = {op.name: place for op in exchange.values()}
    return DataParallel(
        replace(
            step.split,
            graph=OpGraph([*graph.ops, *exchange.values()], edges),
            replica_of={**step.split.replica_of, **dict.fromkeys(added)},
            is_of_hosts=True,
        ),
        replace(step.placement, device_of={**step.placement.device_of, **added}),
    )


def exchanges(
    merged: Mapping[str, Op], wiring: batch_graph.Wiring, waves: Sequence[Sequence[Tensor]]
) -> dict[Tensor, Op]:
    """Return the op that exchanges each merged gradient; ``merged`` has the ops that merge."""
    found: dict[Tensor, Op] = {}
    for wave in waves:
        for tensor in wave:
            name, port = of_host = wiring.tensor(tensor, None)
            if name in merged:
                is_summed = wiring.merges[tensor] in SUMMED
                found[of_host] = _exchange(merged[name], port, is_summed=is_summed)
    return found


def _exchange(merged: Op, port: int, *, is_summed: bool) -> Op:
    size_bytes = merged.output_bytes[port]
    return Op(
        name=f"between_hosts/{merged.name}_{port}",
        kind=ALL_REDUCE if is_summed else ALL_GATHER,
        role=Role.BACKWARD,
        bytes_accessed=None if size_bytes is None else 2 * size_bytes,
        work_basis=WorkBasis.SIZES,
        output_bytes=(size_bytes,),
        device_kinds=merged.device_kinds,
    )


ONE_BY_ONE = "mirrored-one-by-one"
BY_COPIES = "mirrored-by-copies"
FAMILIES = (BATCH, batch_graph.ON_HOST, batch_graph.SPREAD, MIRRORED, ONE_BY_ONE, BY_COPIES)
_READS = frozenset({"ReadVariableOp"})
_WAYS = {
    MIRRORED: AllReduceMode.PACKED,
    ONE_BY_ONE: AllReduceMode.ONE_BY_ONE,
    BY_COPIES: AllReduceMode.COPIES,
}


class DataParallelSteps:
    """The split steps of all families, put together when they are asked for."""

    def __init__(self, traces: batch_graph.SplitTraces) -> None:
        """Take the traces of the step at its batch and at the share of each replica."""
        self._traces = traces
        self._mirrored_graphs: dict[AllReduceMode, batch_graph.SplitGraph] = {}

    def added(
        self, family: str, traces: batch_graph.SplitTraces, *, on_hosts: bool
    ) -> dict[str, Op]:
        """Return the ops of a family's step that are of none of its traces, by name.

        ``traces`` are other ones of the same step, for which no graph is put together.
        """
        if family in _WAYS:
            return exchange_ops(traces, _WAYS[family], self._exchanged)
        found = batch_graph.merging_ops(traces)
        if on_hosts:
            between = exchanges(found, traces.wiring, self._exchanged.waves)
            found |= {op.name: op for op in between.values()}
        return found

    @cached_property
    def _exchanged(self) -> Exchanged:
        return exchanged(self._traces)

    def propose_on_hosts(
        self, family: str, devices: Sequence[Device], collectives: str
    ) -> DataParallel | NotApplicable:
        """Return a family's step on each of many equal hosts, of which these are one's devices.

        Mirrored families exchange among the devices of all hosts; the others within each host, and
        merged gradients between hosts.
        """
        if family == BY_COPIES:
            return NotApplicable(family, "is of one host")
        proposed = self.propose(family, devices, collectives)
        if isinstance(proposed, NotApplicable) or family in _WAYS:
            return proposed
        return across_hosts(proposed, self._traces, collectives)

    def propose(
        self, family: str, devices: Sequence[Device], collectives: str
    ) -> DataParallel | NotApplicable:
        """Return a family's step with a replica on each device.

        ``collectives`` is the place of what all devices do together.
        """
        names = [device.name for device in devices]
        if family in _WAYS:
            if len(self._traces.shares) > 1:
                reason = "wants the same samples on each device"
                return NotApplicable(family, reason)
            way = _WAYS[family]
            split = self._mirrored(way)
            place = names[0] if way is AllReduceMode.COPIES else collectives
            placement = split.placed(names, label=family, rationale="", shared=place)
            return DataParallel(split, placement)
        split = self._batch if family == BATCH else self._batch_with_own
        placed = batch_graph.placed_on_devices(family, split, names, devices[0].host, "")
        return placed if isinstance(placed, NotApplicable) else DataParallel(split, placed)

    def laid_out(
        self, within: Placement, hosts: Sequence[Mapping[str, str]], collectives: str
    ) -> DataParallel:
        """Return the step with a replica on each host, laid out there as ``within`` says.

        ``within`` places the unsplit step; each of ``hosts`` has a place of its own for each place
        of that. Every host has all variables. Gradients are all-reduced between hosts as each is
        ready, on the device where it stands.
        """
        split = replace(
            self._mirrored(AllReduceMode.ONE_BY_ONE), family=within.family, is_of_hosts=True
        )
        placed = split.laid_out(within, hosts, label=within.label, rationale=within.rationale)
        exchanged = dict.fromkeys(split.collective_of, collectives)
        placement = replace(placed, device_of={**placed.device_of, **exchanged})
        return DataParallel(split, placement)

    @cached_property
    def _batch(self) -> batch_graph.SplitGraph:
        return batch_graph.split_graph(self._traces)

    @cached_property
    def _batch_with_own(self) -> batch_graph.SplitGraph:
        return _with_own(self._batch)

    def _mirrored(self, way: AllReduceMode) -> batch_graph.SplitGraph:
        if way not in self._mirrored_graphs:
            self._mirrored_graphs[way] = mirrored_graph(self._traces, way)
        return self._mirrored_graphs[way]


def _with_own(split: batch_graph.SplitGraph) -> batch_graph.SplitGraph:
    """Return the step in which each replica makes for itself what is made of variables alone."""
    graph, replica_of, source = split.graph, dict(split.replica_of), dict(split.source)
    alone: set[str] = set()
    known = {op.name for op in graph.ops if op.role in STANDING_ROLES or op.kind in _READS}
    for op in graph.ops:
        is_plain = op.variable is None and op.role in PASS_ROLES and replica_of[op.name] is None
        made_of = {edge.producer for edge in graph.inputs_of(op.name)}
        if is_plain and made_of and made_of <= known | alone:
            alone.add(op.name)
    readers: dict[str, set[int | None]] = {name: set() for name in alone}
    # Whoever reads what an op makes also wants what that is made of.
    for op in reversed(graph.ops):
        own = readers[op.name] if op.name in alone else {replica_of[op.name]}
        for edge in graph.inputs_of(op.name):
            if edge.producer in alone:
                readers[edge.producer] |= own
    ops: list[Op] = []
    edges: list[Edge] = []
    for op in graph.ops:
        copies = readers.get(op.name, {replica_of[op.name]})
        for replica in copies:
            name = _own(op.name, replica) if op.name in alone else op.name
            ops.append(op._replace(name=name))
            replica_of[name] = replica
            if op.name in split.source:
                source[name] = split.source[op.name]
            for edge in graph.inputs_of(op.name):
                producer = edge.producer
                if producer in alone:
                    producer = _own(producer, replica)
                edges.append(edge._replace(producer=producer, consumer=name))
    return replace(split, graph=OpGraph(ops, edges), replica_of=replica_of, source=source)


def _own(name: str, replica: int | None) -> str:
    return name if replica is None else f"replica_{replica}/{name}"
