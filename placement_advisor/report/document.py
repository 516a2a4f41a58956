"""What a command has to say as paragraphs, lists, tables and sections; rendered once a medium.

Texts may come from models: in no medium is anything in them interpreted, and each is one line. Text
is for terminals and files and has a width only where one is given; Markdown is GitHub's dialect.
"""

from __future__ import annotations

import html
import re
import textwrap
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING

from rich.cells import cell_len

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# Of a table's cell that has no value.
NOTHING = "–"
_GAP, _INDENT = "  ", "  "
_SPECIAL = re.compile(r"[\\`*\[\]|~$#]|(?<![^\W_])_|_(?![^\W_])")


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells, each a line or several, under titles, of which text shows lines as well.

    Without rows it is left out. ``names`` are the columns that text aligns to the left, -1 the
    last; others have figures. The first takes at least ``label_width`` cells there, with its gap,
    and at most ``label_most``.
    """

    titles: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    names: Sequence[int] = (0,)
    label_width: int = 0
    label_most: int | None = None


@dataclass(frozen=True, slots=True)
class Bullets:
    """A list."""

    texts: Iterable[str]


@dataclass(frozen=True, slots=True)
class Facts:
    """Texts, each behind what it is about; a label of "" goes on with what is above."""

    rows: Iterable[tuple[str, str]]
    label_width: int = 13


@dataclass(frozen=True, slots=True)
class Code:
    """Code, shown as it is."""

    code: str
    language: str = "python"


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture in a file beside the document; text leaves it out."""

    alt: str
    file: str


@dataclass(frozen=True, slots=True)
class Section:
    """Parts under a title; without one they only stand together. Without parts it is left out.

    ``page_only``: text, which is read from its beginning, leaves it out.
    """

    title: str
    parts: Iterable[Part]
    page_only: bool = False


Cell = str | list[str]
Part = str | Table | Bullets | Facts | Code | Picture | Section


def one_line(text: str) -> str:
    """Return text from a model or a worker as one line that cannot drive a terminal.

    >>> one_line("a" + chr(27) + "[31mb" + chr(10) + "c")
    'a�[31mb c'
    """
    return _printable(" ".join(text.split()))


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else "�" for character in text)


def as_text(parts: Iterable[Part], width: int | None = None) -> str:
    """Return parts as text; where it has a width, only what cannot be broken is wider."""
    blocks = (text_lines(part, width) for part in parts)
    return "\n\n".join("\n".join(lines) for lines in blocks if lines) + "\n"


def text_lines(part: Part, width: int | None = None) -> list[str]:
    """Return a part as lines of text."""
    match part:
        case str():
            return wrapped(part, width) if part else []
        case Table():
            return _table_lines(part, width)
        case Bullets():
            return [line for text in part.texts for line in wrapped(text, width, "- ")]
        case Facts():
            labelled = ((f"{label:<{part.label_width}}", text) for label, text in part.rows)
            return [line for label, text in labelled for line in wrapped(text, width, label)]
        case Code():
            return [_INDENT + _printable(line) for line in part.code.splitlines()]
        case Picture():
            return []
        case Section():
            return _section_lines(part, width)


def wrapped(text: str, width: int | None, first: str = "") -> list[str]:
    """Return a text as lines, the first of which begins with something; the others stand below."""
    line, first = one_line(text), _printable(first)
    if width is None:
        return [f"{first}{line}".rstrip()]
    lines = textwrap.wrap(
        line,
        width,
        initial_indent=first,
        subsequent_indent=" " * len(first),
        break_long_words=False,
        break_on_hyphens=False,
    )
    return lines or [first.rstrip()]


def _section_lines(section: Section, width: int | None) -> list[str]:
    if section.page_only:
        return []
    indent = _INDENT if section.title else ""
    room = None if width is None else width - len(indent)
    lines = [f"{indent}{line}" for part in section.parts for line in text_lines(part, room)]
    return [*wrapped(section.title, width), *lines] if lines and section.title else lines


def _table_lines(table: Table, width: int | None) -> list[str]:
    """Return a table as lines; where it is too wide, the widest columns of names are wrapped."""
    if not table.rows:
        return []
    head = [_cell_lines(title.split("\n")) for title in table.titles]
    height = max(map(len, head))
    rows = [list(map(_cell_lines, row)) for row in table.rows]
    if any(table.titles):
        rows.insert(0, [[""] * (height - len(title)) + title for title in head])
    widths = [
        max(cell_len(line) for cell in column for line in cell)
        for column in zip(*rows, strict=True)
    ]
    widths[0] = max(widths[0], table.label_width - len(_GAP))
    widths[0] = min(widths[0], table.label_most or widths[0])
    gaps = len(_GAP) * (len(widths) - 1)
    room = sum(widths) if width is None else width - gaps
    names = [place % len(widths) for place in table.names]
    while sum(widths) > room and max(widths[name] for name in names) > 1:
        widths[max(names, key=widths.__getitem__)] -= 1
    lines = []
    for row in rows:
        cells = [_within(cell, size) for cell, size in zip(row, widths, strict=True)]
        for pieces in zip_longest(*cells, fillvalue=""):
            padding = [" " * (size - cell_len(p)) for p, size in zip(pieces, widths, strict=True)]
            padded = [
                piece + padding[place] if place in names else padding[place] + piece
                for place, piece in enumerate(pieces)
            ]
            lines.append(_GAP.join(padded).rstrip())
    if height > 1:
        lines.insert(height, "─" * (sum(widths) + gaps))
    return lines


def _cell_lines(cell: Cell) -> list[str]:
    return [one_line(cell)] if isinstance(cell, str) else list(map(one_line, cell))


def _within(cell: list[str], width: int) -> list[str]:
    if all(cell_len(line) <= width for line in cell):
        return cell
    return [piece for line in cell for piece in textwrap.wrap(line, width)]


def as_markdown(parts: Iterable[Part]) -> str:
    """Return parts as Markdown."""
    return "\n\n".join(filter(None, (_markdown(part, "## {}") for part in parts))) + "\n"


def _markdown(part: Part, title: str) -> str:
    """Return a part; ``title`` is how that of a section is written."""
    match part:
        case str():
            return escape(part)
        case Table():
            head = list(map(escape, part.titles))
            rows = [["<br>".join(map(escape, _cell_lines(cell))) for cell in r] for r in part.rows]
            return markdown_table(head, rows) if rows else ""
        case Bullets():
            return "\n".join(f"- {escape(text)}" for text in part.texts)
        case Facts():
            labelled = (f"{label}: {text}" if label else text for label, text in part.rows)
            return "\n".join(f"- {escape(text)}" for text in labelled)
        case Code():
            return code_block(part.code, part.language)
        case Picture():
            return f"![{escape(part.alt)}]({part.file})"
        case Section():
            content = [text for each in part.parts if (text := _markdown(each, "**{}**"))]
            head = [title.format(escape(part.title))] if part.title and content else []
            return "\n\n".join([*head, *content])


def escape(text: str) -> str:
    r"""Return text as one line that Markdown shows as it is.

    >>> print(escape("<img onerror=x>|[bold]"), escape("max_pool_1"), escape("_a_"))
    &lt;img onerror=x&gt;\|\[bold\] max_pool_1 \_a\_
    """
    plain = one_line(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _SPECIAL.sub(lambda match: "\\" + match.group(), plain)


def code_block(code: str, language: str = "python") -> str:
    """Return code that Markdown shows as it is, whatever it holds."""
    runs = re.findall(r"`+", code)
    fence = "`" * max(3, 1 + max(map(len, runs), default=0))
    return f"{fence}{language}\n{code.rstrip()}\n{fence}"


def markdown_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of cells that are Markdown already."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def as_html(table: Table) -> str:
    """Return a table for a notebook."""
    head = "".join(f"<th>{html.escape(title)}</th>" for title in table.titles)
    rows = (
        "".join(f"<td>{'<br>'.join(map(html.escape, _cell_lines(cell)))}</td>" for cell in row)
        for row in table.rows
    )
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
