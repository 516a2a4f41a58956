"""JSON that others wrote: parsed within limits, or refused in one `MisfitError`.

What its values have to be, types say (`contract`). Left out: keys that an object holds twice; the
last one counts.
"""

from __future__ import annotations

import reprlib
from typing import TYPE_CHECKING, TypeVar

from pydantic_core import from_json

from placement_advisor.files import foreign_file

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

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


def content(path: Path) -> bytes:
    """Return what a file holds.

    Raises:
        MisfitError: it cannot be read, is larger than any text may be, or is no plain file.
    """
    try:
        return foreign_file.content(path, MAX_TEXT_BYTES)
    except OSError as error:
        raise MisfitError(f"cannot be read: {error.strerror}") from None


def check_size(data: bytes, most_values: int) -> None:
    """Check that a text has no more values than it may have.

    Raises:
        MisfitError: it has.
    """
    if sum(map(data.count, (b",", b"[", b"{"))) > most_values:
        raise MisfitError(f"more than {most_values // 10**6} million values")


def parse(data: bytes) -> object:
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
