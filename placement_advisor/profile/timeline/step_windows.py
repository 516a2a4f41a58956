"""The steps of a profile as windows in time, and the events that fall into them.

A step is the time that one ``train`` event spans in the process that asked for the step. An event
belongs to the step in which it starts, whatever thread recorded it; events outside all steps are
left out. Copies of a model run steps of their own: a process that marks steps goes through each at
times of its own, and a step lasts from the first one's begin to the last one's end.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from placement_advisor.errors import AdvisorError
from placement_advisor.profile.step_profile import Copy, RecordedStep, Work
from placement_advisor.profile.xspace.xplane import PROFILE_STOP
from placement_advisor.profile.xspace.xplane_schema import PROFILE_START, TASK_PLANE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from placement_advisor.profile.xspace.space_file import StoredPlane
    from placement_advisor.profile.xspace.xplane import Line, Plane
    from placement_advisor.simulator.intervals import Interval

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
    """Steps in order of time, and when one process goes through each of them."""

    def __init__(
        self, steps: Sequence[OpenStep], windows: Sequence[Interval] | None = None
    ) -> None:
        """Take steps; without ``windows`` a process goes through each from its start to its end."""
        self.steps = tuple(steps)
        self._windows = tuple(windows or ((step.start_ns, step.end_ns) for step in steps))
        self._starts = [start_ns for start_ns, _ in self._windows]

    def at(self, moment_ns: int) -> OpenStep | None:
        """Return the step that was under way at that moment, None if there was none."""
        place = bisect_right(self._starts, moment_ns) - 1
        if place < 0 or moment_ns >= self._windows[place][1]:
            return None
        return self.steps[place]

    def marked_by(self, planes: Iterable[Plane], path: Path) -> StepWindows:
        """Return the same steps as a process with these planes goes through them.

        They widen where that begins earlier or ends later. One that marks no steps has these.

        Raises:
            AdvisorError: the process, whose profile was read from that path, marks other steps.
        """
        windows = _marks(planes)
        if not windows:
            return self
        if len(windows) != len(self.steps):
            raise AdvisorError(
                f"the profile {path} holds {len(windows)} steps, that of the first process "
                f"{len(self.steps)}: they are not of the same steps"
            )
        for step, (start_ns, end_ns) in zip(self.steps, windows, strict=True):
            step.start_ns = min(step.start_ns, start_ns)
            step.end_ns = max(step.end_ns, end_ns)
        return StepWindows(self.steps, windows)

    def covered_by(self, planes: Iterable[Plane | StoredPlane]) -> StepWindows:
        """Return the steps during all of which the profile with these planes was being taken."""
        stats = next((plane.stats for plane in planes if plane.name == TASK_PLANE), {})
        begin_ns, end_ns = stats.get(PROFILE_START), stats.get(PROFILE_STOP)
        return self._where(
            not (isinstance(begin_ns, int) and start_ns < begin_ns)
            and not (isinstance(end_ns, int) and stop_ns > end_ns)
            for start_ns, stop_ns in self._windows
        )

    def shared_with(self, other: StepWindows) -> StepWindows:
        """Return the steps that another process has as well."""
        theirs = {id(step) for step in other.steps}
        return self._where(id(step) in theirs for step in self.steps)

    def _where(self, chosen: Iterable[bool]) -> StepWindows:
        kept = [
            pair
            for pair, is_chosen in zip(
                zip(self.steps, self._windows, strict=True), chosen, strict=True
            )
            if is_chosen
        ]
        return StepWindows([step for step, _ in kept], [window for _, window in kept])

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
    found = _marks(planes)
    if not found:
        raise AdvisorError(f"the profile {path} holds no step: no {STEP_EVENT!r} event")
    return StepWindows([OpenStep(start_ns=start, end_ns=end) for start, end in found])


def _marks(planes: Iterable[Plane]) -> list[Interval]:
    return sorted(
        (event.start_ns, event.end_ns)
        for line in host_lines(planes)
        for event in line.events
        if event.name == STEP_EVENT and "step_num" in event.stats
    )


def host_lines(planes: Iterable[Plane]) -> Iterator[Line]:
    """Yield the threads of the host."""
    for plane in planes:
        if plane.name == HOST_PLANE:
            yield from plane.lines
