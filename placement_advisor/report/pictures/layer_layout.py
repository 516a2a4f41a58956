"""Lays out the forward pass by layer: ranks layers and joins them by arrows.

A box stands in the rank before the first box that it feeds. An arrow over several ranks has a
lane in each. A model whose own code adds the outputs of its blocks would be a layer that
feeds its blocks and is fed by them; such loops are taken apart. The layer map has a place for
every layer, as the tab shows it, and says how a placement cuts the pass. The backward pass is left
out: it runs the same ways back.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import reduce
from itertools import accumulate, pairwise
from math import ceil
from operator import or_
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, TypeAlias

from annotated_types import MaxLen

from placement_advisor.files.contract import Count, Rows
from placement_advisor.files.untrusted import MisfitError
from placement_advisor.graph.digraph import topological_order
from placement_advisor.graph.layer_view import LayerView, depth_for, layer_view
from placement_advisor.graph.op import Edge, Total
from placement_advisor.graph.placement import Placement, most_voted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from placement_advisor.graph.op_graph import OpGraph


Point: TypeAlias = tuple[float, float]
# Code for thousands of layers has so many characters.
Text = Annotated[str, MaxLen(1_000_000)]

# Rows are sorted by the side that a sweep comes from, then by both, then pulled. Each settles after
# a few sweeps; more only cost time.
_SWEEPS = 8
# Inches between ranks, with room for labels of arrows, between boxes of a rank, and of a lane: if
# data flows down, and if it flows to the right.
_GAPS_IN = {True: (0.4, 0.2, 0.25), False: (0.75, 0.15, 0.2)}
_GUTTER_IN = 0.5
# A picture of this shape fills a screen.
_SCREEN_WIDTH, _SCREEN_HEIGHT = 16.0, 10.0
_MAX_BANDS = 8
# An arrow that goes on in the next band is harder to follow: as bad as a picture 2 % smaller.
_COST_OF_CUT = 0.02


def best_layout(
    count: int, arrows: Iterable[tuple[int, int]], box: Point
) -> tuple[list[Point], dict[tuple[int, int], list[Point]]]:
    """Return the layout that a screen shows largest, of one or more boxes of a width and height.

    It has the middles of boxes, and those of each arrow's stops from box to box, in inches, y
    downwards. Arrows lead from a box to one of a higher number.
    """
    ends = sorted(arrows)
    rank_of = [0] * count
    for source, target in reversed(ends):
        rank_of[source] = min(rank_of[source], rank_of[target] - 1)
    first = min(rank_of)
    rank_of = [rank - first for rank in rank_of]
    chains: dict[tuple[int, int], list[int]] = {}
    for source, target in ends:
        lanes = range(len(rank_of), len(rank_of) + rank_of[target] - rank_of[source] - 1)
        rank_of += range(rank_of[source] + 1, rank_of[target])
        chains[source, target] = [source, *lanes, target]
    rows: list[list[int]] = [[] for _ in range(max(rank_of) + 1)]
    # Stations are boxes and, numbered behind them, lanes.
    for station, rank in enumerate(rank_of):
        rows[rank].append(station)
    found = []
    for flows_down, (gap, gap_across, lane) in _GAPS_IN.items():
        along, across = reversed(box) if flows_down else box
        halves = [(across + gap_across) / 2] * count + [lane / 2] * (len(rank_of) - count)
        at = _across(rows, chains.values(), halves)
        for bands in range(1, _MAX_BANDS + 1):
            most = ceil(len(rows) / bands)
            folded = [rows[i : i + most] for i in range(0, len(rows), most)]
            stops, breadth = _folded(folded, at, halves, along + gap)
            width, height = most * (along + gap), breadth
            if flows_down:
                width, height = height, width
                stops = [(x, y) for y, x in stops]
            scale = max(width / _SCREEN_WIDTH, height / _SCREEN_HEIGHT, 1.0)
            cut = sum(rank_of[t] // most - rank_of[s] // most for s, t in ends)
            found.append((round(scale * (1 + _COST_OF_CUT * cut), 1), bands, stops))
    *_, stops = min(found, key=lambda each: each[:2])
    return stops[:count], {its: [stops[each] for each in chain] for its, chain in chains.items()}


def _across(
    rows: Sequence[list[int]], chains: Iterable[Sequence[int]], halves: Sequence[float]
) -> list[float]:
    """Sort each row, and return the place of each box and lane across."""
    before: dict[int, list[int]] = defaultdict(list)
    after: dict[int, list[int]] = defaultdict(list)
    for chain in chains:
        for one, other in pairwise(chain):
            after[one].append(other)
            before[other].append(one)
    at = [0.0] * len(halves)
    # The one before the first finds all at zero, and only numbers the rows.
    for sweep in range(-1, 3 * _SWEEPS):
        forward = sweep % 2 == 0
        for row in rows if forward else reversed(rows):
            wanted = {}
            for station in row:
                near = before[station] if forward else after[station]
                if sweep >= _SWEEPS:
                    near = before[station] + after[station]
                wanted[station] = fmean(at[other] for other in near) if near else at[station]
            if sweep >= 2 * _SWEEPS:
                _spread(row, wanted, halves, at)
                continue
            row.sort(key=wanted.__getitem__)
            for place, station in enumerate(row):
                at[station] = place - (len(row) - 1) / 2
    return at


def _spread(
    row: Sequence[int], wanted: Mapping[int, float], halves: Sequence[float], at: list[float]
) -> None:
    """Place a row in order and apart: half way between all pushed one way, and all the other."""
    offsets = [0.0]
    for one, other in pairwise(row):
        offsets.append(offsets[-1] + halves[one] + halves[other])
    free = [wanted[station] - offset for station, offset in zip(row, offsets, strict=True)]
    high, low = accumulate(free, max), [*accumulate(reversed(free), min)][::-1]
    for station, offset, *ends in zip(row, offsets, high, low, strict=True):
        at[station] = sum(ends) / 2 + offset


def _folded(
    bands: Sequence[Sequence[Sequence[int]]],
    at: Sequence[float],
    halves: Sequence[float],
    pitch: float,
) -> tuple[list[Point], float]:
    """Return where boxes and lanes stand, along the flow and across it, and the breadth of all.

    A band in which data flows back is turned round, so that arrows over a fold do not cross.
    """
    stops = [(0.0, 0.0)] * len(at)
    edge = 0.0
    for number, band in enumerate(bands):
        ahead = -1 if number % 2 else 1
        sides = [ahead * at[s] + side * halves[s] for row in band for s in row for side in (-1, 1)]
        for place, row in enumerate(band):
            along = (0.5 + (place if ahead > 0 else len(bands[0]) - 1 - place)) * pitch
            for station in row:
                stops[station] = along, ahead * at[station] - min(sides) + edge
        edge += max(sides) - min(sides) + _GUTTER_IN
    return stops, edge - _GUTTER_IN


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


def layer_parts(graph: OpGraph, view: LayerView) -> tuple[list[Part], list[tuple[int, int]]]:
    """Return the forward pass of a view with its wrapping layers cut into parts.

    Parts stand in an order in which data flows; behind them are the pairs of which the first sends
    the second something.
    """
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
    ends = dict.fromkeys((part_of[edge.producer], part_of[edge.consumer]) for edge in between)
    apart = [(source, target) for source, target in ends if source != target]
    ordered = sorted(apart)
    order = topological_order(len(found), [s for s, _ in ordered], [t for _, t in ordered]) or []
    place = {number: i for i, number in enumerate(order)}
    return [found[number] for number in order], [(place[s], place[t]) for s, t in apart]


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


# Its width and height.
_BOX = (1.86, 0.4)
# To place as many takes a second, and nobody looks through more.
_MOST_LAYERS = 2_000


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer of the forward pass, or a part of one, with the middle of its box; y leads down."""

    name: Text
    at: Point
    ops: Count
    flops: Count | None


@dataclass(frozen=True, slots=True)
class Flow:
    """What flows from one layer to another, by their numbers, and its way from middle to middle."""

    source: Count
    target: Count
    route: Rows[Point]


@dataclass(frozen=True, slots=True)
class Graph:
    """The layers of the forward pass, in an order in which data flows, and the size of a box."""

    box: Point
    layers: Rows[Layer]
    flows: Rows[Flow]

    def __post_init__(self) -> None:
        ends = (end for flow in self.flows for end in (flow.source, flow.target))
        check_below(len(self.layers), "graph.flows", ends)
        if any(not flow.route[1:] for flow in self.flows):
            raise MisfitError("a way without two ends", "graph.flows")


def check_below(count: int, place: str, numbers: Iterable[int]) -> None:
    """Check that numbers point at one of so many.

    Raises:
        MisfitError: one does not.
    """
    if (most := max(numbers, default=-1)) >= count:
        raise MisfitError(f"{most} is none of {count}", place)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerMap:
    """Layers and what flows between them, and of which layer each op is a part."""

    graph: Graph
    part_of: Mapping[str, int]

    def devices(self, placement: Placement) -> tuple[str, ...]:
        """Return the device that holds most ops of each layer (ties: first in device name)."""
        votes = [Counter[str]() for _ in self.graph.layers]
        for op, part in self.part_of.items():
            if op in placement.device_of:
                votes[part][placement.device_of[op]] += 1
        return tuple(most_voted(count) if count else "" for count in votes)

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
            number: Total.of(crossing[flow.source, flow.target].values()).exact
            for number, flow in enumerate(self.graph.flows)
            if (flow.source, flow.target) in crossing
        }


def layer_map(graph: OpGraph) -> LayerMap:
    """Return the map of a graph; it is empty if the graph has no forward ops.

    Layers of very many are shown to a depth of their paths.
    """
    parts, edges = layer_parts(graph, layer_view(graph, depth_for(graph, _MOST_LAYERS)))
    boxes, routes = best_layout(len(parts), edges, _BOX) if parts else ([], {})

    def point(place: Point) -> Point:
        return round(place[0], 3), round(place[1], 3)

    layers = [
        Layer(part.name, point(middle), len(part.ops), _flops(graph, part))
        for part, middle in zip(parts, boxes, strict=True)
    ]
    flows = [Flow(*ends, tuple(map(point, routes[ends]))) for ends in edges]
    part_of = {name: number for number, part in enumerate(parts) for name in part.ops}
    return LayerMap(graph=Graph(_BOX, tuple(layers), tuple(flows)), part_of=part_of)


def _flops(graph: OpGraph, part: Part) -> int | None:
    return Total.of(graph.op(name).flops for name in part.ops).amount
