"""Markdown in GitHub's dialect, with nothing that comes from a model interpreted."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from placement_advisor.report.analysis.tables import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_SPECIAL = re.compile(r"[\\`*\[\]|~$#]|(?<![^\W_])_|_(?![^\W_])")


def escape(text: str) -> str:
    r"""Return text as one line that Markdown shows as it is.

    >>> print(escape("<img onerror=x>|[bold]"), escape("max_pool_1"), escape("_a_"))
    &lt;img onerror=x&gt;\|\[bold\] max_pool_1 \_a\_
    """
    plain = one_line(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _SPECIAL.sub(lambda match: "\\" + match.group(), plain)


def section(title: str, *parts: str) -> str:
    """Return a section, or nothing if all its parts are empty."""
    content = [part for part in parts if part]
    return "\n\n".join([f"## {title}", *content]) if content else ""


def code_block(code: str, language: str = "python") -> str:
    """Return code that is shown as it is, whatever it holds."""
    runs = re.findall(r"`+", code)
    fence = "`" * max(3, 1 + max(map(len, runs), default=0))
    return f"{fence}{language}\n{code.rstrip()}\n{fence}"


def bullets(texts: Iterable[str]) -> str:
    """Return a list of plain texts, escaped."""
    return "\n".join(f"- {escape(text)}" for text in texts)


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of cells that are Markdown already."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
