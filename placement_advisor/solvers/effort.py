"""How hard to look: counted in units of work, so that equal effort gives equal answers anywhere."""

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """``units`` of deterministic work, about a second of one core each, from a seed.

    ``time_limit_s`` cuts by the clock as well; what was found by then may differ from run to run.
    """

    units: float = 60.0
    seed: int = 0
    time_limit_s: float | None = None


class Stop(StrEnum):
    """Why a search ended: it proved its answer, or used up its effort or its time."""

    PROOF = "proof"
    EFFORT = "effort"
    CLOCK = "clock"
