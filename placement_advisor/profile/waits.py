"""What processes that compute on their own cores ran, copied and waited for in a recorded profile.

A process computes while any op runs on any of its threads. A copy between processes lasts
from the start of `_Send` until the receiver goes on: it includes the way through both
processes and the wait for a busy core.

Each gap between the ops of a process has a cause. Until a tensor arrives, the process waited for
it: for the copy while it was under way, before that for the op that makes it. After the last
arrival, the executor is starting the next op.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from placement_advisor.profile import steps as profile_steps
from placement_advisor.profile.copy_names import CopyKind
from placement_advisor.profile.device_trace import (
    UNKNOWN_BYTES,
    UNKNOWN_END,
    Cause,
    CopyColumns,
    DeviceUse,
    Route,
    Spans,
    Wait,
    all_spans,
    spans_length_before,
    union_of_spans,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from placement_advisor.profile.device_trace import Bools, Ints, TraceBuilder
    from placement_advisor.profile.xspace_columns import (
        Events,
        SpaceFile,
        StoredLine,
        StoredPlane,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SentTensor:
    """One copy: a tensor from a device to another, with the op that made it."""

    tensor: str
    source: str
    target: str
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRecord:
    """What one file shows of a process: runs of ops, and moments at the ends of copies by node.

    Runs are in order of their starts: ``op`` are places among ``ops``, ``spans`` their times, and
    ``collectives`` those of the ops that are collective. ``executing`` are disjoint spans in which
    an op ran or the executor was at work on one.
    """

    device: str
    ops: tuple[str, ...]
    collectives: frozenset[str]
    op: Ints
    spans: Spans
    executing: Spans
    sends: Mapping[str, Sequence[int]]
    arrivals: Mapping[str, Sequence[int]]


_INPUT_PIPELINE = "tf_data"
_EXECUTING = "ExecutorState::Process"
# What TensorFlow's partitioning calls the two ends of an edge that it cut.
_END_NODE = re.compile(r"(.+?)(?:_S|/_)(\d{1,18})")


def read_process(
    file: SpaceFile, device: str, builder: TraceBuilder, advance: Callable[[int], None]
) -> ProcessRecord | None:
    """Read the ops and copies of a process into the trace; None if no op ran there."""
    sends: defaultdict[str, list[int]] = defaultdict(list)
    arrivals: defaultdict[str, list[int]] = defaultdict(list)
    parts: list[tuple[Ints, Spans]] = []
    ops: dict[str, int] = {}
    collectives: set[str] = set()
    executing: list[Spans] = []
    uses: defaultdict[DeviceUse, list[Spans]] = defaultdict(list)
    for plane, line in _threads(file):
        arrived = [
            name for name, text in plane.event_names.items() if text == profile_steps.ARRIVAL
        ]
        events = file.events(plane, line, of_named=("name", "kernel_type"), named=arrived)
        _gather_arrivals(file, plane, events, arrivals)
        advance(line.place[1] - line.place[0])
        for name, chosen in _groups(events.name):
            start_ns = events.start_ns[chosen]
            spans = Spans(start_ns, start_ns + events.duration_ns[chosen])
            text = plane.event_names.get(name, "")
            match = profile_steps.OP_EVENT.fullmatch(text)
            op, kind = match.groups() if match else ("", "")
            if text == _EXECUTING:
                executing.append(spans)
            elif kind in profile_steps.SEND_KINDS:
                sends[op] += spans.start.tolist()
            elif kind and kind not in profile_steps.RECEIVE_KINDS:
                use = DeviceUse.COMPUTE
                if kind in profile_steps.COLLECTIVE_KINDS:
                    use = DeviceUse.COLLECTIVE
                    collectives.add(op)
                parts.append((np.full(len(chosen), ops.setdefault(op, len(ops))), spans))
                builder.each_run(kind, use, spans.end - spans.start)
                uses[use].append(spans)
    if not parts:
        return None
    builder.device(device)
    for use, spans_of_use in uses.items():
        builder.used(device, use, union_of_spans(spans_of_use))
    start_ns, end_ns = all_spans([spans for _, spans in parts])
    order = np.argsort(start_ns, kind="stable")
    spans = Spans(start_ns[order], end_ns[order])
    return ProcessRecord(
        device=device,
        ops=tuple(ops),
        collectives=frozenset(collectives),
        op=np.concatenate([op for op, _ in parts])[order],
        spans=spans,
        executing=union_of_spans([spans, *executing]),
        sends={node: sorted(moments) for node, moments in sends.items()},
        arrivals={node: sorted(moments) for node, moments in arrivals.items()},
    )


def _threads(file: SpaceFile) -> Iterator[tuple[StoredPlane, StoredLine]]:
    """Yield the threads of the host that run ops of the step."""
    for plane in file.planes:
        if plane.name == profile_steps.HOST_PLANE:
            for line in plane.lines:
                if not line.name.startswith(_INPUT_PIPELINE):
                    yield plane, line


def copies_between(
    processes: Sequence[ProcessRecord],
    cuts: Sequence[int],
    builder: TraceBuilder,
) -> tuple[SentTensor, ...]:
    """Join sends with arrivals into copies, add them to the trace, and return them.

    Within a step, which the cuts bound, the first send of a node belongs to its first arrival and
    so on; without steps, all of the profile is one.
    """
    found = []
    for target in processes:
        others = [process for process in processes if process is not target]
        for node, moments in target.arrivals.items():
            if (match := _END_NODE.fullmatch(node)) is None:
                continue
            source, starts = _sender(match[1], int(match[2]), others)
            for of_step, sent in zip(_by_step(moments, cuts), _by_step(starts, cuts), strict=True):
                for i, arrival_ns in enumerate(of_step):
                    copy = SentTensor(
                        tensor=match[1],
                        source=source,
                        target=target.device,
                        start_ns=min(sent[i], arrival_ns) if i < len(sent) else arrival_ns,
                        end_ns=arrival_ns,
                    )
                    found.append(copy)
    by_route: defaultdict[Route, list[SentTensor]] = defaultdict(list)
    for copy in found:
        by_route[Route(copy.source, copy.target, CopyKind.WORKER)].append(copy)
    for route, of_route in by_route.items():
        start_ns = np.array([copy.start_ns for copy in of_route], np.int64)
        end_ns = np.array([copy.end_ns for copy in of_route], np.int64)
        copied = CopyColumns(
            spans=Spans(start_ns, end_ns),
            size_bytes=np.full(len(of_route), UNKNOWN_BYTES),
            tensor=np.array([builder.tensor(copy.tensor) for copy in of_route]),
        )
        builder.copies(route, copied)
        builder.each_run(CopyKind.WORKER, DeviceUse.PEER, end_ns - start_ns)
    return tuple(sorted(found, key=lambda sent: sent.end_ns))


def _gather_arrivals(
    file: SpaceFile, plane: StoredPlane, events: Events, arrivals: dict[str, list[int]]
) -> None:
    told: defaultdict[int, dict[str, str]] = defaultdict(dict)
    for event, stat, value in file.values(plane, events):
        told[event][stat] = str(value)
    for event, stats in told.items():
        if stats.get("kernel_type") in profile_steps.RECEIVE_KINDS and "name" in stats:
            arrivals[stats["name"]].append(int(events.start_ns[event]))


def _sender(tensor: str, number: int, others: Sequence[ProcessRecord]) -> tuple[str, Sequence[int]]:
    """Return whence a tensor came, and when it was sent: its op ended then where no send is seen.

    ``number`` is that of the node that received it.
    """
    ends = [f"{tensor}{joint}{number - 1}" for joint in ("_S", "/_")]
    for process in others:
        for end in ends:
            if end in process.sends:
                return process.device, process.sends[end]
    made = [process for process in others if tensor in process.ops]
    if len(made) == 1:
        ran = made[0].op == made[0].ops.index(tensor)
        return made[0].device, np.sort(made[0].spans.end[ran]).tolist()
    return others[0].device if len(others) == 1 else UNKNOWN_END, ()


def _groups(names: Ints) -> Iterator[tuple[int, Ints]]:
    """Yield each name with the places at which it stands."""
    order = np.argsort(names, kind="stable")
    found, first = np.unique(names[order], return_index=True)
    ends = [*first[1:].tolist(), len(names)]
    for name, start, end in zip(found.tolist(), first.tolist(), ends, strict=False):
        yield name, order[start:end]


def _by_step(moments: Sequence[int], cuts: Sequence[int]) -> list[list[int]]:
    """Return sorted moments by the step that they are in; what is before the first is its own."""
    places = [0, *(bisect_left(moments, cut) for cut in cuts), len(moments)]
    return [list(moments[first:last]) for first, last in pairwise(places)]


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
    busy = union_of_spans([process.spans])
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
    next_run = np.searchsorted(process.spans.start, end)
    op = process.op[np.minimum(next_run, len(process.op) - 1)]
    joins = np.isin(process.ops, list(process.collectives))[op]
    for place, time_ns in _by_place(op, end - start, joins & ~for_client):
        yield _Piece(Cause.OP, process.ops[place], "", time_ns)
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
        yield _Piece(Cause.START, process.ops[place], process.device, time_ns)


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
        before = int(np.searchsorted(other.spans.start, end_ns))
        if other is process or not before:
            continue
        last = before - 1
        ended_ns = min(end_ns, int(other.spans.end[last]))
        if ended_ns > done_ns:
            done_ns, op, where = ended_ns, other.ops[other.op[last]], other.device
    if where:
        yield _Piece(Cause.OP, op, where, done_ns - at_ns)
    yield _Piece(Cause.CLIENT, "", "", end_ns - done_ns)
