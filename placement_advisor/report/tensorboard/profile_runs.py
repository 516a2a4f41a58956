"""Schedules as profiles that XProf shows, beside those that were measured.

A simulated step is written as a GPU's profile whatever its devices are, since of others XProf shows
no step times: a plane for each device, with its ops and the copies that it sends on lines of their
own. For the trace viewer, which opens one file, both steps stand in one more: simulated above
measured, lane by lane.

Left out: what kernels look like inside, which nobody simulates, so the tables of kernels are empty.
Candidates that did not run while others did: XProf lists all runs in one list, however many.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from placement_advisor.files.log_files import BOTH, SIMULATED, profile_run
from placement_advisor.profile.xplane import Event, Line, Plane, write_planes
from placement_advisor.report.analysis.figures import fastest_first
from placement_advisor.report.pictures.bars import simulated_spans

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from placement_advisor.analysis.analysis_result import Analysis, Candidate
    from placement_advisor.measurement.measurement import Span
    from placement_advisor.profile.xplane_schema import StatValue
    from placement_advisor.simulator.schedule import Schedule

# XProf takes each for a device: the first has its step times counted, the second any name.
_DEVICE = "/device:GPU"
_ANY = "/device:CUSTOM"
# The one spelling that XProf counts as copies between devices; with a colon behind it, it is an op.
_COPY = "MEMCPYDtoD"
# By which XProf knows a line of steps. Without one, a step would end with its last op, although
# devices have to answer then.
_STEPS_ID = -0x21524111


def write_profile_runs(analysis: Analysis, folder: Path) -> None:
    """Write the steps of the candidates that ran, or of all that were predicted if none did."""
    for candidate in fastest_first(analysis):
        for which, planes in _runs(candidate).items():
            path = folder / profile_run(candidate.name, which) / f"{which}.xplane.pb"
            path.parent.mkdir(parents=True, exist_ok=True)
            write_planes(path, planes)


def _runs(candidate: Candidate) -> dict[str, Iterable[Plane]]:
    if candidate.predicted is None:
        return {}
    profile = candidate.profile
    runs: dict[str, Iterable[Plane]] = {SIMULATED: simulated_planes(candidate.predicted)}
    if profile is not None and profile.timeline:
        spans = {"simulated": simulated_spans(candidate.predicted), "measured": profile.timeline}
        runs[BOTH] = planes_side_by_side(spans)
    return runs


def simulated_planes(schedule: Schedule) -> Iterator[Plane]:
    """Yield a simulated step as planes, with what XProf needs to find the step in them."""
    numbers = count(1)

    def stats(**more: StatValue) -> dict[str, StatValue]:
        return {"group_id": 0, "correlation_id": next(numbers), **more}

    number = {device: i for i, device in enumerate(schedule.compute_ns)}
    for device, i in number.items():
        lines = {
            "ops": [
                _event(run.op, run.start_ns, run.end_ns, stats())
                for run in schedule.runs
                if run.device == device
            ]
        }
        for copy in schedule.transfers:
            if copy.source == device:
                size = "" if copy.size_bytes is None else f"size:{copy.size_bytes} "
                details = f"{size}dest:{number[copy.target]} async:1"
                event = _event(
                    f"{_COPY} {copy.producer}",
                    copy.start_ns,
                    copy.end_ns,
                    stats(memcpy_details=details),
                )
                lines.setdefault(f"copies to {copy.target}", []).append(event)
        step = _event("0", 0, schedule.step_ns, {"group_id": 0})
        steps = Line(name="Steps", id=_STEPS_ID, events=(step,))
        yield Plane(name=f"{_DEVICE}:{i} {device}", lines=(steps, *_lines(lines)))


def planes_side_by_side(steps: Mapping[str, Sequence[Span]]) -> Iterator[Plane]:
    """Yield a plane for each lane of each step, the steps of one lane under one another."""
    lanes = {span.lane for spans in steps.values() for span in spans}
    for lane in sorted(lanes, key=_copies_last):
        for which, spans in steps.items():
            events = [_event(s.name, s.start_ns, s.end_ns, {}) for s in spans if s.lane == lane]
            yield Plane(name=f"{_ANY}:{which} {lane}", lines=_lines({"events": events}))


def _copies_last(lane: str) -> tuple[bool, str]:
    return "→" in lane, lane


def _event(name: str, start_ns: int, end_ns: int, stats: Mapping[str, StatValue]) -> Event:
    return Event(name=name, start_ns=start_ns, duration_ns=end_ns - start_ns, stats=stats)


def _lines(events_of: Mapping[str, Iterable[Event]]) -> tuple[Line, ...]:
    """Return lines on which nothing overlaps: as many of each name as that takes."""
    lines: list[tuple[str, list[Event]]] = []
    for name, events in events_of.items():
        first = len(lines)
        for event in sorted(events, key=lambda event: (event.start_ns, event.end_ns)):
            free = (some for _, some in lines[first:] if some[-1].end_ns <= event.start_ns)
            taken = next(free, None)
            if taken is None:
                lines.append((name, [event]))
            else:
                taken.append(event)
    return tuple(
        Line(name=name, id=i, events=tuple(events)) for i, (name, events) in enumerate(lines, 1)
    )
