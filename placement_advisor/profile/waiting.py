"""Why a process computed nothing: the named causes of every gap between its ops.

Model: a gap ends when something arrives or an op begins. Up to an arrival the process waited for
that tensor: while it was under way for the copy, before that for the op that was to make it. After
the last arrival, or where nothing arrives, the executor starts the next op: it is at work on ops,
by events of its own, or needs no more than `LONGEST_START_NS` beside that. Ops that TensorFlow has
found to be cheap leave no event and run in that time; a collective waits for the others to join.
Where it takes longer and the process was sending something, its core was busy with that copy, else
the profile shows no cause. Before the first op of a step, and between steps, a process waits for
the client; after its last op for the last op of the process that is done last, and then for the
client.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from placement_advisor.profile.spans import union

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from placement_advisor.profile.host_trace import Process, Sent

LONGEST_START_NS = 100_000


class Cause(StrEnum):
    """What a process waits for."""

    COPY = "copy"
    SENDING = "sending"
    OP = "op"
    START = "start"
    CLIENT = "client"
    UNEXPLAINED = "unexplained"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Time that a device waited for one cause, over all steps.

    ``what`` is the tensor or op, empty for the client; ``where`` the device that it comes from,
    that it goes to (sending), or that it is of; empty for a collective, which is of all.
    """

    device: str
    cause: Cause
    what: str
    where: str
    time_ns: int


@dataclass(frozen=True, slots=True)
class _Piece:
    cause: Cause
    what: str
    where: str
    time_ns: int


def waits(
    processes: Sequence[Process], copies: Sequence[Sent], steps: Sequence[tuple[int, int]]
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
    process: Process,
    copies: Sequence[Sent],
    processes: Sequence[Process],
    steps: Sequence[tuple[int, int]],
) -> Iterator[_Piece]:
    busy = union([process.ran.spans])
    begins, ends = busy.start.tolist(), busy.end.tolist()
    sending = [copy for copy in copies if copy.source == process.device]
    arrivals = [copy for copy in copies if copy.target == process.device]
    moments = [copy.end_ns for copy in arrivals]
    for number, (start_ns, end_ns) in enumerate(steps):
        if number:
            yield _Piece(Cause.CLIENT, "", "", start_ns - steps[number - 1][1])
        first, last = bisect_right(ends, start_ns), bisect_left(begins, end_ns)
        at_ns = start_ns
        for i in range(first, last):
            gap = at_ns, max(at_ns, begins[i])
            seen = arrivals[bisect_right(moments, gap[0]) : bisect_right(moments, gap[1])]
            yield from _gap(process, gap, seen, sending, is_first=i == first)
            at_ns = max(at_ns, min(ends[i], end_ns))
        yield from _after_last(process, at_ns, end_ns, processes)


def _gap(
    process: Process,
    gap: tuple[int, int],
    arrivals: Sequence[Sent],
    sending: Sequence[Sent],
    *,
    is_first: bool,
) -> Iterator[_Piece]:
    at_ns, end_ns = gap
    if at_ns == end_ns:
        return
    for copy in arrivals:
        sent_ns = min(max(at_ns, copy.start_ns), copy.end_ns)
        yield _Piece(Cause.OP, copy.tensor, copy.source, sent_ns - at_ns)
        yield _Piece(Cause.COPY, copy.tensor, copy.source, copy.end_ns - sent_ns)
        at_ns = copy.end_ns
    if is_first and not arrivals:
        yield _Piece(Cause.CLIENT, "", "", end_ns - at_ns)
        return
    place = min(bisect_left(process.ran.spans.start, end_ns), len(process.ran.name) - 1)
    op = process.ran.names[process.ran.name[place]]
    executing_ns = process.executing_ns(at_ns, end_ns)
    rest_ns = end_ns - at_ns - executing_ns
    if op in process.ran.collectives:
        yield _Piece(Cause.OP, op, "", end_ns - at_ns)
        return
    sent = next((c for c in sending if c.start_ns < end_ns and c.end_ns > at_ns), None)
    if sent is not None and rest_ns > LONGEST_START_NS:
        sending_ns = min(rest_ns, min(end_ns, sent.end_ns) - max(at_ns, sent.start_ns))
        yield _Piece(Cause.SENDING, sent.tensor, sent.target, sending_ns)
        rest_ns -= sending_ns
    if rest_ns <= LONGEST_START_NS:
        yield _Piece(Cause.START, op, process.device, executing_ns + rest_ns)
    else:
        yield _Piece(Cause.START, op, process.device, executing_ns)
        yield _Piece(Cause.UNEXPLAINED, "", "", rest_ns)


def _after_last(
    process: Process, at_ns: int, end_ns: int, processes: Sequence[Process]
) -> Iterator[_Piece]:
    done_ns, op, where = at_ns, "", ""
    for other in processes:
        ran = other.ran
        before = bisect_left(ran.spans.start, end_ns)
        if other is process or not before:
            continue
        last = before - 1
        ended_ns = min(end_ns, int(ran.spans.end[last]))
        if ended_ns > done_ns:
            done_ns, op, where = ended_ns, ran.names[ran.name[last]], other.device
    if where:
        yield _Piece(Cause.OP, op, where, done_ns - at_ns)
    yield _Piece(Cause.CLIENT, "", "", end_ns - done_ns)
