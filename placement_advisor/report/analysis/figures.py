"""Figures of an analysis as every report shows them, and which candidates pictures show first.

A simulated step (`Schedule`) and a profiled one (`StepProfile`) have their figures by the same
names; the time of a measured step is that of steps without the profiler.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from placement_advisor.defaults import AS_WRITTEN, BASELINE
from placement_advisor.measurement.measurement import Interval, bootstrap_median
from placement_advisor.report.document import NOTHING
from placement_advisor.units import copies_text, counted, format_bytes, format_ns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from placement_advisor.analysis.analysis_result import Analysis, Candidate
    from placement_advisor.measurement.measurement import Activity, StepProfile
    from placement_advisor.simulator.schedule import Schedule
    from placement_advisor.simulator.sensitivity import PredictedRatio

# The user's step unmodified: a row of its own, not a candidate.
AS_IS = "as-is"
# Of a step that was timed and not profiled, or whose profile breaks a law.
NO_PROFILE = "no profile to rely on"
# What lies behind those costs next to nothing.
REPORT_ACTIVITIES = 15
ACTIVITY_HEADINGS = ("Time(%)", "Time", "Calls", "Avg", "Min", "Max", "Name")
# The single device and three others: more cannot be compared at a glance.
_SIDE_BY_SIDE = 4
_BEFORE_OTHERS = {BASELINE: 0, AS_WRITTEN: 1}


class Figure(NamedTuple):
    """A figure of a step, as all reports show it: a number under its title, or words for it."""

    title: str
    number: Callable[[Schedule | StepProfile], str]
    words: Callable[[Schedule | StepProfile], str]


def _copies(step: Schedule | StepProfile) -> str:
    if not step.transfer_count:
        return NOTHING if step.transfer_count is None else "none"
    return f"{step.transfer_count}, {_bytes(step)}"


def _copies_words(step: Schedule | StepProfile) -> str:
    if not step.transfer_count:
        return "copies not all seen" if step.transfer_count is None else "no copies"
    return f"{copies_text(step.transfer_count)}, {_bytes(step)}"


def _bytes(step: Schedule | StepProfile) -> str:
    return format_bytes(step.transfer_bytes, is_floor=step.bytes_are_a_floor)


def _exposed(step: Schedule | StepProfile) -> str:
    return format_ns(step.exposed_ns)


# Beside its time. Whoever adds one has it in report.txt, report.md, report.html and the tab.
FIGURES = (
    Figure("Copies", _copies, _copies_words),
    Figure(
        "Exposed",
        _exposed,
        lambda step: "" if step.transfer_count == 0 else f"{_exposed(step)} exposed",
    ),
)


def timed_ns(candidate: Candidate) -> int | None:
    """Return the median of the steps that ran without the profiler; None if none did."""
    measured = candidate.measured
    return round(median(measured.step_ns)) if measured and measured.step_ns else None


def as_is_interval(analysis: Analysis) -> Interval | None:
    """Return the step time of the user's own step."""
    return bootstrap_median(analysis.as_is) if analysis.as_is else None


def speedup(candidate: Candidate) -> Interval | None:
    """Return single over candidate as measured (above 1 is faster), None if not compared."""
    return None if candidate.comparison is None else candidate.comparison.speedup


def predicted_speedup(analysis: Analysis, candidate: Candidate) -> float | None:
    """Return single over candidate as simulated."""
    single = next((c for c in analysis.candidates if c.name == BASELINE), None)
    if single is None or single.predicted is None or candidate.predicted is None:
        return None
    return single.predicted.step_ns / candidate.predicted.step_ns


def predicted_range(candidate: Candidate) -> Interval | None:
    """Return the speed-up as simulated, with the ends that it has if costs are wrong."""
    return _as_speedup(candidate.predicted_ratio)


def range_after_runs(candidate: Candidate) -> Interval | None:
    """Return the speed-up as predicted after others had run, with its ends, if it was."""
    return _as_speedup(candidate.ratio_after_runs)


def _as_speedup(ratio: PredictedRatio | None) -> Interval | None:
    if ratio is None or not ratio.low:
        return None
    return Interval(median=ratio.ratio, low=ratio.low, high=ratio.high).inverted


def predicted_lines(candidate: Candidate) -> list[str]:
    """Return the figures of the simulated step, and its speed-up with the range of that.

    The speed-up that was predicted after others had run follows, where one was.
    """
    predicted, after = candidate.predicted, candidate.ratio_after_runs
    lines = [NOTHING] if predicted is None else figure_lines(predicted.step_ns, predicted)
    if (found := predicted_range(candidate)) is not None:
        lines.append(with_range(found.median, found))
    if after is not None and (later := range_after_runs(candidate)) is not None:
        told = with_range(later.median, later)
        lines.append(f"after {counted(after.runs, 'run')} {told}")
    return lines


def figure_lines(step_ns: int | None, step: Schedule | StepProfile | None) -> list[str]:
    """Return the time of a step, and its figures in words.

    ``step`` is None if nothing but the time is known.
    """
    if step_ns is None:
        return [NOTHING]
    if step is None:
        return [format_ns(step_ns), NO_PROFILE]
    return [format_ns(step_ns), *filter(None, (each.words(step) for each in FIGURES))]


def error_rows(candidate: Candidate) -> Iterator[list[str]]:
    """Yield each figure as predicted and as measured, if both are known, and how far off it is."""
    timed, predicted, profile = timed_ns(candidate), candidate.predicted, candidate.profile
    if predicted is None or timed is None:
        return
    step_ns = predicted.step_ns
    yield ["step", format_ns(step_ns), format_ns(timed), error_text(step_ns, timed)]
    seen = _figures(profile) if profile is not None else {}
    for title, (expected, text) in _figures(predicted).items():
        amount, measured = seen.get(title, (None, "?"))
        yield [title, text, measured, error_text(expected, amount)]
    for device, held in (profile.step_memory_bytes if profile is not None else {}).items():
        expected = predicted.step_memory_bytes.get(device)
        title = f"memory {device}, above what stays"
        yield [title, format_bytes(expected), format_bytes(held), error_text(expected, held)]


def _figures(step: Schedule | StepProfile) -> dict[str, tuple[int | None, str]]:
    """Return the figures of a step by their titles, as numbers and as they are shown."""
    count, size = step.transfer_count, step.transfer_bytes
    computes = {f"compute {device}": time_ns for device, time_ns in step.compute_ns.items()}
    times = {**computes, "copy time": step.transfer_ns, "exposed copy time": step.exposed_ns}
    return {
        **{title: (time_ns, format_ns(time_ns)) for title, time_ns in times.items()},
        "copies": (count, "?" if count is None else str(count)),
        "bytes across": (size, format_bytes(size, is_floor=step.bytes_are_a_floor)),
    }


def times_text(factor: float | None) -> str:
    """Return a speed-up; in no report has the sign × another meaning."""
    return NOTHING if factor is None else f"{factor:.2f}×"


def range_text(interval: Interval) -> str:
    """Return the two ends of a 95 % interval, or of a range, of speed-ups."""
    return f"{interval.low:.2f}–{interval.high:.2f}"


def with_range(median_factor: float | None, interval: Interval | None) -> str:
    """Return a speed-up and its two ends, as far as they are known."""
    shown = times_text(median_factor)
    return shown if interval is None else f"{shown} ({range_text(interval)})"


def speedup_lines(factor: float | None, ends: Interval | None) -> list[str]:
    """Return a speed-up and its two ends below it, as far as they are known."""
    return [times_text(factor), *([] if ends is None else [range_text(ends)])]


def longer_text(ratio: float | None) -> str:
    """Return how much longer than another a time is, whose ratio to it is given.

    >>> longer_text(1.06), longer_text(0.9), longer_text(1.001)
    ('6 % longer', '10 % shorter', 'as long')
    """
    if ratio is None:
        return NOTHING
    percent = round((ratio - 1) * 100)
    return f"{abs(percent)} % {'longer' if percent > 0 else 'shorter'}" if percent else "as long"


def error_text(predicted: float | None, measured: float | None) -> str:
    """Return how far a prediction lies from the measurement, in percent of the measurement.

    >>> error_text(110, 100), error_text(0, 0), error_text(None, 100) == NOTHING
    ('+10.0 %', '0.0 %', True)
    """
    if predicted is None or measured is None:
        return NOTHING
    if predicted == measured:
        return "0.0 %"
    return f"{(predicted - measured) / measured * 100:+.1f} %" if measured else NOTHING


class ActivityRow(NamedTuple):
    """One line of the nvprof-style table, in nvprof's order of columns."""

    cells: tuple[str, ...]
    is_copy: bool


def activity_rows(
    activities: Sequence[Activity], top: int = REPORT_ACTIVITIES
) -> tuple[ActivityRow, ...]:
    """Return the costliest activities as nvprof printed them, and every copy below those."""
    total_ns = sum(activity.total_ns for activity in activities) or 1
    ordered = sorted(activities, key=lambda a: (-a.total_ns, a.name))
    return tuple(
        ActivityRow(
            cells=(
                f"{each.total_ns / total_ns * 100:.2f}%",
                format_ns(each.total_ns),
                str(each.calls),
                format_ns(each.total_ns / each.calls if each.calls else None),
                format_ns(each.min_ns),
                format_ns(each.max_ns),
                each.name,
            ),
            is_copy=each.is_copy,
        )
        for place, each in enumerate(ordered)
        if place < top or each.is_copy
    )


def copy_share(profile: StepProfile) -> float | None:
    """Return the share of copies in the time of all activities, None if there were none."""
    total = sum(activity.total_ns for activity in profile.activities)
    copies = sum(activity.total_ns for activity in profile.activities if activity.is_copy)
    return copies / total if total else None


def did_run(candidate: Candidate) -> bool:
    """Whether its steps were timed to the end."""
    return candidate.failure is None and timed_ns(candidate) is not None


def any_ran(analysis: Analysis) -> bool:
    """Whether any candidate did, on the testbed."""
    return analysis.testbed.not_run is None and any(map(did_run, analysis.candidates))


def fastest_first(analysis: Analysis) -> tuple[Candidate, ...]:
    """Return the candidates that ran, or all that were predicted if none did.

    The single device comes first, then the user's own split, then the fastest first.
    """
    if any_ran(analysis):
        return tuple(sorted(filter(did_run, analysis.candidates), key=_measured_order))
    foreseen = [(c, c.predicted.step_ns) for c in analysis.candidates if c.predicted is not None]
    foreseen.sort(key=lambda entry: (_place(entry[0]), entry[1]))
    return tuple(candidate for candidate, _ in foreseen)


def in_timeline(analysis: Analysis) -> tuple[Candidate, ...]:
    """Return those that ``timeline.png`` shows."""
    return fastest_first(analysis)[:_SIDE_BY_SIDE]


def in_own_timelines(analysis: Analysis) -> tuple[Candidate, ...]:
    """Return those with a picture each in ``timelines/``: all others that were predicted."""
    names = {candidate.name for candidate in in_timeline(analysis)}
    return tuple(c for c in analysis.candidates if c.predicted is not None and c.name not in names)


def _place(candidate: Candidate) -> int:
    return _BEFORE_OTHERS.get(candidate.name, len(_BEFORE_OTHERS))


def _measured_order(candidate: Candidate) -> tuple[int, bool, float]:
    """Sort by what verdicts go by, the ratio within rounds; behind these by the step alone."""
    if candidate.comparison is not None:
        return _place(candidate), False, candidate.comparison.ratio.median
    return _place(candidate), True, timed_ns(candidate) or 0
