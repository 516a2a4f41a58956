"""A check as Markdown, for comments on pull requests and for `$GITHUB_STEP_SUMMARY`.

First what a reader needs: the verdict, of each model that did not pass its cause in a line, how to
accept, a picture of what changed. All else is folded away. Whole parts are left out, and that is
said, where all would be too much for a comment.

The picture is Mermaid's text for flowcharts. Devices are boxes. An arrow is what crosses from one
to another, red where that grew; a dotted one has the layers that ran at its tail and run at its
head now. Left out of it: arrows beyond the first few, tensors beyond the largest that cross, of
which a record has only numbers.

Source: https://mermaid.js.org/syntax/flowchart.html (entity codes for characters that have a
meaning).
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from placement_advisor.check.check_result import Status
from placement_advisor.check.problem import some
from placement_advisor.report.check.check_words import (
    BYTES,
    COPIES,
    STEP,
    WORST_FIRST,
    details,
    has_changed,
    plain,
    status_words,
    tell,
    verdict,
)
from placement_advisor.report.document import NOTHING, code_block, escape, markdown_table
from placement_advisor.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from placement_advisor.check.check_result import CheckResult
    from placement_advisor.check.difference import Difference
    from placement_advisor.check.record import Cut
    from placement_advisor.report.check.check_words import Figure, Told

# GitHub takes comments of 65,536 characters; what posts them may add a line of its own. Its
# summaries of steps may be longer, which nobody reads.
MAX_BYTES = 65_000
# Models that did not pass, in a line each; all of them are in the table.
MAX_CAUSES = 8
_IN_SHORT = (STEP, COPIES, BYTES)
_LEGEND = "What crosses in a step, locked and now, and dotted what moved, of"
_CUT = (
    "\n**Cut here**: the page may have {max_bytes} bytes. "
    "`advisor check --verbose` tells the rest.\n"
)
# More arrows of either sort nobody follows.
MAX_ARROWS = 8
_RED = "stroke:#d1242f,stroke-width:3px"
# Anything else may have a meaning in Mermaid's text, quoted or not: `%%{` begins a directive.
_SPECIAL = re.compile(r"[^\w \-+.,:/()>]", re.ASCII)

_Pair: TypeAlias = tuple[str, str]


class _Flow(NamedTuple):
    """How many tensors cross on a way, and of how many bytes those are whose size is known."""

    tensors: int
    size_bytes: int


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
    picture = _picture(result)
    if picture is not None:
        yield picture
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


def _picture(result: CheckResult) -> str | None:
    """Return a picture of the first step that failed and differs, if there is one."""
    for model in result.results:
        if model.status is Status.FAILED and model.difference is not None:
            picture = difference_as_mermaid(model.difference)
            if picture is not None:
                return f"{_LEGEND} {_text(plain(model.model))}:\n\n{code_block(picture, 'mermaid')}"
    return None


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


def difference_as_mermaid(found: Difference) -> str | None:
    """Return the picture, None if nothing crosses and nothing moved."""
    before, after = _flows(found.before.cuts), _flows(found.after.cuts)
    moved: defaultdict[_Pair, dict[str, None]] = defaultdict(dict)
    for move in found.moves:
        moved[move.before[0], move.after[0]][move.layer] = None
    flows = _first(before.keys() | after.keys(), before, after)
    moves = sorted(moved, key=lambda pair: (-len(moved[pair]), pair))[:MAX_ARROWS]
    ends = sorted({device for pair in (*flows, *moves) for device in pair})
    if not ends:
        return None
    number = {device: f"d{i}" for i, device in enumerate(ends)}
    lines = ["flowchart LR"]
    for device in ends:
        peak = found.after.peak_bytes(device)
        held = f", peak {format_bytes(peak)}" if peak else ""
        lines.append(f'  {number[device]}["{_label(f"{device}{held}")}"]')
    grown = []
    for i, pair in enumerate(flows):
        was, now = before.get(pair, _Flow(0, 0)), after.get(pair, _Flow(0, 0))
        if now > was or now.size_bytes > was.size_bytes:
            grown.append(str(i))
        source, target = pair
        lines.append(f'  {number[source]} -->|"{_label(_change(was, now))}"| {number[target]}')
    for source, target in moves:
        words = _label(f"moved: {some(list(moved[source, target]))}")
        lines.append(f'  {number[source]} -.->|"{words}"| {number[target]}')
    if grown:
        lines.append(f"  linkStyle {','.join(grown)} {_RED}")
    return "\n".join(lines)


def _flows(cuts: Iterable[Cut]) -> dict[_Pair, _Flow]:
    count: Counter[_Pair] = Counter()
    size: Counter[_Pair] = Counter()
    for cut in cuts:
        pair = cut.source, cut.target
        count[pair] += 1
        size[pair] += cut.size_bytes or 0
    return {pair: _Flow(count[pair], size[pair]) for pair in count}


def _first(
    pairs: Iterable[_Pair], before: Mapping[_Pair, _Flow], after: Mapping[_Pair, _Flow]
) -> list[_Pair]:
    """Return the ways to be shown: those on which most changed."""

    def rank(pair: _Pair) -> tuple[int, int, _Pair]:
        was, now = before.get(pair, _Flow(0, 0)), after.get(pair, _Flow(0, 0))
        return -abs(now.size_bytes - was.size_bytes), -now.size_bytes, pair

    return sorted(pairs, key=rank)[:MAX_ARROWS]


def _change(was: _Flow, now: _Flow) -> str:
    def said(flow: _Flow) -> str:
        noun = "tensor" if flow.tensors == 1 else "tensors"
        return f"{flow.tensors} {noun}, {format_bytes(flow.size_bytes)}" if flow.tensors else "none"

    return said(now) if was == now else f"{said(was)} -> {said(now)}"


def _label(text: str) -> str:
    """Return text that Mermaid shows as it is, between quotes."""
    return _SPECIAL.sub(lambda match: f"#{ord(match.group())};", plain(text))
