"""Where the boxes of a layered picture stand, and along which points its arrows run.

A box stands in the rank before the first of those that it feeds, or in the last one. An arrow over
several ranks has a lane of its own in each of them. Boxes and lanes of a rank are sorted by the
mean place of their neighbours, which leaves few crossings, then pulled straight towards them. A
picture too long for a screen is folded: every second band of ranks runs back, so that an arrow over
a fold is a short turn.

Source: Sugiyama, Tagawa, Toda, Methods for Visual Understanding of Hierarchical System Structures,
1981, https://doi.org/10.1109/TSMC.1981.4308636.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import ceil
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

Point: TypeAlias = tuple[float, float]

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


class Stop(NamedTuple):
    """The middle of a box or lane; ``ahead`` is -1 in a band in which data flows back, else 1."""

    along: float
    across: float
    ahead: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Places of boxes, and of each arrow's stops from box to box, in inches.

    ``size`` of it all and of a ``box`` are along the flow of data and across it; ``gap`` is between
    ranks.
    """

    boxes: Sequence[Stop]
    routes: Mapping[tuple[int, int], Sequence[Stop]]
    size: Point
    box: Point
    gap: float
    flows_down: bool

    def point(self, along: float, across: float) -> Point:
        """Return x and y, y downwards."""
        return (across, along) if self.flows_down else (along, across)


def best_layout(count: int, arrows: Iterable[tuple[int, int]], box: Point) -> Layout:
    """Return the layout that a screen shows largest, of one or more boxes of a width and height.

    Arrows lead from a box to one of a higher number.
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
            layout = Layout(
                boxes=stops[:count],
                routes={its: [stops[each] for each in chain] for its, chain in chains.items()},
                size=(most * (along + gap), breadth),
                box=(along, across),
                gap=gap,
                flows_down=flows_down,
            )
            width, height = layout.point(*layout.size)
            scale = max(width / _SCREEN_WIDTH, height / _SCREEN_HEIGHT, 1.0)
            cut = sum(rank_of[t] // most - rank_of[s] // most for s, t in ends)
            found.append((round(scale * (1 + _COST_OF_CUT * cut), 1), bands, layout))
    return min(found, key=lambda each: each[:2])[2]


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
) -> tuple[list[Stop], float]:
    """Return where the boxes and lanes of bands of rows stand, and the breadth of all.

    A band in which data flows back is turned round, so that arrows over a fold do not cross.
    """
    stops = [Stop(0.0, 0.0, 1)] * len(at)
    edge = 0.0
    for number, band in enumerate(bands):
        ahead = -1 if number % 2 else 1
        sides = [ahead * at[s] + side * halves[s] for row in band for s in row for side in (-1, 1)]
        for place, row in enumerate(band):
            along = (0.5 + (place if ahead > 0 else len(bands[0]) - 1 - place)) * pitch
            for station in row:
                stops[station] = Stop(along, ahead * at[station] - min(sides) + edge, ahead)
        edge += max(sides) - min(sides) + _GUTTER_IN
    return stops, edge - _GUTTER_IN
