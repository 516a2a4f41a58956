"""What the streams of a GPU did, in columns: the one reading of GPU planes.

Only streams count; lines that XProf derives from them would count the same work again.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from placement_advisor.profile.spans import Spans
from placement_advisor.profile.timeline.copy_kinds import (
    CopyKind,
    copied_bytes,
    copy_kind,
    destination,
)
from placement_advisor.profile.timeline.device_trace import UNKNOWN_BYTES, Route, gpu_route

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from numpy.typing import NDArray

    from placement_advisor.profile.xspace.space_file import (
        Events,
        SpaceFile,
        StoredLine,
        StoredPlane,
    )
    from placement_advisor.profile.xspace.xplane_schema import StatValue

    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]

_GPU_PLANE = re.compile(r"/device:GPU:(\d{1,9})")
_STREAM = "Stream"
# XProf numbers the lines that it derives (Steps, TensorFlow Ops, …) upwards from here, in 32 bits
# that it may store as a negative number.
_FIRST_DERIVED_LINE = 0xDEADBEEF
_32_BITS = 0xFFFFFFFF
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

    events: Events
    names: tuple[str, ...]
    kinds: tuple[CopyKind | None, ...]
    name: Ints
    copied: Mapping[Route, Ints]
    size_bytes: Ints
    tensor: Ints
    tensors: tuple[str, ...]
    stats: Mapping[int, Mapping[str, StatValue]]

    @property
    def is_compute(self) -> Bools:
        """Whether each event is no copy; memsets are none."""
        return np.array([kind is None for kind in self.kinds], np.bool_)[self.name]

    def spans(self, chosen: Bools | Ints) -> Spans:
        """Return when some of the events were under way."""
        start_ns = self.events.start_ns[chosen]
        return Spans(start_ns, start_ns + self.events.duration_ns[chosen])


class GpuPlane:
    """The plane of a GPU, whose streams can be read."""

    def __init__(
        self, file: SpaceFile, plane: StoredPlane, here: str, device_of: Callable[[int], str]
    ) -> None:
        """Take a plane of a file; ``here`` is what its GPU is called, ``device_of`` any number."""
        self._file, self._plane = file, plane
        self._here, self._device_of = here, device_of
        self._copy_kinds = {
            name: kind
            for name, text in plane.event_names.items()
            if (kind := copy_kind(text)) is not None
        }

    def read(
        self, line: StoredLine, *, key: str | None = None, of_all: Collection[str] = ()
    ) -> Stream:
        """Read a stream; ``key`` and the stats ``of_all`` events are as for `SpaceFile.events`.

        Raises:
            AdvisorError: the line is corrupt.
        """
        events = self._file.events(
            self._plane,
            line,
            key=key,
            of_all=of_all,
            of_named=(_DETAILS, _EDGE),
            named=self._copy_kinds,
        )
        names, place = np.unique(events.name, return_inverse=True)
        kinds = tuple(self._copy_kinds.get(name) for name in names.tolist())
        copies = np.flatnonzero(np.array([kind is not None for kind in kinds], np.bool_)[place])
        of_copies = len(events.name) if len(copies) else 0
        size_bytes = np.full(of_copies, UNKNOWN_BYTES)
        tensor, receiver = np.full(of_copies, -1), np.full(of_copies, -1)
        tensors: dict[str, int] = {}
        known: dict[StatValue, tuple[int, int]] = {}
        stats: defaultdict[int, dict[str, StatValue]] = defaultdict(dict)
        for event, stat, value in self._file.values(self._plane, events):
            if stat == _EDGE:
                tensor[event] = tensors.setdefault(str(value), len(tensors))
            elif stat == _DETAILS:
                if value not in known:
                    known[value] = _details(str(value))
                size_bytes[event], receiver[event] = known[value]
            else:
                stats[event][stat] = value
        copied: defaultdict[Route, list[int]] = defaultdict(list)
        for event in copies.tolist():
            kind = kinds[place[event]]
            assert kind is not None
            copied[self._route(kind, int(receiver[event]))].append(event)
        return Stream(
            events=events,
            names=tuple(self._plane.event_names.get(name, "") for name in names.tolist()),
            kinds=kinds,
            name=place,
            copied={route: np.array(events_of) for route, events_of in copied.items()},
            size_bytes=size_bytes,
            tensor=tensor,
            tensors=tuple(tensors),
            stats=stats,
        )

    def _route(self, kind: CopyKind, receiver: int) -> Route:
        there = None if receiver < 0 else self._device_of(receiver)
        return gpu_route(kind, self._here, sender=None, receiver=there)


def _details(text: str) -> tuple[int, int]:
    size_bytes, receiver = copied_bytes(text), destination(text)
    return (
        UNKNOWN_BYTES if size_bytes is None else size_bytes,
        -1 if receiver is None else receiver,
    )
