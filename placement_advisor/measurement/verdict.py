"""A candidate against the single device: paired ratios, an interval, and a verdict with doubt.

Steps are compared within a round only: rounds of all candidates are interleaved, so what slows
the machine for a while slows both sides of a ratio. Intervals allow for rounds that are added while
a verdict is in doubt, and for the number of candidates (`anytime_interval`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from statistics import median
from typing import TYPE_CHECKING

from placement_advisor.measurement.anytime_interval import median_interval

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from placement_advisor.measurement.measurement import Interval

# A split brings a second device to buy, feed and debug: under 3 % it is not worth its trouble.
# Judgement; whoever thinks otherwise reads the interval.
WORTHWHILE_RATIO = 0.97
# The same as a speed-up, which is what texts give with the sign ×.
WORTHWHILE_SPEEDUP = 1 / WORTHWHILE_RATIO


class Verdict(StrEnum):
    """How a candidate compares with the baseline."""

    FASTER = "faster"
    SLOWER = "slower"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Step time of a candidate over step time of ``baseline``; below 1 is faster.

    ``SLOWER`` means: not faster by enough to be worth it. ``is_brief``: it rests on a few rounds of
    its own, for which the others' intervals do not allow, so that nothing may be chosen by it.
    """

    baseline: str
    ratio: Interval
    rounds: int
    is_brief: bool = False

    @property
    def speedup(self) -> Interval:
        """Step time of the baseline over that of the candidate; above 1 is faster."""
        return self.ratio.inverted

    @property
    def verdict(self) -> Verdict:
        """Faster or slower only where the whole interval lies on one side."""
        if self.ratio.high < WORTHWHILE_RATIO:
            return Verdict.FASTER
        if self.ratio.low > WORTHWHILE_RATIO:
            return Verdict.SLOWER
        return Verdict.INCONCLUSIVE


def compare(
    baseline: str,
    baseline_rounds: Sequence[Sequence[int]],
    candidate_rounds: Sequence[Sequence[int]],
    *,
    among: int,
) -> Comparison | None:
    """Compare two runs round by round; None if they share too few complete rounds.

    They are compared beside others, ``among`` of them in all, this one included. Rounds in which
    one of them has no steps do not count.
    """
    ratios = paired_ratios(baseline_rounds, candidate_rounds)
    interval = median_interval(ratios, among=among)
    if interval is None:
        return None
    return Comparison(baseline=baseline, ratio=interval, rounds=len(ratios))


def paired_ratios(
    baseline_rounds: Sequence[Sequence[int]], candidate_rounds: Sequence[Sequence[int]]
) -> list[float]:
    """Return the ratio of the two median steps of each round that both completed."""
    return [
        median(ours) / median(theirs)
        for theirs, ours in zip(baseline_rounds, candidate_rounds, strict=False)
        if theirs and ours
    ]


def overall(comparisons: Collection[Comparison]) -> Verdict:
    """Return what all of them say: faster if one is, slower if each is."""
    verdicts = {comparison.verdict for comparison in comparisons}
    for verdict in (Verdict.FASTER, Verdict.INCONCLUSIVE):
        if verdict in verdicts:
            return verdict
    return Verdict.SLOWER


def is_in_doubt(comparisons: Collection[Comparison]) -> bool:
    """Return whether more rounds may change which one to prefer, or whether to prefer any."""
    best = min(comparisons, key=lambda each: each.ratio.median)
    return best.verdict is not Verdict.FASTER and overall(comparisons) is not Verdict.SLOWER
