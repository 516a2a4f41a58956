"""The forward pass by layer for a picture: parts of layers without loops, few enough to read.

Where a model's own code adds what its blocks return, the model is one layer that feeds its blocks
and is fed by them. Seen by layer that is a loop, which no data takes. So a layer is cut where its
data comes back to it: into what it does before, and what it does after. Left out: layers that only
read variables which nobody needs.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import reduce
from itertools import count
from operator import or_
from typing import TYPE_CHECKING

from placement_advisor.graph.digraph import topological_order
from placement_advisor.graph.layer_view import total_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from placement_advisor.graph.layer_view import LayerView
    from placement_advisor.graph.op import Edge
    from placement_advisor.graph.op_graph import OpGraph

# A picture of fewer boxes than this share of what it may have could well show more.
_ENOUGH_SHARE = 0.4


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A layer, or the part of it with this number, from 1; ``ops`` are its forward ops."""

    layer: str
    number: int
    ops: list[str]

    @property
    def name(self) -> str:
        """The layer, with the number of a part that is not the first."""
        return self.layer if self.number == 1 else f"{self.layer} #{self.number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Parts in an order in which data flows, and the bytes that one sends to a later one.

    None where the size of any tensor is unknown.
    """

    parts: Sequence[Part]
    edges: Mapping[tuple[int, int], int | None]


def layer_parts(graph: OpGraph, view: LayerView) -> Parts:
    """Return the forward pass of a view with its wrapping layers cut into parts."""
    layer_of, free = view.membership.layer_of, view.membership.free
    computing = {layer for name, layer in layer_of.items() if name not in free}
    between = [
        edge
        for edge in graph.edges
        if not edge.is_control
        and edge.producer in layer_of
        and edge.consumer in layer_of
        # A layer that does nothing but read its variables (a cell in a loop) serves its reader.
        and (edge.producer not in free or layer_of[edge.producer] not in computing)
    ]
    # One whose variables are read elsewhere (a loop takes them itself) has no place in the flow.
    flowing = computing | {layer_of[edge.producer] for edge in between} or {*layer_of.values()}
    layer_of = {name: layer for name, layer in layer_of.items() if layer in flowing}
    found = _cut(graph, between, layer_of)
    part_of = {name: number for number, part in enumerate(found) for name in part.ops}
    ends = [(part_of[edge.producer], part_of[edge.consumer]) for edge in between]
    apart = sorted({(source, target) for source, target in ends if source != target})
    order = topological_order(len(found), [s for s, _ in apart], [t for _, t in apart]) or []
    place = {number: i for i, number in enumerate(order)}
    sent: dict[tuple[int, int], dict[tuple[str, int], int | None]] = defaultdict(dict)
    for edge, (source, target) in zip(between, ends, strict=True):
        if source != target:
            sent[place[source], place[target]][edge.producer, edge.port] = edge.size_bytes
    edges = {its: total_bytes(tensors.values()) for its, tensors in sent.items()}
    return Parts(parts=[found[number] for number in order], edges=edges)


def _cut(graph: OpGraph, between: Sequence[Edge], layer_of: Mapping[str, str]) -> list[Part]:
    """Return the parts; an op to which data of its layer's last part comes back begins a new."""
    feeders: dict[str, list[str]] = defaultdict(list)
    for edge in between:
        feeders[edge.consumer].append(edge.producer)
    parts: list[Part] = []
    part_of: dict[str, int] = {}
    last: dict[str, int] = {}
    # Of each part, those that lead to it: bits by their number.
    before: list[int] = []
    for op in graph.ops:
        if (layer := layer_of.get(op.name)) is None:
            continue
        fed_by = {part_of[name] for name in feeders[op.name]}
        part = last.get(layer)
        if part is None or any(before[other] >> part & 1 for other in fed_by):
            number = 1 if part is None else parts[part].number + 1
            part = last[layer] = len(parts)
            parts.append(Part(layer=layer, number=number, ops=[]))
            before.append(0)
        leading = reduce(or_, (before[other] | 1 << other for other in fed_by - {part}), 0)
        # What leads to a part leads to all that it leads to.
        if parts[part].ops and leading & ~before[part]:
            for other, its in enumerate(before):
                before[other] |= leading if its >> part & 1 else 0
        before[part] |= leading
        parts[part].ops.append(op.name)
        part_of[op.name] = part
    return parts


def merged(amount: int, edges: Iterable[tuple[int, int]], limit: int) -> list[list[int]]:
    """Return groups of the numbers below ``amount``, ``limit`` at most, in an order of data flow.

    Edges lead from lower to higher numbers. Groups are runs of an order in which data flows, depth
    first, so no loop arises. Chains stay whole, unless that would leave too few groups or many.
    """
    if amount <= limit:
        return [[number] for number in range(amount)]
    before: list[set[int]] = [set() for _ in range(amount)]
    after: list[set[int]] = [set() for _ in range(amount)]
    for source, target in edges:
        after[source].add(target)
        before[target].add(source)
    waiting = [len(some) for some in before]
    ready = [number for number in reversed(range(amount)) if not waiting[number]]
    chains: list[list[int]] = []
    while ready:
        number = ready.pop()
        if chains and after[chains[-1][-1]] == {number} and before[number] == {chains[-1][-1]}:
            chains[-1].append(number)
        else:
            chains.append([number])
        for other in sorted(after[number], reverse=True):
            waiting[other] -= 1
            if not waiting[other]:
                ready.append(other)
    # What may share a box with the next ones: chains, or if they are few, the numbers of a chain.
    runs = [chains]
    if len(chains) < limit * _ENOUGH_SHARE:
        runs = [[[number] for number in chain] for chain in chains]
    return next(groups for size in count(1) if len(groups := _packed(runs, size)) <= limit)


def _packed(runs: Iterable[Iterable[Sequence[int]]], size: int) -> list[list[int]]:
    """Return each run in groups: an item joins those before it while they stay within a size."""
    groups: list[list[int]] = []
    for run in runs:
        groups.append([])
        for item in run:
            if groups[-1] and len(groups[-1]) + len(item) > size:
                groups.append([])
            groups[-1] += item
    return groups
