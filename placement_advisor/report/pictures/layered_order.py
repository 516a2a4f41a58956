"""In which rank each box of a layered picture stands, and in which order within it.

A rank is one after the last of those that feed a box; a box that nothing feeds stands just before
its first reader. Within a rank, boxes are ordered by the mean place of their neighbours, which
leaves few crossings. An arrow over several ranks has a station, a lane of its own, in each.

Source: Sugiyama, Tagawa, Toda, Methods for Visual Understanding of Hierarchical System Structures,
1981, https://doi.org/10.1109/TSMC.1981.4308636.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Orders settle after a few sweeps; more only cost time.
SWEEPS = 12


class Station(NamedTuple):
    """A box, or the lane in which an arrow passes a rank."""

    rank: int
    arrow: int = -1
    box: int = -1

    @property
    def is_box(self) -> bool:
        """Whether a box stands here."""
        return self.box >= 0


def ranks_of(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """Return the rank of each box."""
    after: dict[int, list[int]] = defaultdict(list)
    fed = set()
    for source, target in edges:
        if source < target:
            after[source].append(target)
            fed.add(target)
    ranks = [0] * count
    for box in range(count):
        for target in after[box]:
            ranks[target] = max(ranks[target], ranks[box] + 1)
    for box in range(count):
        if box not in fed and after[box]:
            ranks[box] = min(ranks[target] for target in after[box]) - 1
    return ranks


def chains_of(
    edges: Sequence[tuple[int, int]], ranks: Sequence[int]
) -> dict[tuple[int, int], list[Station]]:
    """Return the stations of each forward arrow, one a rank."""
    chains = {}
    for number, (source, target) in enumerate(edges):
        if source >= target:
            continue
        lanes = [Station(rank, arrow=number) for rank in range(ranks[source] + 1, ranks[target])]
        chains[source, target] = [
            Station(ranks[source], box=source),
            *lanes,
            Station(ranks[target], box=target),
        ]
    return chains


def ordered_rows(
    count: int, ranks: Sequence[int], chains: Mapping[tuple[int, int], list[Station]]
) -> list[list[Station]]:
    """Return the stations of each rank in an order with few crossings."""
    rows: list[list[Station]] = [[] for _ in range(max(ranks, default=-1) + 1)]
    for box in range(count):
        rows[ranks[box]].append(Station(ranks[box], box=box))
    before: dict[Station, list[Station]] = defaultdict(list)
    after: dict[Station, list[Station]] = defaultdict(list)
    for chain in chains.values():
        for station in chain[1:-1]:
            rows[station.rank].append(station)
        for one, other in pairwise(chain):
            after[one].append(other)
            before[other].append(one)
    best, fewest = [list(row) for row in rows], _crossings(rows, after)
    for sweep in range(SWEEPS):
        forward = sweep % 2 == 0
        for row in rows if forward else reversed(rows):
            _sort_by_neighbours(row, rows, before if forward else after, -1 if forward else 1)
        crossings = _crossings(rows, after)
        if crossings < fewest:
            best, fewest = [list(row) for row in rows], crossings
    return best


def _sort_by_neighbours(
    row: list[Station],
    rows: list[list[Station]],
    neighbours: Mapping[Station, list[Station]],
    step: int,
) -> None:
    if not row or not 0 <= row[0].rank + step < len(rows):
        return
    other = rows[row[0].rank + step]
    place = {station: i / max(len(other) - 1, 1) for i, station in enumerate(other)}
    own = {station: i / max(len(row) - 1, 1) for i, station in enumerate(row)}
    wanted = {
        station: sum(place[n] for n in near) / len(near)
        if (near := neighbours.get(station))
        else own[station]
        for station in row
    }
    row.sort(key=lambda station: wanted[station])


def _crossings(rows: list[list[Station]], after: Mapping[Station, list[Station]]) -> int:
    total = 0
    for row, below in pairwise(rows):
        place = {station: i for i, station in enumerate(below)}
        ends: list[int] = []
        for station in row:
            its = sorted(place[n] for n in after.get(station, ()))
            total += sum(len(ends) - bisect_right(ends, end) for end in its)
            for end in its:
                insort(ends, end)
    return total
