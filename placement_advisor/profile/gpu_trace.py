"""GPU planes of XSpace files as a trace.

Only streams count; the lines that XProf derives from them would count the same work again, and
other lines are named in a note. All work of a stream that is no copy is compute, memsets included.

Steps are cut where GPUs begin them: at the first kernel of each step on any device. Which step a
kernel is of says its ``group_id``, if the profiler gave one; else the step mark on the host within
which it was launched, told by its ``correlation_id``. What a GPU does between the last kernel of a
step and the first of the next is of the earlier step, so a wait for input counts there.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

from placement_advisor.profile.copies import CopyKind, copied_bytes, copy_kind, destination
from placement_advisor.profile.event_columns import NO_KEY
from placement_advisor.profile.spans import Spans
from placement_advisor.profile.streams import MAX_DETAILS_CHARS, is_derived, is_stream
from placement_advisor.profile.trace import (
    UNKNOWN_BYTES,
    USE_OF,
    Copied,
    Route,
    Use,
    gpu_route,
    widen,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from placement_advisor.profile.space_file import Events, SpaceFile, StoredPlane
    from placement_advisor.profile.trace import TraceBuilder

    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]

# More bytes than these no copy has, and no computer so many GPUs.
_LARGEST = 2**53
_GPU_PLANE = re.compile(r"/device:GPU:(\d{1,9})")
_DETAILS, _EDGE = "memcpy_details", "edge_name"


class GpuPlanes:
    """The GPU planes of a file, on their way into a trace."""

    def __init__(self, file: SpaceFile, prefix: str, builder: TraceBuilder) -> None:
        """Add the devices of a file, whose names begin with the prefix, to the trace."""
        self._file, self._builder = file, builder
        numbers = {
            int(match[1]): plane
            for plane in file.planes
            if (match := _GPU_PLANE.fullmatch(plane.name))
        }
        self.planes = {number: numbers[number] for number in sorted(numbers)}
        self._device_of = {number: f"{prefix}GPU:{number}" for number in self.planes}
        for device in self._device_of.values():
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
            copy_kinds = {
                name: kind
                for name, text in plane.event_names.items()
                if (kind := copy_kind(text)) is not None
            }
            for line in plane.lines:
                if is_stream(line):
                    events = self._file.events(
                        plane, line, key=key, of_named=(_DETAILS, _EDGE), named=copy_kinds
                    )
                    self._add_line(number, plane, events, copy_kinds)
                    _note_steps(steps, step_of(events.key), events)
                    if events.damaged:
                        self._builder.notes.setdefault(
                            f"{self._file.path.name}: events without a sensible time were left out"
                        )
                elif not is_derived(line) and line.event_count:
                    self._builder.notes.setdefault(
                        f"lines that are no streams were not read: {line.name}"
                    )
                advance(line.place[1] - line.place[0])
        return steps

    def _add_line(
        self,
        number: int,
        plane: StoredPlane,
        events: Events,
        copy_kinds: Mapping[int, CopyKind],
    ) -> None:
        if not len(events.name):
            return
        names, place = np.unique(events.name, return_inverse=True)
        kinds = [copy_kinds.get(int(name)) for name in names]
        is_copy = np.array([kind is not None for kind in kinds], np.bool_)[place]
        is_collective = np.array([kind is CopyKind.COLLECTIVE for kind in kinds], np.bool_)[place]
        device = self._device_of[number]
        for use, chosen in ((Use.COMPUTE, ~is_copy), (Use.COLLECTIVE, is_collective)):
            self._builder.used(device, use, _spans(events, chosen))
        self._add_rows(plane, events, names, place, kinds)
        self._add_copies(number, events, plane, is_copy & ~is_collective, kinds, place)

    def _add_rows(
        self,
        plane: StoredPlane,
        events: Events,
        names: Ints,
        place: Ints,
        kinds: list[CopyKind | None],
    ) -> None:
        calls = np.bincount(place)
        total_ns = np.bincount(place, events.duration_ns)
        least = np.full(len(names), np.iinfo(np.int64).max)
        np.minimum.at(least, place, events.duration_ns)
        most = np.zeros(len(names), np.int64)
        np.maximum.at(most, place, events.duration_ns)
        for i, (name, kind) in enumerate(zip(names, kinds, strict=True)):
            if kind is None or kind is CopyKind.COLLECTIVE:
                text = plane.event_names.get(int(name), "")
                row = self._builder.row(text, USE_OF[kind])
                row.add(int(calls[i]), int(total_ns[i]), int(least[i]), int(most[i]))

    def _add_copies(
        self,
        number: int,
        events: Events,
        plane: StoredPlane,
        is_copy: Bools,
        kinds: list[CopyKind | None],
        place: Ints,
    ) -> None:
        chosen = np.flatnonzero(is_copy)
        if not len(chosen):
            return
        size_bytes = np.full(len(events.name), UNKNOWN_BYTES)
        tensor = np.full(len(events.name), -1)
        receiver = np.full(len(events.name), -1)
        known: dict[object, tuple[int, int]] = {}
        for event, stat, value in self._file.values(plane, events):
            if stat == _EDGE:
                tensor[event] = self._builder.tensor(str(value))
                continue
            if value not in known:
                known[value] = _details(str(value))
            size_bytes[event], receiver[event] = known[value]
        routes = defaultdict(list)
        for event in chosen.tolist():
            kind = kinds[place[event]]
            assert kind is not None
            routes[self._route(kind, number, int(receiver[event]))].append(event)
        for route, of_route in routes.items():
            taken = np.array(of_route)
            copied = Copied(
                spans=_spans(events, taken), size_bytes=size_bytes[taken], tensor=tensor[taken]
            )
            self._builder.copies(route, copied)
            row = self._builder.row(route.kind, USE_OF[route.kind])
            row.add_each(events.duration_ns[taken])

    def _route(self, kind: CopyKind, number: int, receiver: int) -> Route:
        there = None if receiver < 0 else self._device_of.get(receiver, f"GPU:{receiver}")
        return gpu_route(kind, self._device_of[number], sender=None, receiver=there)


def _spans(events: Events, chosen: Bools | Ints) -> Spans:
    start_ns = events.start_ns[chosen]
    return Spans(start_ns, start_ns + events.duration_ns[chosen])


def _details(text: str) -> tuple[int, int]:
    found = copied_bytes(text[:MAX_DETAILS_CHARS]), destination(text[:MAX_DETAILS_CHARS])
    size_bytes, receiver = (
        -1 if number is None or number > _LARGEST else number for number in found
    )
    return size_bytes, receiver


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
