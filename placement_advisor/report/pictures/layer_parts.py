"""The forward pass by layer for a picture: a layer that wraps others is drawn as several parts.

Where a model's own code adds what its blocks return, the model is one layer that feeds its blocks
and is fed by them. Seen by layer that is a loop, which no data takes. So a layer on a loop is cut
into parts: what it does before its data first leaves it, what it does before it leaves it again,
and so on. Loops that remain all the same (two layers that wrap one another's separate ways) are
kept. Left out: layers that only read variables which nobody needs.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from placement_advisor.graph.digraph import strong_components, topological_order
from placement_advisor.graph.layer_view import total_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from placement_advisor.graph.layer_view import LayerView
    from placement_advisor.graph.op_graph import Edge, OpGraph

_Node = TypeVar("_Node", str, tuple[str, int])

# Wrappers are few: models and blocks. More than this are parts of one large loop, and counting
# how often data leaves each would take a byte per op and layer.
_MAX_LOOPING = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A layer, or the part of it with this number, from 1; ``ops`` are its forward ops."""

    layer: str
    number: int
    ops: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Parts in an order in which data flows, and the bytes sent; None where any is unknown.

    An edge to a lower number is on a loop.
    """

    parts: tuple[Part, ...]
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
    flowing = computing | {layer_of[edge.producer] for edge in between}
    if flowing:
        layer_of = {name: layer for name, layer in layer_of.items() if layer in flowing}
    times_left = _times_left(graph, between, layer_of)
    key_of = {name: (layer, times_left.get(name, 0)) for name, layer in layer_of.items()}
    ops: dict[tuple[str, int], list[str]] = {}
    for op in graph.ops:
        if op.name in key_of:
            ops.setdefault(key_of[op.name], []).append(op.name)
    place = _places(list(ops), between, key_of)
    sent: dict[tuple[int, int], dict[tuple[str, int], int | None]] = {}
    for edge in between:
        ends = place[key_of[edge.producer]], place[key_of[edge.consumer]]
        if ends[0] != ends[1]:
            sent.setdefault(ends, {})[edge.producer, edge.port] = edge.size_bytes
    numbers: Counter[str] = Counter()
    parts = []
    for key in sorted(ops):
        numbers[key[0]] += 1
        parts.append(Part(layer=key[0], number=numbers[key[0]], ops=tuple(ops[key])))
    parts.sort(key=lambda part: place[key_of[part.ops[0]]])
    return Parts(
        parts=tuple(parts),
        edges={ends: total_bytes(tensors.values()) for ends, tensors in sent.items()},
    )


def _times_left(
    graph: OpGraph, between: Sequence[Edge], layer_of: Mapping[str, str]
) -> dict[str, int]:
    """Return for ops of layers on a loop how often data left the layer before it came to them."""
    layers = list(dict.fromkeys(layer_of.values()))
    component = _components(layers, between, layer_of)
    sizes = Counter(component.values())
    looping = [layer for layer in layers if sizes[component[layer]] > 1]
    if not looping or len(looping) > _MAX_LOOPING:
        return {}
    column = {layer: i for i, layer in enumerate(looping)}
    feeding: dict[str, list[Edge]] = {}
    for edge in between:
        feeding.setdefault(edge.consumer, []).append(edge)
    left: dict[str, np.ndarray] = {}
    for op in graph.ops:
        layer = layer_of.get(op.name)
        if layer is None:
            continue
        left[op.name] = np.zeros(len(looping), dtype=np.int32)
        for edge in feeding.get(op.name, ()):
            before = left[edge.producer]
            source = layer_of[edge.producer]
            if source != layer and source in column:
                before = before.copy()
                before[column[source]] += 1
            np.maximum(left[op.name], before, out=left[op.name])
    return {
        name: int(counts[column[layer_of[name]]])
        for name, counts in left.items()
        if layer_of[name] in column
    }


def _places(
    nodes: Sequence[_Node], between: Sequence[Edge], node_of: Mapping[str, _Node]
) -> dict[_Node, int]:
    """Return the places of the nodes in an order in which data flows, otherwise as given."""
    component = _components(nodes, between, node_of)
    numbers = {number: i for i, number in enumerate(dict.fromkeys(map(component.get, nodes)))}
    number_of = {node: numbers[component[node]] for node in nodes}
    ends = {(number_of[node_of[e.producer]], number_of[node_of[e.consumer]]) for e in between}
    apart = sorted((source, target) for source, target in ends if source != target)
    order = topological_order(len(numbers), [s for s, _ in apart], [t for _, t in apart]) or []
    rank = {number: i for i, number in enumerate(order)}
    ordered = sorted(nodes, key=lambda node: rank[number_of[node]])
    return {node: i for i, node in enumerate(ordered)}


def _components(
    nodes: Sequence[_Node], between: Sequence[Edge], node_of: Mapping[str, _Node]
) -> dict[_Node, int]:
    """Return the number of each node's component, in an order in which data flows."""
    place = {node: i for i, node in enumerate(nodes)}
    out: list[dict[int, None]] = [{} for _ in nodes]
    for edge in between:
        out[place[node_of[edge.producer]]][place[node_of[edge.consumer]]] = None
    return dict(zip(nodes, strong_components([list(some) for some in out]), strict=True))
