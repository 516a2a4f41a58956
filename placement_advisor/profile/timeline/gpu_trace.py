"""GPU planes of XSpace files as a trace.

Only streams count; the lines that XProf derives from them would count the same work again, and
other lines are named in a note. All work of a stream that is no copy is compute, memsets included.

Steps are cut where GPUs begin them: at the first kernel of each step on any device. Which step a
kernel is of says its ``group_id``, if the profiler gave one; else the step mark on the host within
which it was launched, told by its ``correlation_id``. What a GPU does between the last kernel of a
step and the first of the next is of the earlier step, so a wait for input counts there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from placement_advisor.profile.timeline.copy_kinds import CopyKind
from placement_advisor.profile.timeline.device_trace import USE_OF, Copied, Use, widen
from placement_advisor.profile.timeline.gpu_streams import (
    GpuPlane,
    gpu_planes,
    is_derived,
    is_stream,
)
from placement_advisor.profile.xspace.xplane_schema import NO_KEY

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from placement_advisor.profile.timeline.device_trace import TraceBuilder
    from placement_advisor.profile.timeline.gpu_streams import Stream
    from placement_advisor.profile.xspace.space_file import Events, SpaceFile

    Ints = NDArray[np.int64]


class GpuPlanes:
    """The GPU planes of a file, on their way into a trace."""

    def __init__(self, file: SpaceFile, prefix: str, builder: TraceBuilder) -> None:
        """Add the devices of a file, whose names begin with the prefix, to the trace."""
        self._file, self._builder = file, builder
        self.planes = gpu_planes(file)
        self._name_of = {number: f"{prefix}GPU:{number}" for number in self.planes}
        for device in self._name_of.values():
            builder.device(device)

    def read(
        self, key: str, step_of: Callable[[Ints], Ints], advance: Callable[[int], None]
    ) -> dict[int, tuple[int, int]]:
        """Add what the GPUs did; return when each step began on any of them, and when it ended.

        ``key`` is the stat by which ``step_of`` tells steps, -1 for none. ``advance`` is told the
        bytes that were read.
        """
        steps: dict[int, tuple[int, int]] = {}
        for number, plane in self.planes.items():
            device = self._name_of[number]
            gpu = GpuPlane(self._file, plane, device, self._device_of)
            for line in plane.lines:
                if is_stream(line):
                    stream = gpu.read(line, key=key)
                    self._add(device, stream)
                    _note_steps(steps, step_of(stream.events.key), stream.events)
                    if stream.events.damaged:
                        self._builder.notes.setdefault(
                            f"{self._file.path.name}: events without a sensible time were left out"
                        )
                elif not is_derived(line) and line.event_count:
                    self._builder.notes.setdefault(
                        f"lines that are no streams were not read: {line.name}"
                    )
                advance(line.place[1] - line.place[0])
        return steps

    def _device_of(self, number: int) -> str:
        return self._name_of.get(number, f"GPU:{number}")

    def _add(self, device: str, stream: Stream) -> None:
        self._builder.used(device, Use.COMPUTE, stream.spans(stream.is_compute))
        self._add_rows(stream)
        tensors = np.array([self._builder.tensor(name) for name in stream.tensors] + [-1])
        for route, places in stream.copied.items():
            spans = stream.spans(places)
            if route.kind is CopyKind.COLLECTIVE:
                self._builder.used(device, Use.COLLECTIVE, spans)
                continue
            copied = Copied(
                spans=spans,
                size_bytes=stream.size_bytes[places],
                # -1, which is no tensor, is the last of them.
                tensor=tensors[stream.tensor[places]],
            )
            self._builder.copies(route, copied)
            row = self._builder.row(route.kind, USE_OF[route.kind])
            row.add_each(stream.events.duration_ns[places])

    def _add_rows(self, stream: Stream) -> None:
        """Add the rows of kernels and collectives, which keep their own names."""
        place, took_ns = stream.name, stream.events.duration_ns
        calls, total_ns = np.bincount(place), np.bincount(place, took_ns)
        least = np.full(len(stream.names), np.iinfo(np.int64).max)
        np.minimum.at(least, place, took_ns)
        most = np.zeros(len(stream.names), np.int64)
        np.maximum.at(most, place, took_ns)
        for i, (name, kind) in enumerate(zip(stream.names, stream.kinds, strict=True)):
            if kind is None or kind is CopyKind.COLLECTIVE:
                row = self._builder.row(name, USE_OF[kind])
                row.add(int(calls[i]), int(total_ns[i]), int(least[i]), int(most[i]))


def _note_steps(steps: dict[int, tuple[int, int]], step_of: Ints, events: Events) -> None:
    """Note the first start and the last end of each step, of events in any order."""
    known = step_of != NO_KEY
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
        widen(steps, step, first_ns, last_ns)
