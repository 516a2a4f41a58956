"""What differs between two analyses, as text: the verdicts, why they differ, what changed, figures.

Lines are not wrapped, so that they can be searched and copied.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.defaults import BASELINE
from placement_advisor.graph.name_patterns import first_names
from placement_advisor.report.analysis.figures import with_range
from placement_advisor.report.document import (
    NOTHING,
    Bullets,
    Facts,
    Section,
    Table,
    as_text,
)
from placement_advisor.units import format_ns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from placement_advisor.report.document import Part
    from placement_advisor.results.candidate import Step
    from placement_advisor.results.difference import AnalysisDifference, CandidateDifference

# More names are a list to look up: --json has them.
_NAMED = 6
_THEN, _NOW = "then", "now"


def render_difference(found: AnalysisDifference) -> str:
    """Return the text."""
    before, after = found.before.recommendation, found.after.recommendation
    answers = Facts([(_THEN, before.answer), (_NOW, after.answer)], label_width=6)
    changes: list[Part] = [Facts(_changes(found), label_width=10)]
    if not found.changes:
        changes.append("nothing that an analysis records")
    why = Section("Why", [Bullets(found.why)])
    return as_text([answers, why, Section("Changed", changes), Section("", _candidates(found))])


def _changes(found: AnalysisDifference) -> Iterator[tuple[str, str]]:
    if found.layers is not None and not found.layers:
        yield "layers", "none with other ops: names, or what reads what, differ"
    elif found.layers:
        names = first_names(found.layers, _NAMED)
        yield "layers", f"{len(found.layers)} with other ops: {names}"
    for change in found.changes:
        yield change.area, f"{change.name}: {change.before} → {change.after}"


def _candidates(found: AnalysisDifference) -> Iterator[Part]:
    """Yield the figures of what the verdicts are about and of what has moved; name the others."""
    if found.basis is None:
        return
    named = {BASELINE, found.before.recommendation.candidate, found.after.recommendation.candidate}
    shown = [each for each in found.candidates if each.name in named or each.has_moved]
    columns = (found.basis, "step", "speed-up", "compute", "copies", "idle")
    rows = [
        [f"{each.name}, {word}", *_cells(each, step)]
        for each in shown
        for word, step in ((_THEN, each.before), (_NOW, each.after))
    ]
    yield Table(columns, rows)
    yield (
        "compute, copies that it waits for, idle: of the device that computes most, "
        f"{'profiled' if found.basis == 'measured' else 'simulated'}"
    )
    if most := [f"{each.name} {each.moved_most}" for each in shown if each.moved_most]:
        yield f"changed most: {', '.join(most)}"
    compared = [each for each in found.candidates if each.name != BASELINE]
    if stayed := [each.name for each in compared if each.has_moved is False]:
        ranges = "intervals" if found.basis == "measured" else "ranges"
        yield f"not beyond their {ranges}: {first_names(stayed, _NAMED)}"
    if alone := [each.name for each in compared if each.has_moved is None]:
        yield f"with a speed-up in one of them alone: {first_names(alone, _NAMED)}"


def _cells(each: CandidateDifference, step: Step | None) -> list[str]:
    if step is None:
        return [NOTHING] * 5
    speedup, parts = step.ratio and step.ratio.inverted, step.parts
    told = with_range(speedup.median, speedup) if speedup else NOTHING
    times_ns = (parts.compute_ns, parts.copies_ns, parts.idle_ns) if parts else ()
    return [
        format_ns(step.step_ns),
        "baseline" if each.name == BASELINE else told,
        *([format_ns(time_ns) for time_ns in times_ns] or [NOTHING] * 3),
    ]
