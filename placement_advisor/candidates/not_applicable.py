"""Why a family has no placement for a graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from placement_advisor.graph.placement import Placement


@dataclass(frozen=True, slots=True, kw_only=True)
class NotApplicable:
    """A family that does not apply, with the reason in plain words.

    ``unbeaten`` is the placement of another family than which a search found none better.
    """

    family: str
    reason: str
    unbeaten: Placement | None = None
