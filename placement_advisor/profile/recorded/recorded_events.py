"""What the events of one recorded process are: runs of ops within steps, and copies.

A kernel belongs to the innermost op that it was launched for; memsets and copies within the card
are work like kernels. On the host an op takes what its thread spends on it, less what other ops
take within; where all threads share one core, as those of this program's workers do, ops that run
at the same moment share it. Threads of the input pipeline, which prepare later steps, are left out,
and so are ops that only hand a tensor on.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from placement_advisor.profile.recorded.recorded_steps import STEP_KEY
from placement_advisor.profile.timeline.copy_kinds import CopyKind
from placement_advisor.profile.timeline.device_trace import HOST, UNKNOWN_END
from placement_advisor.profile.timeline.gpu_streams import GpuPlane, is_stream
from placement_advisor.profile.timeline.step_windows import HOST_PLANE, OP_EVENT, host_lines
from placement_advisor.profile.timeline.worker_events import shared_core_ns
from placement_advisor.profile.xspace.xplane import plane_as_objects

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from placement_advisor.profile.recorded.recorded_steps import RecordedSteps
    from placement_advisor.profile.timeline.gpu_streams import Stream
    from placement_advisor.profile.xspace.space_file import SpaceFile, StoredPlane
    from placement_advisor.profile.xspace.xplane import Event
    from placement_advisor.profile.xspace.xplane_schema import StatValue

    # Bytes and ns of one copy.
    Sample = tuple[int, int]

_BETWEEN_DEVICES = (CopyKind.HOST_TO_DEVICE, CopyKind.DEVICE_TO_HOST, CopyKind.PEER)
_INPUT_PIPELINE = "tf_data"
_HANDING_ON = frozenset({"_Arg", "_HostRecv", "_HostSend", "_Recv", "_Retval", "_Send"})
# A replica of a mirrored step is the same op on another GPU.
_REPLICA = re.compile(r"(?<![^/])replica_\d+/")
# What CUPTI keeps about the op behind a kernel: all levels of it, or the outermost alone. Between
# levels stands ``::``, behind each of them ``#key=value#``.
_ANNOTATIONS = ("annotation", "tf_op", "level 0")
_LEVEL_FACTS = re.compile(r"#[^#]*#")


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """The profile of one process: its file, what its host and GPUs are called, its steps.

    ``shares_core`` says that all its threads have one core between them.
    """

    host: str
    file: SpaceFile
    gpus: Mapping[int, str]
    gpu_planes: Mapping[int, StoredPlane]
    steps: RecordedSteps
    shares_core: bool

    def streams(self, stats: Collection[str] = ()) -> Iterator[tuple[int, Stream]]:
        """Read what the GPUs did, with their numbers and the stats that are asked for."""
        for number, plane in self.gpu_planes.items():
            gpu = GpuPlane(
                self.file,
                plane,
                self.gpus[number],
                lambda receiver: self.gpus.get(receiver, UNKNOWN_END),
            )
            for line in plane.lines:
                if is_stream(line):
                    yield number, gpu.read(line, key=STEP_KEY, of_all=stats)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of an op (name, kind) within a step, which is told by its start.

    ``op`` is None for work that belongs to none. ``on_device`` is False on the host of GPUs.
    """

    op: tuple[str, str] | None
    device: str
    on_device: bool
    step: int
    time_ns: int


def runs(process: Process) -> Iterator[Run]:
    """Yield what ran in the steps of the process."""
    has_kernels = False
    for number, stream in process.streams(_ANNOTATIONS):
        has_kernels = has_kernels or len(stream.events.name) > 0
        steps, took_ns = process.steps.of_stream(number, stream), stream.events.duration_ns.tolist()
        within = (
            places
            for route, places in stream.copied.items()
            if route.kind is CopyKind.DEVICE_TO_DEVICE
        )
        for place in np.concatenate([np.flatnonzero(stream.is_compute), *within]).tolist():
            step = steps[place]
            if step is not None:
                yield Run(
                    op=_op_behind(stream.stats.get(place, {})),
                    device=process.gpus[number],
                    on_device=True,
                    step=step,
                    time_ns=took_ns[place],
                )
    for event, op, own_ns in _host_ops(process):
        step = process.steps.of_host_event(event)
        if step is not None and op[1] not in _HANDING_ON:
            yield Run(
                op=op, device=process.host, on_device=not has_kernels, step=step, time_ns=own_ns
            )


def copies(process: Process) -> Iterator[tuple[str, str, Sample]]:
    """Yield source, target, bytes and ns of each copy between devices, in steps or not."""
    for _, stream in process.streams():
        for route, places in stream.copied.items():
            if route.kind not in _BETWEEN_DEVICES:
                continue
            source, target = (process.host if end == HOST else end for end in route[:2])
            sizes, took_ns = stream.size_bytes[places], stream.events.duration_ns[places]
            for sample in zip(sizes.tolist(), took_ns.tolist(), strict=True):
                if sample[0] > 0 and sample[1]:
                    yield source, target, sample


def _op_behind(stats: Mapping[str, StatValue]) -> tuple[str, str] | None:
    for stat in _ANNOTATIONS:
        levels = _LEVEL_FACTS.sub("", str(stats.get(stat, ""))).split("::")
        for level in reversed(levels):
            if found := OP_EVENT.fullmatch(level):
                return _op(found)
    return None


def _op(found: re.Match[str]) -> tuple[str, str]:
    return _REPLICA.sub("", found[1]), found[2]


def _host_ops(process: Process) -> Iterator[tuple[Event, tuple[str, str], int]]:
    """Yield the ops of the host with their own time."""
    file = process.file
    hosts = [plane_as_objects(file, plane) for plane in file.planes if plane.name == HOST_PLANE]
    threads = [
        [(event, _op(found)) for event in line.events if (found := OP_EVENT.fullmatch(event.name))]
        for line in host_lines(hosts)
        if not line.name.startswith(_INPUT_PIPELINE)
    ]
    events = [[event for event, _ in thread] for thread in threads]
    own = shared_core_ns(events) if process.shares_core else map(_own_core_ns, events)
    for thread, own_ns in zip(threads, own, strict=True):
        for (event, op), time_ns in zip(thread, own_ns, strict=True):
            yield event, op, time_ns


def _own_core_ns(events: Sequence[Event]) -> list[int]:
    """Return the time of each event of a thread without that of events within it."""
    own_ns = [event.duration_ns for event in events]
    around: list[int] = []
    for place in sorted(range(len(events)), key=lambda i: (events[i].start_ns, -events[i].end_ns)):
        while around and events[around[-1]].end_ns <= events[place].start_ns:
            around.pop()
        if around:
            own_ns[around[-1]] -= events[place].duration_ns
        around.append(place)
    return [max(0, time_ns) for time_ns in own_ns]
