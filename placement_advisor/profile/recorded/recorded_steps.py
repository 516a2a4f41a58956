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
from typing import TYPE_CHECKING

from placement_advisor.profile.timeline.gpu_streams import gpu_planes
from placement_advisor.profile.timeline.marks import CORRELATION, outermost, read_marks
from placement_advisor.profile.timeline.step_windows import OpenStep, StepWindows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from placement_advisor.profile.spans import Spans
    from placement_advisor.profile.timeline.gpu_streams import Stream
    from placement_advisor.profile.timeline.marks import Marks
    from placement_advisor.profile.xspace.space_file import SpaceFile, StoredPlane
    from placement_advisor.profile.xspace.xplane import Event
    from placement_advisor.simulator.intervals import Interval

STEPS_LINE = "Steps"
# The stat by which `RecordedSteps.of_stream` knows what was launched when.
STEP_KEY = CORRELATION


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedSteps:
    """The steps of one process without the warm-up; a step is known by its start.

    ``by_gpu`` is by number, None where marks of the host count.
    """

    by_host: StepWindows
    by_gpu: Mapping[int, StepWindows] | None
    marks: Marks

    def of_host_event(self, event: Event) -> int | None:
        """Return the step in which the event started, None if in none."""
        return _start(self.by_host.at(event.start_ns))

    def of_stream(self, gpu: int, stream: Stream) -> list[int | None]:
        """Return the step in which each event was launched, None for what was in none.

        The stream, one of that GPU, was read with `STEP_KEY`.
        """
        windows, moments = self.by_host, stream.events.start_ns
        if self.by_gpu is None:
            moments = self.marks.launch_of(stream.events.key, otherwise=moments)
        else:
            windows = self.by_gpu[gpu]
        return [_start(windows.at(moment_ns)) for moment_ns in moments.tolist()]


def recorded_steps(files: Sequence[SpaceFile]) -> list[RecordedSteps]:
    """Return the steps of each of the processes that were profiled together.

    A process without marks has those of the others: they told it what to do, on the same machine.
    """
    marks = [read_marks(file, launches=True) for file in files]
    everywhere = outermost(span for of_process in marks for span in of_process.steps.pairs())
    return [
        _steps(file, own, own.steps if len(own.steps.start) else everywhere)
        for file, own in zip(files, marks, strict=True)
    ]


def _steps(file: SpaceFile, marks: Marks, spans: Spans) -> RecordedSteps:
    windows = _windows(spans)
    by_gpu = None
    if not windows.steps:
        by_gpu = {
            number: _windows(outermost(_step_line(file, plane)))
            for number, plane in gpu_planes(file).items()
        }
    by_host = windows.covered_by(file.planes)
    return RecordedSteps(
        by_host=_after_warm_up(by_host),
        by_gpu=by_gpu and {gpu: _after_warm_up(windows) for gpu, windows in by_gpu.items()},
        marks=marks,
    )


def _after_warm_up(windows: StepWindows) -> StepWindows:
    return StepWindows(windows.steps[1:]) if len(windows.steps) > 1 else windows


def _start(step: OpenStep | None) -> int | None:
    return None if step is None else step.start_ns


def _step_line(file: SpaceFile, plane: StoredPlane) -> list[Interval]:
    return [
        span
        for line in plane.lines
        if line.name == STEPS_LINE
        for span in file.events(plane, line).spans.pairs()
    ]


def _windows(spans: Spans) -> StepWindows:
    return StepWindows([OpenStep(start_ns=start, end_ns=end) for start, end in spans.pairs()])
