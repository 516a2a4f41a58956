"""Read and write the profiler's XSpace files with the protobuf runtime alone.

As objects: for profiles of this program's own, which are small, and the hosts of others.
`space_file` says what is read.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from placement_advisor.profile import xplane_schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from placement_advisor.profile.xplane_schema import StatValue
    from placement_advisor.profile.xspace_columns import SpaceFile, StoredLine, StoredPlane


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


def space_file(path: Path, ahead_ns: int = 0) -> SpaceFile:
    """Return an XSpace file, none of its events read yet; ``ahead_ns`` is that of `SpaceFile`.

    Raises:
        AdvisorError: the file cannot be read, is corrupt, or holds no plane.
    """
    # numba comes with it, which takes a second that a usage error need not wait for.
    from placement_advisor.profile.xspace_columns import SpaceFile

    return SpaceFile(path, ahead_ns)


def write_planes(path: Path, planes: Iterable[Plane]) -> None:
    """Write planes so that a `SpaceFile` has them again.

    Where a plane "Task Environment" says when profiling began, times are written relative to
    that, as the profiler does.
    """
    planes = tuple(planes)
    base_ns = xplane_schema.profile_start_ns(planes)
    space = xplane_schema.new_space()
    for number, plane in enumerate(planes):
        _write_plane(space.planes.add(), number, plane, base_ns)
    path.write_bytes(space.SerializeToString(deterministic=True))


def copy_counted_from(
    source: Path, target: Path, start_ns: int, ahead_ns: int, more: Mapping[str, Line]
) -> None:
    """Copy an XSpace file with times that count from ``start_ns``, by the plane "Task Environment".

    ``ahead_ns`` is how far the clock that they were taken by is ahead. Planes get one ``more`` line
    by their name.

    Raises:
        AdvisorError: the file cannot be read, is corrupt, or holds no plane.
    """
    began_ns = xplane_schema.profile_start_ns(space_file(source).planes)
    space = xplane_schema.new_space()
    space.ParseFromString(source.read_bytes())
    for plane in space.planes:
        for line in plane.lines:
            line.timestamp_ns += began_ns - ahead_ns - start_ns
        if plane.name in more:
            free = max((line.id for line in plane.lines), default=0) + 1
            _write_lines(plane, [replace(more[plane.name], id=free)], start_ns)
        if plane.name == xplane_schema.TASK_PLANE:
            names = {key: each.name for key, each in plane.stat_metadata.items()}
            for stat in plane.stats:
                if names.get(stat.metadata_id) == xplane_schema.PROFILE_START:
                    stat.int64_value = start_ns
                elif names.get(stat.metadata_id) == xplane_schema.PROFILE_STOP:
                    stat.int64_value = (stat.uint64_value or stat.int64_value) - ahead_ns
    target.write_bytes(space.SerializeToString(deterministic=True))


def lines_of(file: SpaceFile, plane: StoredPlane) -> tuple[Line, ...]:
    """Read all events of a plane of a file.

    Raises:
        AdvisorError: a line of it is corrupt.
    """
    return tuple(_line(file, plane, line) for line in plane.lines)


def _line(file: SpaceFile, plane: StoredPlane, line: StoredLine) -> Line:
    found = file.events(plane, line, of_all=set(plane.stat_names.values()))
    stats: defaultdict[int, dict[str, StatValue]] = defaultdict(dict)
    for place, name, value in file.values(plane, found):
        stats[place][name] = value
    columns = (found.name.tolist(), found.start_ns.tolist(), found.duration_ns.tolist())
    events = tuple(
        Event(
            name=plane.event_names.get(name, ""),
            start_ns=start_ns,
            duration_ns=duration_ns,
            stats=stats.get(place, {}),
        )
        for place, (name, start_ns, duration_ns) in enumerate(zip(*columns, strict=True))
    )
    return Line(name=line.name, id=line.id, events=events)


def _write_plane(message: Any, number: int, plane: Plane, base_ns: int) -> None:
    message.id = number
    message.name = plane.name
    _write_stats(message.stats, plane.stats, _Ids(message.stat_metadata))
    _write_lines(message, plane.lines, base_ns)


def _write_lines(message: Any, lines: Iterable[Line], base_ns: int) -> None:
    """Add lines to those that a plane has."""
    event_ids, stat_ids = _Ids(message.event_metadata), _Ids(message.stat_metadata)
    for line in lines:
        line_ns = min((event.start_ns for event in line.events), default=base_ns)
        written = message.lines.add(id=line.id, name=line.name, timestamp_ns=line_ns - base_ns)
        for event in line.events:
            entry = written.events.add(
                metadata_id=event_ids.of(event.name),
                offset_ps=(event.start_ns - line_ns) * _PS_PER_NS,
                duration_ps=event.duration_ns * _PS_PER_NS,
            )
            _write_stats(entry.stats, event.stats, stat_ids)


def _write_stats(message: Any, stats: Mapping[str, StatValue], ids: _Ids) -> None:
    for name, value in stats.items():
        stat = message.add(metadata_id=ids.of(name))
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


class _Ids:
    """The ids of names in a plane, which gets those that it does not have yet."""

    def __init__(self, metadata: Any) -> None:
        self._metadata = metadata
        self._known: dict[str, int] = {entry.name: key for key, entry in metadata.items()}
        # Viewers take the id 0 for "not set".
        self._last: int = max(metadata, default=0)

    def of(self, name: str) -> int:
        if name not in self._known:
            self._last += 1
            self._known[name] = self._last
            self._metadata[self._last].id = self._last
            self._metadata[self._last].name = name
        return int(self._known[name])
