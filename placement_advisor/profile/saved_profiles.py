"""Profiles are saved for others: as a run that XProf shows, or scrubbed of private names.

XProf takes the hosts of a run together and counts the steps that each of them marks and computes
in. It compares times as they are counted from where each profile began, so all get one beginning.
A worker runs parts of steps and marks none, so its profile gets the marks of the client. A scrubbed
profile keeps times and drops what this program does not read: fields that the schema lacks, raw
bytes, host names and errors. A function that the caller passes takes names out of all other texts.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from google.protobuf.descriptor import FieldDescriptor

from placement_advisor.profile import xplane, xplane_schema
from placement_advisor.profile.steps import HOST_PLANE, STEP_EVENT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from placement_advisor.profile.xspace_columns import SpaceFile


_OF_THE_HOST = ("errors", "warnings", "hostnames")


def scrubbed(path: Path, without_names: Callable[[str], str]) -> bytes:
    """Return an XSpace file whose texts the function has gone through."""
    space = xplane_schema.new_space()
    space.ParseFromString(path.read_bytes())
    space.DiscardUnknownFields()
    for name in _OF_THE_HOST:
        space.ClearField(name)
    _scrub(space, without_names)
    content: bytes = space.SerializeToString(deterministic=True)
    return content


def _scrub(message: Any, without_names: Callable[[str], str]) -> None:
    for field, value in message.ListFields():
        if field.type == FieldDescriptor.TYPE_BYTES:
            message.ClearField(field.name)
        elif field.type == FieldDescriptor.TYPE_STRING:
            setattr(message, field.name, without_names(value))
        elif field.type == FieldDescriptor.TYPE_MESSAGE:
            is_map = field.message_type.GetOptions().map_entry
            for each in value.values() if is_map else value:
                _scrub(each, without_names)


# The process that asks for the steps.
CLIENT = "client"
# What a worker runs of its part of a step, and under which id.
# Source: xplane_schema.h and context_types.h of TensorFlow 2.21.
_RUN, _PART_ID, _OF_EXECUTOR = "ExecutorState::Process", "_c", 2
_STEP_NUMBER = "step_num"


def keep_profiles(
    files: Mapping[str, Path], folder: Path, ahead_ns: Mapping[str, int] = MappingProxyType({})
) -> None:
    """Copy the profiles of some processes into a folder, a file for each, with one beginning.

    ``ahead_ns`` has how far the clocks of processes on other machines are ahead of the command's.

    Raises:
        AdvisorError: one of them cannot be read.
    """
    folder.mkdir(parents=True, exist_ok=True)
    ahead = dict.fromkeys(files, 0) | dict(ahead_ns)
    opened = {process: xplane.space_file(path, ahead[process]) for process, path in files.items()}
    start_ns = min(xplane_schema.profile_start_ns(file.planes) for file in opened.values())
    marks = _events(opened[CLIENT], STEP_EVENT, _STEP_NUMBER)
    for process, file in opened.items():
        runs, more = _events(file, _RUN, _PART_ID), {}
        if runs and not _events(file, STEP_EVENT, _STEP_NUMBER):
            steps = tuple(_steps(marks, runs))
            more = {HOST_PLANE: xplane.Line(name="Steps of the client", events=steps)}
        if any(line.event_count for plane in file.planes for line in plane.lines):
            target = folder / f"{process.replace(':', '-')}.xplane.pb"
            xplane.copy_counted_from(files[process], target, start_ns, ahead[process], more)


def _events(file: SpaceFile, name: str, stat: str) -> list[xplane.Event]:
    """Return the events of a host that have a name and a stat."""
    found = []
    for plane in file.planes:
        named = {key for key, each in plane.event_names.items() if each == name}
        if plane.name != HOST_PLANE or not named:
            continue
        for line in plane.lines:
            events = file.events(plane, line, of_named=(stat,), named=named)
            found += [
                xplane.Event(
                    name=name,
                    start_ns=int(events.start_ns[place]),
                    duration_ns=int(events.duration_ns[place]),
                    stats={stat: value},
                )
                for place, _, value in file.values(plane, events)
            ]
    return sorted(found, key=lambda event: event.start_ns)


def _steps(marks: Sequence[xplane.Event], runs: Sequence[xplane.Event]) -> Iterator[xplane.Event]:
    """Yield the marks of the client, each with the part that a worker first runs within it."""
    for mark in marks:
        stats: dict[str, xplane_schema.StatValue] = {**mark.stats, "_r": 1}
        first = next((run for run in runs if mark.start_ns <= run.start_ns < mark.end_ns), None)
        if first is not None:
            stats |= {"_pt": _OF_EXECUTOR, "_p": first.stats[_PART_ID]}
        yield replace(mark, stats=stats)
