"""A `Trace` holds what each device did in a recorded profile, whatever tool wrote it.

Time of a device is split by *use*: compute, several kinds of copies, collectives. Only copies
keep their source and target; of all else the spans and the rows of the activity table are
kept, so that a profile of millions of kernels stays small. Spans are two arrays, starts and
ends in ns; *disjoint* spans are in order, do not overlap, and have a length each.

Each gap between the ops of a process has a cause. Until a tensor arrives, the process waited for
it: for the copy while it was under way, before that for the op that makes it. After the last
arrival, the executor is starting the next op.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from placement_advisor.files.contract import Ns, Text
from placement_advisor.profile.copy_names import CopyKind, copy_kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]
    Bools = NDArray[np.bool_]


class Spans(NamedTuple):
    """Starts and ends."""

    start: Ints
    end: Ints

    def pairs(self) -> list[tuple[int, int]]:
        """Return them one by one."""
        return list(zip(self.start.tolist(), self.end.tolist(), strict=True))


def all_spans(parts: Sequence[Spans]) -> Spans:
    """Return the spans of at least one part, one part after the other."""
    return Spans(
        np.concatenate([part.start for part in parts]), np.concatenate([part.end for part in parts])
    )


NO_SPANS = Spans(np.empty(0, np.int64), np.empty(0, np.int64))


def union_of_spans(parts: Iterable[Spans]) -> Spans:
    """Return the disjoint spans that cover what any of these covers."""
    found = [part for part in parts if len(part.start)]
    if not found:
        return NO_SPANS
    start, end = all_spans(found)
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


def spans_length(disjoint: Spans) -> int:
    """Return the length of disjoint spans together."""
    return int((disjoint.end - disjoint.start).sum())


def spans_length_before(disjoint: Spans, moments: Ints) -> Ints:
    """Return how much of disjoint spans lies before each moment."""
    done = np.concatenate([[0], np.cumsum(disjoint.end - disjoint.start)])
    begun = np.searchsorted(disjoint.start, moments, side="right")
    last = np.maximum(begun - 1, 0)
    if not len(disjoint.start):
        return np.zeros(len(moments), np.int64)
    inside = np.clip(moments, disjoint.start[last], disjoint.end[last]) - disjoint.start[last]
    found: Ints = np.where(begun > 0, done[last] + inside, 0)
    return found


def spans_outside(spans: Spans, cover: Spans) -> Spans:
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


def span_shares(disjoint: Spans, those: Spans) -> Floats:
    """Return how much of disjoint spans lies in each of those, which share what several cover.

    Those may overlap, and be in any order.
    """
    bounds = np.unique(np.concatenate(those))
    ends = np.sort(those.end)
    count = np.searchsorted(np.sort(those.start), bounds, side="right")
    count -= np.searchsorted(ends, bounds, side="right")
    inside = np.diff(spans_length_before(disjoint, bounds))
    # Where none of those is, nothing is shared.
    each = np.concatenate([[0.0], np.cumsum(inside / np.maximum(count[:-1], 1))])
    place = np.searchsorted(bounds, those)
    found: Floats = each[place[1]] - each[place[0]]
    return found


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
    """What a device waits for, over all steps that count."""

    device: Text
    cause: Cause
    """A tensor on its way (`copy`) or not computed yet (`op`); `client`: between steps."""
    what: Text
    """Tensor or op; empty for the client."""
    where: Text
    """Source, target (`sending`), or device of the op; empty for a collective."""
    time_ns: Ns


class _Piece(NamedTuple):
    cause: Cause
    what: str
    where: str
    time_ns: int


def waits(
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
    for gap in np.flatnonzero(starts & (rest_ns > LONGEST_START_NS)).tolist():
        sent = sending.first_within(int(start[gap]), int(end[gap]))
        if sent is not None:
            both_ns = min(int(end[gap]), sent.end_ns) - max(int(start[gap]), sent.start_ns)
            sending_ns = min(int(rest_ns[gap]), both_ns)
            yield _Piece(Cause.SENDING, sent.tensor, sent.target, sending_ns)
            rest_ns[gap] -= sending_ns
        if rest_ns[gap] > LONGEST_START_NS:
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


# Ends of copies that are no devices.
HOST = "host"
UNKNOWN_END = "unknown"
COLLECTIVE_END = "collective"
# The size of a copy that does not give it.
UNKNOWN_BYTES = -1


class DeviceUse(StrEnum):
    """What time of a device goes to; the value is its column in reports."""

    COMPUTE = "compute"
    PEER = "PtoP"
    HOST = "host copies"
    WITHIN = "DtoD in card"
    COLLECTIVE = "collectives"
    UNCLASSIFIED = "unclassified"


USE_OF: Mapping[CopyKind | None, DeviceUse] = {
    None: DeviceUse.COMPUTE,
    CopyKind.PEER: DeviceUse.PEER,
    CopyKind.WORKER: DeviceUse.PEER,
    CopyKind.HOST_TO_DEVICE: DeviceUse.HOST,
    CopyKind.DEVICE_TO_HOST: DeviceUse.HOST,
    CopyKind.HOST_TO_HOST: DeviceUse.HOST,
    CopyKind.DEVICE_TO_DEVICE: DeviceUse.WITHIN,
    CopyKind.COLLECTIVE: DeviceUse.COLLECTIVE,
    CopyKind.UNCLASSIFIED: DeviceUse.UNCLASSIFIED,
}


class Route(NamedTuple):
    """Whence, whither, and how something was copied."""

    source: str
    target: str
    kind: CopyKind


def gpu_route(kind: CopyKind, here: str, *, sender: str | None, receiver: str | None) -> Route:
    """Return the way of a copy that the GPU ``here`` lists; ends that it does not say are None."""
    # Some tools spell a copy to a peer like one within the card; the destination tells.
    if kind is CopyKind.DEVICE_TO_DEVICE and receiver not in (None, here):
        kind = CopyKind.PEER
    ends = {
        CopyKind.PEER: (sender or here, receiver or UNKNOWN_END),
        CopyKind.HOST_TO_DEVICE: (HOST, here),
        CopyKind.DEVICE_TO_HOST: (here, HOST),
        CopyKind.HOST_TO_HOST: (HOST, HOST),
        CopyKind.DEVICE_TO_DEVICE: (here, here),
        CopyKind.COLLECTIVE: (here, COLLECTIVE_END),
    }
    return Route(*ends.get(kind, (here, UNKNOWN_END)), kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyColumns:
    """All copies on one route, in order of the profile; ``tensor`` are places among ``tensors``.

    A size that the profile does not give is `UNKNOWN_BYTES`, a tensor that it does not name -1.
    """

    spans: Spans
    size_bytes: Ints
    tensor: Ints


@dataclass(slots=True)
class TraceRow:
    """One row of the activity table: how often, and how long in all, at least and at most."""

    calls: int = 0
    total_ns: int = 0
    min_ns: int = 0
    max_ns: int = 0

    def add(self, calls: int, total_ns: int, min_ns: int, max_ns: int) -> None:
        """Count some more runs, at least one."""
        self.min_ns = min(self.min_ns, min_ns) if self.calls else min_ns
        self.max_ns = max(self.max_ns, max_ns)
        self.calls += calls
        self.total_ns += total_ns

    def add_each(self, took_ns: Ints) -> None:
        """Count runs that took so long each, at least one."""
        self.add(len(took_ns), int(took_ns.sum()), int(took_ns.min()), int(took_ns.max()))


def widen(steps: dict[int, tuple[int, int]], step: int, start_ns: int, end_ns: int) -> None:
    """Let a step, by its number, reach from no later than a start to no sooner than an end."""
    known_start, known_end = steps.get(step, (start_ns, end_ns))
    steps[step] = min(start_ns, known_start), max(end_ns, known_end)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A recorded profile.

    ``uses`` has the disjoint spans of each device by use, ``copied`` the copies by route,
    ``rows`` those of the activity table by name and use. ``step_starts`` cut the time of devices
    into steps; there is one moment more than steps, none if the profile shows no steps. ``waits``
    say why devices computed nothing, where the profile shows that.
    ``notes`` are what a reader should know.
    """

    path: str
    devices: tuple[str, ...]
    uses: Mapping[str, Mapping[DeviceUse, Spans]]
    copied: Mapping[Route, CopyColumns]
    tensors: tuple[str, ...]
    rows: Mapping[tuple[str, DeviceUse], TraceRow]
    step_starts: tuple[int, ...]
    steps_from: str
    waits: tuple[Wait, ...] = ()
    notes: tuple[str, ...] = ()


class TraceBuilder:
    """A trace in the making."""

    def __init__(self) -> None:
        self.notes: dict[str, None] = {}
        self._devices: dict[str, None] = {}
        self._uses: defaultdict[tuple[str, DeviceUse], list[Spans]] = defaultdict(list)
        self._copied: defaultdict[Route, list[CopyColumns]] = defaultdict(list)
        self._tensors: dict[str, int] = {}
        self._rows: defaultdict[tuple[str, DeviceUse], TraceRow] = defaultdict(TraceRow)

    def device(self, name: str) -> None:
        """Add a device that may have done nothing."""
        self._devices.setdefault(name)

    def used(self, device: str, use: DeviceUse, spans: Spans) -> None:
        """Add what a device spent on a use."""
        self._uses[device, use].append(union_of_spans([spans]))

    def row(self, name: str, use: DeviceUse) -> TraceRow:
        """Return a row of the activity table, to add runs to."""
        return self._rows[name, use]

    def tensor(self, name: str | None) -> int:
        """Return the place of a tensor among the trace's, -1 for none."""
        return -1 if name is None else self._tensors.setdefault(name, len(self._tensors))

    def copies(self, route: Route, copied: CopyColumns) -> None:
        """Add copies on a route; both ends are busy with them if they are devices."""
        self._copied[route].append(copied)
        for end in dict.fromkeys((route.source, route.target)):
            if end in self._devices:
                self.used(end, USE_OF[route.kind], copied.spans)

    def build(
        self,
        path: str,
        step_starts: Sequence[int],
        steps_from: str,
        waits: tuple[Wait, ...] = (),
    ) -> Trace:
        """Return the trace; what no time passes in is no step."""
        moments = sorted(set(step_starts))
        has_steps = len(moments) > 1
        return Trace(
            path=path,
            devices=tuple(self._devices),
            uses={
                device: {
                    use: union_of_spans(self._uses.get((device, use), ())) for use in DeviceUse
                }
                for device in self._devices
            },
            copied={route: _joined(parts) for route, parts in sorted(self._copied.items())},
            tensors=tuple(self._tensors),
            rows=dict(self._rows),
            step_starts=tuple(moments) if has_steps else (),
            steps_from=steps_from if has_steps else "none",
            waits=waits,
            notes=tuple(self.notes),
        )


def _joined(parts: Sequence[CopyColumns]) -> CopyColumns:
    if len(parts) == 1:
        return parts[0]
    return CopyColumns(
        spans=all_spans([part.spans for part in parts]),
        size_bytes=np.concatenate([part.size_bytes for part in parts]),
        tensor=np.concatenate([part.tensor for part in parts]),
    )


# More than any computer has; each takes memory of its own.
MOST_GPUS = 1_000


class GpuRuns:
    """Kernels and copies so far."""

    def __init__(self) -> None:
        self._builder = TraceBuilder()
        self._kinds: dict[str, CopyKind | None] = {}
        self._gpus: set[int] = set()
        self._tensors: set[str] = set()
        # Start and end, one after the other; of copies the size and the tensor behind them.
        self._runs: defaultdict[tuple[int, str], array[int]]
        self._runs = defaultdict(lambda: array("q"))
        self._copies: defaultdict[Route, array[int]] = defaultdict(lambda: array("q"))

    def __len__(self) -> int:
        """Return how many names of kernels, tensors and routes there are."""
        return len(self._runs) + len(self._kinds) + len(self._tensors) + len(self._copies)

    @property
    def are_none(self) -> bool:
        """Whether no GPU did anything."""
        return not self._gpus

    def kind(self, name: str) -> CopyKind | None:
        """Return what kind of copy is called so, None for kernels."""
        if name not in self._kinds:
            self._kinds[name] = copy_kind(name)
        return self._kinds[name]

    def add_kernel(self, gpu: int, name: str, span: tuple[int, int]) -> None:
        """Add a kernel or a collective, by the moments of its start and end in ns."""
        self._gpus.add(gpu)
        self._runs[gpu, name].extend(span)

    def add_copy(
        self,
        gpu: int,
        kind: CopyKind,
        span: tuple[int, int],
        *,
        sender: int | None,
        receiver: int | None,
        size_bytes: int | None,
        tensor: str | None = None,
    ) -> None:
        """Add a copy that a GPU lists, with what is known of it."""
        self._gpus.add(gpu)
        route = gpu_route(kind, f"GPU:{gpu}", sender=_name(sender), receiver=_name(receiver))
        size = UNKNOWN_BYTES if size_bytes is None else size_bytes
        self._copies[route].extend((*span, size, self._builder.tensor(tensor)))
        if tensor is not None:
            self._tensors.add(tensor)

    def built(
        self, path: str, step_starts: Sequence[int], steps_from: str, notes: Sequence[str] = ()
    ) -> Trace:
        """Return the trace of all that was added."""
        self._builder.notes |= dict.fromkeys(notes)
        for gpu in sorted(self._gpus):
            self._builder.device(f"GPU:{gpu}")
        for (gpu, name), columns in self._runs.items():
            use = USE_OF[self.kind(name)]
            start_ns, end_ns = np.array(columns, np.int64).reshape(-1, 2).T
            self._builder.used(f"GPU:{gpu}", use, Spans(start_ns, end_ns))
            self._builder.row(name, use).add_each(end_ns - start_ns)
        for route, columns in self._copies.items():
            start_ns, end_ns, size_bytes, tensor = np.array(columns, np.int64).reshape(-1, 4).T
            copied = CopyColumns(
                spans=Spans(start_ns, end_ns), size_bytes=size_bytes, tensor=tensor
            )
            self._builder.copies(route, copied)
            self._builder.row(route.kind, USE_OF[route.kind]).add_each(end_ns - start_ns)
        return self._builder.build(path, step_starts, steps_from)


def _name(gpu: int | None) -> str | None:
    return None if gpu is None else f"GPU:{gpu}"
