"""The forward pass by layer with a place for every layer, and how a placement cuts it.

Left out: the backward pass, which runs the same ways back, and layers without forward ops.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from placement_advisor.graph.layer_view import depth_for, layer_view, total_bytes
from placement_advisor.graph.partial_sums import Total
from placement_advisor.report.pictures.layer_parts import Part, layer_parts
from placement_advisor.report.pictures.layered_layout import Sizes, best_layout

if TYPE_CHECKING:
    from collections.abc import Mapping

    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.graph.placement import Placement

BOX_WIDTH, BOX_HEIGHT = 1.86, 0.4
# If data flows down, and if it flows to the right.
_DOWN = Sizes(
    box_along=BOX_HEIGHT, box_across=BOX_WIDTH, gap_along=0.35, gap_across=0.2, lane=0.2, gutter=0.5
)
_RIGHT = Sizes(
    box_along=BOX_WIDTH,
    box_across=BOX_HEIGHT,
    gap_along=0.7,
    gap_across=0.14,
    lane=0.14,
    gutter=0.5,
)

# To place as many takes a second, and nobody looks through more.
_MOST_LAYERS = 2_000

Point = tuple[float, float]


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
        number = {(flow.source, flow.target): i for i, flow in enumerate(self.flows)}
        crossing: dict[int, dict[tuple[str, int, str], int | None]] = {}
        for edge in graph.edges:
            ends = self.part_of.get(edge.producer), self.part_of.get(edge.consumer)
            flow = number.get(ends)  # type: ignore[arg-type]
            if flow is None or edge.is_control:
                continue
            source, target = (placement.device_of.get(o) for o in (edge.producer, edge.consumer))
            if source is not None and target is not None and source != target:
                tensor = edge.producer, edge.port, target
                crossing.setdefault(flow, {})[tensor] = edge.size_bytes
        return {flow: total_bytes(sizes.values()) for flow, sizes in sorted(crossing.items())}


def layer_map(graph: OpGraph) -> LayerMap:
    """Return the map of a graph; it is empty if the graph has no forward ops.

    Layers of very many are shown to a depth of their paths.
    """
    parts = layer_parts(graph, layer_view(graph, depth_for(graph, _MOST_LAYERS)))
    if not parts.parts:
        return LayerMap(layers=(), flows=(), part_of={})
    layout, flows_down = best_layout(len(parts.parts), list(parts.edges), _DOWN, _RIGHT)

    def point(along: float, across: float) -> Point:
        return (across, along) if flows_down else (along, across)

    middles = [point(*centre) for centre in layout.centres]
    routes = {
        (route.source, route.target): tuple(point(*stop[1:]) for stop in route.stations)
        for route in layout.routes
    }
    return LayerMap(
        layers=tuple(
            PlacedLayer(
                name=_name(part),
                middle=middle,
                ops=len(part.ops),
                flops=Total.of(graph.op(name).flops for name in part.ops),
            )
            for part, middle in zip(parts.parts, middles, strict=True)
        ),
        flows=tuple(
            Flow(
                source=source,
                target=target,
                size_bytes=size_bytes,
                route=routes.get((source, target), (middles[source], middles[target])),
            )
            for (source, target), size_bytes in parts.edges.items()
        ),
        part_of={name: i for i, part in enumerate(parts.parts) for name in part.ops},
    )


def _name(part: Part) -> str:
    return part.layer if part.number == 1 else f"{part.layer} #{part.number}"
