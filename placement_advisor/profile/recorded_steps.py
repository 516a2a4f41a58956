"""The steps of a recorded profile: what told them apart, and which step an event belongs to.

A step is the time that a step mark spans on the host: an event with `step_num`, whatever its name;
of marks within marks the outermost. A GPU may work on when the step has ended for the host, so that
its work belongs to the step that launched it, which the correlation with the launch tells. Where
no process has marks, the lines "Steps" that XProf derives for each GPU are taken; these say nothing
about the host.

The first step of a profile, in which the profiler sets itself up, is a warm-up: it is dropped where
there are others.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from placement_advisor.profile.windows import OpenStep, StepWindows, host_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from placement_advisor.intervals import Interval
    from placement_advisor.profile.xplane import Event, Plane
    from placement_advisor.profile.xplane_schema import StatValue

STEPS_LINE = "Steps"
_DEVICE_PLANE = "/device:"
_MARK = "step_num"
_CORRELATION = "correlation_id"


class StepSource(StrEnum):
    """What told the steps of a profile apart."""

    MARKS = "step marks"
    STEP_LINES = "lines 'Steps'"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedSteps:
    """The steps of one process without the warm-up; a step is known by its start.

    ``by_device`` is by plane, None where marks of the host count. ``warm_up_steps`` were dropped
    of each.
    """

    by_host: StepWindows
    by_device: Mapping[str, StepWindows] | None
    warm_up_steps: int
    launched_ns: Mapping[StatValue, int]

    @property
    def source(self) -> StepSource:
        """What told the steps apart."""
        return StepSource.MARKS if self.by_device is None else StepSource.STEP_LINES

    def of_host_event(self, event: Event) -> int | None:
        """Return the step in which the event started, None if in none."""
        return _start(self.by_host.at(event.start_ns))

    def of_device_event(self, plane: Plane, event: Event) -> int | None:
        """Return the step in which the event was launched, None if in none."""
        if self.by_device is not None:
            return _start(self.by_device[plane.name].at(event.start_ns))
        correlation = event.stats.get(_CORRELATION)
        launched_ns = event.start_ns if correlation is None else self.launched_ns.get(correlation)
        return _start(self.by_host.at(event.start_ns if launched_ns is None else launched_ns))


def recorded_steps(profiles: Sequence[Sequence[Plane]]) -> list[RecordedSteps]:
    """Return the steps of each of the processes that were profiled together.

    A process without marks has those of the others: they told it what to do, on the same machine.
    """
    marks = [_marks(planes) for planes in profiles]
    everywhere = [mark for of_process in marks for mark in of_process]
    return [_steps(planes, own or everywhere) for planes, own in zip(profiles, marks, strict=True)]


def _steps(planes: Sequence[Plane], marks: Iterable[Interval]) -> RecordedSteps:
    windows = _windows(marks)
    by_device = None
    if not windows.steps:
        by_device = {
            plane.name: _windows(_step_line(plane))
            for plane in planes
            if plane.name.startswith(_DEVICE_PLANE)
        }
    by_host = windows.covered_by(planes)
    found = [by_host, *(by_device or {}).values()]
    return RecordedSteps(
        by_host=_after_warm_up(by_host),
        by_device=by_device
        and {name: _after_warm_up(windows) for name, windows in by_device.items()},
        warm_up_steps=int(any(len(windows.steps) > 1 for windows in found)),
        launched_ns=_launched_ns(planes),
    )


def _after_warm_up(windows: StepWindows) -> StepWindows:
    return StepWindows(windows.steps[1:]) if len(windows.steps) > 1 else windows


def _start(step: OpenStep | None) -> int | None:
    return None if step is None else step.start_ns


def _marks(planes: Sequence[Plane]) -> list[Interval]:
    return [
        (event.start_ns, event.end_ns)
        for line in host_lines(planes)
        for event in line.events
        if _MARK in event.stats
    ]


def _step_line(plane: Plane) -> list[Interval]:
    return [
        (event.start_ns, event.end_ns)
        for line in plane.lines
        if line.name == STEPS_LINE
        for event in line.events
    ]


def _windows(spans: Iterable[Interval]) -> StepWindows:
    outermost: list[OpenStep] = []
    for start_ns, end_ns in sorted(spans, key=lambda span: (span[0], -span[1])):
        if not outermost or start_ns >= outermost[-1].end_ns:
            outermost.append(OpenStep(start_ns=start_ns, end_ns=end_ns))
    return StepWindows(outermost)


def _launched_ns(planes: Iterable[Plane]) -> dict[StatValue, int]:
    """Return when the host first did something with each correlation."""
    moments: dict[StatValue, int] = {}
    for plane in planes:
        if plane.name.startswith(_DEVICE_PLANE):
            continue
        for line in plane.lines:
            for event in line.events:
                correlation = event.stats.get(_CORRELATION)
                if correlation is not None:
                    known = moments.get(correlation, event.start_ns)
                    moments[correlation] = min(event.start_ns, known)
    return moments
