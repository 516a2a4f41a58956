"""Files that others wrote: opened within limits of size, and parsed as JSON or TOML."""

from __future__ import annotations

import errno
import mmap
import os
import re
import reprlib
import stat
import tomllib
from collections import Counter
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from pydantic_core import from_json

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


# A tensor or variable of 1 PB: the largest machines of 2025 have 10 PB of memory in all.
MAX_BYTES = 10**15
# All tensors and variables of a graph together; 64 devices that each hold all of them fit.
MAX_TOTAL_BYTES = 10**17
# 36 years. What a step takes at most lies below; the simulator's "never" is four times as much.
MAX_NS = 2**60


# A hundred times the largest profile known, through which a reader goes in minutes. What is mapped
# takes memory only while it is looked at.
MAX_MAPPED_BYTES = 100_000_000_000


def open_plain(path: Path) -> BinaryIO:
    """Open a plain file to read.

    Raises:
        OSError: it cannot be opened, or is none; ``strerror`` says what is wrong.
    """
    # Opening a pipe would wait for whoever writes to it.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a file", str(path))
    return os.fdopen(descriptor, "rb")


def read_plain(path: Path, most_bytes: int) -> bytes:
    """Return what a file holds.

    Raises:
        OSError: it cannot be read, is no plain file, or is larger; ``strerror`` says what is wrong.
    """
    with open_plain(path) as file:
        data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise _too_large(path, most_bytes)
    return data


def mapped(path: Path) -> mmap.mmap | bytes:
    """Return what a file holds, mapped into memory; an empty file has nothing to map.

    Raises:
        OSError: it cannot be read, is no plain file, or is larger than any that is mapped;
            ``strerror`` says what is wrong.
    """
    with open_plain(path) as file:
        size_bytes = os.fstat(file.fileno()).st_size
        if size_bytes > MAX_MAPPED_BYTES:
            raise _too_large(path, MAX_MAPPED_BYTES)
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size_bytes else b""


def _too_large(path: Path, most_bytes: int) -> OSError:
    return OSError(errno.EFBIG, f"more than {most_bytes // 10**6:,} MB", str(path))


T = TypeVar("T")

# The largest graph known (210,000 ops) is 65 MB of text with 5 million values. A value takes up to
# 80 bytes of memory, so that the worst file costs about 1.3 GB before it is refused.
MAX_TEXT_BYTES = 256_000_000
MAX_VALUES = 16_000_000
# What fits 64 bits; no count or size of a real step comes near.
MAX_INTEGER = 2**63 - 1
# TensorFlow's own names, paths of nested layers included, are some hundred characters long.
MAX_TEXT_CHARS = 10_000
# A place may hold keys of any length; this many characters tell which it is.
_LONGEST_PLACE = 200

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 60


class MisfitError(Exception):
    """What is wrong, and at which place of a document."""

    def __init__(self, problem: str, place: str = "") -> None:
        super().__init__(problem, place)
        self.problem = problem
        self.place = place

    def inside(self, place: str) -> MisfitError:
        """Return the misfit as seen from outside of ``place``."""
        dot = "" if self.place.startswith("[") or not self.place else "."
        return MisfitError(self.problem, f"{place}{dot}{self.place}")

    def __str__(self) -> str:
        place = self.place
        if len(place) > _LONGEST_PLACE:
            half = _LONGEST_PLACE // 2
            place = f"{place[:half]}...{place[-half:]}"
        return f"{place}: {self.problem}" if place else self.problem


def read_text_bytes(path: Path) -> bytes:
    """Return what a file holds.

    Raises:
        MisfitError: it cannot be read, is larger than any text may be, or is no plain file.
    """
    try:
        return read_plain(path, MAX_TEXT_BYTES)
    except OSError as error:
        raise MisfitError(f"cannot be read: {error.strerror}") from None


def check_size(data: bytes, most_values: int) -> None:
    """Check that a text has no more values than it may have.

    Raises:
        MisfitError: it has.
    """
    if sum(map(data.count, (b",", b"[", b"{"))) > most_values:
        raise MisfitError(f"more than {most_values // 10**6} million values")


def parse_json(data: bytes) -> object:
    """Return the value that the text holds.

    Raises:
        MisfitError: no JSON, too many values, or too deeply nested.
    """
    check_size(data, MAX_VALUES)
    try:
        value: object = from_json(data, allow_inf_nan=False)
    except ValueError as error:
        raise MisfitError(f"not valid JSON: {error}") from None
    return value


def within(place: str, read: Callable[[object], T], value: object) -> T:
    """Return what ``read`` makes of a value that stands at ``place``.

    Raises:
        MisfitError: whatever ``read`` finds, with the place.
    """
    try:
        return read(value)
    except MisfitError as misfit:
        raise misfit.inside(place) from None


def shown(value: object) -> str:
    """Return the value as a short text of one line."""
    return _SHORT.repr(value)


# A cluster of 64 hosts with one device each, every pair linked both ways, is 3 MB.
MAX_TOML_BYTES = 4_000_000
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


def parse_toml(data: bytes, max_line_chars: int = MAX_LINE_CHARS) -> dict[str, Any]:
    """Return what the text says.

    Raises:
        MisfitError: not valid TOML, or too large; its place is the line if there is one.
    """
    if len(data) > MAX_TOML_BYTES:
        raise MisfitError(f"more than {MAX_TOML_BYTES // 10**6} MB")
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
