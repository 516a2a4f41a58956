"""How far the clock of another machine is ahead of this one's: a range, from questions and answers.

Model: no message arrives before it was sent. Where a machine reads its clock between a question
and its answer, the clock is ahead by no more than the reading less the moment of the question, and
by no less than the reading less the moment of the answer. That takes ways of any length, of
different lengths there and back as well: these only put the truth elsewhere in the range than in
its middle. Two clocks drift apart slowly, so that a reading says a little less of another moment.

Left out: clocks that are set in between. Readings before and after then contradict each other,
which is said.

Source: Halpern, Megiddo & Munshi, Optimal precision in the presence of uncertainty (1985).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

# NTP takes clocks to keep their rate within 15 ppm; here two of them may err, in different
# directions. Source: RFC 5905, PHI.
DRIFT_PPM = 30
_MILLION = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockRange:
    """A clock is ahead of the reference by ``low_ns`` at least and ``high_ns`` at most."""

    low_ns: int
    high_ns: int

    @property
    def offset_ns(self) -> int:
        """What errs least at worst: the middle."""
        return (self.low_ns + self.high_ns) // 2

    @property
    def uncertainty_ns(self) -> int:
        """How far the truth may be from the middle."""
        return self.high_ns - self.offset_ns

    def widened(self, by_ns: int) -> ClockRange:
        """Return the range that reaches further at both ends."""
        return ClockRange(low_ns=self.low_ns - by_ns, high_ns=self.high_ns + by_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ping:
    """A question and its answer, moments of the reference, and the other clock in between."""

    asked_ns: int
    read_ns: int
    answered_ns: int


def range_of_pings(pings: Iterable[Ping], at_ns: int) -> ClockRange | None:
    """Return where a clock stood at a moment of the reference.

    None where no range agrees with all pings: the clock was set meanwhile.
    """
    lows, highs = [], []
    for ping in pings:
        drift_ns = drifted_ns(max(abs(at_ns - ping.asked_ns), abs(at_ns - ping.answered_ns)))
        lows.append(ping.read_ns - ping.answered_ns - drift_ns)
        highs.append(ping.read_ns - ping.asked_ns + drift_ns)
    low_ns, high_ns = max(lows), min(highs)
    return None if low_ns > high_ns else ClockRange(low_ns=low_ns, high_ns=high_ns)


def drifted_ns(elapsed_ns: int) -> int:
    """Return how far two clocks drift apart in some time, at most."""
    return -(-elapsed_ns * DRIFT_PPM // _MILLION)
