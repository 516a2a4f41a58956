"""The events of a line of an XSpace file as columns, decoded from the file's bytes by numba.

A profile of 1 GB has tens of millions of events: as objects they would take ten times the file's
size, and minutes. Columns take 32 bytes an event, beside what is asked for of their stats.

Source: the encoding of protocol buffers, https://protobuf.dev/programming-guides/encoding; field
numbers as in `xplane_schema`. Of a field that stands twice the last counts, unknown fields are
passed over, both as protobuf does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from placement_advisor.compiled import compiled
from placement_advisor.profile.xspace.xplane_schema import NO_KEY

if TYPE_CHECKING:
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


class EventColumns(NamedTuple):
    """Events in the order of the file; times are relative to the line, in ns, cut off as such.

    ``key`` is a number that was asked for of every event, `NO_KEY` where it has none. Rows of
    ``stats`` are one value of an event each, for the stats that were asked for: the event's place,
    the number of the stat among those, its field in the schema, and the value; of texts and bytes
    that is where they begin in the file and how long they are. Aggregated events, which have a
    count in place of a time, are left out; ``damaged`` is how many have no sensible time.
    """

    name: Ints
    start_ns: Ints
    duration_ns: Ints
    key: Ints
    stats: Ints
    damaged: int


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
    if wire == LENGTH:
        size, at = _varint(data, at, end)
        if at == CORRUPT or size < 0 or size > end - at:
            return 0, 0, 0, CORRUPT
        return number, wire, at, at + size
    if wire in (_FIXED64, _FIXED32):
        size = 8 if wire == _FIXED64 else 4
        if size > end - at:
            return 0, 0, 0, CORRUPT
        return number, wire, at, at + size
    return 0, 0, 0, CORRUPT


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


def decode_events(
    data: Bytes,
    start: int,
    end: int,
    count: int,
    key_stat: int,
    asked: Ints,
    of_all: NDArray[np.bool_],
    named: Ints,
) -> EventColumns | None:
    """Return the ``count`` events of the line between two places, None if one is corrupt.

    ``key_stat`` is the id of the stat that is the key, 0 for none. ``asked`` are the ids of the
    stats that are wanted, sorted; ``of_all`` says of each whether it is wanted of all events or
    only of those whose name is one of ``named`` (ids, sorted).
    """
    name, start_ns, duration_ns, key, stats, damaged, ended = _decode(
        data, start, end, count, key_stat, asked, of_all, named
    )
    if ended == CORRUPT:
        return None
    return EventColumns(name, start_ns, duration_ns, key, stats, damaged)
