"""Sums over intervals of time that may overlap; an interval is (start, end) in ns."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

Interval = tuple[int, int]
Key = TypeVar("Key", bound="Hashable")


def by_key(intervals: Iterable[tuple[Key, Interval]]) -> defaultdict[Key, list[Interval]]:
    """Return the intervals of each key, in the order given."""
    found: defaultdict[Key, list[Interval]] = defaultdict(list)
    for key, interval in intervals:
        found[key].append(interval)
    return found


def merged(intervals: Iterable[Interval]) -> list[Interval]:
    """Return the union of intervals as disjoint intervals in order."""
    union: list[Interval] = []
    for start, end in sorted(intervals):
        if union and start <= union[-1][1]:
            union[-1] = (union[-1][0], max(end, union[-1][1]))
        else:
            union.append((start, end))
    return union


def length(disjoint: Iterable[Interval]) -> int:
    """Return the length of disjoint intervals together."""
    return sum(end - start for start, end in disjoint)


def length_outside(spans: Iterable[Interval], covers: Iterable[Interval]) -> int:
    """Return how much of the union of ``spans`` lies outside every one of ``covers``."""
    cover = merged(covers)
    return length(merged([*cover, *spans])) - length(cover)


def shares(intervals: Sequence[Interval]) -> list[int]:
    """Return for each interval its share of the union, in the order given.

    At every moment the interval that ends first has the moment to itself, as if all were served
    one after the other in the order in which they were done. Shares add up to the union's length.

    >>> shares([(0, 10), (2, 5)])
    [7, 3]
    """
    result = [0] * len(intervals)
    done: list[Interval] = []
    for i in sorted(range(len(intervals)), key=lambda i: (intervals[i][1], intervals[i][0])):
        joined = merged([*done, intervals[i]])
        result[i] = length(joined) - length(done)
        done = joined
    return result
