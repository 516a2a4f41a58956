"""What differs between two placed steps as a picture, in Mermaid's text for flowcharts.

Devices are boxes. An arrow is what crosses from one to another, red where that grew; a dotted one
has the layers that ran at its tail and run at its head now. Left out: arrows beyond the first few,
tensors beyond the largest that cross, of which a record has only numbers.

Source: https://mermaid.js.org/syntax/flowchart.html (entity codes for characters that have a
meaning).
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from placement_advisor.check.problem import some
from placement_advisor.report.check.check_words import plain
from placement_advisor.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from placement_advisor.check.difference import Difference
    from placement_advisor.check.record import Cut

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
