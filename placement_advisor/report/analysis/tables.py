"""Rows that the terminal and the Markdown report share: figures of a step, in text.

Predicted and measured steps have the same figures, so one type holds both; which of the two it
is, the caller knows and says in the heading. Left out: markup, colours and widths.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from placement_advisor.analysis.analysis_result import TO_SPLIT, Saving
from placement_advisor.defaults import BASELINE
from placement_advisor.graph.name_patterns import listed
from placement_advisor.measurement.measurement import Interval, SizeBasis, bootstrap_median
from placement_advisor.results.candidate import failure_file
from placement_advisor.units import copies_text, format_bytes, format_ns, format_share

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from placement_advisor.analysis.analysis_result import (
        Analysis,
        Candidate,
        Finding,
    )
    from placement_advisor.measurement.failure import Failure
    from placement_advisor.measurement.measurement import Activity, Measurement, StepProfile
    from placement_advisor.simulator.schedule import Schedule
    from placement_advisor.simulator.sensitivity import PredictedRatio

# The user's step unmodified: a row of its own, not a candidate.
AS_IS = "as-is"
# What stands before findings about splits that the verdict is not about, whatever it is.
OF_OTHER_SPLITS = "Of splits that are not recommended"
# What `-v` prints.
FULL_TEXT = "report.txt"
NOT_RECOMMENDED = "It is the best that was tried, not a recommendation."
# The end of what a script printed up to the step that was captured.
SCRIPT_OUTPUT = "script-output.txt"
# nvprof's own summaries rarely need more rows to show what a step is made of.
TOP_ACTIVITIES = 5
# What has more room shows what lies behind those.
REPORT_ACTIVITIES = 15
_BASIS_WORDS = {SizeBasis.PROFILE: "profiled", SizeBasis.SHAPES: "by the graph's shapes"}
_DASH = "–"
NOTHING = _DASH
# Of a step that was timed and not profiled, or whose profile breaks a law.
NO_PROFILE = "no profile to rely on"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFigures:
    """One step in numbers, predicted or measured; what is not known is None.

    ``step_memory_bytes`` is what each device holds at its worst moment above what stays between
    steps. ``bytes_are_a_floor`` is True where copies of unknown size are missing from the bytes.
    ``exposed_ns`` is what the device that waits longest for copies waits, computing nothing.
    """

    step_ns: int
    compute_ns: Mapping[str, int] | None
    transfer_count: int | None
    transfer_bytes: int | None
    transfer_ns: int | None
    exposed_ns: int | None
    step_memory_bytes: Mapping[str, int]
    bytes_are_a_floor: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityRow:
    """One line of the nvprof-style table, in nvprof's order of columns."""

    cells: tuple[str, ...]
    is_copy: bool


ACTIVITY_HEADINGS = ("Time(%)", "Time", "Calls", "Avg", "Min", "Max", "Name")


def predicted_figures(schedule: Schedule) -> StepFigures:
    """Return the figures of a simulated step."""
    return StepFigures(
        step_ns=schedule.step_ns,
        compute_ns=schedule.compute_ns,
        transfer_count=schedule.transfer_count,
        transfer_bytes=schedule.carried.amount,
        transfer_ns=schedule.transfer_ns,
        exposed_ns=schedule.exposed_ns,
        step_memory_bytes={
            device: peak.size_bytes - peak.resident_bytes
            for device, peak in schedule.peak_memory.items()
        },
        bytes_are_a_floor=schedule.carried.is_floor,
    )


def measured_figures(measurement: Measurement, profile: StepProfile | None) -> StepFigures | None:
    """Return the figures of a measured step (step: unprofiled median), None if none was timed.

    ``profile`` is that of its steps, if it can be relied on.
    """
    if not measurement.step_ns:
        return None
    return StepFigures(
        step_ns=round(median(measurement.step_ns)),
        compute_ns=profile.compute_ns if profile else None,
        transfer_count=profile.transfer_count if profile else None,
        transfer_bytes=profile.transfer_bytes if profile else None,
        transfer_ns=profile.transfer_ns if profile else None,
        exposed_ns=profile.exposed_ns if profile else None,
        step_memory_bytes=profile.step_memory_bytes if profile else {},
        bytes_are_a_floor=False,
    )


def candidate_figures(candidate: Candidate) -> tuple[StepFigures | None, StepFigures | None]:
    """Return what was predicted and what was measured."""
    return (
        predicted_figures(candidate.predicted) if candidate.predicted else None,
        measured_figures(candidate.measured, candidate.profile) if candidate.measured else None,
    )


def verdict_is_split(analysis: Analysis) -> bool:
    """Whether a split is to be made, and how to carry it out is known."""
    answer = analysis.recommendation
    is_split = answer is not None and answer.verdict in TO_SPLIT
    return is_split and analysis.how is not None


def how_title(analysis: Analysis) -> str:
    """Return what stands above how to carry out the best split."""
    return "How to split" if verdict_is_split(analysis) else "How the best split goes"


def no_findings_text(analysis: Analysis) -> str:
    """Return what to say where no rule has found anything."""
    alone = next((c for c in analysis.candidates if c.name == BASELINE), None)
    has_run = alone is not None and alone.measured is not None and bool(alone.measured.step_ns)
    has_run = has_run and _ran_on_testbed(analysis)
    return no_findings(is_sure=not has_run or alone is None or alone.profile is not None)


def no_findings(*, is_sure: bool) -> str:
    """Return what to say where no rule has found anything; ``is_sure``: by times to rely on.

    >>> no_findings(is_sure=True)
    'none: no rule has anything to say of this step'
    """
    if is_sure:
        return "none: no rule has anything to say of this step"
    return (
        f"none, but {BASELINE} has {NO_PROFILE}: a rule that goes by times of ops may have missed "
        "something, which a run on a quieter machine would show"
    )


def was_measured(analysis: Analysis) -> bool:
    """Whether any step was timed on the testbed, or the user's own beside it."""
    return _ran_on_testbed(analysis) and (
        bool(analysis.as_is)
        or any(
            candidate.measured and candidate.measured.step_ns for candidate in analysis.candidates
        )
    )


def own_process_line(analysis: Analysis) -> str | None:
    """Return what one device took where the step ran in its own process alone; None elsewhere."""
    alone = next((c for c in analysis.candidates if c.name == BASELINE), None)
    if _ran_on_testbed(analysis) or alone is None or alone.measured is None:
        return None
    return own_process_text(median(alone.measured.step_ns))


def own_process_text(step_ns: float) -> str:
    """Return what one device took in the step's own process.

    >>> own_process_text(1_500_000)
    'single: 1.50 ms, measured on one core in the process that made the step'
    """
    where = "on one core in the process that made the step"
    return f"{BASELINE}: {format_ns(step_ns)}, measured {where}"


def _ran_on_testbed(analysis: Analysis) -> bool:
    return analysis.testbed is not None and analysis.testbed.not_run is None


def as_is_interval(analysis: Analysis) -> Interval | None:
    """Return the step time of the user's own step."""
    return bootstrap_median(analysis.as_is) if analysis.as_is else None


def speedup(candidate: Candidate) -> Interval | None:
    """Return single over candidate as measured (above 1 is faster), None if not compared."""
    if candidate.comparison is None:
        return None
    return candidate.comparison.speedup


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


def failure_text(candidate: Candidate) -> str:
    """Return why a candidate has no result in a sentence, and where there is more to read of it."""
    assert candidate.failure is not None
    file = failure_file(candidate)
    more = "" if file is None else f" (in full: {file})"
    return f"{failure_kind_text(candidate.failure)}: {candidate.failure.message}{more}"


def failure_lines(candidates: Iterable[Candidate]) -> list[str]:
    """Return why candidates have no result, those together that have none for the same reason."""
    names: dict[str, list[str]] = {}
    for candidate in candidates:
        if candidate.failure is not None:
            names.setdefault(failure_text(candidate), []).append(candidate.name)
    return [f"{listed(those)}: {text}" for text, those in names.items()]


def failure_kind_text(failure: Failure) -> str:
    """Return in a word or two why a candidate has no result."""
    return failure.kind.value.replace("-", " ")


def predicted_lines(candidate: Candidate) -> list[str]:
    """Return the figures of the simulated step, and its speed-up with the range of that.

    The speed-up that was predicted after others had run follows, where one was.
    """
    figures, _ = candidate_figures(candidate)
    lines = figure_lines(figures)
    found = predicted_range(candidate)
    if found is not None:
        lines.append(with_range(found.median, found))
    after = candidate.ratio_after_runs
    later = range_after_runs(candidate)
    if after is not None and later is not None:
        runs = "1 run" if after.runs == 1 else f"{after.runs} runs"
        lines.append(f"after {runs} {with_range(later.median, later)}")
    return lines


def figure_lines(figures: StepFigures | None) -> list[str]:
    """Return step time, copies with their bytes, and the copy time that nothing hides."""
    if figures is None:
        return [NOTHING]
    lines = [format_ns(figures.step_ns)]
    if figures.compute_ns is None:
        return [*lines, NO_PROFILE]
    if figures.transfer_count is None:
        return [*lines, "copies not all seen", f"{format_ns(figures.exposed_ns)} exposed"]
    if not figures.transfer_count:
        return [*lines, "no copies"]
    return [
        *lines,
        f"{copies_text(figures.transfer_count)}, {bytes_text(figures)}",
        f"{format_ns(figures.exposed_ns)} exposed",
    ]


def bytes_basis_text(analysis: Analysis) -> str:
    """Return where the bytes of measured copies come from, empty if none are known."""
    profiles = [c.profile for c in analysis.candidates if c.profile is not None]
    bases = {profile.size_basis for profile in profiles}
    words = [_BASIS_WORDS[basis] for basis in SizeBasis if basis in bases]
    return f", their bytes {' or '.join(words)}" if words else ""


def bytes_text(figures: StepFigures) -> str:
    """Return the bytes across, with ≥ where copies of unknown size come on top."""
    return format_bytes(figures.transfer_bytes, is_floor=figures.bytes_are_a_floor)


def times_text(factor: float | None) -> str:
    """Return a speed-up; in no report has the sign × another meaning."""
    return NOTHING if factor is None else f"{factor:.2f}×"


def range_text(interval: Interval) -> str:
    """Return the two ends of a 95 % interval, or of a range, of speed-ups."""
    return f"{interval.low:.2f}{_DASH}{interval.high:.2f}"


def with_range(median_factor: float | None, interval: Interval | None) -> str:
    """Return a speed-up and its two ends, as far as they are known."""
    shown = times_text(median_factor)
    return shown if interval is None else f"{shown} ({range_text(interval)})"


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
    if not measured:
        return NOTHING
    return f"{(predicted - measured) / measured * 100:+.1f} %"


def copy_share(profile: StepProfile) -> float | None:
    """Return the share of copies in the time of all activities, None if there were none."""
    total = sum(activity.total_ns for activity in profile.activities)
    copies = sum(activity.total_ns for activity in profile.activities if activity.is_copy)
    return copies / total if total else None


def activity_rows(
    activities: Sequence[Activity], top: int = TOP_ACTIVITIES
) -> tuple[ActivityRow, ...]:
    """Return the costliest activities as nvprof printed them, and every copy below those."""
    total = sum(activity.total_ns for activity in activities) or 1
    ordered = sorted(activities, key=lambda a: (-a.total_ns, a.name))
    return tuple(
        _activity_row(activity, total)
        for place, activity in enumerate(ordered)
        if place < top or activity.is_copy
    )


def _activity_row(activity: Activity, total_ns: int) -> ActivityRow:
    return ActivityRow(
        cells=(
            f"{activity.total_ns / total_ns * 100:.2f}%",
            format_ns(activity.total_ns),
            str(activity.calls),
            format_ns(activity.total_ns / activity.calls if activity.calls else None),
            format_ns(activity.min_ns),
            format_ns(activity.max_ns),
            activity.name,
        ),
        is_copy=activity.is_copy,
    )


def layers_by_device(candidate: Candidate) -> dict[str, list[str]]:
    """Return the layers of each device; the steps of no layer appear as ``(no layer)``."""
    groups: dict[str, list[str]] = {}
    for layer, device in (candidate.by_layer or {}).items():
        groups.setdefault(device, []).append(layer or "(no layer)")
    return groups


def ops_by_device(candidate: Candidate) -> dict[str, int]:
    """Return how many ops each device holds."""
    counts = Counter(candidate.placement.device_of.values() if candidate.placement else ())
    return dict(sorted(counts.items()))


def right_aligned(rows: Sequence[Sequence[str]], label_width: int = 0) -> list[str]:
    """Return rows that begin with a label as lines, all other cells aligned to the right.

    Labels are at least ``label_width`` wide.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            [
                row[0].ljust(max(widths[0], label_width)),
                *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)),
            ]
        )
        for row in rows
    ]


def ranked_findings(analysis: Analysis) -> list[Finding]:
    """Return the findings about what the user runs or is told to run."""
    return [finding for finding in analysis.findings if not finding.is_hypothetical]


def hypothetical_findings(analysis: Analysis) -> list[Finding]:
    """Return those about a split that is not recommended."""
    return [finding for finding in analysis.findings if finding.is_hypothetical]


def saving_text(saving: Saving) -> str:
    """Return what a finding saves, with its least and its most.

    >>> ms = 1_000_000
    >>> saving_text(Saving(step_ns=30 * ms, saving_ns=6 * ms, low_ns=1 * ms, high_ns=9 * ms))
    '6.00 ms, 20 % of the step (3–30 %, simulated)'
    """
    low, share, high = (
        format_share(part / saving.step_ns)
        for part in (saving.low_ns, saving.saving_ns, saving.high_ns)
    )
    ends = f"{low.removesuffix(' %')}{_DASH}{high}"
    return f"{format_ns(saving.saving_ns)}, {share} of the step ({ends}, {saving.basis})"


def where_text(finding: Finding) -> str:
    """Return where a finding applies, with file and line together; empty if it is everywhere."""
    where = dict(finding.where)
    file, line = where.pop("file", None), where.pop("line", None)
    parts = [f"{kind} {name}" for kind, name in where.items()]
    if file is not None:
        parts.append(str(file) if line is None else f"{file}:{line}")
    return ", ".join(parts)


def left_out_text(left_out: Sequence[str]) -> str | None:
    """Return what of the user's program is left out, in a line; None if nothing is."""
    return f"Left out of your program: {'; '.join(left_out)}" if left_out else None


def one_line(text: str) -> str:
    """Return text from a model or a worker as one line that cannot drive a terminal.

    >>> one_line("a" + chr(27) + "[31mb" + chr(10) + "c")
    'a�[31mb c'
    """
    joined = " ".join(text.split())
    return "".join(character if character.isprintable() else "�" for character in joined)
