"""Sums in which some parts are not known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """A sum of ``parts`` values. Of those, ``unknown`` are missing from it: then it is a floor."""

    known: int
    parts: int
    unknown: int

    @property
    def amount(self) -> int | None:
        """The sum of what is known, None if nothing is."""
        return None if self.parts and self.unknown == self.parts else self.known

    @property
    def is_floor(self) -> bool:
        """Whether some of the parts are missing."""
        return self.unknown > 0

    @property
    def known_share(self) -> float:
        """Share of the parts that are known, by count; 1.0 if there are none."""
        return 1 - self.unknown / self.parts if self.parts else 1.0

    @classmethod
    def of(cls, values: Iterable[int | None]) -> Total:
        """Add up."""
        given = list(values)
        known = [value for value in given if value is not None]
        return cls(known=sum(known), parts=len(given), unknown=len(given) - len(known))
