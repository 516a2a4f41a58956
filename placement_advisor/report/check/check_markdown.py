"""A check as Markdown, for comments on pull requests and for `$GITHUB_STEP_SUMMARY`.

First what a reader needs: the verdict, of each model that did not pass its cause in a line, and
how to accept. All else is folded away. Where all would be too much for a comment, whole parts are
left out, and that is said.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.check.problems import Status
from placement_advisor.report.check.check_words import (
    BYTES,
    COPIES,
    STEP,
    WORST_FIRST,
    details,
    has_changed,
    status_words,
    tell,
    verdict,
)
from placement_advisor.report.document import NOTHING, code_block, escape, markdown_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from placement_advisor.check.problems import CheckResult
    from placement_advisor.report.check.check_words import Figure, Told

# GitHub takes comments of 65,536 characters; what posts them may add a line of its own. Its
# summaries of steps may be longer, which nobody reads.
MAX_BYTES = 65_000
# Models that did not pass, in a line each; all of them are in the table.
MAX_CAUSES = 8
_IN_SHORT = (STEP, COPIES, BYTES)
_CUT = (
    "\n**Cut here**: the page may have {max_bytes} bytes. "
    "`advisor check --verbose` tells the rest.\n"
)


def check_as_markdown(result: CheckResult, *, max_bytes: int = MAX_BYTES) -> str:
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
    bad = sorted(
        (told for told in models if told.status is not Status.PASSED),
        key=lambda told: WORST_FIRST.index(told.status),
    )
    if bad:
        causes = [f"{number}. {_cause(told)}" for number, told in enumerate(bad[:MAX_CAUSES], 1)]
        if len(bad) > MAX_CAUSES:
            causes.append(f"\n{len(bad) - MAX_CAUSES} more are told below.")
        yield "\n".join(causes)
    accepted = dict.fromkeys(told.acceptance for told in bad if told.acceptance is not None)
    if accepted:
        yield "\n".join(f"To accept: {_text(how)}." for how in accepted)
    for number, told in enumerate(bad, 1):
        yield _explanation(number, told)
    if models:
        noted = [told for told in models if told.status is Status.PASSED and told.notes]
        notes = [
            f"- note on {_text(told.model)}: {_text(note)}" for told in noted for note in told.notes
        ]
        yield _folded("All models", _overview(models), *(["\n".join(notes)] if notes else []))


def _cause(told: Told) -> str:
    """Return what is wrong with a model, the worst of it, in a line."""
    first, *others = told.events
    at = "" if first.source is None else f" ({_text(str(first.place))})"
    line = f"{_status(told)} {_text(told.model)}: **{first.code}**: {_text(first.what)}{at}"
    if first.effects:
        line += f"; {_text(first.effects[0])}"
    if others:
        line += f"; and {len(others)} more problem{'s' if len(others) > 1 else ''} below"
    return line


def _overview(models: Sequence[Told]) -> str:
    return markdown_table(("", "model", "placement", *_IN_SHORT), [_row(told) for told in models])


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


def _explanation(number: int, told: Told) -> str:
    lines = [f"Model {_text(told.model)}, placement {_text(told.placement)}:", ""]
    for event in told.events:
        lines.append(f"- **{event.code}**: {_text(event.what)}")
        lines += [f"  - {label}: {_text(text)}" for label, text in details(event)]
    lines += [f"- note: {_text(note)}" for note in told.notes]
    parts = ["\n".join(lines)]
    if has_changed(told):
        rows = [list(map(_text, figure)) for figure in told.figures]
        parts.append(markdown_table(("", "locked", "now", "change"), rows))
    if told.changes:
        parts.append(code_block("\n".join(told.changes), "diff"))
    return _folded(f"{number}. {status_words(told.status)}: details", *parts)


def _folded(title: str, *parts: str) -> str:
    """Return parts that are shown on demand; the title is HTML, and has no names in it."""
    content = "\n\n".join(parts)
    return f"<details><summary>{title}</summary>\n\n{content}\n\n</details>"


def _status(told: Told) -> str:
    words = status_words(told.status).upper()
    return words if told.status is Status.PASSED else f"**{words}**"


def _text(text: str) -> str:
    """Return text that Markdown shows as it is, and that calls nobody: `@` begins no mention."""
    return escape(text).replace("@", "@&#8203;")
