"""``report.txt`` and ``report.md`` describe an analysis in full, for a reader who was not there.

Both have the same sections; the tables of every op, copy and figure are in Markdown only.
Text has 80 columns and no colour. The break-even lines say what would have to change for a
split to win, one line for each axis; all of that is simulated.
"""

from __future__ import annotations

import math
from collections import Counter
from statistics import median
from typing import TYPE_CHECKING

from placement_advisor import units
from placement_advisor.analysis.reasons import speedup_of
from placement_advisor.defaults import BASELINE
from placement_advisor.graph.name_patterns import first_names
from placement_advisor.measurement import measurement as measurements
from placement_advisor.report import document, statements
from placement_advisor.results.analysis import ANALYSIS, HOW_TO_SPLIT
from placement_advisor.results.candidate import failure_file
from placement_advisor.simulator.break_even import FOR_FASTER_LINKS, Axis, BreakEvenOutcome
from placement_advisor.simulator.schedule import Schedule, carried

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from placement_advisor.analysis.analysis_result import Analysis, Candidate, Finding
    from placement_advisor.measurement.verification import Verification
    from placement_advisor.simulator.break_even import BreakEven, Sweep


BREAK_EVEN_NOTE = (
    "This changes one figure at a time and takes the best split of those above that leave the "
    "batch whole. It changes what copies take, for their bytes or for each copy, on all links "
    "between devices alike. Traces at several batches say what grows with the batch, and how "
    "fast. Memory is not checked."
)


def value_text(axis: Axis, value: int) -> str:
    """Return a value of an axis with its unit."""
    match axis:
        case Axis.BANDWIDTH:
            return units.format_bandwidth(value)
        case Axis.LATENCY:
            return units.format_ns(value)
        case Axis.BATCH:
            return units.counted(value, "sample")


def break_even_title(found: BreakEven) -> str:
    """Return what the lines are about."""
    basis = "simulated, corrected" if found.corrections else "simulated"
    return (
        f"Break-even ({basis}): a split that leaves the batch whole wins above "
        f"{speedup_of(found.worthwhile_ratio)} over {found.baseline}"
    )


def break_even_lines(found: BreakEven) -> Iterable[str]:
    """Yield a line for each axis, what copies that cost nothing would make of it, and its terms."""
    for sweep in found.sweeps():
        yield f"{sweep.axis}: {sweep_outcome(sweep)}; {_here(sweep)}{_exceptions(sweep)}"
    if found.no_batch is not None:
        yield f"{Axis.BATCH}: not swept, since {found.no_batch}"
    free = found.free_copies
    line = (
        f"if copies cost nothing, the best split ({free.split}) would be "
        f"{speedup_of(free.ratio)} as fast as {found.baseline}"
    )
    here = min((sweep.here.best.ratio for sweep in found.sweeps()), default=free.ratio)
    if speedup_of(free.ratio) != speedup_of(here) and free.ratio > here:
        line += (
            ", less than here: ops that are ready earlier run in another order, which can take "
            "longer"
        )
    yield line if free.ratio < found.worthwhile_ratio else f"{line}: no link makes one win"
    if found.corrections:
        named = dict.fromkeys(
            best.split for sweep in found.sweeps() for best in (sweep.here.best, free)
        )
        factors = ", ".join(f"{name} {found.corrections[name]:.2f}" for name in named)
        yield (
            "corrected: the simulated step of a split, times its measured ratio over the "
            f"predicted one. Splits that did not run get the median of the others ({factors})"
        )
    if FOR_FASTER_LINKS in found.splits():
        yield (
            f"{FOR_FASTER_LINKS}: none of the candidates, but a split that a search finds where "
            "copies cost less than here, to see what faster links would do"
        )


def sweep_outcome(sweep: Sweep) -> str:
    """Return from or up to which value a split wins; the lower a latency, the better."""
    is_latency = sweep.axis is Axis.LATENCY
    least, most = (
        f"{value_text(sweep.axis, sweep.points[place].value)} (the {which} tried)"
        for place, which in ((0, "least"), (-1, "most"))
    )
    if sweep.outcome is BreakEvenOutcome.NOWHERE:
        return f"no split wins {f'down to {least}' if is_latency else f'up to {most}'}"
    if sweep.wins_from is None:
        return f"a split wins {f'up to {most}' if is_latency else f'from {least} on'}"
    limit, here = sweep.wins_from.value, sweep.here.value
    wins = "wins" if (here <= limit if is_latency else here >= limit) else "would win"
    shown = value_text(sweep.axis, limit)
    reach = f"up to {shown} per copy" if is_latency else f"from {shown} on"
    return f"a split ({sweep.wins_from.best.split}) {wins} {reach}"


def _here(sweep: Sweep) -> str:
    """Return today's value and ratio."""
    value = value_text(sweep.axis, sweep.here.value)
    where = f"here {value}" if sweep.axis is Axis.BATCH else f"the slowest link here has {value}"
    best = sweep.here.best
    return f"{where}, where the best ({best.split}) is at {speedup_of(best.ratio)}"


def _exceptions(sweep: Sweep) -> str:
    expected = 1 if sweep.outcome is BreakEvenOutcome.CROSSES else 0
    if sweep.changes <= expected:
        return ""
    times = "once" if sweep.changes == 1 else f"{sweep.changes} times"
    return f"; not without exception: along what was tried, winning and losing change {times}"


_WIDTH = 80
# Wider names are broken at hyphens, so that figures are not.
_NAME_WIDTH = 15
# Beyond these a list is not read; the placement file and the listing have all.
MAX_LAYERS, MAX_MOVED_OPS, MAX_LISTING_LINES = 20, 10, 80


def full_text(analysis: Analysis) -> str:
    """Return ``report.txt``."""
    headline = document.one_line(analysis.recommendation.headline)
    return f"{headline}\n\n{document.as_text(_parts(analysis), _WIDTH)}"


def render_markdown(analysis: Analysis) -> str:
    """Return ``report.md``."""
    title, headline = (
        document.escape(analysis.title),
        document.escape(analysis.recommendation.headline),
    )
    return (
        f"# {title}: placement report\n\n**{headline}**\n\n{document.as_markdown(_parts(analysis))}"
    )


def _parts(analysis: Analysis) -> Iterator[document.Part]:
    answer = analysis.recommendation
    yield document.Section("", [_subject(analysis)], page_only=True)
    yield _candidate_table(analysis)
    yield document.Bullets(_notes(analysis))
    yield document.Section("Why", [document.Bullets(answer.reasons)])
    yield document.Section("The other candidates", [document.Bullets(answer.others)])
    is_split = statements.verdict_is_split(analysis)
    yield document.Section(statements.how_title(analysis), _how(analysis), page_only=not is_split)
    yield document.Section("Pictures", _pictures(analysis), page_only=True)
    if (even := analysis.break_even) is not None:
        yield document.Section(break_even_title(even), _break_even(analysis))
    scaling = statements.scaling_lines(analysis.candidates)
    yield document.Section("Scaling with the batch", [document.Bullets(scaling)])
    yield statements.input_line(analysis) or ""
    yield document.Section("Placements", _placements(analysis), page_only=True)
    yield document.Section("Copies", _copies(analysis), page_only=True)
    yield document.Section("Copies against compute, measured", _activities(analysis))
    yield document.Section("Prediction against measurement", _errors(analysis), page_only=True)
    yield document.Section("Testbed", _testbed(analysis), page_only=True)
    yield document.Section("How it was measured", _method(analysis), page_only=True)
    yield document.Section("Findings, most valuable first", _findings(analysis))
    yield document.Section("Warnings", [document.Bullets(analysis.warnings)])
    yield document.Section("Limits", [document.Bullets(_limits(analysis))], page_only=True)
    yield document.Section("Files next to this report", _files(analysis))


def _subject(analysis: Analysis) -> str:
    model = analysis.model
    # Rounded down: 100 % means all.
    known = units.format_share(math.floor(model.edge_bytes_known_share * 100) / 100)
    return (
        f"{model.path} ({model.chosen}): {model.ops} ops, {model.edges} edges ({known} of known "
        f"size), {units.format_bytes(model.parameter_bytes)} of variables."
    )


def _candidate_table(analysis: Analysis) -> document.Table:
    measured = statements.was_measured(analysis)
    titles = ["measured", "speed-up\n(measured,\n95 %)"]
    titles = titles if measured else ["speed-up\n(simulated,\nrange)"]
    titles = ["predicted\n(simulated)", *titles, "peak memory\n(simulated)"]
    rows = [_candidate_row(analysis, candidate, measured) for candidate in analysis.candidates]
    if (as_is := statements.as_is_interval(analysis)) is not None:
        rows.append(
            [
                statements.AS_IS,
                document.NOTHING,
                units.format_ns(as_is.median),
                document.NOTHING,
                document.NOTHING,
            ]
        )
    names = range(len(titles) + 1)
    return document.Table(["candidate", *titles], rows, names, label_most=_NAME_WIDTH)


def _candidate_row(analysis: Analysis, candidate: Candidate, measured: bool) -> list[document.Cell]:
    predicted, timed = candidate.predicted, statements.timed_ns(candidate)
    # A cell is too narrow for why, which stands below the table.
    failure = (
        [statements.failure_kind_text(candidate.failure)] if candidate.failure is not None else []
    )
    peaks = predicted.peak_memory_bytes if predicted is not None else {}
    memory = [f"{device} {units.format_bytes(size)}" for device, size in peaks.items()] or [
        document.NOTHING
    ]
    if not measured:
        ends = statements.predicted_range(candidate)
        times = statements.speedup_lines(statements.predicted_speedup(analysis, candidate), ends)
        lines = statements.figure_lines(predicted.step_ns if predicted else None, predicted)
        return [candidate.name, [*lines, *failure], times, memory]
    factor = statements.speedup(candidate)
    times = (
        [document.NOTHING] if factor is None else statements.speedup_lines(factor.median, factor)
    )
    times = ["baseline"] if candidate.name == BASELINE else times
    ran = [] if timed is None and failure else statements.figure_lines(timed, candidate.profile)
    return [candidate.name, statements.predicted_lines(candidate), [*ran, *failure], times, memory]


def _notes(analysis: Analysis) -> Iterator[str]:
    testbed, model = analysis.testbed, analysis.model
    yield f"Per step, batch {model.batch_size or 'unknown'}, {model.mode}."
    if (left_out := statements.left_out_text(model.left_out)) is not None:
        yield f"{left_out}."
    if statements.was_measured(analysis):
        yield (
            f"Measured on {testbed.description}; step: median without profiler, copies and "
            f"compute: profiled{statements.bytes_basis_text(analysis)}."
        )
    else:
        if (alone := statements.own_process_line(analysis)) is None:
            yield f"Nothing was measured ({testbed.not_run or 'no candidate ran'})."
        else:
            yield f"Simulated ({testbed.not_run})."
            yield f"{alone}."
        if (told_of := statements.analysis_error(analysis)) is not None:
            yield told_of
    yield "exposed: copies to the device that waits longest, while it has nothing to compute."
    yield from (f"{line}." for line in statements.failure_lines(analysis.candidates))
    if analysis.as_is:
        yield (
            f"{statements.AS_IS}: your own step, unmodified, with all of the machine: for honesty, "
            "not a candidate."
        )


def _how(analysis: Analysis) -> Iterator[document.Part]:
    how = analysis.how
    if how is None:
        return
    yield f"{how.candidate}: {how.words}"
    lines = (how.listing or "").splitlines()
    by_hand: list[document.Part] = []
    if lines:
        by_hand = [f"By hand it takes {len(lines)} lines."]
        if len(lines) <= MAX_LISTING_LINES:
            by_hand = ["The same by hand:", document.Code(how.listing or "")]
    where = f"{HOW_TO_SPLIT} next to this report has that code."
    code = [
        "Your own step, placed so, on its own variables, for batches like the analysed one:",
        document.Code(how.call),
        *by_hand,
        where if statements.verdict_is_split(analysis) else statements.NOT_RECOMMENDED,
    ]
    yield document.Section("", code, page_only=True)


def _pictures(analysis: Analysis) -> Iterator[document.Part]:
    if analysis.options.quick:
        return
    shown = "simulated above measured" if statements.any_ran(analysis) else "simulated"
    yield document.Picture(f"Timeline of single and the best candidates, {shown}", "timeline.png")
    if others := statements.in_own_timelines(analysis):
        names = ", ".join(candidate.name for candidate in others)
        yield f"The others over time, in timelines/: {names}."
    yield document.Picture(f"Comparison: what a step is made of, {shown}", "comparison.png")


def _break_even(analysis: Analysis) -> Iterator[document.Part]:
    assert analysis.break_even is not None
    yield document.Bullets(break_even_lines(analysis.break_even))
    if not analysis.options.quick:
        alt = "Break-even: the best split's speed-up over single, simulated"
        yield document.Picture(alt, "break-even.png")
    yield document.Section("", [BREAK_EVEN_NOTE], page_only=True)


def _placements(analysis: Analysis) -> Iterator[document.Part]:
    for candidate in analysis.candidates:
        if candidate.placement is None:
            continue
        layers: dict[str, list[str]] = {}
        for layer, device in (candidate.by_layer or {}).items():
            layers.setdefault(device, []).append(layer or "(no layer)")
        lines = []
        for device, count in sorted(Counter(candidate.placement.device_of.values()).items()):
            names = first_names(layers.get(device, []), MAX_LAYERS) or "parts of layers only"
            told = "" if candidate.by_layer is None else f": {names}"
            lines.append(f"{device}, {count} ops{told}")
        yield document.Section(
            f"{candidate.name}: {candidate.rationale}", [document.Bullets(lines)]
        )


def _copies(analysis: Analysis) -> Iterator[document.Part]:
    """Yield a matrix of source against target, measured where there is a profile."""
    devices = analysis.testbed.cluster.device_names()
    for candidate in analysis.candidates:
        if candidate.profile is not None:
            basis, cells = "measured", _measured_cells(candidate.profile)
        elif candidate.predicted is not None:
            copies = simulated_copies(candidate.predicted)
            cells = {
                ends: [f"{units.copies_text(count)}, {size}", time]
                for ends, (count, size, time) in copies.items()
            }
            basis = "simulated"
        else:
            continue
        title = f"{candidate.name} ({basis})"
        if not cells:
            yield f"{title}: no copies."
            continue
        rows: list[list[document.Cell]] = [
            [source, *(cells.get((source, target), [document.NOTHING]) for target in devices)]
            for source in devices
        ]
        yield document.Section(
            f"{title}, from row to column", [document.Table(["From", *devices], rows)]
        )


def simulated_copies(step: Schedule) -> dict[tuple[str, str], tuple[int, str, str]]:
    """Return number, bytes and time under way of the copies from each device to another."""
    found = {}
    for ends, time_ns in sorted(step.under_way_ns.items()):
        copies = [copy for copy in step.copies if (copy.source, copy.target) == ends]
        size = carried(each for copy in copies for each in copy.transfers)
        told = units.format_bytes(size.amount, is_floor=size.is_floor)
        found[ends] = len(copies), told, units.format_ns(time_ns)
    return found


def _measured_cells(profile: measurements.StepProfile) -> dict[tuple[str, str], list[str]]:
    return {
        (total.source, total.target): [
            f"{units.copies_text(total.count)}, {units.format_bytes(total.size_bytes)}"
            f"{' by shapes' if total.size_basis is measurements.SizeBasis.SHAPES else ''}",
            f"{units.format_ns(total.time_ns)}, {units.format_ns(total.exposed_ns)} exposed",
        ]
        for total in profile.transfers
    }


def _activities(analysis: Analysis) -> Iterator[document.Part]:
    """Yield compute against copies and the nvprof-style table of each profiled candidate."""
    compared = (BASELINE, analysis.recommendation.candidate)
    for candidate in analysis.candidates:
        profile = candidate.profile
        if profile is None:
            continue
        shares = statements.activity_shares(profile)
        if shares is None:
            yield f"{candidate.name}: the profile is empty."
            continue
        rows = [row.cells for row in statements.activity_rows(profile.activities)]
        table = document.Table(statements.ACTIVITY_HEADINGS, rows, names=(-1,))
        title, is_aside = f"{candidate.name}: {shares}", candidate.name not in compared
        yield document.Section(title, [table], page_only=is_aside)


def _errors(analysis: Analysis) -> Iterator[document.Part]:
    for candidate in analysis.candidates:
        titles = ("Per step", "Predicted (simulated)", "Measured", "Error")
        yield document.Section(
            candidate.name, [document.Table(titles, list(statements.error_rows(candidate)))]
        )


def _testbed(analysis: Analysis) -> Iterator[document.Part]:
    bed = analysis.testbed
    devices = ", ".join(f"{device.name} ({device.kind})" for device in bed.cluster.devices)
    yield f"{bed.description}: {devices}; testbed {bed.kind}, fingerprint {bed.fingerprint}."
    rows = [
        [
            f"{link.source} → {link.target}",
            units.format_ns(link.latency_ns),
            units.format_bandwidth(link.bandwidth_bytes_per_s),
            link.basis.value,
        ]
        for link in bed.cluster.links
    ]
    yield document.Table(("Link", "Latency", "Bandwidth", "Basis"), rows)
    yield (
        f"TensorFlow {analysis.tensorflow_version}, placement-advisor {analysis.advisor_version}."
    )


def _method(analysis: Analysis) -> Iterator[document.Part]:
    """Yield how steps were timed, and what the profiler did to them."""
    runs = [(c.name, c.measured) for c in analysis.candidates if c.measured and c.measured.step_ns]
    if not runs or statements.own_process_line(analysis) is not None:
        return
    several = f"They ran in {analysis.sessions} sessions. " if analysis.sessions > 1 else ""
    yield (
        "Each round times all candidates in turn, without the profiler. Warm-up steps do not "
        f"count. {several}Each ratio is of two times in one round. Its 95 % interval allows for "
        "rounds added while in doubt and for the choice among candidates. Copies and compute "
        "come from separate, profiled steps."
    )
    titles = (
        *("Candidate", "Rounds", "Steps", "Warm-ups apart", "Step min / median / max"),
        *("Profiled step", "Variables verified against single", "Ops moved by TensorFlow"),
    )
    yield document.Table(titles, [_method_row(name, run) for name, run in runs])


def _method_row(name: str, run: measurements.Measurement) -> list[str]:
    return [
        name,
        str(run.round_count),
        str(len(run.step_ns)),
        f"{len(run.warmup_ns)} (longest {units.format_ns(max(run.warmup_ns, default=None))})",
        " / ".join(units.format_ns(pick(run.step_ns)) for pick in (min, median, max)),
        statements.longer_text(run.profiler_overhead),
        _verified(run.verification),
        first_names(run.moved_ops, MAX_MOVED_OPS) or "none",
    ]


def _verified(found: Verification | None) -> str:
    if found is None:
        return document.NOTHING
    shown = found.variables - len(found.unverified)
    held = ", draws and statistics held equal" if found.held_equal else ""
    return f"{shown} of {found.variables} (within {found.relative_difference:.1e}{held})"


def _findings(analysis: Analysis) -> Iterator[document.Part]:
    ranked = [finding for finding in analysis.findings if not finding.is_hypothetical]
    yield from map(_finding, ranked)
    if ranked:
        yield f"To see what a finding means: advisor explain {ranked[0].code}"
    else:
        yield statements.no_findings_text(analysis)
    if others := [_finding(finding) for finding in analysis.findings if finding.is_hypothetical]:
        yield f"{statements.OF_OTHER_SPLITS}:"
        yield from others


def _finding(finding: Finding) -> document.Section:
    lines = [f"do: {finding.action}"]
    if where := statements.where_text(finding):
        lines.append(f"where: {where}")
    if finding.saving is not None:
        lines.append(f"saves: {statements.saving_text(finding.saving)}")
    return document.Section(
        f"{finding.code} {finding.name}: {finding.finding}", [document.Bullets(lines)]
    )


def _limits(analysis: Analysis) -> Iterator[str]:
    yield f"The verdict holds for: {analysis.recommendation.applies_to}."
    if analysis.testbed.stand_in:
        yield (
            "CPU cores stand in for accelerators: on those, compute and copies cost other times, "
            "and the verdict can differ."
        )
    yield (
        "Peak memory is simulated from the sizes of tensors and variables; workspace of kernels "
        "and fragmentation come on top."
    )
    unknown = [c.name for c in analysis.candidates if c.predicted and c.predicted.carried.unknown]
    if unknown:
        yield (
            f"Some copied tensors of {', '.join(unknown)} have no known size. Their copies "
            "are priced at latency alone, and bytes are at least those shown (≥)."
        )
    yield "The simulator runs one op at a time on a device; copies on one link queue."
    if statements.was_measured(analysis):
        yield "The profiler slows steps down (overhead above), so measured compute is an upper end."


def _files(analysis: Analysis) -> Iterator[document.Part]:
    # Nobody waits for what there is to look at who is in a hurry.
    to_look_at = not analysis.options.quick
    is_split = statements.verdict_is_split(analysis)
    timelines = to_look_at and bool(statements.in_own_timelines(analysis))
    break_even = to_look_at and analysis.break_even is not None
    files = (
        (to_look_at, "report.html", "all of this in one file for any browser"),
        (True, "report.txt", "the same as text, without the details of ops and copies"),
        (True, "report.md", "the same as text, with placements and copies in full"),
        (is_split, HOW_TO_SPLIT, "code that places your step so"),
        (to_look_at, "timeline.png", "single and the best candidates over time"),
        (timelines, "timelines/", "the other candidates over time"),
        (to_look_at, "comparison.png", "what each candidate's step is made of"),
        (break_even, "break-even.png", "what would have to change for a split to win"),
        (True, ANALYSIS, "every number, for programs: advisor show, advisor diff"),
        (True, "placements/", "which device each op runs on"),
        (True, "predictions/", "what was predicted, written before that candidate ran"),
        (any(map(failure_file, analysis.candidates)), "failures/", "errors in full"),
    )
    yield document.Facts(
        [(name, told) for is_there, name, told in files if is_there], label_width=16
    )
    if not to_look_at:
        return
    profiles = "simulated"
    if any(c.measured and c.measured.profile_run for c in analysis.candidates):
        profiles = "measured and simulated"
    look = (
        "To look closer, run this in the folder of this report: the tab Placement has all of it, "
        f"the tab Profile each candidate's profiles, {profiles}."
    )
    yield document.Section("", [look, document.Code("advisor view .", "sh")], page_only=True)
