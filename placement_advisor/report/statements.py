"""Every report words the figures of an analysis and its sentences with the functions here.

A simulated step (`Schedule`) and a profiled one (`StepProfile`) have their figures by the
same names; the time of a measured step comes from the steps without the profiler.
`fastest_first` and `in_timeline` choose which candidates the pictures show. The error of what
is simulated by assumed costs is stated for emulated devices (medians over models drawn at
random) and for named GPUs (the mean error of their kernel families).
"""

from __future__ import annotations

from collections import defaultdict
from statistics import mean, median
from typing import TYPE_CHECKING, NamedTuple

from placement_advisor import units
from placement_advisor.analysis.analysis_result import TO_SPLIT, Saving
from placement_advisor.defaults import AS_WRITTEN, BASELINE
from placement_advisor.graph.name_patterns import listed
from placement_advisor.measurement.measurement import Interval, SizeBasis, bootstrap_median
from placement_advisor.report.document import NOTHING
from placement_advisor.results.analysis import PUBLISHED_STEPS, GpuTimes, ScalingRow, scaling
from placement_advisor.results.candidate import failure_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from placement_advisor.analysis.analysis_result import Analysis, Candidate, Finding
    from placement_advisor.measurement.measurement import Activity, CandidateFailure, StepProfile
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


# Of a step beside its time: titles of `figure_cells`.
FIGURES = ("Copies", "Exposed")


def figure_cells(step: Schedule | StepProfile | None) -> tuple[str, str]:
    """Return the figures of a step under their titles."""
    if step is None:
        return NOTHING, NOTHING
    copies = f"{step.transfer_count}, {_bytes(step)}"
    if not step.transfer_count:
        copies = NOTHING if step.transfer_count is None else "none"
    return copies, _exposed(step)


def _bytes(step: Schedule | StepProfile) -> str:
    return units.format_bytes(step.transfer_bytes, is_floor=step.bytes_are_a_floor)


def _exposed(step: Schedule | StepProfile) -> str:
    return units.format_ns(step.exposed_ns)


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


def outcome_text(analysis: Analysis, candidate: Candidate) -> str:
    """Return how fast a candidate is and how long it waits for copies, measured if it ran."""
    ran = any_ran(analysis) and did_run(candidate)
    times, seen = speedup(candidate) if ran else None, candidate.profile if ran else None
    factor = times.median if times else None if ran else predicted_speedup(analysis, candidate)
    step_ns = candidate.predicted.step_ns if candidate.predicted else None
    told = units.format_ns(timed_ns(candidate) if ran else step_ns)
    if candidate.name != BASELINE and factor is not None:
        told = times_text(factor)
    step = seen if ran else candidate.predicted
    if step is None:
        return told
    waits = f"waits {_exposed(step)} for copies" if step.exposed_ns else "waits for no copies"
    return f"{told}, {waits}"


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
        lines.append(f"after {units.counted(after.runs, 'run')} {told}")
    return lines


def figure_lines(step_ns: int | None, step: Schedule | StepProfile | None) -> list[str]:
    """Return the time of a step, and its figures in words.

    ``step`` is None if nothing but the time is known.
    """
    if step_ns is None:
        return [NOTHING]
    if step is None:
        return [units.format_ns(step_ns), NO_PROFILE]
    time = units.format_ns(step_ns)
    if step.transfer_count == 0:
        return [time, "no copies"]
    copies = "copies not all seen"
    if step.transfer_count is not None:
        copies = f"{units.copies_text(step.transfer_count)}, {_bytes(step)}"
    return [time, copies, f"{_exposed(step)} exposed"]


def error_rows(candidate: Candidate) -> Iterator[list[str]]:
    """Yield each figure as predicted and as measured, if both are known, and how far off it is."""
    timed, predicted, profile = timed_ns(candidate), candidate.predicted, candidate.profile
    if predicted is None or timed is None:
        return
    step_ns = predicted.step_ns
    yield ["step", units.format_ns(step_ns), units.format_ns(timed), error_text(step_ns, timed)]
    seen = _figures(profile) if profile is not None else {}
    for title, (expected, text) in _figures(predicted).items():
        amount, measured = seen.get(title, (None, "?"))
        yield [title, text, measured, error_text(expected, amount)]
    for device, held in (profile.step_memory_bytes if profile is not None else {}).items():
        expected = predicted.step_memory_bytes.get(device)
        title = f"memory {device}, above what stays"
        yield [
            title,
            units.format_bytes(expected),
            units.format_bytes(held),
            error_text(expected, held),
        ]


def _figures(step: Schedule | StepProfile) -> dict[str, tuple[int | None, str]]:
    """Return the figures of a step by their titles, as numbers and as they are shown."""
    count, size = step.transfer_count, step.transfer_bytes
    computes = {f"compute {device}": time_ns for device, time_ns in step.compute_ns.items()}
    times = {**computes, "copy time": step.transfer_ns, "exposed copy time": step.exposed_ns}
    return {
        **{title: (time_ns, units.format_ns(time_ns)) for title, time_ns in times.items()},
        "copies": (count, "?" if count is None else str(count)),
        "bytes across": (size, units.format_bytes(size, is_floor=step.bytes_are_a_floor)),
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
                units.format_ns(each.total_ns),
                str(each.calls),
                units.format_ns(each.total_ns / each.calls if each.calls else None),
                units.format_ns(each.min_ns),
                units.format_ns(each.max_ns),
                each.name,
            ),
            is_copy=each.is_copy,
        )
        for place, each in enumerate(ordered)
        if place < top or each.is_copy
    )


def activity_shares(profile: StepProfile) -> str | None:
    """Return what took the time of all activities, in words; None if there were none."""
    total = sum(activity.total_ns for activity in profile.activities)
    if not total:
        return None
    copies = sum(activity.total_ns for activity in profile.activities if activity.is_copy) / total
    shares = f"compute {units.format_share(1 - copies)}, copies {units.format_share(copies)}"
    return f"{shares} of all activity in {len(profile.step_ns)} profiled steps"


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


# What stands before findings about splits that the verdict is not about, whatever it is.
OF_OTHER_SPLITS = "Splits that are not recommended"
NOT_RECOMMENDED = "It is the best one tried, not a recommendation."
_BYTES_WORDS = {SizeBasis.PROFILE: "profiled", SizeBasis.SHAPES: "by the graph's shapes"}

WHICH = (
    "the same training, faster (strong scaling, as the verdict). More samples per second (weak "
    "scaling): the larger batch helps one device in part as well, and needs another learning rate"
)

MODELS = 24
MEDIAN = 0.211
# By candidate, of those that at least five of these models have.
MEDIAN_OF = {
    "towers": 0.184,
    "towers-forward-only": 0.298,
    "pipeline": 0.102,
    "parameters-on-host": 0.132,
    "alternating": 0.282,
    "alternating-ops": 0.361,
    "searched": 0.125,
}

# What users call the families of kernels.
FAMILY_WORDS = {
    **dict.fromkeys(("linear", "bmm"), "products of matrices"),
    "conv": "convolutions",
    **dict.fromkeys(("add", "mul", "relu", "tanh", "gelu"), "elementwise"),
    "softmax": "softmax",
    "ln": "layer normalisation",
}
_BASIS_WORDS = {"fitted": "measured on this chip", "transferred": "measured on other chips"}

# Nothing is predicted as well as that.
_LEAST_ERROR = 0.01


def verdict_is_split(analysis: Analysis) -> bool:
    """Whether a split is to be made, and how to carry it out is known."""
    answer = analysis.recommendation
    is_split = answer is not None and answer.verdict in TO_SPLIT
    return is_split and analysis.how is not None


def how_title(analysis: Analysis) -> str:
    """Return what stands above how to carry out the best split."""
    return "How to split" if verdict_is_split(analysis) else "How the best split goes"


def left_out_text(left_out: Sequence[str]) -> str | None:
    """Return what of the user's program is left out, in a line; None if nothing is."""
    return f"Left out of your program: {'; '.join(left_out)}" if left_out else None


def was_measured(analysis: Analysis) -> bool:
    """Whether any step was timed on the testbed, or the user's own beside it."""
    has_run = any(timed_ns(candidate) is not None for candidate in analysis.candidates)
    return _ran_on_testbed(analysis) and (bool(analysis.as_is) or has_run)


def own_process_line(analysis: Analysis) -> str | None:
    """Return what one device took where the step ran in its own process alone; None elsewhere."""
    alone_ns = _single_ns(analysis)
    return None if _ran_on_testbed(analysis) or alone_ns is None else own_process_text(alone_ns)


def own_process_text(step_ns: float) -> str:
    """Return what one device took in the step's own process.

    >>> own_process_text(1_500_000)
    'single: 1.50 ms, measured on one core in the process that made the step'
    """
    where = "on one core in the process that made the step"
    return f"{BASELINE}: {units.format_ns(step_ns)}, measured {where}"


def _ran_on_testbed(analysis: Analysis) -> bool:
    return analysis.testbed is not None and analysis.testbed.not_run is None


def bytes_basis_text(analysis: Analysis) -> str:
    """Return where the bytes of measured copies come from, empty if none are known."""
    bases = {c.profile.size_basis for c in analysis.candidates if c.profile is not None}
    words = [_BYTES_WORDS[basis] for basis in SizeBasis if basis in bases]
    return f", their bytes {' or '.join(words)}" if words else ""


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


def failure_kind_text(failure: CandidateFailure) -> str:
    """Return in a word or two why a candidate has no result."""
    return failure.kind.value.replace("-", " ")


def no_findings_text(analysis: Analysis) -> str:
    """Return what to say where no rule has found anything."""
    has_run = _ran_on_testbed(analysis) and _single_ns(analysis) is not None
    profiled = (c.name for c in analysis.candidates if c.profile is not None)
    return no_findings(is_sure=not has_run or BASELINE in profiled)


def no_findings(*, is_sure: bool) -> str:
    """Return what to say where no rule has found anything; ``is_sure``: by times to rely on.

    >>> no_findings(is_sure=True)
    'none: no rule has anything to say of this step'
    """
    if is_sure:
        return "none: no rule fits this step"
    return (
        f"none, but {BASELINE} has {NO_PROFILE}. A rule that needs times of ops may have "
        "missed something: run again on a quieter machine"
    )


def saving_text(saving: Saving) -> str:
    """Return what a finding saves, with its least and its most.

    >>> ms = 1_000_000
    >>> saving_text(Saving(step_ns=30 * ms, saving_ns=6 * ms, low_ns=1 * ms, high_ns=9 * ms))
    '6.00 ms, 20 % of the step (3–30 %, simulated)'
    """
    low, share, high = (
        units.format_share(part / saving.step_ns)
        for part in (saving.low_ns, saving.saving_ns, saving.high_ns)
    )
    ends = f"{low.removesuffix(' %')}–{high}"
    return f"{units.format_ns(saving.saving_ns)}, {share} of the step ({ends}, {saving.basis})"


def where_text(finding: Finding) -> str:
    """Return where a finding applies, with file and line together; empty if it is everywhere."""
    where = dict(finding.where)
    file, line = where.pop("file", None), where.pop("line", None)
    parts = [f"{kind} {name}" for kind, name in where.items()]
    if file is not None:
        parts.append(str(file) if line is None else f"{file}:{line}")
    return ", ".join(parts)


def input_line(analysis: Analysis) -> str | None:
    """Return how fast the dataset is alone and how fast the step is; None if it was not timed.

    The step is the user's own, else that on a single device.
    """
    timing, batch_size = analysis.input_timing, analysis.model.batch_size
    if timing is None:
        return None

    def speed(time_ns: float) -> str:
        if batch_size is None:
            return units.format_ns(time_ns)
        return f"{float(f'{batch_size * units.NS_PER_S / time_ns:.3g}'):,.0f} samples/s"

    alone = speed(mean(timing.batch_ns))
    line = f"input: {alone if batch_size is not None else f'a batch every {alone}'} alone"
    name, step_ns = AS_IS, median(analysis.as_is) if analysis.as_is else None
    if step_ns is None:
        name, step_ns = BASELINE, _single_ns(analysis)
    if step_ns is not None:
        line += f"; the step ({name}) takes {speed(step_ns)}"
    kinds = f" ({' → '.join(timing.transformations)})" if timing.transformations else ""
    return f"{line}, measured{kinds}"


def _single_ns(analysis: Analysis) -> int | None:
    """Return the step of one device as it was timed; None if it was not."""
    return next((timed_ns(each) for each in analysis.candidates if each.name == BASELINE), None)


def mean_error_text(error: float) -> str:
    """Return a mean error as a percentage, which is never 0."""
    return "under 1 %" if error < _LEAST_ERROR else units.format_share(error)


def expected_error(
    candidates: Iterable[str], times: Iterable[GpuTimes], *, stand_in: bool
) -> str | None:
    """Return what errors to expect where nothing ran, None if none are known.

    ``times`` is what those of ops rest on, on GPUs that are not here.
    """
    return _on_stand_ins(candidates) if stand_in else _on_gpus(times)


def analysis_error(analysis: Analysis) -> str | None:
    """Return what errors to expect of an analysis; None where steps ran, or none are known."""
    testbed = analysis.testbed
    if testbed is None or testbed.not_run is None:
        return None
    predicted = (c.name for c in analysis.candidates if c.predicted is not None)
    return expected_error(
        predicted, map(GpuTimes.of, analysis.assumed_times), stand_in=testbed.stand_in
    )


def _on_stand_ins(candidates: Iterable[str]) -> str:
    """Return a sentence on the errors to expect, with those of the candidates that are known."""
    each = [
        f"{name} {units.format_share(MEDIAN_OF[name])}" for name in candidates if name in MEDIAN_OF
    ]
    return (
        f"Expect errors: on {MODELS} models drawn at random, speed-ups simulated so were off by "
        f"{', '.join([f'{units.format_share(MEDIAN)} (median)', *each])}."
    )


def _on_gpus(times: Iterable[GpuTimes]) -> str | None:
    sentences = list(map(_of_times, times))
    if not sentences:
        return None
    known = PUBLISHED_STEPS
    published = (
        f"Expect errors: {known.count} published training steps on one GPU were predicted "
        f"{units.format_share(known.mean_error)} off in the mean, "
        f"{units.format_share(known.worst_error)} at "
        "worst."
    )
    return " ".join([published, *sentences])


def _of_times(times: GpuTimes) -> str:
    parts = [
        f"{units.format_share(times.launch_share)} is that of launches",
        f"{units.format_share(times.assumed_share)} rests on kernels without a record",
        f"{units.format_share(times.roofline_share)} on peaks alone",
    ]
    by_basis: defaultdict[str, float] = defaultdict(float)
    for each in times.families:
        by_basis[each.basis] += each.share
    parts += [
        f"{units.format_share(share)} on kernels {_BASIS_WORDS[basis]} (off in the mean: "
        f"{_errors(times, basis)})"
        for basis, share in by_basis.items()
    ]
    return f"Of the time of ops on {times.gpu}, {', '.join(parts)}."


def _errors(times: GpuTimes, basis: str) -> str:
    """Return the mean error of each family, that which takes most time first."""
    shares: defaultdict[str, float] = defaultdict(float)
    errors: defaultdict[str, float] = defaultdict(float)
    for each in times.families:
        if each.basis == basis:
            word = FAMILY_WORDS[each.family]
            shares[word] += each.share
            errors[word] += each.share * each.mean_error
    return ", ".join(f"{word} {mean_error_text(errors[word] / shares[word])}" for word in shares)


def scaling_lines(candidates: Sequence[Candidate]) -> list[str]:
    """Return a line for each row, and which of them answers which question."""
    rows = scaling(candidates)
    if not rows:
        return []
    within_rounds = speedups(candidates)
    return [*(_line(row, rows[0], within_rounds) for row in rows), WHICH]


def speedups(candidates: Iterable[Candidate]) -> dict[str, float]:
    """Return the speed-up of each over the single device, as its rounds have it, by its name."""
    return {c.name: c.comparison.speedup.median for c in candidates if c.comparison is not None}


def _line(row: ScalingRow, alone: ScalingRow, within_rounds: Mapping[str, float]) -> str:
    predicted, measured = scaling_figures(row, alone, within_rounds)
    figures = {"measured": measured, "simulated": predicted}.items()
    told = "; ".join(f"{text} ({basis})" for basis, text in figures if text) or "not simulated"
    what = row.name if row.name == row.candidate else f"{row.name} ({row.candidate})"
    return f"{what}, {units.counted(row.devices, 'device')}, {row.batch} samples a step: {told}"


def scaling_figures(
    row: ScalingRow, alone: ScalingRow, within_rounds: Mapping[str, float]
) -> tuple[str, str]:
    """Return step, rate and speed-up as predicted and as measured, each empty if not known.

    What a larger batch brings on one device nobody has shown, so it has no speed-up.
    """
    is_comparable = row.batch == alone.batch and row is not alone

    def told(step_ns: int | None, alone_ns: int | None, speedup: float | None) -> str:
        if not step_ns:
            return ""
        times = f", {alone_ns / step_ns:.2f}×" if is_comparable and alone_ns else ""
        if speedup is not None:
            times = f", {speedup:.2f}× within rounds"
        rate = row.batch / step_ns * units.NS_PER_S
        return f"{units.format_ns(step_ns)}, {rate:,.0f} samples/s{times}"

    speedup = within_rounds.get(row.candidate) if row.batch == alone.batch else None
    return (
        told(row.predicted_ns, alone.predicted_ns, None),
        told(row.measured_ns, alone.measured_ns, speedup),
    )
