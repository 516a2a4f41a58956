"""Profiles are cut into steps at step marks, and summed up in one `StepProfile`.

A mark is an event with `step_num`; of nested marks the outermost counts. An event belongs to
the step in which it starts, whatever thread recorded it; events outside all steps are left
out. Ops of a worker are the events of their kernels, wherever they ran: a thread that
receives a tensor may run the ops that waited for it inline. Sends and receives are copies,
not compute. A collective counts as a copy.

Compute time of a device is the time during which at least one op runs on it, however many threads
or streams it has. A copy is exposed while its target computes nothing; copies that are exposed at
the same moment count once. Figures per step are medians over the steps.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict, deque
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from placement_advisor.errors import AdvisorError
from placement_advisor.graph.op import CONTROL_PORT
from placement_advisor.measurement import measurement as measurements
from placement_advisor.measurement.invariants import step_violations
from placement_advisor.profile import xplane
from placement_advisor.profile.device_trace import Spans
from placement_advisor.profile.xplane_schema import NO_KEY, PROFILE_START, PROFILE_STOP, TASK_PLANE
from placement_advisor.simulator import schedule as schedules

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from placement_advisor.profile.xspace_columns import SpaceFile, StoredPlane

    Ints = NDArray[np.int64]
    _OpEvent = tuple[xplane.Event, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One run of an op; ``own_ns`` is its own time on its device, apart from all other ops.

    ``op`` is None for device work that belongs to no op. ``row`` is its line in the activity table.
    """

    device: str
    op: str | None
    row: str
    start_ns: int
    end_ns: int
    own_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """One copy; ``waiting`` is the device whose compute can hide it.

    ``size_basis`` says where its bytes come from, if they are known.
    """

    source: str
    target: str
    waiting: str
    tensor: str
    row: str
    size_bytes: int | None
    size_basis: measurements.SizeBasis
    start_ns: int
    end_ns: int


@dataclass(slots=True, kw_only=True)
class RecordedStep:
    """What ran within one step; the starts of sends and arrivals are by (device, node)."""

    start_ns: int
    end_ns: int
    work: list[Work] = field(default_factory=list)
    copies: list[Copy] = field(default_factory=list)
    sends: defaultdict[tuple[str, str], list[int]] = field(
        default_factory=lambda: defaultdict(list)
    )
    arrivals: defaultdict[tuple[str, str], list[int]] = field(
        default_factory=lambda: defaultdict(list)
    )


def summarise(steps: Sequence[RecordedStep], devices: Sequence[str]) -> measurements.StepProfile:
    """Summarise at least one step that ran on these devices."""
    busy = [_busy(step, devices) for step in steps]
    busy_ns = [
        {device: schedules.intervals_length(spans) for device, spans in of.items()} for of in busy
    ]
    exposed_ns = [_exposed_by_device(step, of) for step, of in zip(steps, busy, strict=True)]
    broken = dict.fromkeys(
        law
        for step, computing, waiting in zip(steps, busy_ns, exposed_ns, strict=True)
        for law in step_violations(
            step.end_ns - step.start_ns, computing, waiting, _under_way_ns(step)
        )
    )
    return measurements.StepProfile(
        step_ns=tuple(step.end_ns - step.start_ns for step in steps),
        compute_ns=_medians(busy_ns),
        exposed_by_device=_medians(exposed_ns),
        broken_laws=tuple(broken),
        transfers=_transfers(steps, busy),
        activities=_activities(steps),
        op_ns=_op_ns(steps),
        timeline=_timeline(_median_step(steps)),
    )


def tensor_name(producer: str, port: int) -> str:
    """Return the tensor's name as TensorFlow writes it: ``op:port``, ``^op`` for a control edge."""
    return f"^{producer}" if port == CONTROL_PORT else f"{producer}:{port}"


def _medians(of_steps: Sequence[Mapping[str, int]]) -> dict[str, int]:
    return {device: int(median(of[device] for of in of_steps)) for device in of_steps[0]}


def _exposed_by_device(
    step: RecordedStep, busy: Mapping[str, list[schedules.Interval]]
) -> dict[str, int]:
    in_flight = schedules.intervals_by_key(
        (copy.waiting, (copy.start_ns, copy.end_ns)) for copy in step.copies
    )
    return {
        device: schedules.intervals_length_outside(in_flight[device], computing)
        for device, computing in busy.items()
    }


def _under_way_ns(step: RecordedStep) -> dict[tuple[str, str], int]:
    return {
        pair: schedules.intervals_length(schedules.merged_intervals(_spans(copies)))
        for pair, copies in _by_pair(step).items()
    }


def _by_pair(step: RecordedStep) -> defaultdict[tuple[str, str], list[Copy]]:
    """Return the copies of a step by their source and target."""
    found: defaultdict[tuple[str, str], list[Copy]] = defaultdict(list)
    for copy in step.copies:
        found[copy.source, copy.target].append(copy)
    return found


def _spans(copies: Iterable[Copy]) -> list[schedules.Interval]:
    return [(copy.start_ns, copy.end_ns) for copy in copies]


def _busy(step: RecordedStep, devices: Iterable[str]) -> dict[str, list[schedules.Interval]]:
    intervals: dict[str, list[schedules.Interval]] = {device: [] for device in devices}
    for work in step.work:
        intervals[work.device].append((work.start_ns, work.end_ns))
    return {
        device: schedules.merged_intervals(of_device) for device, of_device in intervals.items()
    }


def _transfers(
    steps: Sequence[RecordedStep], busy: Sequence[Mapping[str, list[schedules.Interval]]]
) -> tuple[measurements.TransferTotal, ...]:
    of_steps = [_by_pair(step) for step in steps]
    totals = []
    for source, target in sorted({pair for by_pair in of_steps for pair in by_pair}):
        per_step = [by_pair[source, target] for by_pair in of_steps]
        every = [copy for copies in per_step for copy in copies]
        size_bytes = size_basis = None
        if all(copy.size_bytes is not None for copy in every):
            size_bytes = int(median(sum(copy.size_bytes or 0 for copy in c) for c in per_step))
            bases = {copy.size_basis for copy in every}
            size_basis = (
                measurements.SizeBasis.SHAPES
                if measurements.SizeBasis.SHAPES in bases
                else measurements.SizeBasis.PROFILE
            )
        exposed_ns = (
            schedules.intervals_length_outside(_spans(copies), computing[every[0].waiting])
            for copies, computing in zip(per_step, busy, strict=True)
        )
        totals.append(
            measurements.TransferTotal(
                source=source,
                target=target,
                count=int(median(len(copies) for copies in per_step)),
                size_bytes=size_bytes,
                size_basis=size_basis,
                time_ns=int(median(sum(_link_ns(copies)) for copies in per_step)),
                exposed_ns=int(median(exposed_ns)),
            )
        )
    return tuple(totals)


def _link_ns(copies: Sequence[Copy]) -> list[int]:
    """Return the time of each copy of one pair, with copies at the same moment sharing it."""
    return schedules.interval_shares(_spans(copies))


def _activities(steps: Iterable[RecordedStep]) -> tuple[measurements.Activity, ...]:
    times: defaultdict[tuple[str, bool], list[int]] = defaultdict(list)
    for step in steps:
        for work in step.work:
            times[work.row, False].append(work.own_ns)
        for copies in _by_pair(step).values():
            for copy, link_ns in zip(copies, _link_ns(copies), strict=True):
                times[copy.row, True].append(link_ns)
    rows = [
        measurements.Activity(
            name=name,
            calls=len(of_row),
            total_ns=sum(of_row),
            min_ns=min(of_row),
            max_ns=max(of_row),
            is_copy=is_copy,
        )
        for (name, is_copy), of_row in times.items()
    ]
    return tuple(sorted(rows, key=lambda row: (-row.total_ns, row.name)))


def _op_ns(steps: Iterable[RecordedStep]) -> dict[str, int]:
    """Median over the steps in which the op ran; runs within one step add up."""
    times: defaultdict[str, list[int]] = defaultdict(list)
    for step in steps:
        of_step: defaultdict[str, int] = defaultdict(int)
        for work in step.work:
            if work.op is not None:
                of_step[work.op] += work.own_ns
        for op, time_ns in of_step.items():
            times[op].append(time_ns)
    return {op: int(median(of_op)) for op, of_op in sorted(times.items())}


def _median_step(steps: Sequence[RecordedStep]) -> RecordedStep:
    by_length = sorted(steps, key=lambda step: (step.end_ns - step.start_ns, step.start_ns))
    return by_length[(len(steps) - 1) // 2]


def _timeline(step: RecordedStep) -> tuple[measurements.Span, ...]:
    spans = [
        measurements.Span(
            lane=work.device,
            name=work.op or work.row,
            start_ns=work.start_ns - step.start_ns,
            end_ns=work.end_ns - step.start_ns,
            is_copy=False,
        )
        for work in step.work
    ]
    spans += [
        measurements.Span(
            lane=f"{copy.source} → {copy.target}",
            name=copy.tensor,
            start_ns=copy.start_ns - step.start_ns,
            end_ns=copy.end_ns - step.start_ns,
            is_copy=True,
        )
        for copy in step.copies
    ]
    return tuple(sorted(spans, key=lambda span: (span.start_ns, span.lane, span.name)))


STEP_EVENT = "train"
HOST_PLANE = "/host:CPU"

# Op name and kind; kinds begin with a capital or an underscore. Source: tf_op_utils.cc of XProf.
OP_EVENT = re.compile(r"([A-Za-z0-9.][A-Za-z0-9_.\\/>-]*):([A-Z_][A-Za-z0-9_]*)")


class StepWindows:
    """Steps in order of time, and when one process goes through each of them."""

    def __init__(self, windows: Iterable[tuple[RecordedStep, schedules.Interval]]) -> None:
        """Take each step with the time from its start to its end in a process."""
        self.windows = tuple(windows)
        self._starts = [start_ns for _, (start_ns, _) in self.windows]

    @property
    def steps(self) -> list[RecordedStep]:
        """The steps."""
        return [step for step, _ in self.windows]

    def at(self, moment_ns: int) -> RecordedStep | None:
        """Return the step that was under way at that moment, None if there was none."""
        place = bisect_right(self._starts, moment_ns) - 1
        if place < 0:
            return None
        step, (_, end_ns) = self.windows[place]
        return step if moment_ns < end_ns else None

    def marked_by(self, lines: Iterable[xplane.Line], path: Path) -> StepWindows:
        """Return the same steps as a process with these threads goes through them.

        They widen where that begins earlier or ends later. One that marks no steps has these.

        Raises:
            AdvisorError: the process, whose profile was read from that path, marks other steps.
        """
        windows = _marks(lines)
        if not windows:
            return self
        if len(windows) != len(self.windows):
            raise AdvisorError(
                f"the profile {path} holds {len(windows)} steps, that of the first process "
                f"{len(self.windows)}: they are not of the same steps"
            )
        for step, (start_ns, end_ns) in zip(self.steps, windows, strict=True):
            step.start_ns = min(step.start_ns, start_ns)
            step.end_ns = max(step.end_ns, end_ns)
        return StepWindows(zip(self.steps, windows, strict=True))

    def covered_by(self, planes: Iterable[StoredPlane]) -> StepWindows:
        """Return the steps during all of which the profile with these planes was being taken."""
        stats = next((plane.stats for plane in planes if plane.name == TASK_PLANE), {})
        begin_ns, end_ns = stats.get(PROFILE_START), stats.get(PROFILE_STOP)
        return StepWindows(
            (step, (start_ns, stop_ns))
            for step, (start_ns, stop_ns) in self.windows
            if not (isinstance(begin_ns, int) and start_ns < begin_ns)
            and not (isinstance(end_ns, int) and stop_ns > end_ns)
        )

    def shared_with(self, other: StepWindows) -> StepWindows:
        """Return the steps that another process has as well."""
        theirs = {id(step) for step in other.steps}
        return StepWindows(window for window in self.windows if id(window[0]) in theirs)

    def with_work(self, path: Path) -> list[RecordedStep]:
        """Return the steps in which any device worked.

        Raises:
            AdvisorError: there is none in the profile of that path.
        """
        complete = [step for step in self.steps if step.work]
        if not complete:
            raise AdvisorError(
                f"no step of {path} is complete: no device was profiled at work within one",
                hint="start the profilers before the first profiled step, stop them after the last",
            )
        return complete


def step_windows(file: SpaceFile) -> StepWindows:
    """Return the steps of a profile, still empty.

    Raises:
        AdvisorError: it holds no step, or a thread of its host is corrupt.
    """
    found = _marks(host_lines(file))
    if not found:
        raise AdvisorError(f"the profile {file.path} holds no step: no {STEP_EVENT!r} event")
    return windows_of(found)


def windows_of(spans: Iterable[schedules.Interval]) -> StepWindows:
    """Return the steps from these starts to these ends, still empty."""
    return StepWindows(
        (RecordedStep(start_ns=start_ns, end_ns=end_ns), (start_ns, end_ns))
        for start_ns, end_ns in spans
    )


def _marks(lines: Iterable[xplane.Line]) -> list[schedules.Interval]:
    return sorted(
        (event.start_ns, event.end_ns)
        for line in lines
        for event in line.events
        if event.name == STEP_EVENT and "step_num" in event.stats
    )


def host_lines(file: SpaceFile) -> tuple[xplane.Line, ...]:
    """Return the threads of the host of a file.

    Raises:
        AdvisorError: one of them is corrupt.
    """
    hosts = (plane for plane in file.planes if plane.name == HOST_PLANE)
    return tuple(line for plane in hosts for line in xplane.lines_of(file, plane))


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
        nowhere = np.full(len(correlations), NO_KEY)
        moments = self.launch_of(correlations, otherwise=nowhere)
        if not len(self.steps.start):
            return nowhere
        place = np.searchsorted(self.steps.start, moments, side="right") - 1
        found: Ints = np.where(moments < self.steps.end[np.maximum(place, 0)], place, NO_KEY)
        return found

    def launch_of(self, correlations: Ints, otherwise: Ints) -> Ints:
        """Return the moment at which each was launched, another where that is not known."""
        if not len(self.launched):
            return otherwise
        place = np.minimum(np.searchsorted(self.launched, correlations), len(self.launched) - 1)
        is_known = self.launched[place] == correlations
        found: Ints = np.where(is_known, self.launched_ns[place], otherwise)
        return found


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


COLLECTIVE_ROW = "[gRPC ring collective]"

ARRIVAL = "ExecutorState::ProcessAsync::Done"
JOIN = "ExecutorState::ProcessAsync::Start"
SEND_KINDS = frozenset({"_Send", "_HostSend"})
RECEIVE_KINDS = frozenset({"_Recv", "_HostRecv"})
COLLECTIVE_KINDS = frozenset(
    {
        "CollectiveGather",
        "CollectiveGatherV2",
        "CollectiveReduce",
        "CollectiveReduceV2",
        "CollectiveReduceV3",
    }
)


def gather_events(
    device: str,
    lines: Sequence[xplane.Line],
    windows: StepWindows,
    devices: Sequence[str],
    exchanged_bytes: Mapping[str, int | None],
    *,
    on_core: bool,
) -> None:
    """Put what a device sent, received and exchanged into the steps in which it did.

    So is what it computed, if it is a core.
    """
    threads = [_ops_of(line) for line in lines]
    own = shared_core_ns([[event for event, _, _ in thread] for thread in threads])
    for thread, thread_own in zip(threads, own, strict=True):
        for (event, name, kind), own_ns in zip(thread, thread_own, strict=True):
            step = windows.at(event.start_ns)
            if step is None or kind in RECEIVE_KINDS:
                continue
            if kind in SEND_KINDS:
                step.sends[device, name].append(event.start_ns)
            elif on_core:
                work = Work(
                    device=device,
                    op=name,
                    row=kind,
                    start_ns=event.start_ns,
                    end_ns=event.end_ns,
                    own_ns=own_ns,
                )
                step.work.append(work)
    joined_ns: defaultdict[str, list[int]] = defaultdict(list)
    done_ns: defaultdict[str, list[int]] = defaultdict(list)
    for event in (event for line in lines for event in line.events):
        kind, node = (str(event.stats.get(stat)) for stat in ("kernel_type", "name"))
        if event.name == JOIN and kind in COLLECTIVE_KINDS:
            joined_ns[node].append(event.start_ns)
        elif event.name == ARRIVAL and kind in COLLECTIVE_KINDS:
            done_ns[node].append(event.start_ns)
        elif event.name == ARRIVAL and kind in RECEIVE_KINDS:
            step = windows.at(event.start_ns)
            if step is not None:
                step.arrivals[device, node].append(event.start_ns)
    before = devices[devices.index(device) - 1]
    for node, starts in joined_ns.items():
        size_bytes = exchanged_bytes.get(node)
        for start_ns, end_ns in _exchanges(starts, done_ns[node]):
            step = windows.at(start_ns)
            if step is not None:
                copy = Copy(
                    source=before,
                    target=device,
                    waiting=device,
                    tensor=node,
                    row=COLLECTIVE_ROW,
                    size_bytes=size_bytes,
                    size_basis=measurements.SizeBasis.SHAPES,
                    start_ns=start_ns,
                    end_ns=end_ns,
                )
                step.copies.append(copy)


def _ops_of(line: xplane.Line) -> list[_OpEvent]:
    return [
        (event, match.group(1), match.group(2))
        for event in line.events
        if (match := OP_EVENT.fullmatch(event.name)) and match.group(2) not in COLLECTIVE_KINDS
    ]


def shared_core_ns(threads: Sequence[Sequence[xplane.Event]]) -> list[list[int]]:
    """Return the core time of each event of a worker whose threads share one core.

    Within a thread the innermost event runs; events that run in several threads at the same moment
    have equal parts of it. So core times add up to the time in which anything ran.
    """
    own = [[0.0] * len(events) for events in threads]
    changes = []
    for thread, events in enumerate(threads):
        for place, event in enumerate(events):
            if event.duration_ns:
                # At one moment ends come before starts, and of starts the outermost comes first.
                changes.append((event.end_ns, 0, 0, thread, place))
                changes.append((event.start_ns, 1, -event.end_ns, thread, place))
    changes.sort()
    running: dict[int, list[int]] = {}
    before_ns = 0
    for now_ns, is_start, _, thread, place in changes:
        for other, stack in running.items():
            own[other][stack[-1]] += (now_ns - before_ns) / len(running)
        before_ns = now_ns
        if is_start:
            running.setdefault(thread, []).append(place)
            continue
        running[thread].remove(place)
        if not running[thread]:
            del running[thread]
    return [[round(time_ns) for time_ns in of_thread] for of_thread in own]


def _exchanges(joined_ns: Sequence[int], done_ns: Sequence[int]) -> Iterator[schedules.Interval]:
    """Yield when each run of a collective began and ended: the first to join ends first.

    The op's own event lasts longer: its thread goes on to run the ops that waited for it.
    """
    done = deque(sorted(done_ns))
    for start_ns in sorted(joined_ns):
        # One that was under way when profiling began has ended, but not joined.
        while done and done[0] < start_ns:
            done.popleft()
        if done:
            yield start_ns, done.popleft()
