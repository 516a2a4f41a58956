"""The forward pass of a layer view in numbers, with loops between layers folded into one node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from placement_advisor.graph.digraph import immediate_dominators, strong_components

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from placement_advisor.graph.layer_view import LayerView


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """Layers by their place in the view, and nodes, which are layers or loops of layers.

    ``feeders`` are the layers that feed each layer. ``node_of`` names the node of each layer;
    ``members`` the layers of each node. Nodes are numbered so that those which feed a node, in
    ``into``, have lower numbers; ``out`` holds those that a node feeds.
    """

    layers: tuple[str, ...]
    feeders: Sequence[Sequence[int]]
    node_of: Sequence[int]
    members: Sequence[Sequence[int]]
    into: Sequence[Sequence[int]]
    out: Sequence[Sequence[int]]

    def names(self, layers: Iterable[int]) -> tuple[str, ...]:
        """Return the names of layers, in layer order."""
        return tuple(self.layers[layer] for layer in sorted(layers))


def flow(view: LayerView) -> Flow:
    """Return the forward pass of the view."""
    layers = view.forward_layers()
    place = {layer: i for i, layer in enumerate(layers)}
    feeders = [[place[feeder] for feeder in some] for some in view.feeders().values()]
    fed: list[list[int]] = [[] for _ in layers]
    for layer, some in enumerate(feeders):
        for feeder in some:
            fed[feeder].append(layer)
    node_of = strong_components(fed)
    count = max(node_of, default=-1) + 1
    members: list[list[int]] = [[] for _ in range(count)]
    into: list[set[int]] = [set() for _ in range(count)]
    out: list[set[int]] = [set() for _ in range(count)]
    for layer, node in enumerate(node_of):
        members[node].append(layer)
        for feeder in feeders[layer]:
            if node_of[feeder] != node:
                into[node].add(node_of[feeder])
                out[node_of[feeder]].add(node)
    return Flow(
        layers=layers,
        feeders=feeders,
        node_of=node_of,
        members=members,
        into=[sorted(some) for some in into],
        out=[sorted(some) for some in out],
    )


def meeting_points(way: Flow) -> list[int | None]:
    """Return for each node the first other that all ways from it to an end go through."""
    last = len(way.out) - 1
    backwards = [[last - target for target in way.out[last - node]] for node in range(last + 1)]
    after = immediate_dominators(backwards)
    return [None if point is None else last - point for point in reversed(after)]
