"""Why a family has no placement for a graph."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class NotApplicable:
    """A family that does not apply, with the reason in plain words."""

    family: str
    reason: str
