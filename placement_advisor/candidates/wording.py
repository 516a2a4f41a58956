"""Phrases of rationales, which are one line."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_NAMES = 3


def listed(names: Sequence[str]) -> str:
    """Return the names as one phrase, cut where they are many.

    >>> listed(["a", "b"]), listed(["a", "b", "c", "d", "e"])
    ('a and b', 'a, b, c and 2 more')
    """
    if len(names) <= MAX_NAMES:
        return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
    return f"{', '.join(names[:MAX_NAMES])} and {len(names) - MAX_NAMES} more"


def counted(count: int, what: str) -> str:
    """Return a count with its noun.

    >>> counted(1, "table"), counted(1_200, "op")
    ('1 table', '1,200 ops')
    """
    return f"{count:,} {what}{'' if count == 1 else 's'}"
