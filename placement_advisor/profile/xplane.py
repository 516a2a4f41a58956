"""Read and write the profiler's XSpace files with the protobuf runtime alone.

Times are absolute nanoseconds. The profiler writes each line relative to the moment at which
profiling began and keeps that moment in the plane "Task Environment"; a line that already counts
from the epoch, or a file without that plane, is taken as it stands. Times below a nanosecond are
cut off. Left out: the fields that only viewers use (display names, ids of planes, metadata of
event names) and aggregated events, which have a count in place of a time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from google.protobuf.message import DecodeError

from placement_advisor.errors import AdvisorError
from placement_advisor.profile.xplane_schema import new_space

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

StatValue = int | float | str | bytes

TASK_PLANE = "Task Environment"
PROFILE_START = "profile_start_time"
PROFILE_STOP = "profile_stop_time"

# Nanoseconds since the epoch passed 10^18 in 2001; no machine has been up for 30 years.
_FIRST_ABSOLUTE_NS = 10**18
_PS_PER_NS = 1_000
_INT64_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that ran on a line. ``start_ns`` counts from the epoch."""

    name: str
    start_ns: int
    duration_ns: int
    stats: Mapping[str, StatValue] = field(default_factory=dict)

    @property
    def end_ns(self) -> int:
        """Moment at which the event ended."""
        return self.start_ns + self.duration_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One thread of a host or one stream of a GPU, its events as the file has them."""

    name: str
    id: int = 0
    events: tuple[Event, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plane:
    """One host or device, or facts about the profile as a whole."""

    name: str
    lines: tuple[Line, ...] = ()
    stats: Mapping[str, StatValue] = field(default_factory=dict)


def read_planes(path: Path) -> tuple[Plane, ...]:
    """Read an XSpace file, with stats that refer to a string resolved to it.

    Raises:
        AdvisorError: the file cannot be read, is corrupt, or holds no plane.
    """
    space = new_space()
    try:
        space.ParseFromString(path.read_bytes())
    except OSError as error:
        raise AdvisorError(f"cannot read the profile {path}: {error.strerror}") from error
    except DecodeError as error:
        raise AdvisorError(f"the profile {path} is corrupt: {error}") from error
    if not space.planes:
        raise AdvisorError(f"the profile {path} is corrupt: it holds no plane")
    tasks = [_plane(plane, 0) for plane in space.planes if plane.name == TASK_PLANE]
    base_ns = _profile_start_ns(tasks)
    return tuple(_plane(plane, base_ns) for plane in space.planes)


def write_planes(path: Path, planes: Iterable[Plane]) -> None:
    """Write planes so that `read_planes` returns them again.

    Where a plane "Task Environment" says when profiling began, times are written relative to
    that, as the profiler does.
    """
    planes = tuple(planes)
    base_ns = _profile_start_ns(planes)
    space = new_space()
    for number, plane in enumerate(planes):
        _write_plane(space.planes.add(), number, plane, base_ns)
    path.write_bytes(space.SerializeToString(deterministic=True))


def _profile_start_ns(planes: Iterable[Plane]) -> int:
    for plane in planes:
        start_ns = plane.stats.get(PROFILE_START)
        if plane.name == TASK_PLANE and isinstance(start_ns, int):
            return start_ns
    return 0


def _plane(plane: Any, base_ns: int) -> Plane:
    stat_names = {key: metadata.name for key, metadata in plane.stat_metadata.items()}
    event_names = {key: metadata.name for key, metadata in plane.event_metadata.items()}
    return Plane(
        name=plane.name,
        lines=tuple(_line(line, event_names, stat_names, base_ns) for line in plane.lines),
        stats=_stats(plane.stats, stat_names),
    )


def _line(
    line: Any, event_names: Mapping[int, str], stat_names: Mapping[int, str], base_ns: int
) -> Line:
    line_ns = line.timestamp_ns
    if line_ns < _FIRST_ABSOLUTE_NS:
        line_ns += base_ns
    events = []
    for event in line.events:
        if event.HasField("num_occurrences"):
            continue
        start_ps = event.offset_ps
        start_ns = start_ps // _PS_PER_NS
        events.append(
            Event(
                name=event_names.get(event.metadata_id, ""),
                start_ns=line_ns + start_ns,
                duration_ns=(start_ps + event.duration_ps) // _PS_PER_NS - start_ns,
                stats=_stats(event.stats, stat_names),
            )
        )
    return Line(name=line.name, id=line.id, events=tuple(events))


def _stats(stats: Any, names: Mapping[int, str]) -> dict[str, StatValue]:
    values: dict[str, StatValue] = {}
    for stat in stats:
        kind = stat.WhichOneof("value")
        if kind is None:
            continue
        value = getattr(stat, kind)
        name = names.get(stat.metadata_id, "")
        values[name] = names.get(value, "") if kind == "ref_value" else value
    return values


def _write_plane(message: Any, number: int, plane: Plane, base_ns: int) -> None:
    stat_ids: dict[str, int] = {}
    event_ids: dict[str, int] = {}
    message.id = number
    message.name = plane.name
    _write_stats(message.stats, plane.stats, stat_ids)
    for line in plane.lines:
        line_ns = min((event.start_ns for event in line.events), default=base_ns)
        written = message.lines.add(id=line.id, name=line.name, timestamp_ns=line_ns - base_ns)
        for event in line.events:
            entry = written.events.add(
                metadata_id=_id_of(event.name, event_ids),
                offset_ps=(event.start_ns - line_ns) * _PS_PER_NS,
                duration_ps=event.duration_ns * _PS_PER_NS,
            )
            _write_stats(entry.stats, event.stats, stat_ids)
    for metadata, ids in ((message.event_metadata, event_ids), (message.stat_metadata, stat_ids)):
        for name, key in ids.items():
            metadata[key].id = key
            metadata[key].name = name


def _write_stats(message: Any, stats: Mapping[str, StatValue], ids: dict[str, int]) -> None:
    for name, value in stats.items():
        stat = message.add(metadata_id=_id_of(name, ids))
        if isinstance(value, str):
            stat.str_value = value
        elif isinstance(value, bytes):
            stat.bytes_value = value
        elif isinstance(value, float):
            stat.double_value = value
        elif value > _INT64_MAX:
            stat.uint64_value = value
        else:
            stat.int64_value = value


def _id_of(name: str, ids: dict[str, int]) -> int:
    # Viewers take the id 0 for "not set".
    return ids.setdefault(name, len(ids) + 1)
