"""A check as Markdown, for `$GITHUB_STEP_SUMMARY` and for comments on pull requests.

Verdict first, a table of all models, then what is wrong, with what changed folded away. Whole parts
are left out, and that is said, where all would be too much for a page.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.check.check_result import Status
from placement_advisor.report.analysis.markdown_syntax import code_block, escape, table
from placement_advisor.report.analysis.tables import NOTHING
from placement_advisor.report.check.check_words import (
    BYTES,
    COPIES,
    STEP,
    details,
    has_changed,
    status_words,
    tell,
    verdict,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from placement_advisor.check.check_result import CheckResult
    from placement_advisor.report.check.check_words import Figure, Told

# What GitHub takes as a summary of a step. A comment holds 65,536 characters.
MAX_SUMMARY_BYTES = 1 << 20
_IN_SHORT = (STEP, COPIES, BYTES)
_CUT = (
    "\n**Cut here**: the page may have {max_bytes} bytes. "
    "`advisor check --verbose` tells the rest.\n"
)


def check_as_markdown(result: CheckResult, *, max_bytes: int = MAX_SUMMARY_BYTES) -> str:
    """Return the page, which has at most ``max_bytes`` in UTF-8, but always the verdict."""
    cut = _CUT.format(max_bytes=max_bytes)
    page = ""
    parts = list(_parts(result))
    for index, part in enumerate(parts):
        longer = f"{page}\n{part}\n" if page else f"{part}\n"
        is_last = index == len(parts) - 1
        if page and len((longer if is_last else longer + cut).encode()) > max_bytes:
            return page + cut
        page = longer
    return page


def _parts(result: CheckResult) -> Iterator[str]:
    yield f"## advisor check: {verdict(result)}"
    models = tell(result)
    if models:
        yield _overview(models)
    for told in models:
        if told.status is not Status.PASSED:
            yield _explanation(told)
    for told in models:
        if told.status is Status.PASSED and told.notes:
            yield "\n".join([_heading(told), *_notes(told)])


def _overview(models: Sequence[Told]) -> str:
    return table(("", "model", "placement", *_IN_SHORT), [_row(told) for told in models])


def _row(told: Told) -> list[str]:
    figures = {figure.label: _in_short(figure) for figure in told.figures}
    return [
        _status(told),
        _text(told.model),
        _text(told.placement),
        *(figures.get(label, NOTHING) for label in _IN_SHORT),
    ]


def _in_short(figure: Figure) -> str:
    if figure.before in (figure.after, NOTHING):
        return figure.after
    return f"{figure.before} → {figure.after}, {figure.change}"


def _explanation(told: Told) -> str:
    lines = [_heading(told)]
    for event in told.events:
        lines.append(f"- **{event.code}**: {_text(event.what)}")
        lines += [f"  - {label}: {_text(text)}" for label, text in details(event)]
    lines += _notes(told)
    if told.acceptance is not None:
        lines += ["", f"To accept: {_text(told.acceptance)}."]
    folded = []
    if has_changed(told):
        cells = [(each.label, each.before, each.after, each.change) for each in told.figures]
        rows = [[_text(cell) for cell in row] for row in cells]
        folded.append(table(("", "locked", "now", "change"), rows))
    if told.changes:
        folded.append(code_block("\n".join(told.changes), "diff"))
    if folded:
        lines += ["", "<details><summary>What changed</summary>", "", "\n\n".join(folded)]
        lines += ["", "</details>"]
    return "\n".join(lines)


def _heading(told: Told) -> str:
    return f"### {_text(told.model)}: {status_words(told.status)}\n"


def _notes(told: Told) -> list[str]:
    return [f"- note: {_text(note)}" for note in told.notes]


def _status(told: Told) -> str:
    words = status_words(told.status).upper()
    return words if told.status is Status.PASSED else f"**{words}**"


def _text(text: str) -> str:
    """Return text that Markdown shows as it is, and that calls nobody: `@` begins no mention."""
    return escape(text).replace("@", "@&#8203;")
