"""Whether a placement is slower than the locked one, as measured: the statistics of tier 2.

Both run in turns, on the same devices and the same step, and so does the locked one a second time:
what differs between those two is noise. Only ratios of turns within a round count, so that what
slows the machine for a while slows both sides.

A placement is slower if the whole interval lies above the tolerance, and the median ratio above the
noise; it is no slower if the whole interval lies below the tolerance. Intervals hold at every look
(`anytime_interval`), so that rounds may be added until they tell. A single race may still be wrong:
who fails on it should ask for another.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from statistics import median
from typing import TYPE_CHECKING

from placement_advisor.measurement.measurement import median_interval

if TYPE_CHECKING:
    from collections.abc import Sequence

    from placement_advisor.measurement.measurement import Interval


class Pace(StrEnum):
    """How today's placement compares with the locked one."""

    SLOWER = "slower"
    NO_SLOWER = "no-slower"
    CANNOT_TELL = "cannot-tell"


@dataclass(frozen=True, slots=True, kw_only=True)
class Race:
    """Step time of today's placement over the locked one's, and what noise does to such a ratio.

    ``noise`` is how far from 1 the ratio of the locked placement to itself may lie.
    """

    pace: Pace
    ratio: Interval
    noise: float
    rounds: int

    def __str__(self) -> str:
        low, middle, high = (
            f"{(ratio - 1) * 100:+.0f} %"
            for ratio in (self.ratio.low, self.ratio.median, self.ratio.high)
        )
        return (
            f"steps {middle} against the locked placement ({low} to {high} in {self.rounds} "
            f"rounds, noise {self.noise * 100:.0f} %)"
        )


def race(
    today: Sequence[Sequence[int]],
    locked: Sequence[Sequence[int]],
    again: Sequence[Sequence[int]],
    tolerance: float,
) -> Race | None:
    """Compare step times by round; None if too few rounds are complete.

    ``again`` are those of the locked placement, run a second time. ``tolerance`` is the share by
    which today's may be slower.
    """
    complete = [
        (median(ours), median(theirs), median(twin))
        for ours, theirs, twin in zip(today, locked, again, strict=False)
        if ours and theirs and twin
    ]
    # The locked placement is known twice as well, by both of its turns.
    ratio = median_interval([ours / ((theirs + twin) / 2) for ours, theirs, twin in complete])
    same = median_interval([twin / theirs for _, theirs, twin in complete])
    if ratio is None or same is None:
        return None
    noise = max(same.high - 1, 1 - same.low, 0.0)
    if ratio.low > 1 + tolerance and ratio.median > 1 + noise:
        pace = Pace.SLOWER
    elif ratio.high <= 1 + tolerance:
        pace = Pace.NO_SLOWER
    else:
        pace = Pace.CANNOT_TELL
    return Race(pace=pace, ratio=ratio, noise=noise, rounds=len(complete))
