"""The arrows of a layer picture: as thick as their bytes, the heaviest with a label."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import sqrt
from typing import TYPE_CHECKING, TypeAlias

from placement_advisor.report.pictures.canvas import INK, SMALL_FONT_SIZE
from placement_advisor.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes

    from placement_advisor.report.pictures.layer_boxes import Arrow
    from placement_advisor.report.pictures.layered_layout import Layout, Route, Sizes

_Point: TypeAlias = tuple[float, float]
_Stop: TypeAlias = tuple[int, float, float]

# Arrows between these widths in points; the area under the heaviest would hide its neighbours.
_THINNEST, _THICKEST = 0.7, 5.0
_LABELS = 8
_CHARACTER_IN = 0.062
_LINE_IN = 0.135
ARROW_COLOR = "#8C8C8C"
_ARROW_STYLE = "-|>,head_length=3.2,head_width=1.8"
# Arrows start and end on this share of a box's side, and run beside one another between bands.
_PORT_SHARE = 0.7
_LANES_IN = (0.0, 0.06, -0.06, 0.12, -0.12)
UNKNOWN_DASHES = (0, (2, 1.6))


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """Turns inches along the flow and across it into inches of the page."""

    flows_down: bool
    sizes: Sizes

    def point(self, along: float, across: float) -> tuple[float, float]:
        """Return x and y, y downwards."""
        return (across, along) if self.flows_down else (along, across)


def draw_arrows(
    ax: Axes, layout: Layout, frame: Frame, arrows: Mapping[tuple[int, int], Arrow]
) -> None:
    """Draw the arrows of a layout; they are named by their boxes, source first."""
    from matplotlib.patches import FancyArrowPatch
    from matplotlib.path import Path as Curve

    heaviest = max((arrow.size_bytes or 0 for arrow in arrows.values()), default=0)
    ports = _ports(layout)
    middles: dict[tuple[int, int], _Point] = {}
    folded = 0
    for route in layout.routes:
        ends = route.source, route.target
        course = _course(layout, frame, _with_ports(route, ports, frame), folded)
        folded += course.is_folded
        middles[ends] = frame.point(*course.middle)
        size_bytes = arrows[ends].size_bytes
        ax.add_patch(
            FancyArrowPatch(
                path=Curve(
                    [frame.point(*point) for point in course.points],
                    [Curve.MOVETO, *(Curve.CURVE4 if c else Curve.LINETO for c in course.curved)],
                ),
                arrowstyle=_ARROW_STYLE,
                color=ARROW_COLOR,
                linewidth=_width(size_bytes, heaviest),
                linestyle="-" if size_bytes is not None else UNKNOWN_DASHES,
                capstyle="butt",
                shrinkA=0,
                shrinkB=0,
                zorder=1,
            )
        )
    for (source, target), arrow in arrows.items():
        if source >= target:
            _draw_back_arrow(
                ax, layout, frame, (source, target), _width(arrow.size_bytes, heaviest)
            )
    _label_heaviest(ax, arrows, middles, beside=frame.flows_down)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Course:
    """Points of an arrow, each after the first with whether it is part of a curve."""

    points: list[_Point]
    curved: list[bool]
    middle: _Point
    is_folded: bool


def _course(layout: Layout, frame: Frame, stations: list[_Stop], number: int) -> _Course:
    """Return the way from station to station: curved within a band, around corners between."""
    half = frame.sizes.box_along / 2
    points: list[_Point] = [stations[0][1:]]
    curved: list[bool] = []
    middle = (stations[0][1] + stations[1][1]) / 2, (stations[0][2] + stations[1][2]) / 2
    for place, (one, other) in enumerate(pairwise(stations)):
        if one[0] == other[0]:
            bend = (other[1] - one[1]) * 0.45
            points += [(one[1] + bend, one[2]), (other[1] - bend, other[2]), other[1:]]
            curved += [True] * 3
            continue
        corners = _around(layout, *_outer(stations, place, half), number)
        if corners[-1] != other[1:]:
            corners.append(other[1:])  # From the side of its rank to the middle of its lane.
        points += corners
        curved += [False] * len(corners)
        if not place:
            middle = (one[1] + other[1]) / 2, corners[2][1]
    return _Course(points=points, curved=curved, middle=middle, is_folded=not all(curved))


def _width(size_bytes: int | None, heaviest: int) -> float:
    share = sqrt((size_bytes or 0) / heaviest) if heaviest else 0.0
    return _THINNEST + (_THICKEST - _THINNEST) * share


def _ports(layout: Layout) -> dict[tuple[int, int, bool], float]:
    """Return how far from the middle of its box each arrow starts and ends, in parts of its side.

    They stand in the order of where they go to or come from, so that they do not cross.
    """
    ports: dict[tuple[int, int, bool], float] = {}
    for leaving in (True, False):
        by_box: dict[int, list[Route]] = {}
        for route in layout.routes:
            by_box.setdefault(route.source if leaving else route.target, []).append(route)
        near = 1 if leaving else -2
        for routes in by_box.values():
            routes.sort(key=lambda route: route.stations[near][2])
            for i, route in enumerate(routes):
                ports[route.source, route.target, leaving] = (i + 0.5) / len(routes) - 0.5
    return ports


def _with_ports(
    route: Route, ports: Mapping[tuple[int, int, bool], float], frame: Frame
) -> list[_Stop]:
    """Return the stations with both ends on the sides of the boxes."""
    sizes = frame.sizes
    stations = list(route.stations)
    for place, leaving, sign in ((0, True, 1), (-1, False, -1)):
        band, along, across = stations[place]
        port = ports[route.source, route.target, leaving]
        stations[place] = (
            band,
            along + sign * sizes.box_along / 2,
            across + port * _PORT_SHARE * sizes.box_across,
        )
    return stations


def _around(layout: Layout, one: _Stop, other: _Stop, number: int) -> list[_Point]:
    """Return the corners on the way from the end of one band to the start of the next."""
    beside = _LANES_IN[number % len(_LANES_IN)]
    gutter = (layout.spans[one[0]][1] + layout.spans[other[0]][0]) / 2 + beside
    below, above = one[1] + 0.14 + abs(beside), other[1] - 0.14 - abs(beside)
    return [
        (one[1], one[2]),
        (below, one[2]),
        (below, gutter),
        (above, gutter),
        (above, other[2]),
        (other[1], other[2]),
    ]


def _outer(stations: Sequence[_Stop], place: int, half: float) -> tuple[_Stop, _Stop]:
    """Return a station and its next at the outer sides of their ranks; boxes' ends lie there."""
    (band, along, across), (next_band, next_along, next_across) = stations[place : place + 2]
    if place > 0:
        along += half
    if place + 2 < len(stations):
        next_along -= half
    return (band, along, across), (next_band, next_along, next_across)


def _draw_back_arrow(
    ax: Axes, layout: Layout, frame: Frame, ends: tuple[int, int], width: float
) -> None:
    from matplotlib.patches import FancyArrowPatch

    ax.add_patch(
        FancyArrowPatch(
            *(frame.point(*layout.centres[end]) for end in ends),
            connectionstyle="arc3,rad=0.4",
            arrowstyle=_ARROW_STYLE,
            color=ARROW_COLOR,
            linewidth=width,
            shrinkA=20,
            shrinkB=20,
            zorder=1,
        )
    )


def _label_heaviest(
    ax: Axes,
    arrows: Mapping[tuple[int, int], Arrow],
    middles: Mapping[tuple[int, int], _Point],
    *,
    beside: bool,
) -> None:
    """Write the bytes beside or above the heaviest arrows, as far as they do not overlap."""
    known = [(arrow.size_bytes, ends) for ends, arrow in arrows.items() if arrow.size_bytes]
    taken: list[tuple[float, float, float]] = []
    for size_bytes, ends in sorted(known, key=lambda item: (-item[0], item[1])):
        if ends not in middles:
            continue
        text = format_bytes(size_bytes)
        half = len(text) * _CHARACTER_IN / 2
        x, y = middles[ends]
        x, y = (x + half + 0.05, y) if beside else (x, y - _LINE_IN)
        if any(abs(x - x2) < half + w and abs(y - y2) < _LINE_IN for x2, y2, w in taken):
            continue
        taken.append((x, y, half))
        ax.text(
            x,
            y,
            text,
            ha="center",
            va="center",
            fontsize=SMALL_FONT_SIZE - 1,
            color=INK,
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 0.8},
            zorder=2,
        )
        if len(taken) == _LABELS:
            return
