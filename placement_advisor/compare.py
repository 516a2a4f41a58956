"""A candidate against the single device: paired ratios, an interval, and a verdict with doubt.

Steps are compared within a round only: rounds of all candidates are interleaved, so what slows
the machine for a while slows both sides of a ratio.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from statistics import median
from typing import TYPE_CHECKING

from placement_advisor.measure import Interval, bootstrap_median

if TYPE_CHECKING:
    from placement_advisor.measure import Measurement

# A split brings a second device to buy, feed and debug: under 3 % it is not worth its trouble.
WORTHWHILE_RATIO = 0.97
# The same as a speed-up, which is what texts give with the sign ×.
WORTHWHILE_SPEEDUP = 1 / WORTHWHILE_RATIO
# A bootstrap of a median says little below this many pairs.
MIN_ROUNDS = 5


class Verdict(StrEnum):
    """How a candidate compares with the baseline."""

    FASTER = "faster"
    SLOWER = "slower"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Step time of ``candidate`` over step time of ``baseline``; below 1 is faster.

    ``SLOWER`` means: not faster by enough to be worth it.
    """

    baseline: str
    candidate: str
    ratio: Interval
    rounds: int

    @property
    def speedup(self) -> Interval:
        """Step time of the baseline over that of the candidate; above 1 is faster."""
        ratio = self.ratio
        return Interval(median=1 / ratio.median, low=1 / ratio.high, high=1 / ratio.low)

    @property
    def verdict(self) -> Verdict:
        """Faster or slower only where the whole interval lies on one side."""
        if self.rounds < MIN_ROUNDS:
            return Verdict.INCONCLUSIVE
        if self.ratio.high < WORTHWHILE_RATIO:
            return Verdict.FASTER
        if self.ratio.low > WORTHWHILE_RATIO:
            return Verdict.SLOWER
        return Verdict.INCONCLUSIVE


def compare(
    baseline: str, candidate: str, baseline_run: Measurement, candidate_run: Measurement
) -> Comparison | None:
    """Compare two runs round by round; None if they share no complete round."""
    ratios = [
        median(ours) / median(theirs)
        for theirs, ours in zip(baseline_run.rounds, candidate_run.rounds, strict=False)
        if theirs and ours
    ]
    if not ratios:
        return None
    return Comparison(
        baseline=baseline,
        candidate=candidate,
        ratio=bootstrap_median(ratios),
        rounds=len(ratios),
    )
