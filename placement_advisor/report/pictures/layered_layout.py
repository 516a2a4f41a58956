"""Where the boxes of a layered picture stand, and along which points its arrows run.

Boxes stand in ranks, in the order that `layered_order` gives, pulled straight towards their
neighbours; long arrows most of all. A long picture is folded into bands side by side. Boxes are
numbered in the order in which data flows; an arrow from a later to an earlier box (a loop between
layers) has no say in where boxes stand, and no route.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from placement_advisor.report.pictures.layered_order import (
    SWEEPS,
    Station,
    chains_of,
    ordered_rows,
    ranks_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

# How much a step of an arrow wants to run straight, by how many of its ends are boxes: long
# arrows are hardest to follow if they bend.
_PULL = (8.0, 2.0, 1.0)
# How far a fold may lie from the even cut, to find a place where few arrows are cut.
_FOLD_REACH = 2
# A picture of this shape fills a screen.
_SCREEN_WIDTH, _SCREEN_HEIGHT = 16.0, 10.0
_MAX_BANDS = 8
# An arrow that goes on in the next band is harder to follow: as bad as a picture 2 % smaller.
_COST_OF_CUT = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Inches: of a box, between boxes of a rank, between ranks, of a lane, between bands."""

    box_along: float
    box_across: float
    gap_along: float
    gap_across: float
    lane: float
    gutter: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """An arrow's stations, box centres at both ends, each as (band, along, across)."""

    source: int
    target: int
    stations: tuple[tuple[int, float, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Centres of boxes and stations of arrows, in inches along the flow of data and across it.

    ``spans`` are the ends of each band across, ``length`` is the longest band.
    """

    centres: tuple[tuple[float, float], ...]
    routes: tuple[Route, ...]
    spans: tuple[tuple[float, float], ...]
    length: float

    @property
    def breadth(self) -> float:
        """Extent across."""
        return self.spans[-1][1] if self.spans else 0.0


def best_layout(
    count: int, edges: Sequence[tuple[int, int]], down: Sizes, right: Sizes
) -> tuple[Layout, bool]:
    """Return the layout that a screen shows largest, and whether data flows down in it.

    ``down`` are the sizes if data flows down, ``right`` if it flows to the right.
    """
    ranks = ranks_of(count, edges)
    chains = chains_of(edges, ranks)
    rows = ordered_rows(count, ranks, chains)
    found: list[tuple[float, int, bool, Layout]] = []
    for flows_down, sizes in ((True, down), (False, right)):
        across = _across(rows, chains, sizes)
        for bands in range(1, min(_MAX_BANDS, len(rows)) + 1):
            layout = _folded(count, rows, chains, across, sizes, bands)
            width, height = layout.breadth, layout.length
            if not flows_down:
                width, height = height, width
            scale = max(width / _SCREEN_WIDTH, height / _SCREEN_HEIGHT, 1.0)
            cut = sum(
                one[0] != other[0]
                for route in layout.routes
                for one, other in pairwise(route.stations)
            )
            found.append((scale * (1 + _COST_OF_CUT * cut), bands, flows_down, layout))
    _, _, flows_down, layout = min(found, key=lambda f: (round(f[0], 1), f[1], not f[2]))
    return layout, flows_down


def _across(
    rows: list[list[Station]],
    chains: Mapping[tuple[int, int], list[Station]],
    sizes: Sizes,
) -> dict[Station, float]:
    """Return each station's place across, near the mean of its neighbours."""
    near: dict[Station, list[tuple[Station, float]]] = defaultdict(list)
    for chain in chains.values():
        for one, other in pairwise(chain):
            weight = _PULL[one.is_box + other.is_box]
            near[one].append((other, weight))
            near[other].append((one, weight))
    at: dict[Station, float] = {}
    for row in rows:
        _spread(row, dict.fromkeys(row, (0.0, 1.0)), at, sizes)
    for sweep in range(SWEEPS):
        for row in rows if sweep % 2 == 0 else reversed(rows):
            wanted = {station: (at[station], 1.0) for station in row}
            for station in row:
                pull = sum(weight for _, weight in near[station])
                if pull:
                    mean = sum(at[n] * weight for n, weight in near[station]) / pull
                    wanted[station] = (mean, pull)
            _spread(row, wanted, at, sizes)
    return at


def _half(station: Station, sizes: Sizes) -> float:
    return (sizes.box_across + sizes.gap_across) / 2 if station.is_box else sizes.lane / 2


def _spread(
    row: list[Station],
    wanted: Mapping[Station, tuple[float, float]],
    at: dict[Station, float],
    sizes: Sizes,
) -> None:
    """Place a row in order, apart, with the least squared distances to what is wanted.

    What is wanted is a place and its weight.
    """
    offsets, offset = [], 0.0
    for i, station in enumerate(row):
        if i:
            offset += _half(row[i - 1], sizes) + _half(station, sizes)
        offsets.append(offset)
    blocks: list[tuple[float, float, int]] = []  # Mean, weight and count of what has been pooled.
    for station, offset in zip(row, offsets, strict=True):
        place, weight = wanted[station]
        mean, count = place - offset, 1
        while blocks and blocks[-1][0] > mean:
            other, others_weight, others = blocks.pop()
            mean = (mean * weight + other * others_weight) / (weight + others_weight)
            weight, count = weight + others_weight, count + others
        blocks.append((mean, weight, count))
    means = [mean for mean, _, count in blocks for _ in range(count)]
    for station, offset, mean in zip(row, offsets, means, strict=True):
        at[station] = mean + offset


def _folded(
    count: int,
    rows: list[list[Station]],
    chains: Mapping[tuple[int, int], list[Station]],
    across: Mapping[Station, float],
    sizes: Sizes,
    bands: int,
) -> Layout:
    """Return the layout cut into bands."""
    starts = _folds(rows, chains, bands)
    band_of = [sum(rank >= start for start in starts[1:]) for rank in range(len(rows))]
    step = sizes.box_along + sizes.gap_along
    shift: list[float] = []
    spans: list[tuple[float, float]] = []
    edge = 0.0
    for band in range(len(starts)):
        places = [
            (across[s] - _half(s, sizes), across[s] + _half(s, sizes))
            for row, its in zip(rows, band_of, strict=True)
            if its == band
            for s in row
        ]
        low, high = min(p[0] for p in places), max(p[1] for p in places)
        shift.append(edge - low)
        spans.append((edge, edge + high - low))
        edge += high - low + sizes.gutter
    lengths = [0.0] * len(starts)

    def place(station: Station) -> tuple[int, float, float]:
        band = band_of[station.rank]
        along = (station.rank - starts[band] + 0.5) * step
        lengths[band] = max(lengths[band], along + step / 2)
        return band, along, across[station] + shift[band]

    centres: list[tuple[float, float]] = [(0.0, 0.0)] * count
    for row in rows:
        for station in row:
            if station.is_box:
                centres[station.box] = place(station)[1:]
    return Layout(
        centres=tuple(centres),
        routes=tuple(
            Route(source=source, target=target, stations=tuple(map(place, chain)))
            for (source, target), chain in chains.items()
        ),
        spans=tuple(spans),
        length=max(lengths, default=0.0),
    )


def _folds(
    rows: list[list[Station]],
    chains: Mapping[tuple[int, int], Iterable[Station]],
    bands: int,
) -> list[int]:
    """Return the first rank of each band, where few arrows are cut."""
    cut: dict[int, int] = defaultdict(int)
    for chain in chains.values():
        ranks = [station.rank for station in chain]
        for rank in range(min(ranks) + 1, max(ranks) + 1):
            cut[rank] += 1
    starts = [0]
    for band in range(1, bands):
        even = round(len(rows) * band / bands)
        near = range(
            max(starts[-1] + 1, even - _FOLD_REACH), min(len(rows), even + _FOLD_REACH + 1)
        )
        if near:
            starts.append(min(near, key=lambda rank: (cut[rank], abs(rank - even))))
    return starts
