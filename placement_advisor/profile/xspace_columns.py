"""XSpace files are read line by line, and numba decodes the events of a line into columns.

Only what is looked at is in memory: a profile of 1 GB has tens of millions of events, and as
objects they would take ten times the size of the file. Columns take 32 bytes an event, plus
the stats that are asked for. Times are absolute nanoseconds. The profiler writes each line
relative to the moment at which profiling began and keeps that moment in the plane "Task
Environment"; a line that already counts from the epoch, or a file without that plane, is
taken as it stands. Fractions of a nanosecond are cut off.

Source: the encoding of protocol buffers, https://protobuf.dev/programming-guides/encoding; the
field numbers are those of `xplane_schema`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from google.protobuf.message import DecodeError

from placement_advisor.compiled import compiled
from placement_advisor.errors import AdvisorError
from placement_advisor.files.untrusted import mapped
from placement_advisor.profile.device_trace import Spans
from placement_advisor.profile.xplane_schema import (
    NO_KEY,
    PROFILE_START,
    PROFILE_STOP,
    StatValue,
    new_plane,
    profile_start_ns,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]
    Ints = NDArray[np.int64]


# Wire types, and the numbers of the fields that are read.
_VARINT, _FIXED64, LENGTH, _FIXED32 = 0, 1, 2, 5
_LINE_ID, _LINE_NAME, _LINE_START, _LINE_EVENTS = 1, 2, 3, 4
_EVENT_METADATA, _EVENT_OFFSET, _EVENT_DURATION, _EVENT_STATS, _EVENT_OCCURRENCES = 1, 2, 3, 4, 5
_STAT_METADATA, STAT_BYTES = 1, 6
STAT_DOUBLE, STAT_UINT, STAT_INT, STAT_TEXT, STAT_REFERENCE = 2, 3, 4, 5, 7

# A varint has seven bits in each byte, and 64 in all.
_SEVEN_BITS, _VARINT_BYTES = 0x7F, 10
_PS_PER_NS = 1_000
# Centuries: what is longer or further away is damage, and sums of it must not overflow.
_MOST_PS = 2**62
CORRUPT = -1
_FIRST_STATS = 64


@compiled()
def _varint(data: Bytes, at: int, end: int) -> tuple[int, int]:
    """Return a number and where it ends, `CORRUPT` if it does not end."""
    value = np.uint64(0)
    for place in range(_VARINT_BYTES):
        if at == end:
            break
        byte = data[at]
        at += 1
        value |= np.uint64(byte & _SEVEN_BITS) << np.uint64(7 * place)
        if byte <= _SEVEN_BITS:
            return int(np.int64(value)), at
    return 0, CORRUPT


@compiled()
def next_field(data: Bytes, at: int, end: int) -> tuple[int, int, int, int]:
    """Return number, wire type, value and end of the field at a place.

    The value of a field with a length is where it begins, of a fixed one as well. The end is
    `CORRUPT` where the bytes are no field.
    """
    tag, at = _varint(data, at, end)
    if at == CORRUPT:
        return 0, 0, 0, CORRUPT
    number, wire = tag >> 3, tag & 7
    if number <= 0:
        return 0, 0, 0, CORRUPT
    if wire == _VARINT:
        value, at = _varint(data, at, end)
        return number, wire, value, at
    size = -1
    if wire == LENGTH:
        size, at = _varint(data, at, end)
    elif wire in (_FIXED64, _FIXED32):
        size = 8 if wire == _FIXED64 else 4
    if at == CORRUPT or size < 0 or size > end - at:
        return 0, 0, 0, CORRUPT
    return number, wire, at, at + size


@compiled()
def line_facts(data: Bytes, at: int, end: int) -> tuple[int, int, int, int, int]:
    """Return id, start in ns, beginning and end of the name, and the number of events of a line.

    The number is `CORRUPT` where the bytes are no line.
    """
    line_id, start_ns, name_at, name_end, count = 0, 0, at, at, 0
    while at < end:
        number, wire, value, at = next_field(data, at, end)
        if at == CORRUPT:
            return line_id, start_ns, name_at, name_end, CORRUPT
        if number == _LINE_EVENTS and wire == LENGTH:
            count += 1
        elif number == _LINE_ID and wire == _VARINT:
            line_id = value
        elif number == _LINE_START and wire == _VARINT:
            start_ns = value
        elif number == _LINE_NAME and wire == LENGTH:
            name_at, name_end = value, at
    return line_id, start_ns, name_at, name_end, count


@compiled()
def _place(ids: Ints, wanted: int) -> int:
    """Return the place of a number among sorted ones, -1 if it is not there."""
    place = int(np.searchsorted(ids, wanted))
    return place if place < len(ids) and ids[place] == wanted else -1


@compiled()
def _stat(data: Bytes, at: int, end: int) -> tuple[int, int, int, int, int]:
    """Return metadata, field, value and length of a stat, and its end."""
    metadata, field, value, length = 0, 0, 0, 0
    while at < end:
        number, wire, found, after = next_field(data, at, end)
        if after == CORRUPT:
            return metadata, 0, value, length, CORRUPT
        if number == _STAT_METADATA and wire == _VARINT:
            metadata = found
        elif wire == _VARINT and (number in (STAT_UINT, STAT_INT, STAT_REFERENCE)):
            field, value, length = number, found, 0
        elif (wire == LENGTH and number in (STAT_TEXT, STAT_BYTES)) or (
            wire == _FIXED64 and number == STAT_DOUBLE
        ):
            field, value, length = number, found, after - found
        at = after
    return metadata, field, value, length, at


@compiled()
def _decode(
    data: Bytes,
    at: int,
    end: int,
    count: int,
    key_stat: int,
    asked: Ints,
    of_all: NDArray[np.bool_],
    named: Ints,
) -> tuple[Ints, Ints, Ints, Ints, Ints, int, int]:
    """Return the ``count`` events between two places: name, start, duration, key, stats, damaged.

    Times are relative to the line, in ns. ``key_stat`` is the id of the stat that is the key, 0 for
    none. ``asked`` are the ids of the stats that are wanted, sorted; ``of_all`` says of each
    whether it is wanted of all events or only of those whose name is one of ``named`` (ids,
    sorted). Rows of stats are one value of an event each: the event's place, the number of the stat
    among those, its field in the schema, and the value; of texts and bytes that is where they begin
    in the file and how long they are. Aggregated events, which have a count in place of a time, are
    left out. Last comes where the line ends, `CORRUPT` if an event is.
    """
    name = np.empty(count, np.int64)
    start_ns = np.empty(count, np.int64)
    duration_ns = np.empty(count, np.int64)
    key = np.full(count, NO_KEY, np.int64)
    stats = np.empty((_FIRST_STATS, 5), np.int64)
    seen, found, damaged = 0, 0, 0
    while at < end:
        number, wire, event_at, at = next_field(data, at, end)
        if number != _LINE_EVENTS or wire != LENGTH:
            continue
        metadata, offset_ps, duration_ps = 0, 0, 0
        is_aggregated = False
        first = found
        key[seen] = NO_KEY
        inner = event_at
        while inner < at:
            number, wire, value, after = next_field(data, inner, at)
            if after == CORRUPT:
                return name, start_ns, duration_ns, key, stats, seen, CORRUPT
            if number == _EVENT_METADATA and wire == _VARINT:
                metadata = value
            elif number == _EVENT_OFFSET and wire == _VARINT:
                offset_ps, is_aggregated = value, False
            elif number == _EVENT_OCCURRENCES and wire == _VARINT:
                is_aggregated = True
            elif number == _EVENT_DURATION and wire == _VARINT:
                duration_ps = value
            elif number == _EVENT_STATS and wire == LENGTH:
                stat, field, value, length, ended = _stat(data, value, after)
                if ended == CORRUPT:
                    return name, start_ns, duration_ns, key, stats, seen, CORRUPT
                if stat == key_stat and field in (STAT_UINT, STAT_INT):
                    key[seen] = value
                place = _place(asked, stat)
                if place >= 0 and field:
                    if found == len(stats):
                        more = np.empty((2 * found, 5), np.int64)
                        more[:found] = stats
                        stats = more
                    stats[found, 0] = seen
                    stats[found, 1] = place
                    stats[found, 2] = field
                    stats[found, 3] = value
                    stats[found, 4] = length
                    found += 1
            inner = after
        is_damaged = (
            duration_ps < 0
            or duration_ps > _MOST_PS
            or offset_ps < -_MOST_PS
            or offset_ps > _MOST_PS
        )
        if is_aggregated or is_damaged:
            damaged += is_damaged and not is_aggregated
            found = first
            continue
        if found > first and _place(named, metadata) < 0:
            kept = first
            for row in range(first, found):
                if of_all[stats[row, 1]]:
                    stats[kept] = stats[row]
                    kept += 1
            found = kept
        name[seen] = metadata
        start_ns[seen] = offset_ps // _PS_PER_NS
        duration_ns[seen] = (offset_ps + duration_ps) // _PS_PER_NS - start_ns[seen]
        seen += 1
    return (
        name[:seen],
        start_ns[:seen],
        duration_ns[:seen],
        key[:seen],
        stats[:found],
        damaged,
        at,
    )


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

    def __init__(self, path: Path, ahead_ns: int = 0) -> None:
        """Map the file into memory and find its planes.

        ``ahead_ns`` is how far the clock that it was taken by is ahead of the one that is wanted.

        Raises:
            AdvisorError: the file cannot be read, is corrupt, or holds no plane.
        """
        self.path, self._ahead_ns = path, ahead_ns
        try:
            self._data: Bytes = np.frombuffer(mapped(path), np.uint8)
        except OSError as error:
            raise AdvisorError(f"cannot read the profile {path}: {error.strerror}") from error
        self._parts = 0
        self.planes = tuple(self._planes())
        if not self.planes:
            raise self._corrupt("it holds no plane")
        self._base_ns = profile_start_ns(self.planes) or -ahead_ns

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
        name, start_ns, duration_ns, key_of, stats, damaged, ended = _decode(
            self._data,
            *line.place,
            line.event_count,
            next((stat for stat, name in plane.stat_names.items() if name == key), 0),
            np.array(ids, np.int64),
            np.array([plane.stat_names[stat] in of_all for stat in ids], np.bool_),
            np.array(sorted(named), np.int64),
        )
        if ended == CORRUPT:
            raise self._corrupt(f"the line {line.name!r} of {plane.name!r} holds no events")
        return Events(
            name=name,
            start_ns=start_ns + self._line_start_ns(line),
            duration_ns=duration_ns,
            key=key_of,
            damaged=damaged,
            stats=stats,
            stat_names=tuple(plane.stat_names[stat] for stat in ids),
        )

    def values(self, plane: StoredPlane, events: Events) -> Iterator[tuple[int, str, StatValue]]:
        """Yield the stats of events: the place of the event, the stat's name and its value."""
        for start in range(0, len(events.stats), _CHUNK):
            for event, place, kind, value, length in events.stats[start : start + _CHUNK].tolist():
                yield event, events.stat_names[place], self._value(plane, kind, value, length)

    def _line_start_ns(self, line: StoredLine) -> int:
        is_relative = line.start_ns < _FIRST_ABSOLUTE_NS
        start_ns = line.start_ns + (self._base_ns if is_relative else -self._ahead_ns)
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
        stats = message_stats(message.stats, stat_names)
        for name in (PROFILE_START, PROFILE_STOP):
            moment_ns = stats.get(name)
            if isinstance(moment_ns, int):
                stats[name] = moment_ns - self._ahead_ns
        return StoredPlane(
            name=message.name,
            lines=tuple(lines),
            stats=stats,
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
