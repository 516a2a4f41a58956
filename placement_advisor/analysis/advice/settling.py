"""What would settle a verdict that is in doubt, and how long that would take."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

from placement_advisor import defaults
from placement_advisor.analysis.analysis_result import NextRun
from placement_advisor.analysis.options import RESUME
from placement_advisor.measurement.measurement import WORTHWHILE_RATIO
from placement_advisor.units import NS_PER_S, format_duration

if TYPE_CHECKING:
    from placement_advisor.measurement.measurement import Comparison

# The interval shrinks with the square root of the rounds: past this they buy next to nothing.
MAX_ROUNDS_TO_ADVISE = 500
_MORE = f"{RESUME} --rounds"


@dataclass(frozen=True, slots=True, kw_only=True)
class MoreRounds:
    """So many rounds in addition would settle it; None if no number of them would."""

    count: int | None


@dataclass(frozen=True, slots=True)
class RealRun:
    """Running steps at all would settle it."""


@dataclass(frozen=True, slots=True)
class WithoutPython:
    """Running steps that call no Python: those that do cannot be placed and run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunElsewhere:
    """Running steps on devices that are not here; ``is_recorded``: a profile of them was given."""

    is_recorded: bool


Settling = MoreRounds | RealRun | WithoutPython | RunElsewhere


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """What a command would take that tells more: rounds of steps, and all else.

    ``left_out`` is the option without which it would tell more, None where it goes on with rounds.
    ``round_s`` is None where no step can run.
    """

    fixed_s: float
    round_s: float | None
    left_out: str | None = None

    def takes_s(self, rounds: int) -> float:
        """Return about how long it would take with so many rounds."""
        return self.fixed_s + rounds * (self.round_s or 0.0)


def rounds_to_settle(comparison: Comparison) -> MoreRounds:
    """Return how many more would get the interval to one side of the worthwhile ratio."""
    ratio = comparison.ratio
    distance = abs(ratio.median - WORTHWHILE_RATIO)
    reach = max(ratio.high - ratio.median, ratio.median - ratio.low)
    if reach**2 * comparison.rounds > distance**2 * MAX_ROUNDS_TO_ADVISE:
        return MoreRounds(count=None)
    rounds = ceil(comparison.rounds * (reach / distance) ** 2)
    return MoreRounds(count=max(rounds - comparison.rounds, comparison.rounds))


def in_words(settling: Settling | None, again: Again | None) -> str:
    """Return what would settle it as the end of a sentence; nothing if nothing is known to."""
    run = next_run(settling, again)
    takes = "" if run is None else f", about {format_duration(run.takes_ns / NS_PER_S)}"
    match settling:
        case None:
            return ""
        case RealRun():
            can_run = again is not None and again.round_s is not None
            how = f" ({run.change}{takes})" if run is not None and can_run else ""
            return f"; a real run{how} would settle it"
        case WithoutPython():
            return "; a step without Python could run, which would settle it"
        case RunElsewhere(is_recorded=True):
            return "; a run on such devices would settle it"
        case RunElsewhere():
            return "; a run on such devices would settle it, a profile recorded there (--costs) may"
        case MoreRounds(count=None):
            return (
                f"; the ratio is too near {WORTHWHILE_RATIO} for more rounds to help: "
                "only a quieter machine would settle it"
            )
        case MoreRounds(count=rounds):
            how = f"{_MORE} {rounds}{takes}"
            return f"; more rounds ({how}) or a quieter machine would settle it"


def next_run(settling: Settling | None, again: Again | None) -> NextRun | None:
    """Return the run that would tell more: with more rounds, or a first one; None if none."""
    if again is None:
        return None
    if again.left_out is not None:
        rounds, change = defaults.ROUNDS, f"without {again.left_out}"
    elif isinstance(settling, MoreRounds) and settling.count is not None:
        rounds, change = settling.count, f"with {_MORE} {settling.count}"
    else:
        return None
    return NextRun(change=change, takes_ns=round(again.takes_s(rounds) * NS_PER_S))
