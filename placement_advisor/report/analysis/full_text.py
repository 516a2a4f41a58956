"""An analysis in full as text: verdict, one table, reasons, copies against compute.

80 columns, without colour, since it is kept as a file (``report.txt``) that `-v` prints. The
verdict is one unbroken line however long, so that it can be searched and copied. All text is added
as `Text`, never as markup, because names come from models.
"""

from __future__ import annotations

import io
import textwrap
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from placement_advisor.defaults import BASELINE
from placement_advisor.report.analysis.break_even_text import break_even_lines, break_even_title
from placement_advisor.report.analysis.expected_errors import analysis_error
from placement_advisor.report.analysis.fastest_first import in_own_timelines
from placement_advisor.report.analysis.input_text import input_line
from placement_advisor.report.analysis.scaling import TITLE as SCALING_TITLE
from placement_advisor.report.analysis.scaling import scaling_lines
from placement_advisor.report.analysis.tables import (
    ACTIVITY_HEADINGS,
    AS_IS,
    FULL_TEXT,
    NOTHING,
    OF_OTHER_SPLITS,
    activity_rows,
    as_is_interval,
    bytes_basis_text,
    candidate_figures,
    copy_share,
    failure_kind_text,
    failure_lines,
    figure_lines,
    hypothetical_findings,
    left_out_text,
    no_findings_text,
    one_line,
    own_process_line,
    predicted_lines,
    predicted_range,
    predicted_speedup,
    range_text,
    ranked_findings,
    saving_text,
    speedup,
    times_text,
    verdict_is_split,
    was_measured,
    where_text,
)
from placement_advisor.results.analysis import ANALYSIS, HOW_TO_SPLIT
from placement_advisor.results.candidate import failure_file
from placement_advisor.units import format_bytes, format_ns, format_share

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import RenderableType

    from placement_advisor.analysis.analysis_result import Analysis, Candidate, Finding
    from placement_advisor.measurement.measurement import StepProfile

# More of them push the verdict out of sight; the report has all.
MAX_FINDINGS = 5
_WIDTH = 80
# Wider names are broken at hyphens, so that figures are not.
_NAME_WIDTH = 15
_OWN_TIMELINES = "timelines/"
_FAILURES = "failures/"
_BREAK_EVEN_PICTURE = "break-even.png"
_FILES = (
    ("report.html", "all of this for any browser, in one file to pass on"),
    ("report.md", "the same as text, with placements and copies in full"),
    (HOW_TO_SPLIT, "code that places your step so"),
    ("timeline.png", "single and the best candidates over time"),
    (_OWN_TIMELINES, "the other candidates over time"),
    ("comparison.png", "what each candidate's step is made of"),
    (_BREAK_EVEN_PICTURE, "what would have to change for a split to win"),
    (ANALYSIS, "the same for programs: advisor show, advisor diff"),
    ("placements/", "which device each op runs on"),
    ("predictions/", "what was predicted, written before that candidate ran"),
    (_FAILURES, "errors in full"),
)
# Nobody waits for them who is in a hurry.
_TO_LOOK_AT = ("report.html", "timeline.png", _OWN_TIMELINES, "comparison.png", _BREAK_EVEN_PICTURE)


def full_text(analysis: Analysis) -> str:
    """Return all that there is to say of an analysis."""
    console = Console(
        file=io.StringIO(),
        width=_WIDTH,
        color_system=None,
        force_terminal=False,
        no_color=True,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
    )
    answer = analysis.recommendation
    with console.capture() as capture:
        console.print(Text(one_line(answer.headline)), soft_wrap=True)
        if (how := analysis.how) is not None and verdict_is_split(analysis):
            console.print(Text(one_line(f"{how.candidate}: {how.words}")))
        for part in _parts(analysis):
            console.print()
            console.print(part)
    return "\n".join(line.rstrip() for line in capture.get().splitlines()) + "\n"


def _parts(analysis: Analysis) -> Iterable[RenderableType]:
    yield _candidate_table(analysis)
    yield _footnotes(analysis)
    answer = analysis.recommendation
    if answer.reasons:
        parts: list[RenderableType] = [_bullets(answer.reasons)]
        if answer.others:
            parts.append(Text("more on the other candidates: report.md"))
        yield _section("Why", *parts)
    if analysis.break_even is not None:
        lines = break_even_lines(analysis.break_even)
        yield _section(break_even_title(analysis.break_even), _bullets(lines))
    if lines := scaling_lines(analysis.candidates):
        yield _section(SCALING_TITLE, _bullets(lines))
    if (line := input_line(analysis)) is not None:
        yield Text(one_line(line))
    for candidate in analysis.candidates:
        is_compared = candidate.name in (BASELINE, answer.candidate)
        if is_compared and candidate.profile is not None:
            yield _activities(candidate.name, candidate.profile)
    if ranked := ranked_findings(analysis):
        yield _findings(ranked)
    else:
        yield Text(f"Findings: {no_findings_text(analysis)}")
    if hypothetical := hypothetical_findings(analysis):
        names = dict.fromkeys(f"{finding.code} {finding.name}" for finding in hypothetical)
        yield Text(f"{OF_OTHER_SPLITS}: {', '.join(names)} (report.md)")
    if analysis.warnings:
        yield _section("Warnings", _bullets(analysis.warnings))
    yield _files(analysis)


def _candidate_table(analysis: Analysis) -> Table:
    measured = was_measured(analysis)
    table = Table(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    table.add_column("candidate", no_wrap=True)
    table.add_column("predicted\n(simulated)", overflow="fold")
    if measured:
        table.add_column("measured", overflow="fold")
        table.add_column("speed-up\n(measured,\n95 %)", no_wrap=True)
    else:
        table.add_column("speed-up\n(simulated,\nrange)", no_wrap=True)
    table.add_column("peak memory\n(simulated)", overflow="fold")
    for candidate in analysis.candidates:
        table.add_row(*_candidate_cells(analysis, candidate, measured))
    as_is = as_is_interval(analysis)
    if as_is is not None:
        table.add_section()
        table.add_row(AS_IS, NOTHING, Text(format_ns(as_is.median)), NOTHING, NOTHING)
    return table


def _candidate_cells(
    analysis: Analysis, candidate: Candidate, measured: bool
) -> Iterable[RenderableType]:
    predicted, ran = candidate_figures(candidate)
    failure: list[RenderableType] = []
    if candidate.failure is not None:
        # A cell is too narrow for why, which stands below the table.
        failure = [Text(failure_kind_text(candidate.failure))]
    yield _lines(textwrap.wrap(one_line(candidate.name), _NAME_WIDTH))
    if measured:
        yield _lines(predicted_lines(candidate))
        yield Group(*([] if ran is None and failure else [_lines(figure_lines(ran))]), *failure)
        yield _speedup(candidate)
    else:
        yield Group(_lines(figure_lines(predicted)), *failure)
        times = times_text(predicted_speedup(analysis, candidate))
        found = predicted_range(candidate)
        yield _lines([times] if found is None else [times, range_text(found)])
    yield _peak_memory(candidate)


def _lines(lines: Iterable[str]) -> Text:
    return Text("\n".join(lines))


def _speedup(candidate: Candidate) -> Text:
    if candidate.name == BASELINE:
        return Text("baseline")
    factor = speedup(candidate)
    return (
        Text(NOTHING) if factor is None else _lines([times_text(factor.median), range_text(factor)])
    )


def _peak_memory(candidate: Candidate) -> Text:
    if candidate.predicted is None:
        return Text(NOTHING)
    peaks = candidate.predicted.peak_memory_bytes
    return _lines(f"{device} {format_bytes(size)}" for device, size in peaks.items())


def _footnotes(analysis: Analysis) -> Text:
    testbed = analysis.testbed
    lines = [f"Per step, batch {analysis.model.batch_size or 'unknown'}, {analysis.model.mode}."]
    if (left_out := left_out_text(analysis.model.left_out)) is not None:
        lines.append(f"{left_out}.")
    if was_measured(analysis):
        lines.append(
            f"Measured on {testbed.description}; step: median without profiler, "
            f"copies and compute: profiled{bytes_basis_text(analysis)}."
        )
    else:
        if (alone := own_process_line(analysis)) is None:
            lines.append(f"Nothing was measured ({testbed.not_run or 'no candidate ran'}).")
        else:
            lines += [f"Simulated ({testbed.not_run}).", f"{alone}."]
        if (told_of := analysis_error(analysis)) is not None:
            lines.append(told_of)
    lines.append("exposed: copies to the device that waits longest, while it computes nothing.")
    lines += [f"{line}." for line in failure_lines(analysis.candidates)]
    if analysis.as_is:
        lines.append(f"{AS_IS}: your own step, unmodified, with all of the machine.")
    return _lines(map(one_line, lines))


def _activities(name: str, profile: StepProfile) -> Group:
    share = copy_share(profile)
    heading = Text(f"{one_line(name)}: ")
    if share is None:
        heading.append("the profile is empty")
        return Group(heading)
    heading.append(
        f"compute {format_share(1 - share)}, copies {format_share(share)} of all activity "
        f"(measured, {len(profile.step_ns)} profiled steps)"
    )
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), collapse_padding=True)
    for column in ACTIVITY_HEADINGS[:-1]:
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column(ACTIVITY_HEADINGS[-1], no_wrap=True, overflow="ellipsis")
    for row in activity_rows(profile.activities):
        table.add_row(*(Text(one_line(cell)) for cell in row.cells))
    return Group(heading, table)


def _findings(findings: Sequence[Finding]) -> RenderableType:
    shown = findings[:MAX_FINDINGS]
    parts: list[RenderableType] = list(map(_finding, shown))
    if len(findings) > len(shown):
        parts.append(Text(f"{len(findings) - len(shown)} more in report.md"))
    parts.append(Text(f"What a finding means: advisor explain {shown[0].code}"))
    return _section("Findings, most valuable first", *parts)


def _finding(finding: Finding) -> RenderableType:
    body = Text(finding.name)
    body.append(f"\n{one_line(finding.finding)}")
    body.append(f"\ndo: {one_line(finding.action)}")
    where = where_text(finding)
    if where:
        body.append(f"\nwhere: {one_line(where)}")
    if finding.saving is not None:
        body.append(f"\nsaves: {saving_text(finding.saving)}")
    return _hanging([(Text(finding.code), body)])


def _files(analysis: Analysis) -> Text:
    lines = [f"Files beside {FULL_TEXT}"]
    missing = set(_TO_LOOK_AT) if analysis.options.quick else set()
    if not in_own_timelines(analysis):
        missing.add(_OWN_TIMELINES)
    if analysis.break_even is None:
        missing.add(_BREAK_EVEN_PICTURE)
    if not verdict_is_split(analysis):
        missing.add(HOW_TO_SPLIT)
    if not any(map(failure_file, analysis.candidates)):
        missing.add(_FAILURES)
    files = [file for file in _FILES if file[0] not in missing]
    lines += [f"  {name:<15} {content}" for name, content in files]
    return _lines(lines)


def _section(title: str, *parts: RenderableType) -> Group:
    return Group(Text(title), *(Padding(part, (0, 0, 0, 2)) for part in parts))


def _bullets(texts: Iterable[str]) -> Table:
    return _hanging([(Text("-"), Text(one_line(text))) for text in texts])


def _hanging(rows: Iterable[tuple[Text, Text]]) -> Table:
    """Return rows whose second part wraps beside the first, not under it."""
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for row in rows:
        grid.add_row(*row)
    return grid
