"""Bars of a timeline, few enough to draw: what no pixel can show apart is merged."""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING

from placement_advisor.measurement.measurement import Span
from placement_advisor.simulator.intervals import length, merged
from placement_advisor.units import format_ns

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from placement_advisor.analysis.analysis_result import Analysis, Candidate
    from placement_advisor.simulator.schedule import Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One or several spans of a lane; a bar of several has no name."""

    name: str
    start_ns: int
    end_ns: int
    is_copy: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Lanes:
    """The lanes of one simulated or measured step, from top to bottom.

    ``busy_ns`` is the time during which at least one span of the lane runs.
    """

    heading: str
    names: tuple[str, ...]
    bars: Mapping[str, tuple[Bar, ...]]
    busy_ns: Mapping[str, int]
    step_ns: int
    end_ns: int


# A bar this narrow cannot be told from its neighbours.
_TINY_PIXELS = 2


def candidate_lanes(analysis: Analysis, candidate: Candidate, pixels: int) -> list[Lanes]:
    """Return simulated and measured lanes, as far as there are any; both list the same lanes.

    ``pixels`` is the width that the longer of the two is drawn with.
    """
    steps: list[tuple[str, tuple[Span, ...], int]] = []
    if candidate.predicted is not None:
        step_ns = candidate.predicted.step_ns
        steps.append(
            (f"simulated, step {format_ns(step_ns)}", simulated_spans(candidate.predicted), step_ns)
        )
    profile = candidate.measured.profile if candidate.measured else None
    if profile is not None and profile.step_ns:
        step_ns = round(median(profile.step_ns))
        heading = f"measured, step {format_ns(step_ns)} (profiler on)"
        steps.append((heading, profile.timeline, step_ns))
    every_span = [span for _, spans, _ in steps for span in spans]
    ends_ns = [span.end_ns for span in every_span] + [step_ns for *_, step_ns in steps]
    end_ns = max(ends_ns, default=1)
    names = _lane_names(analysis, every_span)
    return [
        Lanes(
            heading=heading,
            names=names,
            bars={name: merge(_in_lane(spans, name), end_ns / pixels) for name in names},
            busy_ns={name: busy_ns(_in_lane(spans, name)) for name in names},
            step_ns=step_ns,
            end_ns=end_ns,
        )
        for heading, spans, step_ns in steps
    ]


def merge(spans: Iterable[Span], pixel_ns: float) -> tuple[Bar, ...]:
    """Return bars for the spans of one lane.

    Spans that overlap by a pixel become one bar; so do tiny ones with less than a pixel between
    them. A bar of several has no name.
    """
    bars: list[Bar] = []
    for span in sorted(spans, key=lambda span: (span.start_ns, span.end_ns)):
        last = bars[-1] if bars else None
        if last is not None and last.is_copy is span.is_copy and _joins(last, span, pixel_ns):
            end_ns = max(last.end_ns, span.end_ns)
            bars[-1] = replace(last, name="", end_ns=end_ns)
            continue
        bars.append(
            Bar(
                name=span.name.rsplit("/", 1)[-1],
                start_ns=span.start_ns,
                end_ns=span.end_ns,
                is_copy=span.is_copy,
            )
        )
    return tuple(bars)


def busy_ns(spans: Iterable[Span]) -> int:
    """Return the time during which at least one span runs."""
    return length(merged((span.start_ns, span.end_ns) for span in spans))


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
            lane=f"{copy.source} → {copy.target}",
            name=copy.producer,
            start_ns=copy.start_ns,
            end_ns=copy.end_ns,
            is_copy=True,
        )
        for copy in schedule.transfers
    )
    return runs + copies


def _lane_names(analysis: Analysis, spans: Iterable[Span]) -> tuple[str, ...]:
    """Return devices, idle ones too, then whatever else has spans: links, hosts."""
    others = sorted({span.lane for span in spans})
    return tuple(dict.fromkeys([*analysis.testbed.cluster.device_names(), *others]))


def _in_lane(spans: Iterable[Span], lane: str) -> tuple[Span, ...]:
    return tuple(span for span in spans if span.lane == lane)
