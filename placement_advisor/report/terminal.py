"""Prints an analysis on one screen, and what differs between two (`advisor diff`).

The screen is made of `analysis.json` alone and has at most `MOST_LINES` lines of the given
width. The lines of a difference are not wrapped, so that they can be searched and copied.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from placement_advisor.analysis.analysis_result import TO_SPLIT, AdviceVerdict
from placement_advisor.defaults import AS_WRITTEN, BASELINE
from placement_advisor.files.output import RUNS_FOLDER
from placement_advisor.graph.name_patterns import first_names
from placement_advisor.measurement.measurement import FailureKind, Interval
from placement_advisor.report import document, statements
from placement_advisor.results.analysis import HOW_TO_SPLIT, Analysis, Training
from placement_advisor.units import NS_PER_S, format_duration, format_ns

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from placement_advisor.results.candidate import Candidate, Step
    from placement_advisor.results.difference import Difference, MovedCandidate, StepFigures


MOST_LINES = 30
# The verdict is what all the rest is about.
_MOST_OF_THE_ANSWER = 3
# Why nothing ran is cut last.
_MOST_OF_THE_GROUND = 3
_REASONS, _FINDINGS, _FAILURES = 3, 2, 2
_MOST_OF_A_TITLE = 2
# How many lines a sentence may have, how many candidates are worth more than its end, and whether
# there is room for where to read on.
_WITHIN = ((6, 99, True), (3, 4, True), (3, 4, False), (2, 4, False), (1, 4, False))
_GAP = "  "
_ELLIPSIS = "…"
_NUMBER = re.compile(r"\d")
_ENDS = (".", ";")
_ANSWER_STYLE = {
    AdviceVerdict.SPLIT: "bold green",
    AdviceVerdict.STAY_SINGLE: "bold green",
    AdviceVerdict.CANNOT_TELL: "bold yellow",
    AdviceVerdict.CANNOT_FIT: "bold red",
}
_WARNING_STYLE, _ASIDE_STYLE, _HEADING_STYLE = "yellow", "dim", "bold"


@dataclass(frozen=True, slots=True)
class Line:
    """A line of text, and how to show it where there is colour."""

    text: str
    style: str = ""


def screen(analysis: Analysis, folder: Path, width: int) -> list[Line]:
    """Return the lines for an analysis whose files lie in ``folder``."""
    has_run = analysis.testbed.not_run is None and any(
        c.step("measured") for c in analysis.candidates
    )
    basis = "measured" if has_run else "simulated"
    ranked = _ranked(analysis.candidates, basis)
    for most, rows, leads_on in _WITHIN:
        last = _commands(analysis, folder, leads_on=leads_on)
        head = list(_head(analysis, folder, width, most))
        beside = list(_beside(analysis, folder, basis, width, most))
        rest = [
            *_why(analysis, folder, width, most, leads_on=leads_on),
            *_findings(analysis, folder, width, most),
        ]
        # A gap, the heading of the table, and the line that counts rows that are not shown.
        room = MOST_LINES - len(head) - len(beside) - len(rest) - len(last) - 3
        if room >= min(len(ranked), rows):
            break
    table = _table(ranked, analysis, basis, width, room)
    return [*head, Line(""), *table, *beside, *rest, *last]


def shortened(names: Sequence[str], width: int) -> list[str]:
    """Return names of at most so many cells, cut where they are alike, and with a sign.

    >>> shortened(["towers", "towers-forward-only"], 10)
    ['towers', 'tower…only']
    >>> shortened(["replica_of_tower_1_of_4", "replica_of_tower_2_of_4"], 12)
    ['…1_of_4', '…2_of_4']
    """
    clashing: dict[str, list[str]] = {}
    for name in names:
        clashing.setdefault(_without_middle(name, width), []).append(name)
    found = {}
    for short, same in clashing.items():
        letters = enumerate(zip(*same, strict=False))
        alike = next((i for i, those in letters if len(set(those)) > 1), min(map(len, same)))
        for name in same:
            rest = _without_end(_ELLIPSIS + name[alike:], width)
            found[name] = short if len(same) == 1 else rest
    return [found[name] for name in names]


def _head(analysis: Analysis, folder: Path, width: int, most: int) -> Iterator[Line]:
    """Yield where the answer comes from, the answer, how to do it, and what speaks against it."""
    model, testbed, answer = analysis.model, analysis.testbed, analysis.recommendation
    ground = "Measured on" if answer.basis == "measured" else "Simulated for"
    batch = "a made-up batch of" if model.batch_is_made_up else "batch"
    ground += f" {testbed.description}, {batch} {model.batch_size or 'unknown'}, {model.mode}"
    lines = most
    if testbed.not_run is not None:
        ground += f" ({testbed.not_run})"
        lines = _MOST_OF_THE_GROUND if most > 1 else _MOST_OF_A_TITLE
        lines = max(most, lines)
    if model.captured is not None:
        said = f"{model.chosen[0].upper()}{model.chosen[1:]}"
        yield from _paragraph(said, width, max(most, _MOST_OF_A_TITLE))
    yield from _paragraph(f"{ground}:", width, lines)
    yield from _paragraph(answer.answer, width, _MOST_OF_THE_ANSWER, _ANSWER_STYLE[answer.verdict])
    if answer.how is not None:
        how = f"{answer.candidate}: {answer.how}"
        yield from _instruction(how, width, most, f"how: {_file(folder, HOW_TO_SPLIT)}")
    if answer.caveat is not None:
        yield from _paragraph(f"But {answer.caveat}", width, most, _WARNING_STYLE)
    if (left_out := statements.left_out_text(model.left_out)) is not None:
        yield from _paragraph(left_out, width, most, _WARNING_STYLE)


def _ranked(candidates: Iterable[Candidate], basis: str) -> list[Candidate]:
    """Return the candidates that have a result, best first, the user's own split under `single`."""

    def place(candidate: Candidate) -> tuple[bool, float, int]:
        step = candidate.step(basis)
        assert step is not None
        ratio = 1.0 if candidate.name == BASELINE else step.ratio and step.ratio.median
        return ratio is None, ratio or 0.0, step.step_ns

    ranked = sorted((c for c in candidates if c.step(basis) is not None), key=place)
    names = [candidate.name for candidate in ranked]
    if {BASELINE, AS_WRITTEN} <= set(names):
        own = ranked.pop(names.index(AS_WRITTEN))
        names.remove(AS_WRITTEN)
        ranked.insert(names.index(BASELINE) + 1, own)
    return ranked


def _table(
    ranked: Sequence[Candidate], analysis: Analysis, basis: str, width: int, room: int
) -> Iterator[Line]:
    """Yield a heading and the best candidates; the answer and what it is about are among them."""
    if not ranked:
        return
    kept = {BASELINE, AS_WRITTEN, analysis.recommendation.candidate}
    by_need = sorted(ranked, key=lambda candidate: candidate.name not in kept)
    chosen = by_need[: max(room, 1)] if len(ranked) > room + 1 else by_need
    shown = [candidate for candidate in ranked if candidate in chosen]
    beside = "95 %" if basis == "measured" else "range"
    titles = [basis, f"speed-up ({beside})", "copies", "waits for copies"]
    figures = document.text_lines(
        document.Table(titles, [_cells(each, each.step(basis)) for each in shown], ())
    )
    names = ["candidate", *(document.one_line(candidate.name) for candidate in shown)]
    name_width = max(width - cell_len(figures[0]) - len(_GAP), 8)
    name_width = min(max(map(cell_len, names)), name_width)
    for row, name in enumerate(shortened(names, name_width)):
        is_answer = row > 0 and shown[row - 1].name == analysis.recommendation.candidate
        text = f"{_padded(name, name_width)}{_GAP}{figures[row]}"
        yield Line(text, _HEADING_STYLE if not row or is_answer else "")
    if left := len(ranked) - len(shown):
        what = "ran" if basis == "measured" else "simulated"
        yield Line(f"and {left} more {what}", _ASIDE_STYLE)


def _cells(candidate: Candidate, step: Step | None) -> list[str]:
    assert step is not None
    if candidate.name == BASELINE:
        speedup = "baseline"
    elif step.ratio is None:
        speedup = document.NOTHING
    else:
        factor = step.ratio.inverted
        speedup = statements.with_range(factor.median, factor)
    count = step.transfer_count
    return [
        format_ns(step.step_ns),
        speedup,
        document.NOTHING if count is None else str(count),
        format_ns(step.longest_wait_ns) if count and step.parts is not None else document.NOTHING,
    ]


def _beside(analysis: Analysis, folder: Path, basis: str, width: int, most: int) -> Iterator[Line]:
    """Yield the user's own step, one line on all that has no result, and why some have none."""
    if analysis.as_is is not None:
        own_ns = analysis.as_is.step_ns.median
        own = f"{statements.AS_IS}: {format_ns(own_ns)}, your own step with all of the machine"
        yield from _paragraph(own, width, 1, _ASIDE_STYLE)
    if analysis.training is not None:
        yield from _paragraph(_trained(analysis.training), width, most, _ASIDE_STYLE)
    if analysis.testbed.not_run:
        alone = next((c.step("measured") for c in analysis.candidates if c.name == BASELINE), None)
        if alone is not None:
            yield from _paragraph(
                statements.own_process_text(alone.step_ns), width, most, _ASIDE_STYLE
            )
        with_step = (c.name for c in analysis.candidates if c.step(basis) is not None)
        stand_in = analysis.testbed.stand_in
        gpus = analysis.expected_errors.gpus if analysis.expected_errors is not None else ()
        if told_of := statements.expected_error(with_step, gpus, stand_in=stand_in):
            yield from _paragraph(told_of, width, most, _ASIDE_STYLE)
    if unsure := [c.name for c in analysis.candidates if c.is_unverified]:
        text = f"not verified, so not recommended: {', '.join(unsure)}"
        yield from _paragraph(text, width, 1, _WARNING_STYLE)
    without = [c for c in analysis.candidates if c.step(basis) is None]
    if not without:
        return
    told = []
    if unrun := sum(c.failure is None for c in without):
        told.append(f"{unrun} only simulated")
    if unfit := sum(_kind(c) == FailureKind.NOT_APPLICABLE for c in without):
        told.append(f"{unfit} not applicable")
    failed = [c for c in without if _kind(c) not in ("", FailureKind.NOT_APPLICABLE)]
    for kind, same in groupby(sorted(failed, key=_kind), _kind):
        told.append(f"{kind.replace('-', ' ')}: {', '.join(c.name for c in same)}")
    what = "not measured" if basis == "measured" else "no result"
    text = f"{what}: {len(without)} ({'; '.join(told)})"
    yield from _paragraph(text, width, most, _WARNING_STYLE if failed else _ASIDE_STYLE)
    for candidate in failed[: _FAILURES if most > 1 else 0]:
        failure, deciding = candidate.failure, analysis.recommendation.deciding
        assert failure is not None, "it is one of the failed ones"
        if not any(failure.message in reason for reason in deciding[:_REASONS]):
            yield from _paragraph(f"{candidate.name}: {failure.message}", width, most)
            if failure.in_full is not None:
                yield Line(f"{_GAP}in full: {_file(folder, failure.in_full)}")


def _kind(candidate: Candidate) -> str:
    return candidate.failure.kind if candidate.failure is not None else ""


def _why(
    analysis: Analysis, folder: Path, width: int, most: int, *, leads_on: bool
) -> Iterator[Line]:
    if analysis.recommendation.deciding:
        yield Line("")
    for reason in analysis.recommendation.deciding[:_REASONS]:
        yield from _paragraph(reason, width, most, lead="- ")
    name = analysis.recommendation.candidate
    step = next((c.measured for c in analysis.candidates if c.name == name), None)
    if leads_on and step is not None and step.profile is not None and step.exposed_ns:
        run = shlex.quote(str(folder / RUNS_FOLDER / str(name)))
        yield Line(f"{_GAP}waits by tensor: advisor profile {run}")


def _findings(analysis: Analysis, folder: Path, width: int, most: int) -> Iterator[Line]:
    """Yield what the most valuable findings are, what they save, and what to do about them."""
    findings = analysis.shown_findings
    yield Line("")
    if not findings:
        alone = next((c.measured_step for c in analysis.candidates if c.name == BASELINE), None)
        is_sure = alone is None or alone.parts is not None or analysis.testbed.not_run is not None
        none = statements.no_findings(is_sure=is_sure)
        yield from _paragraph(f"Findings: {none}", width, most)
    for finding in findings[:_FINDINGS]:
        title = f"{finding.code} {finding.name}"
        if finding.saving is not None:
            title += f" saves {statements.saving_text(finding.saving)}"
        yield from _paragraph(title, width, min(most, _MOST_OF_A_TITLE), _HEADING_STYLE)
        instead = f"what to do: advisor show -v {shlex.quote(str(folder))}"
        yield from _instruction(finding.action, width, most, instead, lead=_GAP)


def _trained(training: Training) -> str:
    """Return in a sentence what `advisor run` has trained."""
    if training.why_not is not None:
        return f"your training: as it is, {training.why_not}"
    steps = f"your training: {training.placed_steps:,} steps with {training.candidate}"
    trial = training.trial
    if trial is None:
        return f"{steps}, {training.own_steps:,} with your own; no trial"
    interval = "" if trial.ci95 is None else f" ({trial.ci95[0]:.2f}–{trial.ci95[1]:.2f})"
    return (
        f"{steps} at {format_ns(trial.placed_step_ns)}, {training.own_steps:,} with your own at "
        f"{format_ns(trial.own_step_ns)}: {trial.speedup:.2f}×{interval}"
    )


def _commands(analysis: Analysis, folder: Path, *, leads_on: bool) -> list[Line]:
    """Return what to type next, and where all the rest is."""
    count = len(analysis.warnings)
    full = f"In full, with {count} warning{'s' * (count > 1)}" if count else "In full"
    command = _next(analysis, folder)
    runs = leads_on and analysis.testbed.stand_in and command.startswith("advisor run")
    about = "  it compares with your own step on all of the machine, not with single"
    return [
        Line(""),
        Line(f"Next: {command}", _HEADING_STYLE),
        *([Line(about, _ASIDE_STYLE)] if runs else []),
        Line(f"{full}: advisor show -v {shlex.quote(str(folder))}"),
    ]


def _next(analysis: Analysis, folder: Path) -> str:
    if (run := analysis.recommendation.next_run) is not None:
        takes = format_duration(run.takes_ns / NS_PER_S)
        return f"the same command {document.one_line(run.change)}, about {takes}"
    if analysis.model.captured is not None and analysis.trains_with is not None:
        return document.one_line(analysis.model.captured.run_command)
    if analysis.recommendation.verdict in TO_SPLIT and analysis.recommendation.how is not None:
        return f"cat {shlex.quote(str(folder / HOW_TO_SPLIT))}"
    findings = analysis.shown_findings
    for finding in findings[:_FINDINGS]:
        if finding.command is not None:
            return document.one_line(finding.command)
    if findings:
        return f"advisor explain {shlex.quote(findings[0].code)}"
    if analysis.options.quick:  # There is nothing to view.
        return f"cat {shlex.quote(str(folder / 'report.md'))}"
    return f"advisor view {shlex.quote(str(folder))}"


def _instruction(text: str, width: int, most: int, instead: str, lead: str = "") -> list[Line]:
    """Return what to do in lines, or where it is written: in part it would be another thing."""
    lines = _wrapped(text, width, lead)
    return lines if len(lines) <= most else [Line(lead + instead)]


def _file(folder: Path, name: str) -> str:
    return shlex.quote(str(folder / name))


def _paragraph(text: str, width: int, most: int, style: str = "", lead: str = "") -> list[Line]:
    """Return a text in lines; where it takes more than so many, it is cut and ends in ….

    It is cut at the end of a sentence or clause, else between words, and there not beside a number,
    which without its unit would be another one.
    """
    lines = _wrapped(text, width, lead, style)
    if len(lines) <= most:
        return lines
    room = most * (width - len(lead)) - 1
    words = document.one_line(text)[:room].split(" ")
    while len(lines) > most and len(words) > 1:
        words = _without_last(words)
        lines = _wrapped(f"{' '.join(words)} {_ELLIPSIS}", width, lead, style)
    if len(lines) > most:  # A word longer than all of the room.
        lines = _wrapped(_without_end(words[0], room).rstrip("0123456789.,"), width, lead, style)
    return lines[:most]


def _without_last(words: list[str]) -> list[str]:
    """Return words without the last, up to where a sentence or clause ends, if one does."""
    before = words[:-1]
    ends = [n for n, word in enumerate(before, start=1) if word.endswith(_ENDS)]
    if ends:
        return before[: ends[-1]]
    while len(before) > 1 and _NUMBER.search(before[-1]):
        before.pop()
    return before


def _wrapped(text: str, width: int, lead: str, style: str = "") -> list[Line]:
    """Return a text in lines, no word of which is broken that fits into one."""
    wrapped = Text(document.one_line(text)).wrap(Console(width=width), max(width - len(lead), 1))
    leads = [lead, *[" " * len(lead)] * len(wrapped)]
    return [
        Line(before + line.plain.rstrip(), style)
        for before, line in zip(leads, wrapped, strict=False)
    ]


def _without_end(text: str, width: int) -> str:
    """Return the beginning of a text, and … if there is more of it."""
    shown = Text(text)
    shown.truncate(width, overflow="ellipsis")
    return shown.plain


def _without_middle(text: str, width: int) -> str:
    """Return both ends of a text, and … between them if there is more of it."""
    if cell_len(text) <= width:
        return text
    half = (width - 1) // 2
    end = Text(text[::-1])
    end.truncate(half)
    return _without_end(text, width - half) + end.plain[::-1]


def _padded(text: str, width: int) -> str:
    return text + " " * (width - cell_len(text))


# More names are a list to look up: --json has them.
_NAMED = 6
_THEN, _NOW = "then", "now"


def render_difference(found: Difference) -> str:
    """Return the text."""
    answers = document.Facts(
        [(_THEN, found.before.answer), (_NOW, found.after.answer)], label_width=6
    )
    changes: list[document.Part] = [document.Facts(_changes(found), label_width=10)]
    if not found.changes:
        changes.append("nothing that an analysis records")
    why = document.Section("Why", [document.Bullets(found.why)])
    return document.as_text(
        [
            answers,
            why,
            document.Section("Changed", changes),
            document.Section("", _candidates(found)),
        ]
    )


def _changes(found: Difference) -> Iterator[tuple[str, str]]:
    if found.layers is not None and not found.layers:
        yield "layers", "none with other ops: names, or what reads what, differ"
    elif found.layers:
        names = first_names(found.layers, _NAMED)
        yield "layers", f"{len(found.layers)} with other ops: {names}"
    for change in found.changes:
        yield change.area, f"{change.name}: {change.before} → {change.after}"


def _candidates(found: Difference) -> Iterator[document.Part]:
    """Yield the figures of what the verdicts are about and of what has moved; name the others."""
    if found.basis is None:
        return
    named = {BASELINE, found.before.candidate, found.after.candidate}
    shown = [each for each in found.candidates if each.name in named or each.moved]
    columns = (found.basis, "step", "speed-up", "compute", "copies", "idle")
    rows = [
        [f"{each.name}, {word}", *_difference_cells(each, step)]
        for each in shown
        for word, step in ((_THEN, each.before), (_NOW, each.after))
    ]
    yield document.Table(columns, rows)
    yield (
        "compute, copies that it waits for, idle: of the device that computes most, "
        f"{'profiled' if found.basis == 'measured' else 'simulated'}"
    )
    if most := [f"{each.name} {each.moved_most}" for each in shown if each.moved_most]:
        yield f"changed most: {', '.join(most)}"
    compared = [each for each in found.candidates if each.name != BASELINE]
    if stayed := [each.name for each in compared if each.moved is False]:
        ranges = "intervals" if found.basis == "measured" else "ranges"
        yield f"not beyond their {ranges}: {first_names(stayed, _NAMED)}"
    if alone := [each.name for each in compared if each.moved is None]:
        yield f"with a speed-up in only one of the two analyses: {first_names(alone, _NAMED)}"


def _difference_cells(each: MovedCandidate, step: StepFigures | None) -> list[str]:
    if step is None:
        return [document.NOTHING] * 5
    speedup, parts = step.speedup, step.parts
    told = document.NOTHING
    if each.name == BASELINE:
        told = "baseline"
    elif speedup is not None:
        low, high = speedup.range
        told = statements.with_range(
            speedup.estimate, Interval(median=speedup.estimate, low=low, high=high)
        )
    times_ns = (parts.compute_ns, parts.copies_ns, parts.idle_ns) if parts else ()
    return [
        format_ns(step.step_ns),
        told,
        *(map(format_ns, times_ns) if times_ns else [document.NOTHING] * 3),
    ]
