"""Measuring again what other work on the machine disturbed."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

Measured = TypeVar("Measured")

# Halves of the rounds that are no farther apart tell of a machine at rest.
STEADY = 0.05
TRIES = 3


def steadiest(
    measure: Callable[[], Measured], unsteady: Callable[[Measured], float], tries: int = TRIES
) -> Measured:
    """Return the steadiest of some tries, of which one is enough that is steady.

    ``unsteady`` says how far halves of the rounds are apart, in proportion.
    """
    found = [measure()]
    while len(found) < tries and unsteady(found[-1]) > STEADY:
        found.append(measure())
    return min(found, key=unsteady)
