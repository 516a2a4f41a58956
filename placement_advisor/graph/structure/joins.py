"""Towers: parts of the model that meet only at a join.

A *join* is a layer whose feeders fall into groups without a common ancestor; each group with all
that leads to it is a tower. Reading the same input, variable or table does not tie towers, a
common layer does. A layer that depends on one tower alone (an auxiliary head) belongs to it.

Two layers have a common ancestor if and only if some *source*, a layer that no other feeds, leads
to both. So each layer carries the set of its sources as the bits of a number.

Left out: towers within towers; a join whose groups hold nothing that counts (a label that is only
reshaped). Past `MAX_SOURCES` sources several share a bit: towers may then be missed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from placement_advisor.graph.op_graph import Role
from placement_advisor.graph.structure.forward_flow import Flow, flow

if TYPE_CHECKING:
    from collections.abc import Collection

    from placement_advisor.graph.layer_view import LayerView
    from placement_advisor.graph.op_graph import OpGraph

MIN_TOWERS = 2
# Any join with a label looks like two towers, one of them a cast. What holds no variable and does
# less than 1 % of the arithmetic cannot be told from nothing in any measurement.
MIN_FLOPS_SHARE = 0.01
# A thousand times what a model of many embedding tables has; bits of this many sources still fit
# the memory in a graph of 200,000 layers.
MAX_SOURCES = 8_192
# Every join is compared with every layer. Models have a handful of joins; a step without layers,
# in which each op is one, can have thousands, of which the last ones hold the most.
MAX_COMPARISONS = 5_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """Towers, each with its layers in order, that meet in ``layer``."""

    layer: str
    towers: tuple[tuple[str, ...], ...]


def towers(view: LayerView, counting: Collection[str]) -> tuple[Join, ...]:
    """Return every join of at least two towers, in layer order.

    A group of feeders is a tower only if one of the layers ``counting`` leads to it.
    """
    way = flow(view)
    sources = _sources(way)
    counts = _with_ancestors(way, counting)
    found: list[tuple[int, list[int]]] = []
    for layer, feeders in enumerate(way.feeders):
        # A feeder that the layer feeds in turn is on a loop with it, which is no way to meet.
        groups = [
            group
            for group in _disjoint(sources, [way.node_of[feeder] for feeder in feeders])
            if any(counts[node] for node in group) and way.node_of[layer] not in group
        ]
        if len(groups) >= MIN_TOWERS:
            found.append((layer, [_union(sources, group) for group in groups]))
    most = max(1, MAX_COMPARISONS // len(way.layers)) if way.layers else 0
    return tuple(
        Join(layer=way.layers[layer], towers=_members(way, sources, groups))
        for layer, groups in found[-most:]
    )


def counting_layers(graph: OpGraph, view: LayerView) -> frozenset[str]:
    """Return the layers that read a variable or table, or do a share of the forward arithmetic."""
    flops: dict[str, int] = {}
    for op in graph.ops:
        layer = view.membership.layer_of.get(op.name)
        if op.role is Role.FORWARD and layer is not None:
            flops[layer] = flops.get(layer, 0) + (op.flops or 0)
    floor = max(1, MIN_FLOPS_SHARE * sum(flops.values()))
    heavy = {layer for layer, its_flops in flops.items() if its_flops >= floor}
    return frozenset(heavy.union(*view.membership.readers.values()))


def common_ancestor(view: LayerView) -> tuple[str, str] | None:
    """Return the first layer with branches that are no towers, and the last layer behind both.

    None if no layer has several feeders with a common ancestor.
    """
    way = flow(view)
    sources = _sources(way)
    for layer, feeders in enumerate(way.feeders):
        for i, one in enumerate(feeders):
            for other in feeders[i + 1 :]:
                if sources[way.node_of[one]] & sources[way.node_of[other]]:
                    common = _cone(way, one) & _cone(way, other)
                    if common:
                        return way.layers[layer], way.layers[max(common)]
    return None


def _sources(way: Flow) -> list[int]:
    """Return the sources of each node, as bits."""
    sources: list[int] = []
    fresh = 0
    for feeders in way.into:
        if not feeders:
            sources.append(1 << fresh % MAX_SOURCES)
            fresh += 1
            continue
        bits = sources[feeders[0]]
        for feeder in feeders[1:]:
            # Most nodes have the sources of one feeder: one number for all of them.
            if sources[feeder] | bits != bits:
                bits |= sources[feeder]
        sources.append(bits)
    return sources


def _with_ancestors(way: Flow, counting: Collection[str]) -> list[bool]:
    """Return for each node whether it, or one that leads to it, holds a layer that counts."""
    found: list[bool] = []
    for node, feeders in enumerate(way.into):
        own = any(way.layers[layer] in counting for layer in way.members[node])
        found.append(own or any(found[feeder] for feeder in feeders))
    return found


def _disjoint(sources: list[int], nodes: list[int]) -> list[list[int]]:
    """Return the nodes in groups of common sources, by the first of each group."""
    groups: list[tuple[int, list[int]]] = []
    for node in nodes:
        bits, merged = sources[node], [node]
        apart = []
        first = len(groups)
        for i, (its_bits, group) in enumerate(groups):
            if its_bits & bits:
                bits |= its_bits
                merged = [*group, *merged]
                first = min(first, i)
            else:
                apart.append((its_bits, group))
        groups = [*apart[:first], (bits, merged), *apart[first:]]
    return [group for _, group in groups]


def _union(sources: list[int], nodes: list[int]) -> int:
    bits = 0
    for node in nodes:
        bits |= sources[node]
    return bits


def _members(way: Flow, sources: list[int], groups: list[int]) -> tuple[tuple[str, ...], ...]:
    """Return the layers that depend on one of the groups of sources alone."""
    found: list[list[str]] = [[] for _ in groups]
    for layer, node in zip(way.layers, way.node_of, strict=True):
        needed = [i for i, group in enumerate(groups) if group & sources[node]]
        if len(needed) == 1:
            found[needed[0]].append(layer)
    return tuple(map(tuple, found))


def _cone(way: Flow, layer: int) -> set[int]:
    """Return the layer and all that lead to it."""
    cone = {layer}
    ahead = [layer]
    while ahead:
        for feeder in way.feeders[ahead.pop()]:
            if feeder not in cone:
                cone.add(feeder)
                ahead.append(feeder)
    return cone
