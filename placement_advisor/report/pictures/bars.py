"""Bars of a timeline, few enough to draw: what no pixel can show apart is merged.

A row is a device: what it computes, and the copies on their way to it from wherever.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING

from placement_advisor.measurement.measurement import Span
from placement_advisor.simulator.schedule import intervals_length, merged_intervals
from placement_advisor.units import format_ns

if TYPE_CHECKING:
    from collections.abc import Iterable

    from placement_advisor.analysis.analysis_result import Candidate
    from placement_advisor.simulator.schedule import Schedule

_ARROW = " → "
SIMULATED, MEASURED = "simulated", "measured"
# A bar this narrow cannot be told from its neighbours.
_TINY_PIXELS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One or several spans, of which something runs for ``busy_ns``; of several it has no name."""

    name: str
    start_ns: int
    end_ns: int
    busy_ns: int

    def share(self, pixel_ns: float) -> float:
        """Return for which share of its width, a pixel at least, something runs."""
        return self.busy_ns / max(self.end_ns - self.start_ns, pixel_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of a candidate, simulated or measured.

    ``launches`` has when hosts launch ops on devices, which is simulated alone.
    """

    heading: str
    step_ns: int
    spans: tuple[Span, ...]
    launches: tuple[Span, ...] = ()

    @property
    def end_ns(self) -> int:
        """When all of it is over; a copy may outlast the step."""
        return max([self.step_ns, *(span.end_ns for span in self.spans)])

    def computing(self, device: str) -> tuple[Span, ...]:
        """Return what a device computes."""
        return tuple(span for span in self.spans if not span.is_copy and _place(span) == device)

    def launching(self, device: str) -> tuple[Span, ...]:
        """Return when the host of a device launches ops on it."""
        return tuple(span for span in self.launches if span.lane == device)

    def copies_to(self, device: str) -> tuple[Span, ...]:
        """Return the copies to a device."""
        return tuple(span for span in self.spans if span.is_copy and _place(span) == device)


def steps_of(candidate: Candidate) -> tuple[Step, ...]:
    """Return the simulated and the measured step, as far as there are any.

    Measured is the profiled step of median length, where profiles can be relied on.
    """
    steps = []
    if candidate.predicted is not None:
        step_ns = candidate.predicted.step_ns
        steps.append(
            Step(
                heading=heading_of(SIMULATED, step_ns),
                step_ns=step_ns,
                spans=simulated_spans(candidate.predicted),
                launches=_launches(candidate.predicted),
            )
        )
    profile = candidate.profile
    if profile is not None and profile.step_ns:
        step_ns = round(median(profile.step_ns))
        steps.append(
            Step(heading=heading_of(MEASURED, step_ns), step_ns=step_ns, spans=profile.timeline)
        )
    return tuple(steps)


def heading_of(which: str, step_ns: int) -> str:
    """Return what a timeline shows, so that its times are not taken for those of other reports."""
    if which == SIMULATED:
        return f"simulated, step {format_ns(step_ns)}"
    return f"measured, one profiled step, of median length: {format_ns(step_ns)}"


def rows_of(devices: Iterable[str], steps: Iterable[Step]) -> dict[str, int]:
    """Return the devices, idle ones too, then other places that have spans: hosts.

    Each with the time that it computes or is copied to, over all steps.
    """
    spans = [span for step in steps for span in step.spans]
    names = dict.fromkeys([*devices, *sorted({_place(span) for span in spans})])
    return {name: busy_ns(span for span in spans if _place(span) == name) for name in names}


def merge(spans: Iterable[Span], pixel_ns: float) -> tuple[Bar, ...]:
    """Return bars for spans.

    Spans that overlap by a pixel become one bar; so do tiny ones with less than a pixel between
    them. A bar of several has no name.
    """
    bars: list[Bar] = []
    for span in sorted(spans, key=lambda span: (span.start_ns, span.end_ns)):
        last = bars[-1] if bars else None
        if last is not None and _joins(last, span, pixel_ns):
            more_ns = max(0, span.end_ns - max(span.start_ns, last.end_ns))
            end_ns = max(last.end_ns, span.end_ns)
            bars[-1] = replace(last, name="", end_ns=end_ns, busy_ns=last.busy_ns + more_ns)
            continue
        name = span.name.rsplit("/", 1)[-1]
        length_ns = span.end_ns - span.start_ns
        bars.append(Bar(name=name, start_ns=span.start_ns, end_ns=span.end_ns, busy_ns=length_ns))
    return tuple(bars)


def busy_ns(spans: Iterable[Span]) -> int:
    """Return the time during which at least one span runs."""
    return intervals_length(merged_intervals((span.start_ns, span.end_ns) for span in spans))


def _joins(last: Bar, span: Span, pixel_ns: float) -> bool:
    gap_ns = span.start_ns - last.end_ns
    if gap_ns <= -pixel_ns:
        return True
    tiny_ns = _TINY_PIXELS * pixel_ns
    last_is_tiny = not last.name or last.end_ns - last.start_ns < tiny_ns
    return gap_ns < pixel_ns and last_is_tiny and span.end_ns - span.start_ns < tiny_ns


def simulated_spans(schedule: Schedule) -> tuple[Span, ...]:
    """Return a simulated step as spans, as the profiler would have seen it."""
    runs = tuple(
        Span(lane=run.device, name=run.op, start_ns=run.start_ns, end_ns=run.end_ns, is_copy=False)
        for run in schedule.runs
    )
    copies = tuple(
        Span(
            lane=f"{copy.source}{_ARROW}{copy.target}",
            name=copy.producer,
            start_ns=copy.start_ns,
            end_ns=copy.end_ns,
            is_copy=True,
        )
        for copy in schedule.transfers
    )
    return runs + copies


def _launches(schedule: Schedule) -> tuple[Span, ...]:
    return tuple(
        Span(lane=run.device, name=run.op, start_ns=start, end_ns=end, is_copy=False)
        for run in schedule.runs
        if run.launch is not None
        for start, end in [run.launch]
    )


def _place(span: Span) -> str:
    """Return the device that computes, or that a copy goes to."""
    return span.lane.rpartition(_ARROW)[2] if span.is_copy else span.lane
