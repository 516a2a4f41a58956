"""What differs between two analyses, as text: the verdicts, why they differ, what changed, figures.

Lines are not wrapped, so that they can be searched and copied.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.defaults import BASELINE
from placement_advisor.graph.name_patterns import first_names
from placement_advisor.report.analysis.tables import (
    NOTHING,
    one_line,
    range_text,
    right_aligned,
    times_text,
)
from placement_advisor.units import format_ns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from placement_advisor.results.candidate import Step
    from placement_advisor.results.difference import AnalysisDifference, CandidateDifference

# More names are a list to look up: --json has them.
_NAMED = 6
_THEN, _NOW = "then", "now"


def render_difference(found: AnalysisDifference) -> str:
    """Return the text."""
    parts = [
        [
            f"{_THEN}  {one_line(found.before.recommendation.answer)}",
            f"{_NOW}   {one_line(found.after.recommendation.answer)}",
        ],
        ["Why", *(f"  - {one_line(reason)}" for reason in found.why)] if found.why else [],
        ["Changed", *(f"  {line}" for line in _changes(found))],
        list(_candidates(found)),
    ]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _changes(found: AnalysisDifference) -> Iterator[str]:
    if found.layers is not None and not found.layers:
        yield f"{'layers':<10}none with other ops: names, or what reads what, differ"
    elif found.layers:
        names = first_names([one_line(name) for name in found.layers], _NAMED)
        yield f"{'layers':<10}{len(found.layers)} with other ops: {names}"
    for change in found.changes:
        name, before, after = map(one_line, (change.name, change.before, change.after))
        yield f"{change.area:<10}{name}: {before} → {after}"
    if not found.changes:
        yield "nothing that an analysis records"


def _candidates(found: AnalysisDifference) -> Iterator[str]:
    """Yield the figures of what the verdicts are about and of what has moved; name the others."""
    if found.basis is None:
        return
    named = {BASELINE, found.before.recommendation.candidate, found.after.recommendation.candidate}
    shown = [each for each in found.candidates if each.name in named or each.has_moved]
    rows = [[found.basis, "step", "speed-up", "compute", "copies", "idle"]]
    for each in shown:
        rows.append([f"{one_line(each.name)}, {_THEN}", *_cells(each, each.before)])
        rows.append([f"{one_line(each.name)}, {_NOW}", *_cells(each, each.after)])
    yield from right_aligned(rows)
    yield (
        "compute, copies that it waits for, idle: of the device that computes most, "
        f"{'profiled' if found.basis == 'measured' else 'simulated'}"
    )
    if most := [f"{one_line(c.name)} {c.moved_most}" for c in shown if c.moved_most]:
        yield f"changed most: {', '.join(most)}"
    compared = [each for each in found.candidates if each.name != BASELINE]
    stayed = [one_line(each.name) for each in compared if each.has_moved is False]
    if stayed:
        ranges = "intervals" if found.basis == "measured" else "ranges"
        yield f"not beyond their {ranges}: {first_names(stayed, _NAMED)}"
    alone = [one_line(each.name) for each in compared if each.has_moved is None]
    if alone:
        yield f"with a speed-up in one of them alone: {first_names(alone, _NAMED)}"


def _cells(each: CandidateDifference, step: Step | None) -> list[str]:
    if step is None:
        return [NOTHING] * 5
    speedup, parts = step.ratio and step.ratio.inverted, step.parts
    told = f"{times_text(speedup.median)} ({range_text(speedup)})" if speedup else NOTHING
    return [
        format_ns(step.step_ns),
        "baseline" if each.name == BASELINE else told,
        *(
            [format_ns(parts.compute_ns), format_ns(parts.copies_ns), format_ns(parts.idle_ns)]
            if parts
            else [NOTHING] * 3
        ),
    ]
