"""Intervals of a median that hold at every look: one may look after each sample, and stop on it.

Model: a sample lies below the true median as often as above it. Someone bets against that, on the
share ``p`` that would lie on one side, all ``p`` between a half and one at once. If the median is
where he denies it to be, his wealth is a fair game's and exceeds ``1 / error`` at *any* time, for
samples without end, with probability ``error`` at most. All medians against which he has not won so
much form the interval: from the sample of one rank to that of another. Nothing is assumed of how
samples spread, so that no tail is too heavy, and nothing of when one stops: when it is decided,
after a time, when the user interrupts.

Among several candidates each has its share of the error, and these add up. One that joins late is
like the others: its samples count from its first one, its share must have been set aside before
(say ``among`` for all that may ever join). One that is out gives its share to nobody.

Left out: samples that depend on those before. Errors are rarer than claimed where they do not,
which makes up for a little of it; `make campaign-verdict-errors` shows how much. Where the true
median moves, because other work comes or goes, an interval is that of no moment.

Source: Ville, Étude critique de la notion de collectif (1939); Darling and Robbins, Confidence
sequences for mean, variance, and median, PNAS 58 (1967), 66-68; Howard and Ramdas, Sequential
estimation of quantiles with applications to A/B testing and best-arm identification, Bernoulli 28
(2022), 1704-1728.
"""

from __future__ import annotations

from functools import cache
from itertools import count
from math import comb
from statistics import median
from typing import TYPE_CHECKING

from placement_advisor.measurement.measurement import CONFIDENCE, Interval

if TYPE_CHECKING:
    from collections.abc import Sequence

# What a bet on one end has to win: an interval has two ends, each wrong in half of the cases in
# which one may be.
STAKES = round(2 / (1 - CONFIDENCE))


def median_interval(samples: Sequence[float], *, among: int = 1) -> Interval | None:
    """Return the median with its interval at this look; None if there are too few samples.

    The lower end is too high in one of `STAKES` cases at most, whenever one looks. The upper end of
    *any* of ``among`` candidates is too low in one of `STAKES` at most. That is what a choice among
    them needs: to prefer one is wrong if one upper end is, to reject all only if the lower end of
    the best is.
    """
    below = _most_beyond(len(samples), STAKES)
    above = _most_beyond(len(samples), STAKES * among)
    if below is None or above is None:
        return None
    ordered = sorted(samples)
    return Interval(median=median(ordered), low=ordered[below], high=ordered[-1 - above])


@cache
def least_samples(among: int = 1) -> int:
    """Return how many samples are the fewest that have an interval."""
    return next(n for n in count(1) if _most_beyond(n, STAKES * among) is not None)


@cache
def _most_beyond(samples: int, stakes: int) -> int | None:
    """Return how many samples may lie on the wrong side for the bet to be won; None: not even 0.

    With ``k`` of ``n`` on the wrong side the wealth is the integral of ``2 (2p)**(n-k)
    (2(1-p))**k`` over ``p`` from 1/2 to 1, here in whole numbers.
    """
    found, tail = None, 0
    for wrong in range(samples // 2 + 1):
        tail += comb(samples + 1, wrong)
        if 2 ** (samples + 1) - tail < stakes * (samples + 1) * comb(samples, wrong):
            break
        found = wrong
    return found
