"""An analysis as ``report.md``, for a reader who was not there.

Names come from models: whatever Markdown or HTML would interpret is escaped. Tables use GitHub's
dialect. Pictures are named relative to the report, which lies beside them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from placement_advisor.defaults import BASELINE
from placement_advisor.graph.name_patterns import first_names
from placement_advisor.report.analysis import markdown_evidence as evidence
from placement_advisor.report.analysis.break_even_text import (
    BREAK_EVEN_NOTE,
    break_even_lines,
    break_even_title,
)
from placement_advisor.report.analysis.fastest_first import any_ran, in_own_timelines
from placement_advisor.report.analysis.input_text import input_line
from placement_advisor.report.analysis.markdown_syntax import (
    bullets,
    code_block,
    escape,
    section,
    table,
)
from placement_advisor.report.analysis.scaling import TITLE as SCALING_TITLE
from placement_advisor.report.analysis.scaling import scaling_lines
from placement_advisor.report.analysis.tables import (
    AS_IS,
    NOT_RECOMMENDED,
    NOTHING,
    OF_OTHER_SPLITS,
    as_is_interval,
    candidate_figures,
    failure_kind_text,
    failure_lines,
    figure_lines,
    how_title,
    hypothetical_findings,
    layers_by_device,
    left_out_text,
    no_findings_text,
    ops_by_device,
    predicted_lines,
    predicted_range,
    predicted_speedup,
    ranked_findings,
    saving_text,
    speedup,
    verdict_is_split,
    was_measured,
    where_text,
    with_range,
)
from placement_advisor.results.analysis import HOW_TO_SPLIT
from placement_advisor.units import format_bytes, format_ns, format_share

if TYPE_CHECKING:
    from collections.abc import Iterable

    from placement_advisor.analysis.analysis_result import Analysis, Candidate, Finding

# Beyond this a list of layers is not read; the placement file has all of them.
MAX_LAYERS = 20
MAX_LISTING_LINES = 80


def render_markdown(analysis: Analysis) -> str:
    """Return the whole report."""
    findings = [_finding(finding) for finding in ranked_findings(analysis)]
    findings = findings or [no_findings_text(analysis)]
    if hypothetical := hypothetical_findings(analysis):
        findings += [f"{OF_OTHER_SPLITS}:", *map(_finding, hypothetical)]
    parts = [
        f"# {escape(analysis.model.name)}: placement report",
        f"**{escape(analysis.recommendation.headline)}**",
        _subject(analysis),
        escape(left_out_text(analysis.model.left_out) or ""),
        _candidate_table(analysis),
        section("Why", bullets(analysis.recommendation.reasons)),
        section("The other candidates", bullets(analysis.recommendation.others)),
        _how(analysis),
        _pictures(analysis),
        section("Break-even", *_break_even(analysis)),
        section(SCALING_TITLE, bullets(scaling_lines(analysis.candidates))),
        escape(input_line(analysis) or ""),
        section("Placements", *(_placement(c) for c in analysis.candidates if c.placement)),
        section("Copies", *evidence.copies(analysis)),
        section("Copies against compute, measured", *evidence.activities(analysis)),
        section("Prediction against measurement", *evidence.errors(analysis)),
        section("Testbed", *evidence.testbed(analysis)),
        section("How it was measured", *evidence.method(analysis)),
        section("Findings", *findings),
        section("Warnings", bullets(analysis.warnings)),
        section("Limits", bullets(_limits(analysis))),
        section("Files", _files(analysis)),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _subject(analysis: Analysis) -> str:
    model = analysis.model
    batch = "unknown batch size" if model.batch_size is None else f"batch {model.batch_size}"
    return (
        f"{escape(model.path)} ({escape(model.chosen)}), {escape(model.mode)}, {batch}: "
        f"{model.ops} ops, {model.edges} edges ({_share_known(model.edge_bytes_known_share)} of "
        f"known size), {format_bytes(model.parameter_bytes)} of variables. All figures are per "
        "step."
    )


def _share_known(share: float) -> str:
    """Return a share rounded down: 100 % means all."""
    return format_share(math.floor(share * 100) / 100)


def _candidate_table(analysis: Analysis) -> str:
    measured = was_measured(analysis)
    headings = ["Candidate", "Predicted (simulated)"]
    if measured:
        headings += ["Measured", "Speed-up, 95 %"]
    else:
        headings += ["Speed-up (simulated), range"]
    headings += ["Peak memory (simulated)"]
    rows = [_candidate_row(analysis, candidate, measured) for candidate in analysis.candidates]
    as_is = as_is_interval(analysis)
    if as_is is not None:
        rows.append([AS_IS, NOTHING, format_ns(as_is.median), NOTHING, NOTHING])
    parts = [table(headings, rows), bullets(failure_lines(analysis.candidates))]
    if as_is is not None:
        parts.append(
            f"*{AS_IS}* is your own step, unmodified, with all of the machine: for honesty, not a "
            "candidate."
        )
    return "\n\n".join(filter(None, parts))


def _candidate_row(analysis: Analysis, candidate: Candidate, measured: bool) -> list[str]:
    predicted, ran = candidate_figures(candidate)
    failure = _failure(candidate)
    cells = [escape(candidate.name)]
    if measured:
        outcome = [*(figure_lines(ran) if ran or not failure else []), *failure]
        foreseen = "<br>".join(predicted_lines(candidate))
        cells += [foreseen, "<br>".join(outcome), _speedup(candidate)]
    else:
        cells += [
            "<br>".join([*figure_lines(predicted), *failure]),
            with_range(predicted_speedup(analysis, candidate), predicted_range(candidate)),
        ]
    return [*cells, _peak_memory(candidate)]


def _failure(candidate: Candidate) -> list[str]:
    if candidate.failure is None:
        return []
    return [f"**{failure_kind_text(candidate.failure)}**"]


def _speedup(candidate: Candidate) -> str:
    if candidate.name == BASELINE:
        return "baseline"
    factor = speedup(candidate)
    return NOTHING if factor is None else with_range(factor.median, factor)


def _peak_memory(candidate: Candidate) -> str:
    if candidate.predicted is None:
        return NOTHING
    peaks = candidate.predicted.peak_memory_bytes
    return "<br>".join(f"{escape(device)} {format_bytes(size)}" for device, size in peaks.items())


def _pictures(analysis: Analysis) -> str:
    if analysis.options.quick:
        return ""
    shown = "simulated above measured" if any_ran(analysis) else "simulated"
    parts = [f"![Timeline of single and the best candidates, {shown}](timeline.png)"]
    if others := in_own_timelines(analysis):
        names = ", ".join(escape(candidate.name) for candidate in others)
        parts.append(f"The others over time, in `timelines/`: {names}.")
    parts.append(f"![Comparison: what a step is made of, {shown}](comparison.png)")
    return "\n\n".join(parts)


def _break_even(analysis: Analysis) -> Iterable[str]:
    found = analysis.break_even
    if found is None:
        return
    yield f"{escape(break_even_title(found))}."
    yield bullets(break_even_lines(found))
    if not analysis.options.quick:
        yield "![Break-even: the best split's speed-up over single, simulated](break-even.png)"
    yield BREAK_EVEN_NOTE


def _placement(candidate: Candidate) -> str:
    layers = layers_by_device(candidate)
    lines = [f"**{escape(candidate.name)}**: {escape(candidate.rationale)}.", ""]
    for device, count in ops_by_device(candidate).items():
        names = layers.get(device, [])
        text = first_names([escape(name) for name in names], MAX_LAYERS)
        if candidate.by_layer is None:
            lines.append(f"- {escape(device)}, {count} ops")
        else:
            lines.append(f"- {escape(device)}, {count} ops: {text or 'parts of layers only'}")
    return "\n".join(lines)


def _how(analysis: Analysis) -> str:
    how = analysis.how
    if how is None:
        return ""
    lines = (how.listing or "").splitlines()
    is_short = len(lines) <= MAX_LISTING_LINES
    by_hand = "The same by hand:" if is_short else f"By hand it takes {len(lines)} lines."
    where = (
        f"That code is in `{HOW_TO_SPLIT}`, beside this report."
        if verdict_is_split(analysis)
        else NOT_RECOMMENDED
    )
    return section(
        how_title(analysis),
        f"**{escape(how.candidate)}**: {escape(how.words)}.",
        "Your own step, placed so, on its own variables, for batches like the analysed one:",
        code_block(how.call),
        by_hand if lines else "",
        code_block(how.listing or "") if lines and is_short else "",
        where,
    )


def _finding(finding: Finding) -> str:
    lines = [
        f"**{escape(finding.code)} {escape(finding.name)}**: {escape(finding.finding)}",
        "",
        f"- do: {escape(finding.action)}",
    ]
    if where := where_text(finding):
        lines.append(f"- where: {escape(where)}")
    if finding.saving is not None:
        lines.append(f"- saves: {saving_text(finding.saving)}")
    return "\n".join(lines)


def _limits(analysis: Analysis) -> Iterable[str]:
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
            f"Some copied tensors of {', '.join(unknown)} have no known size: they are priced at "
            "latency alone, and bytes are at least those shown (≥)."
        )
    yield "The simulator runs one op at a time on a device; copies on one link queue."
    if was_measured(analysis):
        yield "The profiler slows steps down (overhead above), so measured compute is an upper end."


def _files(analysis: Analysis) -> str:
    text = "`analysis.json` holds every number of this report, `placements/` the device of each op."
    if analysis.options.quick:
        return text
    profiles = "simulated"
    if any(c.measured and c.measured.profile_run for c in analysis.candidates):
        profiles = "measured and simulated"
    return (
        f"{text}\n\nTo look closer, run this in the folder of this report: the tab Placement has "
        f"all of it, the tab Profile each candidate's profiles, {profiles}.\n\n"
        "```sh\nadvisor view .\n```"
    )
