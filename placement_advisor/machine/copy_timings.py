"""Copies that were measured, as they are worked with and as files keep them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, Le

from placement_advisor.files.contract import Bytes, Ns
from placement_advisor.files.limits import MAX_NS

# In a noisy minute it is negative; what uses it leaves that out.
Difference = Annotated[int, Ge(-MAX_NS), Le(MAX_NS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyTiming:
    """A copy of one size: its time between idle devices, and the core time at its ends.

    The core times are None where they were not measured: devices that are no processes of their
    own have none.
    """

    size_bytes: Bytes
    copy_ns: Difference
    send_ns: Ns | None
    receive_ns: Ns | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BothWaysTiming:
    """Many copies of one size between two devices: one way, and as many each way at once.

    ``one_way_ns`` is what one more tensor adds to a step in which all go one way, the mean of
    both directions; ``both_ways_ns`` what one more tensor each way adds where they meet.
    """

    size_bytes: Bytes
    one_way_ns: Difference
    both_ways_ns: Difference

    @property
    def ratio(self) -> float | None:
        """1 where the directions do not hinder each other, 2 where they take turns.

        None where a difference of times came out negative, in a noisy minute.
        """
        return _ratio(self.both_ways_ns, self.one_way_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class AtOnceTiming:
    """Many copies of one size from one host to another: of one pair of devices, and of two at once.

    ``one_pair_ns`` is what one more tensor adds to a step in which all are of the first pair,
    ``two_pairs_ns`` what one more tensor of each pair adds.
    """

    size_bytes: Bytes
    one_pair_ns: Difference
    two_pairs_ns: Difference

    @property
    def ratio(self) -> float | None:
        """1 where the pairs do not hinder each other, 2 where they share one wire.

        None where a difference of times came out negative, in a noisy minute.
        """
        return _ratio(self.two_pairs_ns, self.one_pair_ns)


def _ratio(together_ns: int, alone_ns: int) -> float | None:
    return together_ns / alone_ns if together_ns > 0 and alone_ns > 0 else None
