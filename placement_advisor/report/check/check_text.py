"""A check as text: a line per model, then what is wrong and what changed, as a plan, and a count.

Lines are not wrapped, so that they can be searched and copied. Each begins with words of ours: no
name can begin one, where a log of GitHub's would take it for a command.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.check.check_result import Status
from placement_advisor.report.analysis.tables import right_aligned
from placement_advisor.report.check.check_words import (
    details,
    has_changed,
    status_words,
    tell,
    verdict,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from placement_advisor.check.check_result import CheckResult
    from placement_advisor.report.check.check_words import Event, Figure, Told

_COLUMN = max(map(len, Status)) + 2
_INDENT = "  "


def check_as_text(result: CheckResult) -> str:
    """Return the text, which ends with how many models passed."""
    models = tell(result)
    parts = [list(_overview(models))] if models else []
    for told in models:
        if told.status is not Status.PASSED:
            head = f"{_status(told)} {told.model} ({told.place})"
            parts.append([head, *(f"{_INDENT}{line}".rstrip() for line in explanation(told))])
    parts.append([verdict(result)])
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def explanation(told: Told) -> Iterator[str]:
    """Return all there is to say of a model that did not pass."""
    if has_changed(told):
        yield from _table(told.figures)
        yield ""
    if told.changes:
        yield from told.changes
        yield ""
    for event in told.events:
        yield from _event(event)
    yield from (f"note: {note}" for note in told.notes)
    if told.acceptance is not None:
        yield f"to accept: {told.acceptance}"


def _overview(models: Sequence[Told]) -> Iterator[str]:
    width = max(len(told.model) for told in models)
    for told in models:
        yield f"{_status(told):<{_COLUMN}}{told.model:<{width}}  {told.placement}".rstrip()
        if told.status is Status.PASSED:
            yield from (f"{'':<{_COLUMN}}note: {note}" for note in told.notes)


def _status(told: Told) -> str:
    return status_words(told.status).upper()


def _table(figures: Sequence[Figure]) -> list[str]:
    headings = ("", "locked", "now", "change")
    rows = [(each.label, each.before, each.after, each.change) for each in figures]
    return right_aligned([headings, *rows])


def _event(event: Event) -> Iterator[str]:
    yield f"{event.code}: {event.what}"
    yield from (f"{_INDENT}{label}: {text}" for label, text in details(event))
