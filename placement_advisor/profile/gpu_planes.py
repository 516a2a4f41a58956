"""GPU planes of XSpace files are read as the steps of a placement, or as a trace.

Only streams count; lines that XProf derives from them would count the same work again. All
work of a stream that is no copy is compute, memsets included. The names and details are those
that TensorFlow, CUPTI and XProf give to events; they are tested on profiles built by hand. A
trace begins a step at the first kernel of that step on any device, by its ``group_id`` if the
profiler gave one.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING

import numpy as np

from placement_advisor.measurement import measurement as measurements
from placement_advisor.profile import copy_names, device_trace, xplane_schema
from placement_advisor.profile import steps as profile_steps
from placement_advisor.profile.xplane import space_file

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from placement_advisor.profile.xspace_columns import Events, SpaceFile, StoredLine, StoredPlane

    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]


_GPU_PLANE = re.compile(r"/device:GPU:(\d{1,9})")
_STREAM = "Stream"
# XProf numbers the lines that it derives (Steps, TensorFlow Ops, …) upwards from here, in 32 bits
# that it may store as a negative number.
_FIRST_DERIVED_LINE = 0xDEADBEEF
_32_BITS = 0xFFFFFFFF
_LAST_NS = np.iinfo(np.int64).max
_DETAILS, _EDGE = "memcpy_details", "edge_name"


def gpu_planes(file: SpaceFile) -> dict[int, StoredPlane]:
    """Return the planes of the GPUs in a file by their numbers, in order."""
    planes = {
        int(match[1]): plane for plane in file.planes if (match := _GPU_PLANE.fullmatch(plane.name))
    }
    return dict(sorted(planes.items()))


def is_stream(line: StoredLine) -> bool:
    """Return whether a line of a GPU's plane lists what the GPU did."""
    return line.name.startswith(_STREAM) and not is_derived(line)


def is_derived(line: StoredLine) -> bool:
    """Return whether XProf made the line of others."""
    return (line.id & _32_BITS) >= _FIRST_DERIVED_LINE


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """What a GPU did on one stream.

    ``name`` has the place of each event's name among ``names``; ``kinds`` are the directions of
    those that are copies. ``copied`` has the places of the events on each route, collectives
    included. Their ``size_bytes`` are `UNKNOWN_BYTES` where not given, ``tensor`` is a place among
    ``tensors`` or -1; both are empty where nothing was copied. ``stats`` of events are those that
    were asked for.
    """

    line: StoredLine
    events: Events
    names: tuple[str, ...]
    kinds: tuple[copy_names.CopyKind | None, ...]
    name: Ints
    copied: Mapping[device_trace.Route, Ints]
    size_bytes: Ints
    tensor: Ints
    tensors: tuple[str, ...]
    stats: Mapping[int, Mapping[str, xplane_schema.StatValue]]

    @property
    def is_compute(self) -> Bools:
        """Whether each event is no copy; memsets are none."""
        return np.array([kind is None for kind in self.kinds], np.bool_)[self.name]

    @property
    def work(self) -> Ints:
        """Places of what ran on the GPU itself: compute, and then copies within its memory."""
        within = (
            places
            for route, places in self.copied.items()
            if route.kind is copy_names.CopyKind.DEVICE_TO_DEVICE
        )
        return np.concatenate([np.flatnonzero(self.is_compute), *within])

    def spans(self, chosen: Bools | Ints) -> device_trace.Spans:
        """Return when some of the events were under way."""
        start_ns = self.events.start_ns[chosen]
        return device_trace.Spans(start_ns, start_ns + self.events.duration_ns[chosen])


_OP = "tf_op"


_OP = "tf_op"


def gpu_streams(
    file: SpaceFile,
    name_of: Mapping[int, str],
    *,
    elsewhere: str = "GPU:{}",
    key: str | None = None,
    of_all: Collection[str] = (_OP,),
) -> Iterator[tuple[int, Stream]]:
    """Yield the streams of the GPUs that have a name, each with the number of its GPU.

    ``elsewhere`` is what a GPU without a name is called, by its number. ``key`` and ``of_all`` are
    as for `SpaceFile.events`.

    Raises:
        AdvisorError: a line is corrupt.
    """

    def route(here: str, kind: copy_names.CopyKind, receiver: int) -> device_trace.Route:
        there = None if receiver < 0 else name_of.get(receiver, elsewhere.format(receiver))
        return device_trace.gpu_route(kind, here, sender=None, receiver=there)

    for number, plane in gpu_planes(file).items():
        if number not in name_of:
            continue
        copies = [name for name, text in plane.event_names.items() if copy_names.copy_kind(text)]
        for line in filter(is_stream, plane.lines):
            events = file.events(
                plane, line, key=key, of_all=of_all, of_named=(_DETAILS, _EDGE), named=copies
            )
            yield number, _stream(file, plane, line, events, partial(route, name_of[number]))


def _stream(
    file: SpaceFile,
    plane: StoredPlane,
    line: StoredLine,
    events: Events,
    route: Callable[[copy_names.CopyKind, int], device_trace.Route],
) -> Stream:
    ids, place = np.unique(events.name, return_inverse=True)
    names = tuple(plane.event_names.get(name, "") for name in ids.tolist())
    kinds = tuple(map(copy_names.copy_kind, names))
    copies = np.flatnonzero(np.array([kind is not None for kind in kinds], np.bool_)[place])
    of_copies = len(events.name) if len(copies) else 0
    size_bytes = np.full(of_copies, device_trace.UNKNOWN_BYTES)
    tensor, receiver = np.full(of_copies, -1), np.full(of_copies, -1)
    tensors: dict[str, int] = {}
    stats: defaultdict[int, dict[str, xplane_schema.StatValue]] = defaultdict(dict)
    for event, stat, value in file.values(plane, events):
        if stat == _EDGE:
            tensor[event] = tensors.setdefault(str(value), len(tensors))
        elif stat == _DETAILS:
            size_bytes[event], receiver[event] = _details(str(value))
        else:
            stats[event][stat] = value
    copied: defaultdict[device_trace.Route, list[int]] = defaultdict(list)
    for event in copies.tolist():
        kind = kinds[place[event]]
        assert kind is not None
        copied[route(kind, int(receiver[event]))].append(event)
    return Stream(
        line=line,
        events=events,
        names=names,
        kinds=kinds,
        name=place,
        copied={route: np.array(events_of) for route, events_of in copied.items()},
        size_bytes=size_bytes,
        tensor=tensor,
        tensors=tuple(tensors),
        stats=stats,
    )


# Copies repeat them.
@lru_cache(maxsize=10_000)
def _details(text: str) -> tuple[int, int]:
    size_bytes, receiver = copy_names.copied_bytes(text), copy_names.destination(text)
    return (
        device_trace.UNKNOWN_BYTES if size_bytes is None else size_bytes,
        -1 if receiver is None else receiver,
    )


def gather_gpu_work(here: str, stream: Stream, windows: profile_steps.StepWindows) -> None:
    """Put what a stream of the device ``here`` computed into the steps in which it began."""
    spans = stream.spans(stream.work).pairs()
    for place, (start_ns, end_ns) in zip(stream.work.tolist(), spans, strict=True):
        step = windows.at(start_ns)
        if step is None:
            continue
        kind, name = stream.kinds[stream.name[place]], stream.names[stream.name[place]]
        annotation = str(stream.stats.get(place, {}).get(_OP, ""))
        op = profile_steps.OP_EVENT.fullmatch(annotation) if kind is None else None
        step.work.append(
            profile_steps.Work(
                device=here,
                op=op[1] if op else None,
                row=kind or name,
                start_ns=start_ns,
                end_ns=end_ns,
                own_ns=end_ns - start_ns,
            )
        )


def read_gpu_steps(xplane: Path, device_names: Mapping[str, int]) -> measurements.StepProfile:
    """Read a profile with several GPUs; never run on a real GPU so far.

    ``device_names`` maps devices to the numbers of their GPU planes. A step must wait for its GPU
    work before it ends: what starts later is not counted. A copy from or to the host has ``host``
    at that end, one that no known spelling classifies ends at ``unknown``, an NCCL kernel at
    ``collective``; these are exposed while the GPU that lists them computes nothing, as no device
    here is known to wait for them.

    Raises:
        AdvisorError: the file is missing or corrupt, or no step in it holds GPU work.
    """
    file = space_file(xplane)
    windows = profile_steps.step_windows(file)
    name_of = {number: device for device, number in device_names.items()}
    for number, stream in gpu_streams(file, name_of):
        here = name_of[number]
        gather_gpu_work(here, stream, windows)
        _gather_copies(here, stream, windows, device_names)
    steps = windows.with_work(xplane)
    return profile_steps.summarise(steps, tuple(device_names))


def _gather_copies(
    here: str, stream: Stream, windows: profile_steps.StepWindows, device_names: Mapping[str, int]
) -> None:
    """Put what a stream of the device ``here`` copied into the steps in which it began."""
    for route, places in stream.copied.items():
        if route.kind is copy_names.CopyKind.DEVICE_TO_DEVICE:
            continue
        waiting = route.target if route.target in device_names else here
        spans = stream.spans(places).pairs()
        for place, (start_ns, end_ns) in zip(places.tolist(), spans, strict=True):
            step = windows.at(start_ns)
            if step is None:
                continue
            size_bytes, tensor = int(stream.size_bytes[place]), int(stream.tensor[place])
            step.copies.append(
                profile_steps.Copy(
                    source=route.source,
                    target=route.target,
                    waiting=waiting,
                    tensor=route.kind if tensor < 0 else stream.tensors[tensor],
                    row=route.kind,
                    size_bytes=None if size_bytes == device_trace.UNKNOWN_BYTES else size_bytes,
                    size_basis=measurements.SizeBasis.PROFILE,
                    start_ns=start_ns,
                    end_ns=end_ns,
                )
            )


def add_streams(
    file: SpaceFile,
    name_of: Mapping[int, str],
    builder: device_trace.TraceBuilder,
    steps: dict[int, tuple[int, int]],
    key: str,
    step_of: Callable[[Ints], Ints],
    advance: Callable[[int], None],
) -> None:
    """Add what GPUs did, by their names, to a trace, and when each step began and ended on any.

    ``key`` is the stat by which ``step_of`` tells steps, -1 for none. ``advance`` is told the bytes
    that were read.
    """
    for line in (line for plane in gpu_planes(file).values() for line in plane.lines):
        if not is_stream(line):
            advance(line.place[1] - line.place[0])
            if not is_derived(line) and line.event_count:
                builder.notes.setdefault(f"lines that are no streams were not read: {line.name}")
    for number, stream in gpu_streams(file, name_of, key=key, of_all=()):
        _add_stream(builder, name_of[number], stream)
        _note_steps(steps, step_of(stream.events.key), stream.events)
        if stream.events.damaged:
            builder.notes.setdefault(
                f"{file.path.name}: events without a sensible time were left out"
            )
        advance(stream.line.place[1] - stream.line.place[0])


def _add_stream(builder: device_trace.TraceBuilder, device: str, stream: Stream) -> None:
    builder.used(device, device_trace.DeviceUse.COMPUTE, stream.spans(stream.is_compute))
    tensors = np.array([builder.tensor(name) for name in stream.tensors] + [-1])
    for route, places in stream.copied.items():
        spans = stream.spans(places)
        if route.kind is copy_names.CopyKind.COLLECTIVE:
            builder.used(device, device_trace.DeviceUse.COLLECTIVE, spans)
            continue
        copied = device_trace.CopyColumns(
            spans=spans,
            size_bytes=stream.size_bytes[places],
            # -1, which is no tensor, is the last of them.
            tensor=tensors[stream.tensor[places]],
        )
        builder.copies(route, copied)
        took_ns = stream.events.duration_ns[places]
        builder.each_run(route.kind, device_trace.USE_OF[route.kind], took_ns)
    # Kernels and collectives keep their own names.
    place, took_ns = stream.name, stream.events.duration_ns
    least, most = np.full(len(stream.names), _LAST_NS), np.zeros(len(stream.names), np.int64)
    np.minimum.at(least, place, took_ns)
    np.maximum.at(most, place, took_ns)
    columns = np.bincount(place), np.bincount(place, took_ns), least, most
    for name, kind, *figures in zip(stream.names, stream.kinds, *columns, strict=True):
        if kind is None or kind is copy_names.CopyKind.COLLECTIVE:
            builder.runs(name, device_trace.USE_OF[kind], *map(int, figures))


def _note_steps(steps: dict[int, tuple[int, int]], step_of: Ints, events: Events) -> None:
    """Note the first start and the last end of each step, of events in any order."""
    known = step_of != xplane_schema.NO_KEY
    start_ns, end_ns = events.start_ns[known], (events.start_ns + events.duration_ns)[known]
    if not len(start_ns):
        return
    # Events of a step come in a row, mostly.
    numbers = step_of[known]
    rows = np.flatnonzero(np.append(True, np.diff(numbers) != 0))
    least, most = np.minimum.reduceat(start_ns, rows), np.maximum.reduceat(end_ns, rows)
    for step, first_ns, last_ns in zip(
        numbers[rows].tolist(), least.tolist(), most.tolist(), strict=True
    ):
        device_trace.widen(steps, step, first_ns, last_ns)
