"""A check as text: a line per model, then what is wrong and what that does, a count, what to type.

Lines are not wrapped, so that they can be searched and copied. Each begins with words of ours: no
name can begin one, where a log of GitHub's would take it for a command. Figures and all that
changed are there on demand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.check.problems import Status
from placement_advisor.report.check.check_words import (
    details,
    has_changed,
    next_command,
    status_words,
    tell,
    verdict,
)
from placement_advisor.report.document import Table, text_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from placement_advisor.check.problems import CheckResult
    from placement_advisor.report.check.check_words import Event, Told

_COLUMN = max(map(len, Status)) + 2
_INDENT = "  "
# With the lines around it, what a model that fails has to say fits on a screen of 30 lines.
MAX_LINES = 24


def check_as_text(result: CheckResult, *, verbose: bool = False) -> str:
    """Return the text, which ends with how many models passed and what to type next."""
    models = tell(result)
    parts = [list(_overview(models))] if models else []
    for told in models:
        if told.status is not Status.PASSED:
            head = f"{_status(told)} {told.model} ({told.place})"
            lines = explanation(told, verbose=verbose)
            parts.append([head, *(f"{_INDENT}{line}".rstrip() for line in lines)])
    command = next_command(models)
    parts.append([verdict(result), *([f"Next: {command}"] if command else [])])
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def explanation(told: Told, *, verbose: bool = False) -> list[str]:
    """Return what there is to say of a model that did not pass, with ``verbose`` all of it."""
    lines = [line for event in told.events for line in _event(event)]
    lines += [f"note: {note}" for note in told.notes]
    last = [] if told.acceptance is None else [f"to accept: {told.acceptance}"]
    if verbose:
        table = Table(("", "locked", "now", "change"), told.figures)
        lines += ["", *text_lines(table)] if has_changed(told) else []
        lines += ["", *told.changes] if told.changes else []
        return [*lines, *(["", *last] if last else [])]
    more = len(lines) + len(last) - MAX_LINES
    if more > 0:
        lines = lines[: -more - 1]
        lines.append(f"and {more + 1} more lines: advisor check --verbose")
    return [*lines, *last]


def _overview(models: Sequence[Told]) -> Iterator[str]:
    width = max(len(told.model) for told in models)
    for told in models:
        yield f"{_status(told):<{_COLUMN}}{told.model:<{width}}  {told.placement}".rstrip()
        if told.status is Status.PASSED:
            yield from (f"{'':<{_COLUMN}}note: {note}" for note in told.notes)


def _status(told: Told) -> str:
    return status_words(told.status).upper()


def _event(event: Event) -> Iterator[str]:
    yield f"{event.code}: {event.what}"
    yield from (f"{_INDENT}{label}: {text}" for label, text in details(event))
