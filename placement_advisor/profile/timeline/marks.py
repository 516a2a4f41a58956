"""Step marks of a host: spans within which a step was asked for, and when things were launched.

A mark is an event with `step_num`, whatever its name; of marks within marks the outermost counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from placement_advisor.profile.spans import Spans
from placement_advisor.profile.xspace.xplane_schema import NO_KEY

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from placement_advisor.profile.xspace.space_file import SpaceFile

    Ints = NDArray[np.int64]

CORRELATION = "correlation_id"

_MARK = "step_num"
_DEVICE_PLANE = "/device:"


class Marks(NamedTuple):
    """The steps of a host in order, and when things were launched.

    ``launched`` are correlations, sorted, and ``launched_ns`` their moments.
    """

    steps: Spans
    launched: Ints
    launched_ns: Ints

    def step_of(self, correlations: Ints) -> Ints:
        """Return the number of the step in which each was launched, `NO_KEY` if in none."""
        known, moments = self._launches(correlations)
        found: Ints = np.where(known, _within(self.steps, moments), NO_KEY)
        return found

    def launch_of(self, correlations: Ints, otherwise: Ints) -> Ints:
        """Return the moment at which each was launched, another where that is not known."""
        known, moments = self._launches(correlations)
        found: Ints = np.where(known, moments, otherwise)
        return found

    def _launches(self, correlations: Ints) -> tuple[NDArray[np.bool_], Ints]:
        if not len(self.launched):
            return np.zeros(len(correlations), np.bool_), np.zeros(len(correlations), np.int64)
        place = np.minimum(np.searchsorted(self.launched, correlations), len(self.launched) - 1)
        return self.launched[place] == correlations, self.launched_ns[place]


def read_marks(file: SpaceFile, *, launches: bool) -> Marks:
    """Read the step marks of a file and, if they are wanted, what was launched in each."""
    marks: list[tuple[int, int]] = []
    correlations, moments = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for plane in file.planes:
        if plane.name.startswith(_DEVICE_PLANE):
            continue
        if not launches and _MARK not in plane.stat_names.values():
            continue
        for line in plane.lines:
            key = CORRELATION if launches else None
            events = file.events(plane, line, key=key, of_all=(_MARK,))
            for event, _, _ in file.values(plane, events):
                start_ns = int(events.start_ns[event])
                marks.append((start_ns, start_ns + int(events.duration_ns[event])))
            known = events.key != NO_KEY
            correlations.append(events.key[known])
            moments.append(events.start_ns[known])
    steps = outermost(marks)
    launched, moment_ns = np.concatenate(correlations), np.concatenate(moments)
    # Of events with one correlation the first one launches.
    order = np.lexsort((moment_ns, launched))
    launched, first = np.unique(launched[order], return_index=True)
    return Marks(steps, launched, moment_ns[order][first])


def outermost(marks: Iterable[tuple[int, int]]) -> Spans:
    """Return the marks that are in no other, in order."""
    found: list[tuple[int, int]] = []
    for start_ns, end_ns in sorted(marks, key=lambda mark: (mark[0], -mark[1])):
        if not found or start_ns >= found[-1][1]:
            found.append((start_ns, end_ns))
    starts, ends = zip(*found, strict=True) if found else ((), ())
    return Spans(np.array(starts, np.int64), np.array(ends, np.int64))


def _within(steps: Spans, moments: Ints) -> Ints:
    place = np.searchsorted(steps.start, moments, side="right") - 1
    if not len(steps.start):
        return np.full(len(moments), NO_KEY)
    inside = (place >= 0) & (moments < steps.end[np.maximum(place, 0)])
    found: Ints = np.where(inside, place, NO_KEY)
    return found
