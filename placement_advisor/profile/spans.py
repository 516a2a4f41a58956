"""Sums over very many spans of time, as arrays; `intervals` does the same for a few.

Spans are two arrays, starts and ends in ns. *Disjoint* spans are in order, do not overlap, and have
a length each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]


class Spans(NamedTuple):
    """Starts and ends."""

    start: Ints
    end: Ints

    def pairs(self) -> list[tuple[int, int]]:
        """Return them one by one."""
        return list(zip(self.start.tolist(), self.end.tolist(), strict=True))


NO_SPANS = Spans(np.empty(0, np.int64), np.empty(0, np.int64))


def union(parts: Iterable[Spans]) -> Spans:
    """Return the disjoint spans that cover what any of these covers."""
    found = [part for part in parts if len(part.start)]
    if not found:
        return NO_SPANS
    start = np.concatenate([part.start for part in found])
    end = np.concatenate([part.end for part in found])
    if (start[1:] < start[:-1]).any():
        order = np.argsort(start, kind="stable")
        start, end = start[order], end[order]
    reach = np.maximum.accumulate(end, out=end)
    first = np.ones(len(start), np.bool_)
    np.greater(start[1:], reach[:-1], out=first[1:])
    begins = np.flatnonzero(first)
    last = np.append(begins[1:], len(start)) - 1
    begin, reach = start[begins], reach[last]
    has_length = reach > begin
    return Spans(begin[has_length], reach[has_length])


def length(disjoint: Spans) -> int:
    """Return the length of disjoint spans together."""
    return int((disjoint.end - disjoint.start).sum())


def length_before(disjoint: Spans, moments: Ints) -> Ints:
    """Return how much of disjoint spans lies before each moment."""
    done = np.concatenate([[0], np.cumsum(disjoint.end - disjoint.start)])
    begun = np.searchsorted(disjoint.start, moments, side="right")
    last = np.maximum(begun - 1, 0)
    if not len(disjoint.start):
        return np.zeros(len(moments), np.int64)
    inside = np.clip(moments, disjoint.start[last], disjoint.end[last]) - disjoint.start[last]
    found: Ints = np.where(begun > 0, done[last] + inside, 0)
    return found


def outside(spans: Spans, cover: Spans) -> Spans:
    """Return what of disjoint spans lies outside of other disjoint spans."""
    first = np.searchsorted(cover.end, spans.start, side="right")
    gaps = np.searchsorted(cover.start, spans.end) - first + 1
    # A span meets as many gaps of the cover: before the first of it, between, behind the last.
    of_gap = np.repeat(np.arange(len(gaps)), gaps)
    gap = np.arange(len(of_gap)) + np.repeat(first - np.cumsum(gaps) + gaps, gaps)
    bounds = np.iinfo(np.int64)
    start = np.maximum(spans.start[of_gap], np.append(bounds.min, cover.end)[gap])
    end = np.minimum(spans.end[of_gap], np.append(cover.start, bounds.max)[gap])
    has_length = end > start
    return Spans(start[has_length], end[has_length])


def shares(disjoint: Spans, those: Spans) -> Floats:
    """Return how much of disjoint spans lies in each of those, which share what several cover.

    Those may overlap, and be in any order.
    """
    bounds = np.unique(np.concatenate(those))
    ends = np.sort(those.end)
    count = np.searchsorted(np.sort(those.start), bounds, side="right")
    count -= np.searchsorted(ends, bounds, side="right")
    inside = np.diff(length_before(disjoint, bounds))
    # Where none of those is, nothing is shared.
    each = np.concatenate([[0.0], np.cumsum(inside / np.maximum(count[:-1], 1))])
    place = np.searchsorted(bounds, those)
    found: Floats = each[place[1]] - each[place[0]]
    return found
