"""The forward pass by layer with a place for every layer, and how a placement cuts it.

Left out: the backward pass, which runs the same ways back, and layers without forward ops.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from placement_advisor.graph.layer_view import depth_for, layer_view, total_bytes
from placement_advisor.graph.op import Total
from placement_advisor.report.pictures.layer_parts import layer_parts
from placement_advisor.report.pictures.layered_layout import Point, best_layout

if TYPE_CHECKING:
    from collections.abc import Mapping

    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.graph.placement import Placement

BOX_WIDTH, BOX_HEIGHT = 1.86, 0.4

# To place as many takes a second, and nobody looks through more.
_MOST_LAYERS = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedLayer:
    """A layer, or a part of one, with the middle of its box."""

    name: str
    middle: Point
    ops: int
    flops: Total


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """The forward tensors from one layer to another; ``size_bytes`` is None where any is unknown.

    ``route`` leads from middle to middle, y downwards.
    """

    source: int
    target: int
    size_bytes: int | None
    route: tuple[Point, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerMap:
    """Layers and what flows between them; layers are numbered in an order in which data flows."""

    layers: tuple[PlacedLayer, ...]
    flows: tuple[Flow, ...]
    part_of: Mapping[str, int]

    def devices(self, placement: Placement) -> tuple[str, ...]:
        """Return the device that holds most ops of each layer (ties: first in device name)."""
        votes = [Counter[str]() for _ in self.layers]
        for op, part in self.part_of.items():
            if op in placement.device_of:
                votes[part][placement.device_of[op]] += 1
        return tuple(
            min(count, key=lambda device: (-count[device], device), default="") for count in votes
        )

    def cut_bytes(self, graph: OpGraph, placement: Placement) -> dict[int, int | None]:
        """Return the bytes that cross to another device, by the number of the flow.

        A tensor counts once for every device that it crosses to.
        """
        crossing: dict[object, dict[tuple[str, int, str], int | None]] = defaultdict(dict)
        for edge in graph.edges:
            ends = self.part_of.get(edge.producer), self.part_of.get(edge.consumer)
            source, target = map(placement.device_of.get, (edge.producer, edge.consumer))
            if source and target and source != target and not edge.is_control:
                crossing[ends][edge.producer, edge.port, target] = edge.size_bytes
        return {
            number: total_bytes(crossing[flow.source, flow.target].values())
            for number, flow in enumerate(self.flows)
            if (flow.source, flow.target) in crossing
        }


def layer_map(graph: OpGraph) -> LayerMap:
    """Return the map of a graph; it is empty if the graph has no forward ops.

    Layers of very many are shown to a depth of their paths.
    """
    found = layer_parts(graph, layer_view(graph, depth_for(graph, _MOST_LAYERS)))
    if not found.parts:
        return LayerMap(layers=(), flows=(), part_of={})
    layout = best_layout(len(found.parts), found.edges, (BOX_WIDTH, BOX_HEIGHT))
    layers = [
        PlacedLayer(
            name=part.name,
            middle=layout.point(*box[:2]),
            ops=len(part.ops),
            flops=Total.of(graph.op(name).flops for name in part.ops),
        )
        for part, box in zip(found.parts, layout.boxes, strict=True)
    ]
    flows = []
    for (source, target), size_bytes in found.edges.items():
        route = tuple(layout.point(*stop[:2]) for stop in layout.routes[source, target])
        flows.append(Flow(source=source, target=target, size_bytes=size_bytes, route=route))
    part_of = {name: number for number, part in enumerate(found.parts) for name in part.ops}
    return LayerMap(layers=tuple(layers), flows=tuple(flows), part_of=part_of)
