"""Phrases of rationales, which are one line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.graph import name_patterns

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_NAMES = 3


def listed(names: Sequence[str]) -> str:
    """Return the names as one phrase, cut where they are many.

    >>> listed(["a", "b"]), listed(["a", "b", "c", "d", "e"])
    ('a and b', 'a, b, c and 2 more')
    """
    return name_patterns.listed(names, MAX_NAMES)
