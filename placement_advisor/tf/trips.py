"""How often a loop runs, from what it counts and compares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Induction:
    """A loop goes on while a counter, stepping from ``start``, is below ``limit``.

    With ``inclusive`` it goes on while the counter is not above the limit. None: not known.
    """

    start: int | None
    step: int | None
    limit: int | None
    inclusive: bool = False


def trips_of(conditions: Sequence[Induction]) -> int | None:
    """Return how often the body runs while all conditions hold; None if that cannot be told.

    One condition that is not known could end the loop at any time, so that nothing is known.
    """
    counts = []
    for given in conditions:
        if given.start is None or given.limit is None or not given.step or given.step < 0:
            return None
        limit = given.limit + given.inclusive
        counts.append(max(0, -((given.start - limit) // given.step)))
    return min(counts) if counts else None
