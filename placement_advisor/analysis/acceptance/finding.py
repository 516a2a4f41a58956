"""One thing that was held against what it must be."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    """What came of it. ``UNKNOWN`` neither grants trust nor refuses it."""

    OK = "ok"
    OFF = "off"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What was looked at, what came of it, and the figures in words."""

    name: str
    outcome: Outcome
    finding: str


def judged(name: str, finding: str, problems: list[str]) -> Finding:
    """Return a finding that is off if there are problems, which stand after the figures."""
    outcome = Outcome.OFF if problems else Outcome.OK
    return Finding(name=name, outcome=outcome, finding="; ".join([finding, *problems]))
