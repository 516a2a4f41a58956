"""The steps of a profile as windows in time, and the events that fall into them.

A step is the time that one ``train`` event spans in the process that asked for the step. An event
belongs to the step in which it starts, whatever thread recorded it; events outside all steps are
left out.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from placement_advisor.errors import AdvisorError
from placement_advisor.profile.summary import Copy, RecordedStep, Work
from placement_advisor.profile.xplane import PROFILE_STOP
from placement_advisor.profile.xplane_schema import PROFILE_START, TASK_PLANE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from placement_advisor.profile.space_file import StoredPlane
    from placement_advisor.profile.xplane import Line, Plane

STEP_EVENT = "train"
HOST_PLANE = "/host:CPU"

# Op name and kind; kinds begin with a capital or an underscore. Source: tf_op_utils.cc of XProf.
OP_EVENT = re.compile(r"([A-Za-z0-9.][A-Za-z0-9_.\\/>-]*):([A-Z_][A-Za-z0-9_]*)")


@dataclass(slots=True, kw_only=True)
class OpenStep:
    """A step while it is being filled; starts of sends and arrivals are by (device, node)."""

    start_ns: int
    end_ns: int
    work: list[Work] = field(default_factory=list)
    copies: list[Copy] = field(default_factory=list)
    sends: defaultdict[tuple[str, str], list[int]] = field(
        default_factory=lambda: defaultdict(list)
    )
    arrivals: defaultdict[tuple[str, str], list[int]] = field(
        default_factory=lambda: defaultdict(list)
    )

    def closed(self) -> RecordedStep:
        """Return the step as it now stands."""
        return RecordedStep(
            start_ns=self.start_ns,
            end_ns=self.end_ns,
            work=tuple(self.work),
            copies=tuple(self.copies),
        )


class StepWindows:
    """Steps in order of time."""

    def __init__(self, steps: Sequence[OpenStep]) -> None:
        self.steps = tuple(steps)
        self._starts = [step.start_ns for step in steps]

    def at(self, moment_ns: int) -> OpenStep | None:
        """Return the step that was under way at that moment, None if there was none."""
        place = bisect_right(self._starts, moment_ns) - 1
        if place < 0 or moment_ns >= self.steps[place].end_ns:
            return None
        return self.steps[place]

    def covered_by(self, planes: Iterable[Plane | StoredPlane]) -> StepWindows:
        """Return the steps during all of which the profile with these planes was being taken."""
        stats = next((plane.stats for plane in planes if plane.name == TASK_PLANE), {})
        begin_ns, end_ns = stats.get(PROFILE_START), stats.get(PROFILE_STOP)
        return StepWindows(
            [
                step
                for step in self.steps
                if not (isinstance(begin_ns, int) and step.start_ns < begin_ns)
                and not (isinstance(end_ns, int) and step.end_ns > end_ns)
            ]
        )

    def with_work(self, path: Path) -> list[OpenStep]:
        """Return the steps in which any device worked.

        Raises:
            AdvisorError: there is none in the profile of that path.
        """
        complete = [step for step in self.steps if step.work]
        if not complete:
            raise AdvisorError(
                f"no step of {path} is complete: no device was profiled at work within one",
                hint="start the profilers before the first profiled step, stop them after the last",
            )
        return complete


def step_windows(planes: Iterable[Plane], path: Path) -> StepWindows:
    """Return the steps of a profile, still empty.

    Raises:
        AdvisorError: the profile, read from that path, holds no step.
    """
    found = sorted(
        (event.start_ns, event.end_ns)
        for line in host_lines(planes)
        for event in line.events
        if event.name == STEP_EVENT and "step_num" in event.stats
    )
    if not found:
        raise AdvisorError(f"the profile {path} holds no step: no {STEP_EVENT!r} event")
    return StepWindows([OpenStep(start_ns=start, end_ns=end) for start, end in found])


def host_lines(planes: Iterable[Plane]) -> Iterator[Line]:
    """Yield the threads of the host."""
    for plane in planes:
        if plane.name == HOST_PLANE:
            yield from plane.lines
