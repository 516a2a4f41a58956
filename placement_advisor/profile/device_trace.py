"""A `Trace` holds what each device did in a recorded profile, whatever tool wrote it.

Time of a device is split by *use*: compute, several kinds of copies, collectives. Only copies
keep their source and target; of all else the spans and the rows of the activity table are
kept, so that a profile of millions of kernels stays small. Spans are two arrays, starts and
ends in ns; *disjoint* spans are in order, do not overlap, and have a length each.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from placement_advisor.files.contract import Ns, Text
from placement_advisor.measurement.measurement import Activity
from placement_advisor.profile.copy_names import CopyKind, copy_kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

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


def widen(steps: dict[int, tuple[int, int]], step: int, start_ns: int, end_ns: int) -> None:
    """Let a step, by its number, reach from no later than a start to no sooner than an end."""
    known_start, known_end = steps.get(step, (start_ns, end_ns))
    steps[step] = min(start_ns, known_start), max(end_ns, known_end)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A recorded profile.

    ``uses`` has the disjoint spans of each device by use, ``copied`` the copies by route,
    ``activities`` the rows of the activity table. ``step_starts`` cut the time of devices into
    steps; there is one moment more than steps, none if the profile shows no steps. ``waits`` say
    why devices computed nothing, where the profile shows that. ``notes`` are what a reader should
    know.
    """

    path: str
    devices: tuple[str, ...]
    uses: Mapping[str, Mapping[DeviceUse, Spans]]
    copied: Mapping[Route, CopyColumns]
    tensors: tuple[str, ...]
    activities: tuple[Activity, ...]
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
        # Of some runs of a kernel: how many, and how long in all, at least and at most.
        self._runs: defaultdict[tuple[str, DeviceUse], list[tuple[int, int, int, int]]]
        self._runs = defaultdict(list)

    def device(self, name: str) -> None:
        """Add a device that may have done nothing."""
        self._devices.setdefault(name)

    def used(self, device: str, use: DeviceUse, spans: Spans) -> None:
        """Add what a device spent on a use."""
        self._uses[device, use].append(union_of_spans([spans]))

    def runs(
        self, name: str, use: DeviceUse, calls: int, total_ns: int, min_ns: int, max_ns: int
    ) -> None:
        """Count runs of that name, at least one, in the activity table."""
        self._runs[name, use].append((calls, total_ns, min_ns, max_ns))

    def each_run(self, name: str, use: DeviceUse, took_ns: Ints) -> None:
        """Count runs of that name that took so long each, at least one."""
        total_ns, least_ns, most_ns = int(took_ns.sum()), int(took_ns.min()), int(took_ns.max())
        self.runs(name, use, len(took_ns), total_ns, least_ns, most_ns)

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
            activities=longest_first(
                activity(name, use, sum(calls), sum(total_ns), min(min_ns), max(max_ns))
                for (name, use), runs in self._runs.items()
                for calls, total_ns, min_ns, max_ns in [zip(*runs, strict=True)]
            ),
            step_starts=tuple(moments) if has_steps else (),
            steps_from=steps_from if has_steps else "none",
            waits=waits,
            notes=tuple(self.notes),
        )


def activity(
    name: str, use: DeviceUse, calls: int, total_ns: int, min_ns: int, max_ns: int
) -> Activity:
    """Return a row of the activity table."""
    is_copy = use not in (DeviceUse.COMPUTE, DeviceUse.COLLECTIVE)
    return Activity(
        name=name,
        calls=calls,
        total_ns=total_ns,
        min_ns=min_ns,
        max_ns=max_ns,
        is_copy=is_copy,
    )


def longest_first(rows: Iterable[Activity]) -> tuple[Activity, ...]:
    """Return the activity table."""
    return tuple(sorted(rows, key=lambda row: (-row.total_ns, row.name)))


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
        self._gpus: set[int] = set()
        self._tensors: set[str] = set()
        # Start and end, one after the other; of copies the size and the tensor behind them.
        self._runs: defaultdict[tuple[int, str], array[int]]
        self._runs = defaultdict(lambda: array("q"))
        self._copies: defaultdict[Route, array[int]] = defaultdict(lambda: array("q"))

    def __len__(self) -> int:
        """Return how many names of kernels, tensors and routes there are."""
        return len(self._runs) + len(self._tensors) + len(self._copies)

    @property
    def are_none(self) -> bool:
        """Whether no GPU did anything."""
        return not self._gpus

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
            use = USE_OF[copy_kind(name)]
            start_ns, end_ns = np.array(columns, np.int64).reshape(-1, 2).T
            self._builder.used(f"GPU:{gpu}", use, Spans(start_ns, end_ns))
            self._builder.each_run(name, use, end_ns - start_ns)
        for route, columns in self._copies.items():
            start_ns, end_ns, size_bytes, tensor = np.array(columns, np.int64).reshape(-1, 4).T
            copied = CopyColumns(
                spans=Spans(start_ns, end_ns), size_bytes=size_bytes, tensor=tensor
            )
            self._builder.copies(route, copied)
            self._builder.each_run(route.kind, USE_OF[route.kind], end_ns - start_ns)
        return self._builder.build(path, step_starts, steps_from)


def _name(gpu: int | None) -> str | None:
    return None if gpu is None else f"GPU:{gpu}"
