"""A `Schedule` says when and where every op ran and every tensor was copied, simulated.

A copy is under way from when its bytes occupy the link until the target has received them. It is
*exposed* while its target computes nothing; copies to one target that are under way at the same
moment count once. Between its first and its last work, a device is idle because it waits for a
copy, for its next launch, or for another device to make a tensor.

The critical path goes back from the end of the step: an op that started when it became ready
waited for its last input; one that started later waited for what its device did before.
Intervals are (start, end) in ns.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from placement_advisor.graph.op import CONTROL_PORT, Total
from placement_advisor.units import format_bytes, format_ns

if TYPE_CHECKING:
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.machine.devices import Cluster, Device


Interval = tuple[int, int]
Key = TypeVar("Key", bound="Hashable")


def intervals_by_key(intervals: Iterable[tuple[Key, Interval]]) -> defaultdict[Key, list[Interval]]:
    """Return the intervals of each key, in the order given."""
    found: defaultdict[Key, list[Interval]] = defaultdict(list)
    for key, interval in intervals:
        found[key].append(interval)
    return found


def merged_intervals(intervals: Iterable[Interval]) -> list[Interval]:
    """Return the union of intervals as disjoint intervals in order."""
    union: list[Interval] = []
    for start, end in sorted(intervals):
        if union and start <= union[-1][1]:
            union[-1] = (union[-1][0], max(end, union[-1][1]))
        else:
            union.append((start, end))
    return union


def intervals_length(disjoint: Iterable[Interval]) -> int:
    """Return the length of disjoint intervals together."""
    return sum(end - start for start, end in disjoint)


def intervals_length_outside(spans: Iterable[Interval], covers: Iterable[Interval]) -> int:
    """Return how much of the union of ``spans`` lies outside every one of ``covers``."""
    cover = merged_intervals(covers)
    return intervals_length(merged_intervals([*cover, *spans])) - intervals_length(cover)


def interval_shares(intervals: Sequence[Interval]) -> list[int]:
    """Return for each interval its share of the union, in the order given.

    At every moment the interval that ends first has the moment to itself, as if all were served
    one after the other in the order in which they were done. Shares add up to the union's length.

    >>> shares([(0, 10), (2, 5)])
    [7, 3]
    """
    result = [0] * len(intervals)
    done: list[Interval] = []
    for i in sorted(range(len(intervals)), key=lambda i: (intervals[i][1], intervals[i][0])):
        joined = merged_intervals([*done, intervals[i]])
        result[i] = intervals_length(joined) - intervals_length(done)
        done = joined
    return result


@dataclass(frozen=True, slots=True, kw_only=True)
class OpRun:
    """One run of an op.

    ``launch`` is when the host was busy with launching it, where the device launches ahead: it is
    ready to be launched, and has its turn to run after that.
    """

    op: str
    device: str
    ready_ns: int
    start_ns: int
    end_ns: int
    launch: Interval | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """One tensor (or control signal, port -1) on its way to another device.

    It sets out ``queued_ns`` before ``start_ns``, when its bytes get hold of the wire, which others
    had, or for which the target's request had not come. Where processors move the bytes, the source
    works on it for ``send_work_ns`` from when it sets out. The tensor arrives, is held for
    ``held_ns`` until the target has time for it, and the target works on it for
    ``receive_work_ns`` until ``end_ns``. ``collective`` names the collective of which it is a hop.
    ``size_bytes`` is None where nobody knows it, and 0 for a control signal.
    """

    producer: str
    port: int
    source: str
    target: str
    size_bytes: int | None
    start_ns: int
    end_ns: int
    queued_ns: int = 0
    held_ns: int = 0
    send_work_ns: int = 0
    receive_work_ns: int = 0
    collective: str | None = None

    @property
    def is_control(self) -> bool:
        """Whether it is a control signal."""
        return self.port == CONTROL_PORT

    @property
    def tensor(self) -> str:
        """What crosses, as TensorFlow names inputs: ``op:port``, or ``^op`` for control."""
        return f"^{self.producer}" if self.is_control else f"{self.producer}:{self.port}"

    @property
    def set_out_ns(self) -> int:
        """When it begins to queue for the wire, and its source to work on it."""
        return self.start_ns - self.queued_ns

    @property
    def send_work(self) -> Interval:
        """When the source works on it."""
        return self.set_out_ns, self.set_out_ns + self.send_work_ns

    @property
    def receive_work(self) -> Interval:
        """When the target works on it."""
        return self.end_ns - self.receive_work_ns, self.end_ns


def carried(transfers: Iterable[Transfer]) -> Total:
    """Return the bytes of the tensors that cross, a part each; a control signal is none."""
    return Total.of(each.size_bytes for each in transfers if not each.is_control)


class CopyInterval(NamedTuple):
    """A copy as a profile shows it: a transfer, or what a collective brings to a device."""

    source: str
    target: str
    transfers: tuple[Transfer, ...]
    start_ns: int
    end_ns: int


def copy_intervals(transfers: Sequence[Transfer]) -> tuple[CopyInterval, ...]:
    """Return the copies of a step, hops put together."""
    found: list[CopyInterval] = []
    hops: defaultdict[tuple[str, str], list[Transfer]] = defaultdict(list)
    joined_ns: dict[tuple[str, str], int] = {}
    for each in transfers:
        if each.collective is None:
            found.append(
                CopyInterval(each.source, each.target, (each,), each.start_ns, each.end_ns)
            )
            continue
        hops[each.collective, each.target].append(each)
        key = each.collective, each.source
        joined_ns[key] = min(each.set_out_ns, joined_ns.get(key, each.set_out_ns))
    for key, of_device in hops.items():
        first_ns = min(each.start_ns for each in of_device)
        found.append(
            CopyInterval(
                source=of_device[0].source,
                target=key[1],
                transfers=tuple(of_device),
                start_ns=min(first_ns, joined_ns.get(key, first_ns)),
                end_ns=max(each.end_ns for each in of_device),
            )
        )
    return tuple(found)


def exposed_by_device(
    runs: Iterable[OpRun], copies: Iterable[CopyInterval], devices: Iterable[str]
) -> dict[str, int]:
    """Return the time in which each device waits for copies and computes nothing."""
    computing = intervals_by_key((run.device, (run.start_ns, run.end_ns)) for run in runs)
    in_flight = intervals_by_key((copy.target, (copy.start_ns, copy.end_ns)) for copy in copies)
    return {
        device: intervals_length_outside(in_flight[device], computing[device]) for device in devices
    }


# More names than these no reader of a report takes in; the rest is summed by kind.
MAX_CONTRIBUTORS = 5


class BufferUse(StrEnum):
    """What memory is held for. An update's is what an optimizer computes on its way."""

    VARIABLE = "variable"
    OPTIMIZER_SLOT = "optimizer slot"
    CONSTANT = "constant"
    INPUT = "input"
    ACTIVATION = "activation"
    GRADIENT = "gradient"
    UPDATE = "update"
    RECEIVED_COPY = "received copy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Contributor:
    """A buffer that is held at the peak, by the op that made it."""

    name: str
    held: BufferUse
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakMemory:
    """The most that one device holds at one moment of the step, and since when.

    ``resident_bytes`` of it are held all the time. ``contributors`` are the largest buffers,
    largest first; ``rest_bytes`` has what they leave, by what it is held for.
    """

    size_bytes: int
    at_ns: int
    resident_bytes: int
    contributors: tuple[Contributor, ...]
    rest_bytes: Mapping[BufferUse, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage:
    """A device on which a step does not fit; as text, what it holds and for what."""

    device: Device
    peak: PeakMemory
    missing_bytes: int

    def __str__(self) -> str:
        most = ", ".join(
            f"{each.name} ({each.held}, {format_bytes(each.size_bytes)})"
            for each in self.peak.contributors
        )
        return (
            f"on {self.device.name} the step holds "
            f"{format_bytes(self.peak.size_bytes)} at {format_ns(self.peak.at_ns)}, "
            f"{format_bytes(self.missing_bytes)} more than the "
            f"{format_bytes(self.device.memory_bytes)} there, most of it for {most}"
        )


class Peaks(Mapping[str, PeakMemory]):
    """The peaks of devices by name, each of which is replayed when somebody asks for it.

    ``at_most`` says with less work what each device cannot exceed.
    """

    def __init__(self, at_most: Mapping[str, float], replay: Callable[[str], PeakMemory]) -> None:
        self.at_most, self._replayed = at_most, cache(replay)

    def __getitem__(self, name: str) -> PeakMemory:
        return self._replayed(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.at_most)

    def __len__(self) -> int:
        return len(self.at_most)


def shortages(peaks: Mapping[str, PeakMemory], devices: Iterable[Device]) -> tuple[Shortage, ...]:
    """Return the devices on which the peak exceeds the memory; where that is unknown, it fits."""
    at_most = peaks.at_most if isinstance(peaks, Peaks) else {}
    return tuple(
        Shortage(device=device, peak=peak, missing_bytes=peak.size_bytes - device.memory_bytes)
        for device in devices
        if device.memory_bytes is not None
        and at_most.get(device.name, math.inf) > device.memory_bytes
        and (peak := peaks[device.name]).size_bytes > device.memory_bytes
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """One simulated step.

    ``exposed_by_device`` is the time in which a device waits for copies and computes nothing.
    """

    label: str
    runs: tuple[OpRun, ...]
    transfers: tuple[Transfer, ...]
    step_ns: int
    compute_ns: Mapping[str, int]
    exposed_by_device: Mapping[str, int]
    peak_memory: Mapping[str, PeakMemory]

    @property
    def peak_memory_bytes(self) -> dict[str, int]:
        """The most that each device holds at one moment."""
        return {name: peak.size_bytes for name, peak in self.peak_memory.items()}

    @property
    def copies(self) -> tuple[CopyInterval, ...]:
        """What crosses, as a profile shows it: the hops of a collective are one copy per device."""
        return copy_intervals(self.transfers)

    @property
    def exposed_ns(self) -> int:
        """What the device that waits longest for copies waits, computing nothing."""
        return max(self.exposed_by_device.values(), default=0)

    @property
    def under_way_ns(self) -> dict[tuple[str, str], int]:
        """Time in which a copy is under way, by source and target."""
        spans = intervals_by_key(
            ((c.source, c.target), (c.start_ns, c.end_ns)) for c in self.copies
        )
        return {
            pair: intervals_length(merged_intervals(of_pair)) for pair, of_pair in spans.items()
        }

    @property
    def transfer_ns(self) -> int:
        """Time in which a copy was under way, summed over pairs of source and target."""
        return sum(self.under_way_ns.values())

    @property
    def transfer_count(self) -> int:
        """Copies per step, control signals included."""
        return len(self.copies)

    @property
    def carried(self) -> Total:
        """Bytes across; tensors of unknown size are priced at latency alone."""
        return carried(self.transfers)

    @property
    def transfer_bytes(self) -> int | None:
        """Bytes across of the tensors whose size is known; None if none is known."""
        return self.carried.amount

    @property
    def bytes_are_a_floor(self) -> bool:
        """Whether tensors of unknown size come on top of `transfer_bytes`."""
        return self.carried.is_floor

    @property
    def step_memory_bytes(self) -> dict[str, int]:
        """What each device holds at its worst moment above what stays between steps."""
        return {name: p.size_bytes - p.resident_bytes for name, p in self.peak_memory.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTime:
    """The parts of one device's step; they add up to the step time.

    A device that does nothing is idle before its first work all the time.
    """

    device: str
    compute_ns: int
    copy_work_ns: int
    before_first_ns: int
    waits_for_copy_ns: int
    waits_for_launch_ns: int
    waits_for_device_ns: int
    after_last_ns: int


def device_times(schedule: Schedule) -> tuple[DeviceTime, ...]:
    """Return the parts of every device and host, in the schedule's order."""
    runs = intervals_by_key((run.device, (run.start_ns, run.end_ns)) for run in schedule.runs)
    launches = intervals_by_key((run.device, run.launch) for run in schedule.runs if run.launch)
    copy_work = intervals_by_key(
        work
        for copy in schedule.transfers
        for work in ((copy.source, copy.send_work), (copy.target, copy.receive_work))
        if work[1][0] < work[1][1]
    )
    coming = intervals_by_key(
        (copy.target, (copy.set_out_ns, copy.end_ns)) for copy in schedule.transfers
    )
    step_ns = schedule.step_ns
    return tuple(
        _device_time(name, runs[name], copy_work[name], coming[name], launches[name], step_ns)
        for name in schedule.compute_ns
    )


def _device_time(
    device: str,
    runs: list[Interval],
    copy_work: list[Interval],
    coming: list[Interval],
    launches: list[Interval],
    step_ns: int,
) -> DeviceTime:
    busy = merged_intervals([*runs, *copy_work])
    first_ns, last_ns = (busy[0][0], busy[-1][1]) if busy else (step_ns, step_ns)

    def between(intervals: list[Interval]) -> list[Interval]:
        return [
            (max(start, first_ns), min(end, last_ns))
            for start, end in intervals
            if start < last_ns and end > first_ns
        ]

    waits_for_copy_ns = intervals_length_outside(between(coming), busy)
    waits_for_launch_ns = intervals_length_outside(
        between(launches), merged_intervals([*busy, *between(coming)])
    )
    return DeviceTime(
        device=device,
        compute_ns=intervals_length(runs),
        copy_work_ns=intervals_length_outside(copy_work, merged_intervals(runs)),
        before_first_ns=first_ns,
        waits_for_copy_ns=waits_for_copy_ns,
        waits_for_launch_ns=waits_for_launch_ns,
        waits_for_device_ns=last_ns
        - first_ns
        - intervals_length(busy)
        - waits_for_copy_ns
        - waits_for_launch_ns,
        after_last_ns=step_ns - last_ns,
    )


class PathKind(StrEnum):
    """What a part of the path is spent on."""

    COMPUTE = "compute"
    COPY = "copy"
    QUEUEING = "queueing"
    OVERHEAD = "overhead"


@dataclass(frozen=True, slots=True, kw_only=True)
class PathStep:
    """A part of the critical path."""

    kind: PathKind
    what: str
    """Op, tensor (`op:port`), control signal (`^op`), or the overhead in words."""
    where: str
    """Device, or `source → target` of a copy."""
    start_ns: int
    end_ns: int

    @property
    def time_ns(self) -> int:
        """How long it takes."""
        return self.end_ns - self.start_ns


# What a device does: to run an op or (True) to launch it, to receive a tensor or (True) to send it.
_Work = tuple[OpRun | Transfer, bool]


def critical_path(graph: OpGraph, schedule: Schedule, cluster: Cluster) -> tuple[PathStep, ...]:
    """Return the parts in order; they add up to the step time."""
    return _Walk(graph, schedule).back(cluster)


class _Walk:
    def __init__(self, graph: OpGraph, schedule: Schedule) -> None:
        self._graph, self._schedule = graph, schedule
        self._run_of = {run.op: run for run in schedule.runs}
        self._copy_of = {(t.producer, t.port, t.target): t for t in schedule.transfers}
        # No two of them end at one moment on one device, since they take time.
        self._work_until: dict[tuple[str, int], _Work] = {}
        # Of devices that launch ahead, what runs; the work is that of their host's thread.
        self._kernel_until: dict[tuple[str, int], _Work] = {}
        for run in schedule.runs:
            until = self._work_until if run.launch is None else self._kernel_until
            if run.end_ns > run.start_ns:
                until[run.device, run.end_ns] = run, False
            if run.launch is not None and run.launch[1] > run.launch[0]:
                self._work_until[run.device, run.launch[1]] = run, True
        for copy in schedule.transfers:
            if copy.send_work_ns:
                self._work_until[copy.source, copy.send_work[1]] = copy, True
            if copy.receive_work_ns:
                self._work_until[copy.target, copy.end_ns] = copy, False
        self._path: list[PathStep] = []

    def back(self, cluster: Cluster) -> tuple[PathStep, ...]:
        step_ns = self._schedule.step_ns
        late_ns = {device.name: cluster.remote_end_ns(device) for device in cluster.devices[1:]}
        last = max(
            self._schedule.runs,
            key=lambda run: run.end_ns + late_ns.get(run.device, 0),
            default=None,
        )
        if last is None:
            self._add(PathKind.OVERHEAD, "call of the step", "", 0, step_ns)
        else:
            self._add(PathKind.OVERHEAD, "end of the step", last.device, last.end_ns, step_ns)
        work: _Work | None = None if last is None else (last, False)
        while work is not None:
            what, is_ahead = work
            if isinstance(what, OpRun):
                work = self._before_run(what, is_launch=is_ahead)
            else:
                work = self._before_copy(what, is_sending=is_ahead)
        return tuple(reversed(self._path))

    def _before_run(self, run: OpRun, *, is_launch: bool) -> _Work | None:
        """Add what the work takes; return what it waited for, None at the beginning."""
        kind, what, start_ns, end_ns = PathKind.COMPUTE, run.op, run.start_ns, run.end_ns
        if is_launch and run.launch is not None:
            kind, what, (start_ns, end_ns) = PathKind.OVERHEAD, f"launch of {run.op}", run.launch
        self._add(kind, what, run.device, start_ns, end_ns)
        if run.launch is not None and not is_launch:
            is_kept = start_ns > run.launch[1]
            return self._kernel_until[run.device, start_ns] if is_kept else (run, True)
        if start_ns > run.ready_ns:
            return self._until(run.device, start_ns)
        return self._last_input(run) if start_ns else None

    def _before_copy(self, copy: Transfer, *, is_sending: bool) -> _Work | None:
        if is_sending:
            self._add(PathKind.COPY, copy.tensor, copy.source, *copy.send_work)
        elif copy.held_ns:
            self._add(PathKind.COPY, copy.tensor, copy.target, *copy.receive_work)
            return self._until(copy.target, copy.receive_work[0])
        else:
            way = f"{copy.source} → {copy.target}"
            self._add(PathKind.COPY, copy.tensor, way, copy.start_ns, copy.end_ns)
            self._add(PathKind.QUEUEING, copy.tensor, way, copy.set_out_ns, copy.start_ns)
        producer = self._run_of[copy.producer]
        if copy.set_out_ns > producer.end_ns:
            return self._until(copy.source, copy.set_out_ns)
        return producer, False

    def _until(self, device: str, time_ns: int) -> _Work | None:
        """Return what the device did until then; if it did nothing, it began then."""
        work = self._work_until.get((device, time_ns))
        if work is None:
            self._add(PathKind.OVERHEAD, "start of the device", device, 0, time_ns)
        return work

    def _last_input(self, run: OpRun) -> _Work:
        for edge in self._graph.inputs_of(run.op):
            producer = self._run_of.get(edge.producer)
            if producer is None:
                continue
            if producer.device == run.device:
                launch = producer.launch
                if run.ready_ns == (producer.end_ns if launch is None else launch[1]):
                    return producer, launch is not None
                continue
            copy = self._copy_of[edge.producer, edge.port, run.device]
            if copy.end_ns == run.ready_ns:
                return copy, False
        raise ValueError(f"nothing made {run.op!r} ready at {run.ready_ns} ns")

    def _add(self, kind: PathKind, what: str, where: str, start_ns: int, end_ns: int) -> None:
        if end_ns > start_ns:
            self._path.append(
                PathStep(kind=kind, what=what, where=where, start_ns=start_ns, end_ns=end_ns)
            )
