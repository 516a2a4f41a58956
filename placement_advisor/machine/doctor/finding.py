"""One finding about this machine.

A problem hinders some use of the advisor; one that blocks leaves no use of `advisor analyze`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

# A split needs two.
DEVICES = 2


class State(StrEnum):
    """How grave a finding is."""

    OK = "ok"
    NOTE = "note"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One finding. ``action`` is what to do about it; ``blocks`` that nothing works before."""

    name: str
    state: State
    finding: str
    action: str | None = None
    blocks: bool = False


def several(count: int, noun: str) -> str:
    """Return a count with its noun: ``1 core``, ``2 cores``."""
    return f"{count} {noun}{'' if count == 1 else 's'}"
