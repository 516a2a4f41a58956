"""What each process waited for in a recorded profile, and which tensor or op is to blame.

Each gap between the ops of a process has a cause. Until a tensor arrives, the process waited for
it: for the copy while it was under way, before that for the op that makes it. After the last
arrival, the executor is starting the next op.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from placement_advisor.profile.device_trace import (
    Cause,
    Spans,
    Wait,
    all_spans,
    spans_length_before,
    union_of_spans,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from placement_advisor.profile.device_trace import Bools, Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class RanOps:
    """Runs of ops on a device in order of their starts; ``name`` are places among ``names``.

    ``collectives`` are those of the names that are of collective ops.
    """

    names: tuple[str, ...]
    collectives: frozenset[str]
    name: Ints
    spans: Spans


@dataclass(frozen=True, slots=True, kw_only=True)
class SentTensor:
    """One copy: a tensor from a device to another, with the op that made it."""

    tensor: str
    source: str
    target: str
    start_ns: int
    end_ns: int


@dataclass(slots=True, kw_only=True)
class ProcessRecord:
    """What one file shows of a process: runs of ops, and moments at the ends of copies by node.

    ``executing`` are disjoint spans in which an op ran or the executor was at work on one.
    """

    device: str
    ran: RanOps
    executing: Spans
    sends: dict[str, list[int]] = field(default_factory=dict)
    arrivals: dict[str, list[int]] = field(default_factory=dict)


# Judgement: starting an op takes microseconds (`advisor calibrate` shows how many), and a thread of
# the executor that has to be woken some tens more. What is longer was something else. A larger
# figure would explain more of the time by less; with this one nearly all of it has a cause
# (docs/how-to/profiles.md).
_LONGEST_START_NS = 100_000


class _Piece(NamedTuple):
    cause: Cause
    what: str
    where: str
    time_ns: int


def find_waits(
    processes: Sequence[ProcessRecord],
    copies: Sequence[SentTensor],
    steps: Sequence[tuple[int, int]],
) -> tuple[Wait, ...]:
    """Return what each process waited for from the start of the first step to the end of the last.

    ``steps`` are in order, ``copies`` by their arrival.
    """
    found = []
    for process in processes:
        total_ns: defaultdict[tuple[Cause, str, str], int] = defaultdict(int)
        for piece in _pieces(process, copies, processes, steps):
            total_ns[piece.cause, piece.what, piece.where] += piece.time_ns
        found += [
            Wait(device=process.device, cause=cause, what=what, where=where, time_ns=time_ns)
            for (cause, what, where), time_ns in total_ns.items()
            if time_ns
        ]
    return tuple(sorted(found, key=lambda wait: (wait.device, -wait.time_ns, wait.what)))


def _pieces(
    process: ProcessRecord,
    copies: Sequence[SentTensor],
    processes: Sequence[ProcessRecord],
    steps: Sequence[tuple[int, int]],
) -> Iterator[_Piece]:
    busy = union_of_spans([process.ran.spans])
    arrivals = [copy for copy in copies if copy.target == process.device]
    gaps = []
    for number, (start_ns, end_ns) in enumerate(steps):
        if number:
            yield _Piece(Cause.CLIENT, "", "", start_ns - steps[number - 1][1])
        first = int(np.searchsorted(busy.end, start_ns, side="right"))
        last = int(np.searchsorted(busy.start, end_ns))
        starts = np.concatenate([[start_ns], busy.end[first:last]])
        yield from _after_last(process, min(int(starts[-1]), end_ns), end_ns, processes)
        gaps.append(Spans(starts[:-1], np.maximum(starts[:-1], busy.start[first:last])))
    if gaps:
        sending = _Sending([copy for copy in copies if copy.source == process.device])
        yield from _of_gaps(process, gaps, arrivals, sending)


def _of_gaps(
    process: ProcessRecord,
    of_steps: Sequence[Spans],
    arrivals: Sequence[SentTensor],
    sending: _Sending,
) -> Iterator[_Piece]:
    """Yield the causes of the gaps of each step that end with an op.

    There may be millions, and few of them have an arrival or are long: what the executor takes to
    start ops is added up as arrays.
    """
    ran = process.ran
    start, end = all_spans(of_steps)
    is_first = np.concatenate([np.arange(len(gaps.start)) == 0 for gaps in of_steps])
    moments = np.array([copy.end_ns for copy in arrivals], np.int64)
    seen, until = (np.searchsorted(moments, at, side="right") for at in (start, end))
    until = np.where(end > start, until, seen)
    has_arrivals = until > seen
    for gap in np.flatnonzero(has_arrivals).tolist():
        at_ns = int(start[gap])
        for copy in arrivals[seen[gap] : until[gap]]:
            sent_ns = min(max(at_ns, copy.start_ns), copy.end_ns)
            yield _Piece(Cause.OP, copy.tensor, copy.source, sent_ns - at_ns)
            yield _Piece(Cause.COPY, copy.tensor, copy.source, copy.end_ns - sent_ns)
            at_ns = copy.end_ns
        start[gap] = at_ns
    for_client = is_first & ~has_arrivals
    yield _Piece(Cause.CLIENT, "", "", int((end - start)[for_client].sum()))
    op = ran.name[np.minimum(np.searchsorted(ran.spans.start, end), len(ran.name) - 1)]
    joins = np.array([name in ran.collectives for name in ran.names], np.bool_)[op]
    for place, time_ns in _by_place(op, end - start, joins & ~for_client):
        yield _Piece(Cause.OP, ran.names[place], "", time_ns)
    starts = ~joins & ~for_client
    executing_ns = spans_length_before(process.executing, end) - spans_length_before(
        process.executing, start
    )
    rest_ns = end - start - executing_ns
    for gap in np.flatnonzero(starts & (rest_ns > _LONGEST_START_NS)).tolist():
        sent = sending.first_within(int(start[gap]), int(end[gap]))
        if sent is not None:
            both_ns = min(int(end[gap]), sent.end_ns) - max(int(start[gap]), sent.start_ns)
            sending_ns = min(int(rest_ns[gap]), both_ns)
            yield _Piece(Cause.SENDING, sent.tensor, sent.target, sending_ns)
            rest_ns[gap] -= sending_ns
        if rest_ns[gap] > _LONGEST_START_NS:
            yield _Piece(Cause.UNEXPLAINED, "", "", int(rest_ns[gap]))
            rest_ns[gap] = 0
    for place, time_ns in _by_place(op, executing_ns + rest_ns, starts):
        yield _Piece(Cause.START, ran.names[place], process.device, time_ns)


def _by_place(places: Ints, time_ns: Ints, chosen: Bools) -> Iterator[tuple[int, int]]:
    """Yield each of the chosen places with its time added up."""
    found, which = np.unique(places[chosen], return_inverse=True)
    total_ns = np.bincount(which, time_ns[chosen])
    yield from zip(found.tolist(), total_ns.astype(np.int64).tolist(), strict=True)


class _Sending:
    """Copies from a device, to ask for one that was under way."""

    def __init__(self, copies: Sequence[SentTensor]) -> None:
        """Take copies in order of their ends."""
        self._copies = copies
        self._ends = [copy.end_ns for copy in copies]
        starts = np.array([copy.start_ns for copy in copies], np.int64)
        # When the first of a copy and all that end later began: no need to look behind it.
        self._begun = np.minimum.accumulate(starts[::-1])[::-1]

    def first_within(self, start_ns: int, end_ns: int) -> SentTensor | None:
        """Return the copy that ends first of those under way in some time, None if none was."""
        place = bisect_right(self._ends, start_ns)
        while place < len(self._copies) and self._begun[place] < end_ns:
            if self._copies[place].start_ns < end_ns:
                return self._copies[place]
            place += 1
        return None


def _after_last(
    process: ProcessRecord, at_ns: int, end_ns: int, processes: Sequence[ProcessRecord]
) -> Iterator[_Piece]:
    done_ns, op, where = at_ns, "", ""
    for other in processes:
        ran = other.ran
        before = int(np.searchsorted(ran.spans.start, end_ns))
        if other is process or not before:
            continue
        last = before - 1
        ended_ns = min(end_ns, int(ran.spans.end[last]))
        if ended_ns > done_ns:
            done_ns, op, where = ended_ns, ran.names[ran.name[last]], other.device
    if where:
        yield _Piece(Cause.OP, op, where, done_ns - at_ns)
    yield _Piece(Cause.CLIENT, "", "", end_ns - done_ns)
