"""What a GPU's plane lists: events of its streams, and where the copies among them go."""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.profile.copies import CopyKind, copy_kind, destination

if TYPE_CHECKING:
    from collections.abc import Iterator

    from placement_advisor.profile.space_file import StoredLine
    from placement_advisor.profile.xplane import Event, Line, Plane

_STREAM = "Stream"
# XProf numbers the lines that it derives (Steps, TensorFlow Ops, …) upwards from here, in 32 bits
# that it may store as a negative number.
_FIRST_DERIVED_LINE = 0xDEADBEEF
_32_BITS = 0xFFFFFFFF
# Details are shorter; more would be a damaged file.
MAX_DETAILS_CHARS = 200


def stream_events(plane: Plane) -> Iterator[Event]:
    """Yield the events of a GPU's streams, without those that XProf derives from them."""
    for line in plane.lines:
        if is_stream(line):
            yield from line.events


def is_stream(line: Line | StoredLine) -> bool:
    """Return whether a line of a GPU's plane lists what the GPU did."""
    return line.name.startswith(_STREAM) and not is_derived(line)


def is_derived(line: Line | StoredLine) -> bool:
    """Return whether XProf made the line of others."""
    return (line.id & _32_BITS) >= _FIRST_DERIVED_LINE


def copy_details(event: Event) -> str:
    """Return what CUPTI says about a copy, empty for what is none."""
    return str(event.stats.get("memcpy_details", ""))[:MAX_DETAILS_CHARS]


def copy_direction(event: Event, number: int) -> CopyKind | None:
    """Return the direction of a copy that GPU ``number`` lists, None for what is no copy."""
    kind = copy_kind(event.name)
    # Some tools spell a copy to a peer like one within the card; the destination tells.
    if kind is CopyKind.DEVICE_TO_DEVICE and destination(copy_details(event)) not in (None, number):
        return CopyKind.PEER
    return kind
