"""A picture of a model by layer: boxes in the order of data flow, arrows as thick as their bytes.

Names too long for a box are shortened to what tells them apart. Matplotlib is imported when a
picture is drawn, without pyplot. Left out: the backward pass, whose arrows run the same ways back,
layers without forward ops, and single ops.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import cycle, pairwise
from math import sqrt
from os.path import commonprefix
from typing import TYPE_CHECKING

from placement_advisor.errors import AdvisorError
from placement_advisor.graph.graph_summary import read_variables
from placement_advisor.graph.layer_view import (
    LayerView,
    depth_for,
    layer_view,
    membership,
    total_bytes,
)
from placement_advisor.graph.op import BRANCH_KINDS, LOOP_KINDS
from placement_advisor.report.pictures import canvas, layer_layout
from placement_advisor.report.pictures.canvas import text_width_in, told_apart
from placement_advisor.units import format_bytes, format_share

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.graph.placement import Placement

# More boxes than this do not fit a screen at a size that can be read.
MAX_BOXES = 60
# Fewer say little. Then the next depth is drawn, with chains of layers as one box.
_FEW_BOXES = 8
# A shorter common beginning of names says nothing.
_MIN_COMMON = 4
# Shares below take a digit more; below the second, that would be rounded to 0.0.
_SMALL_SHARE, _TINY_SHARE = 0.1, 0.0005
# What a layer mainly does: the first of which it has a kind of op.
_KINDS = {
    "loop or branch": f"^({'|'.join(LOOP_KINDS | BRANCH_KINDS)})$",
    "convolution": "Conv",
    "matrix product": "MatMul|Einsum",
    "lookup": "Gather|Lookup|SparseSegment",
    "other": "",
}
_OTHER_COLOR = "#9A9A9A"
_ARROW_COLOR = "#8C8C8C"
# Share of the group's colour in the face of a box: text on it keeps a contrast above 9 : 1.
_TINT = 0.22

_BOX_IN = (1.86, 0.56)
_BAR_IN = 0.075
_LINE_IN = 0.15
_SIDE_IN = 0.3
_HEAD_IN = canvas.HEAD_IN + 0.3
_MIN_WIDTH_IN = 8.4
_DPI = 130
_NAME_SIZE, _TEXT_SIZE = canvas.FONT_SIZE - 1, canvas.SMALL_FONT_SIZE - 1
# The patch of a group in the legend, and the gap behind it.
_KEY_IN = 0.45
# Arrows between these widths in points; the area under the heaviest would hide its neighbours.
_THINNEST, _THICKEST = 0.7, 5.0
_UNKNOWN_DASHES = (0, (2, 1.6))
# Arrows start and end on this share of a box's side.
_PORT_SHARE = 0.7
# From one band to the next, arrows that lead farther lie outside of others by this share of it.
_TURN_SHARE = 0.02
_LABELS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A layer, or several; ``shares`` are what devices, or kinds of layers, have of it."""

    name: str
    texts: Sequence[str]
    shares: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerBoxes:
    """All that a picture shows; ``colors`` of devices, or kinds of layers, are as in the legend.

    ``arrows`` have by their boxes the bytes of forward tensors, None where any is unknown.
    """

    title: str
    note: str
    boxes: Sequence[Box]
    arrows: Mapping[tuple[int, int], int | None]
    colors: Mapping[str, str]


def layer_boxes(
    graph: OpGraph, title: str, *, depth: int | None = None, placement: Placement | None = None
) -> LayerBoxes:
    """Return what to draw of a graph: layers to a depth of their paths, `MAX_BOXES` at most.

    Without a depth, the largest that shows no more boxes than that. Boxes belong to devices if
    there is a placement, else to what their layers do.

    Raises:
        AdvisorError: there is nothing to draw.
    """
    if depth is None:
        depth = depth_for(graph, MAX_BOXES)
        if depth and len(layer_view(graph, depth).forward_layers()) < _FEW_BOXES:
            depth += 1
    view = layer_view(graph, depth)
    found = layer_layout.layer_parts(graph, view)
    if not found.parts:
        raise AdvisorError(f"{title}: nothing to draw: the graph has no forward ops")
    groups = layer_layout.merged(len(found.parts), found.edges, MAX_BOXES)
    box_of = {part: box for box, group in enumerate(groups) for part in group}
    arrows: dict[tuple[int, int], list[int | None]] = defaultdict(list)
    for (source, target), size_bytes in found.edges.items():
        if box_of[source] != box_of[target]:
            arrows[box_of[source], box_of[target]].append(size_bytes)
    facts = _Facts(graph, view, found, placement)
    boxes = [facts.box([found.parts[number] for number in group]) for group in groups]
    used = sorted({group for box in boxes for group in box.shares})
    colors = dict(zip(_KINDS, (*canvas.KIND_COLORS, _OTHER_COLOR), strict=True))
    if placement is not None:
        title += f", placed as in {placement.label}"
        colors = dict(zip(used, cycle(canvas.DEVICE_COLORS), strict=False))
    return LayerBoxes(
        title=title,
        note=_note(graph, view, found, len(groups), depth),
        boxes=boxes,
        arrows={ends: total_bytes(sizes) for ends, sizes in arrows.items()},
        colors={group: color for group, color in colors.items() if group in used},
    )


class _Facts:
    """What a box says of its parts.

    The first part of a layer has all of its layer's parameters and flops: of the backward pass
    nobody knows which part it serves.
    """

    def __init__(
        self,
        graph: OpGraph,
        view: LayerView,
        parts: layer_layout.Parts,
        placement: Placement | None,
    ) -> None:
        drawn = {part.layer for part in parts.parts}
        self._graph, self._placement = graph, placement
        self._flops = {layer.name: layer.flops for layer in view.layers}
        self._step_flops = sum(op.flops or 0 for op in graph.ops)
        self._parameter_bytes: Counter[str] = Counter()
        for op in read_variables(graph):
            readers = view.membership.readers.get(op.variable or "", ())
            for layer in [layer for layer in readers if layer in drawn][:1]:
                self._parameter_bytes[layer] += op.parameter_bytes

    def box(self, parts: Sequence[layer_layout.Part]) -> Box:
        firsts = [part.layer for part in parts if part.number == 1]
        weights = sum(map(self._weights, parts), Counter[str]())
        texts = [f"{len(parts)} layers"] if len(parts) > 1 else []
        if parameter_bytes := sum(self._parameter_bytes[layer] for layer in firsts):
            texts.append(format_bytes(parameter_bytes))
        lines = [" · ".join([*texts, self._flops_text(firsts)])]
        if self._placement is not None:
            device, ops = min(weights.items(), key=lambda item: (-item[1], item[0]))
            share = "" if len(weights) == 1 else f" {format_share(ops / weights.total())}"
            lines.append(device + share)
        name, last = parts[0].name, parts[-1].name
        if len(parts) > 1:
            common = commonprefix([part.name for part in parts])  # noqa: RUF071 - no paths
            name = f"{common}*" if len(common) >= _MIN_COMMON else f"{name} to {last}"
        shares = {group: weight / weights.total() for group, weight in sorted(weights.items())}
        return Box(name=name, texts=lines, shares=shares)

    def _weights(self, part: layer_layout.Part) -> Counter[str]:
        """Return how many ops each device has, or how much the part weighs in its kind."""
        if self._placement is not None:
            return Counter(self._placement.device_of[name] for name in part.ops)
        kinds = "\n".join({self._graph.op(name).kind for name in part.ops})
        its = next(kind for kind, names in _KINDS.items() if re.search(names, kinds, re.MULTILINE))
        return Counter({its: 1 + (self._flops[part.layer].known if part.number == 1 else 0)})

    def _flops_text(self, layers: Sequence[str]) -> str:
        if not layers:
            return "counted in its first part"
        amounts = [self._flops[layer].amount for layer in layers]
        known = [amount for amount in amounts if amount is not None]
        if not known or not self._step_flops:
            return "flops unknown"
        share = sum(known) / self._step_flops
        if 0 < share < _TINY_SHARE:
            return "< 0.1 % of flops"
        return f"{share * 100:.{1 if 0 < share < _SMALL_SHARE else 0}f} % of flops"


def _note(
    graph: OpGraph, view: LayerView, parts: layer_layout.Parts, boxes: int, depth: int | None
) -> str:
    note = "Boxes: parameters, share of the step's flops. Arrows: forward tensors."
    if set(membership(graph).layer_of.values()) != set(view.membership.layer_of.values()):
        note += f" Layers to depth {depth} of their paths."
    if boxes < len(parts.parts):
        note += f" {len(parts.parts)} layers in {boxes} boxes: neighbours share one."
    if any(part.number > 1 for part in parts.parts):
        note += " Layer #2: the same layer after what it wraps."
    return note


@canvas.plain_style()
def draw_layers(boxes: LayerBoxes) -> Figure:
    """Return the picture."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    layout = layer_layout.best_layout(len(boxes.boxes), boxes.arrows, _BOX_IN)
    width, height = layout.point(*layout.size)
    least_in = max(_MIN_WIDTH_IN, text_width_in(boxes.note, canvas.SMALL_FONT_SIZE))
    page_width = max(width, least_in) + 2 * _SIDE_IN
    figure = canvas.new_page(height + _HEAD_IN + _SIDE_IN, page_width, _DPI)
    ax = figure.add_axes((0, 0, 1, 1))
    ax.set_axis_off()
    sides = (width - page_width) / 2, (width + page_width) / 2
    ax.set(xlim=sides, ylim=(height + _SIDE_IN, -_HEAD_IN))
    _draw_arrows(ax, layout, boxes.arrows)
    room_in = _BOX_IN[0] - _BAR_IN - 0.1
    names = told_apart([box.name for box in boxes.boxes], _NAME_SIZE, room_in, "bold")
    texts = told_apart([text for box in boxes.boxes for text in box.texts], _TEXT_SIZE, room_in)
    for box, stop in zip(boxes.boxes, layout.boxes, strict=True):
        lines = [names[box.name], *(texts[text] for text in box.texts)]
        _draw_box(ax, layout.point(*stop[:2]), box, lines, boxes.colors)
    room_in = (page_width - 2 * canvas.MARGIN_IN) / (len(boxes.colors) + 1) - _KEY_IN
    groups = told_apart(boxes.colors, canvas.FONT_SIZE, room_in)
    handles: list[Patch | Line2D] = [
        Patch(label=groups[group], facecolor=canvas.tint(color, _TINT), edgecolor=color, lw=1.5)
        for group, color in boxes.colors.items()
    ]
    if None in boxes.arrows.values():
        handles += [Line2D([], [], label="bytes unknown", color=_ARROW_COLOR, ls=_UNKNOWN_DASHES)]
    canvas.add_head(figure, boxes.title, "", handles)
    note_at = canvas.MARGIN_IN, canvas.HEAD_IN + 0.08
    canvas.write(figure, *note_at, boxes.note, size=canvas.SMALL_FONT_SIZE, color=canvas.FAINT)
    return figure


def _draw_box(
    ax: Axes, at: layer_layout.Point, box: Box, lines: Sequence[str], colors: Mapping[str, str]
) -> None:
    """Draw a box: face and bar in the colours of its groups, each as long as its share."""
    from matplotlib.patches import Rectangle

    (x, y), (width, height) = at, _BOX_IN
    left, top = x - width / 2, y - height / 2
    color = colors[max(box.shares, key=box.shares.__getitem__)]
    face = canvas.tint(color, _TINT)
    ax.add_patch(Rectangle((left, top), width, height, facecolor=face, edgecolor=color, lw=0.8))
    for group, share in box.shares.items():
        ax.add_patch(Rectangle((left, top), _BAR_IN, height * share, color=colors[group], lw=0))
        top += height * share
    for place, text in enumerate(lines):
        size, weight = (_TEXT_SIZE, "normal") if place else (_NAME_SIZE, "bold")
        line_y = y + (place - (len(lines) - 1) / 2) * _LINE_IN
        canvas.write_on(ax, x + _BAR_IN / 2, line_y, text, size=size, fontweight=weight)


def _draw_arrows(
    ax: Axes, layout: layer_layout.Layout, arrows: Mapping[tuple[int, int], int | None]
) -> None:
    """Draw the arrows, and the bytes of the heaviest as far as these do not overlap."""
    from matplotlib.patches import FancyArrowPatch
    from matplotlib.path import Path as Curve

    reach = _PORT_SHARE * layout.box[1]
    ports: dict[tuple[layer_layout.Waypoint, layer_layout.Waypoint], float] = {}
    for end, near in ((0, 1), (-1, -2)):
        stops_of: dict[layer_layout.Waypoint, list[layer_layout.Waypoint]] = defaultdict(list)
        for route in layout.routes.values():
            stops_of[route[end]].append(route[near])
        for box, stops in stops_of.items():
            stops.sort(key=lambda stop: stop.across * stop.ahead * box.ahead)
            for place, stop in enumerate(stops):
                ports[box, stop] = reach * ((place + 0.5) / len(stops) - 0.5)
    heaviest = max((size_bytes or 0 for size_bytes in arrows.values()), default=0) or 1
    labels: list[tuple[float, float, float]] = []
    for ends, size_bytes in sorted(arrows.items(), key=lambda item: (-(item[1] or 0), item[0])):
        points = [layout.point(*point) for point in _course(layout, layout.routes[ends], ports)]
        curves = [Curve.LINETO, *[Curve.CURVE4] * 3] * (len(points) // 4)
        arrow = FancyArrowPatch(
            path=Curve(points, [Curve.MOVETO, *curves[1:]]),
            arrowstyle="-|>,head_length=3.2,head_width=1.8",
            color=_ARROW_COLOR,
            lw=_THINNEST + (_THICKEST - _THINNEST) * sqrt((size_bytes or 0) / heaviest),
            linestyle="-" if size_bytes is not None else _UNKNOWN_DASHES,
        )
        ax.add_patch(arrow)
        text = format_bytes(size_bytes)
        half = text_width_in(text, _TEXT_SIZE) / 2 + 0.05
        x, y = ((one + other) / 2 for one, other in zip(points[0], points[3], strict=True))
        x, y = (x + half, y) if layout.flows_down else (x, y - _LINE_IN)
        is_free = all(abs(x - x2) > half + w or abs(y - y2) > _LINE_IN for x2, y2, w in labels)
        if size_bytes and is_free and len(labels) < _LABELS:
            labels.append((x, y, half))
            back = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 0.8}
            canvas.write_on(ax, x, y, text, size=_TEXT_SIZE, bbox=back)


def _course(
    layout: layer_layout.Layout,
    route: Sequence[layer_layout.Waypoint],
    ports: Mapping[tuple[layer_layout.Waypoint, layer_layout.Waypoint], float],
) -> list[layer_layout.Point]:
    """Return the way from box to box: straight along each rank, a curve of four points between."""
    half = layout.box[0] / 2
    points = []
    for one, other in pairwise(route):
        start = one.across + ports.get((one, other), 0)
        end = other.across + ports.get((other, one), 0)
        turn = _TURN_SHARE * abs(start - end) if one.ahead != other.ahead else 0
        bend = layout.gap / 2 + turn
        leaves, comes = one.along + one.ahead * half, other.along - other.ahead * half
        bends = (leaves + one.ahead * bend, start), (comes - other.ahead * bend, end)
        points += [(leaves, start), *bends, (comes, end)]
    return points
