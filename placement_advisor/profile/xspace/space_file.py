"""An XSpace file, read plane by plane and line by line: only what is looked at is in memory.

Times are absolute nanoseconds. The profiler writes each line relative to the moment at which
profiling began and keeps that moment in the plane "Task Environment"; a line that already counts
from the epoch, or a file without that plane, is taken as it stands. Times below a nanosecond are
cut off. Left out: the fields that only viewers use (display names, ids of planes, metadata of
event names) and aggregated events, which have a count in place of a time.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from google.protobuf.message import DecodeError

from placement_advisor.errors import AdvisorError
from placement_advisor.files.foreign_file import mapped
from placement_advisor.profile.spans import Spans
from placement_advisor.profile.xspace.event_columns import (
    CORRUPT,
    LENGTH,
    STAT_BYTES,
    STAT_DOUBLE,
    STAT_REFERENCE,
    STAT_TEXT,
    STAT_UINT,
    decode_events,
    line_facts,
    next_field,
)
from placement_advisor.profile.xspace.xplane_schema import (
    PROFILE_START,
    TASK_PLANE,
    StatValue,
    new_plane,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]
    Ints = NDArray[np.int64]

# Nanoseconds since the epoch passed 10^18 in 2001; no machine has been up for 30 years.
_FIRST_ABSOLUTE_NS = 10**18
# Decades from now; sums of what is later could overflow.
_LAST_NS = 2**61
_SPACE_PLANES, _PLANE_LINES = 1, 3
_UINT64 = 2**64
# Those of large hosts have some hundred planes and lines; each is an object of its own here.
_MOST_PARTS = 100_000
# Rows that are Python's at a time.
_CHUNK = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredLine:
    """One thread of a host or one stream of a GPU; its events are still in the file."""

    name: str
    id: int
    start_ns: int
    event_count: int
    place: tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPlane:
    """One host or device, or facts about the profile as a whole; names go by their ids."""

    name: str
    lines: tuple[StoredLine, ...]
    stats: Mapping[str, StatValue]
    event_names: Mapping[int, str]
    stat_names: Mapping[int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Events:
    """The events of a line as columns; times count from the epoch.

    ``name`` is an id of the plane's ``event_names``; ``key`` is `NO_KEY` where an event has none.
    ``stats`` are those that were asked for, `SpaceFile.values` has what they are; ``stat_names``
    are theirs. ``damaged`` events, which have no sensible time, are left out.
    """

    name: Ints
    start_ns: Ints
    duration_ns: Ints
    key: Ints
    damaged: int
    stats: Ints
    stat_names: tuple[str, ...]

    @property
    def spans(self) -> Spans:
        """When each event was under way."""
        return Spans(self.start_ns, self.start_ns + self.duration_ns)


class SpaceFile:
    """An XSpace file, mapped into memory for as long as this is in use.

    It is never closed as such: while numba compiles, frames that it keeps refer to the bytes, and
    a map that something refers to cannot be closed.
    """

    def __init__(self, path: Path) -> None:
        """Map the file into memory and find its planes.

        Raises:
            AdvisorError: the file cannot be read, is corrupt, or holds no plane.
        """
        self.path = path
        try:
            self._data: Bytes = np.frombuffer(mapped(path), np.uint8)
        except OSError as error:
            raise AdvisorError(f"cannot read the profile {path}: {error.strerror}") from error
        self._parts = 0
        self.planes = tuple(self._planes())
        if not self.planes:
            raise self._corrupt("it holds no plane")
        self._base_ns = next(
            (
                start_ns
                for plane in self.planes
                if plane.name == TASK_PLANE
                and isinstance(start_ns := plane.stats.get(PROFILE_START), int)
            ),
            0,
        )

    @property
    def size_bytes(self) -> int:
        """Size of the file."""
        return len(self._data)

    def events(
        self,
        plane: StoredPlane,
        line: StoredLine,
        *,
        key: str | None = None,
        of_all: Collection[str] = (),
        of_named: Collection[str] = (),
        named: Collection[int] = (),
    ) -> Events:
        """Read the events of a line, with the stats that are asked for.

        ``key`` is a stat with numbers that becomes a column. Stats ``of_all`` are read of all
        events, those ``of_named`` only of events whose name's id is among ``named``.

        Raises:
            AdvisorError: the line is corrupt.
        """
        wanted = {*of_all, *of_named}
        ids = sorted(stat for stat, name in plane.stat_names.items() if name in wanted)
        found = decode_events(
            self._data,
            *line.place,
            line.event_count,
            next((stat for stat, name in plane.stat_names.items() if name == key), 0),
            np.array(ids, np.int64),
            np.array([plane.stat_names[stat] in of_all for stat in ids], np.bool_),
            np.array(sorted(named), np.int64),
        )
        if found is None:
            raise self._corrupt(f"the line {line.name!r} of {plane.name!r} holds no events")
        return Events(
            name=found.name,
            start_ns=found.start_ns + self._line_start_ns(line),
            duration_ns=found.duration_ns,
            key=found.key,
            damaged=found.damaged,
            stats=found.stats,
            stat_names=tuple(plane.stat_names[stat] for stat in ids),
        )

    def values(self, plane: StoredPlane, events: Events) -> Iterator[tuple[int, str, StatValue]]:
        """Yield the stats of events: the place of the event, the stat's name and its value."""
        for start in range(0, len(events.stats), _CHUNK):
            for event, place, kind, value, length in events.stats[start : start + _CHUNK].tolist():
                yield event, events.stat_names[place], self._value(plane, kind, value, length)

    def _line_start_ns(self, line: StoredLine) -> int:
        is_relative = line.start_ns < _FIRST_ABSOLUTE_NS
        start_ns = line.start_ns + (self._base_ns if is_relative else 0)
        if abs(start_ns) > _LAST_NS:
            raise self._corrupt(f"the line {line.name!r} begins at {start_ns} ns")
        return start_ns

    def _value(self, plane: StoredPlane, field: int, value: int, length: int) -> StatValue:
        if field == STAT_REFERENCE:
            return plane.stat_names.get(value, "")
        if field in (STAT_TEXT, STAT_BYTES, STAT_DOUBLE):
            stored = self._data[value : value + length].tobytes()
            if field == STAT_TEXT:
                return stored.decode("utf-8", "replace")
            return stored if field == STAT_BYTES else float(struct.unpack("<d", stored)[0])
        return value % _UINT64 if field == STAT_UINT else value

    def _planes(self) -> Iterator[StoredPlane]:
        for number, wire, start, end in self._fields(0, len(self._data)):
            if number == _SPACE_PLANES and wire == LENGTH:
                self._count()
                yield self._plane(start, end)

    def _plane(self, start: int, end: int) -> StoredPlane:
        lines = []
        rest = bytearray()
        before = start
        for number, wire, value, after in self._fields(start, end):
            if number == _PLANE_LINES and wire == LENGTH:
                self._count()
                lines.append(self._line(value, after))
            else:
                rest += self._data[before:after].tobytes()
            before = after
        message = new_plane()
        try:
            message.ParseFromString(bytes(rest))
        except DecodeError as error:
            raise self._corrupt(str(error)) from error
        stat_names = {key: metadata.name for key, metadata in message.stat_metadata.items()}
        return StoredPlane(
            name=message.name,
            lines=tuple(lines),
            stats=message_stats(message.stats, stat_names),
            event_names={key: metadata.name for key, metadata in message.event_metadata.items()},
            stat_names=stat_names,
        )

    def _count(self) -> None:
        self._parts += 1
        if self._parts > _MOST_PARTS:
            raise self._corrupt(f"it has more than {_MOST_PARTS:,} planes and lines")

    def _line(self, start: int, end: int) -> StoredLine:
        line_id, start_ns, name_at, name_end, count = line_facts(self._data, start, end)
        if count == CORRUPT:
            raise self._corrupt(f"a line ends within a field, at byte {end}")
        return StoredLine(
            name=self._data[name_at:name_end].tobytes().decode("utf-8", "replace"),
            id=line_id,
            start_ns=start_ns,
            event_count=count,
            place=(start, end),
        )

    def _fields(self, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
        while at < end:
            number, wire, value, after = next_field(self._data, at, end)
            if after == CORRUPT:
                raise self._corrupt(f"there is no field at byte {at}")
            yield number, wire, value, after
            at = after

    def _corrupt(self, what: str) -> AdvisorError:
        return AdvisorError(
            f"the profile {self.path} is corrupt: {what}",
            hint="copy it again once the profiler has stopped and written it, or record it anew",
        )


def message_stats(stats: Iterable[Any], names: Mapping[int, str]) -> dict[str, StatValue]:
    """Return the values of stats by name, those that refer to a text resolved to it."""
    values: dict[str, StatValue] = {}
    for stat in stats:
        kind = stat.WhichOneof("value")
        if kind is None:
            continue
        value = getattr(stat, kind)
        name = names.get(stat.metadata_id, "")
        values[name] = names.get(value, "") if kind == "ref_value" else value
    return values
