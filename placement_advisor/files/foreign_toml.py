"""TOML that others wrote: parsed within limits, with the line of every place in it.

The parser of the standard library does not tell lines, so a scan of the text beside it finds them.
It knows tables and keys as people write them; where it does not find a place, it gives the line of
the table around it.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from typing import Any

from placement_advisor.files.foreign_json import MisfitError

# A cluster of 64 hosts with one device each, every pair linked both ways, is 3 MB.
MAX_BYTES = 4_000_000
# 64 names in one list need 700. The parser's time grows with the square of a key's length.
MAX_LINE_CHARS = 1_000

_LINE = re.compile(r"\(at line ([0-9]+)")
# What may hold signs that are none of the syntax. Names in quotation marks become bare.
_OPAQUE = re.compile(
    r'"""(?:\\.|[^\\])*?"""+|\'\'\'.*?\'\'\'+'
    r'|(["\'])(?P<bare>[\w-]+)\1|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'|#[^\n]*',
    re.DOTALL,
)
_HEADER = re.compile(r"\s*(\[\[?)\s*([\w-]+(?:\s*\.\s*[\w-]+)*)\s*\]")
_KEY = re.compile(r"\s*([\w-]+)\s*[.=]")


def parse(data: bytes, max_line_chars: int = MAX_LINE_CHARS) -> dict[str, Any]:
    """Return what the text says.

    Raises:
        MisfitError: not valid TOML, or too large; its place is the line if there is one.
    """
    if len(data) > MAX_BYTES:
        raise MisfitError(f"more than {MAX_BYTES // 10**6} MB")
    try:
        source = data.decode("utf-8")
        for number, line in enumerate(source.split("\n"), 1):
            if len(line) > max_line_chars:
                raise MisfitError(f"more than {max_line_chars:,} characters", f"line {number}")
        return tomllib.loads(source)
    except tomllib.TOMLDecodeError as error:
        at = _LINE.search(str(error))
        line_found = at[1] if at else source.count("\n") + 1
        raise MisfitError(f"not valid TOML: {error}", f"line {line_found}") from None
    except (ValueError, RecursionError) as error:
        raise MisfitError(f"not valid TOML: {error}") from None


def told(where: str, misfit: MisfitError, data: bytes = b"") -> str:
    """Return an error of a file with the line that it is at, if there is one.

    ``data`` is what `parse` has read; there is none if that has refused it, and says where itself.
    """
    line = line_of(data, misfit.place)
    at = ", " if misfit.place.startswith("line ") else ": "
    return f"{where}{at if line is None else f', line {line}: '}{misfit}"


def line_of(data: bytes, place: str) -> int | None:
    """Return the line of a place such as `links[2].latency_ns` in data that `parse` has read.

    That of the innermost table around it, if it has none; None if that has none either.
    """
    lines = _line_numbers(data.decode("utf-8"))
    while place and place not in lines:
        place = place[: max(place.rfind("."), place.rfind("["), 0)]
    return lines.get(place)


def _line_numbers(source: str) -> dict[str, int]:
    """Return the first line of each table and key, by its place."""

    def bared(match: re.Match[str]) -> str:
        return match["bare"] or "\n" * match[0].count("\n")

    numbers: dict[str, int] = {}
    counts: Counter[str] = Counter()
    table = ""
    for number, line in enumerate(_OPAQUE.sub(bared, source).split("\n"), 1):
        if header := _HEADER.match(line):
            brackets, dotted = header.groups()
            *outer, name = re.split(r"\s*\.\s*", dotted)
            table = ""
            for each in outer:
                table = f"{table}.{each}" if table else each
                if counts[table]:
                    table = f"{table}[{counts[table] - 1}]"
            table = f"{table}.{name}" if table else name
            numbers.setdefault(table, number)
            counts[table] += brackets == "[["
            if counts[table]:
                table = f"{table}[{counts[table] - 1}]"
                numbers.setdefault(table, number)
        elif key := _KEY.match(line):
            numbers.setdefault(f"{table}.{key[1]}" if table else key[1], number)
    return numbers
