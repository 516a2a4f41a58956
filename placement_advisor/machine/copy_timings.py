"""Copies that were measured, and what they are in a file that keeps them.

A file is data that may have been damaged: reading it ends in timings or in one `MisfitError`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from placement_advisor.files.foreign_json import as_object, field, integer, list_of
from placement_advisor.files.limits import MAX_BYTES, MAX_NS

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyTiming:
    """A copy of one size: its time between idle devices, and the core time at its ends.

    The core times are None where they were not measured: devices that are no processes of their
    own have none.
    """

    size_bytes: int
    copy_ns: int
    send_ns: int | None
    receive_ns: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BothWaysTiming:
    """Many copies of one size between two devices: one way, and as many each way at once.

    ``one_way_ns`` is what one more tensor adds to a step in which all go one way, the mean of
    both directions; ``both_ways_ns`` what one more tensor each way adds where they meet.
    """

    size_bytes: int
    one_way_ns: int
    both_ways_ns: int

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

    size_bytes: int
    one_pair_ns: int
    two_pairs_ns: int

    @property
    def ratio(self) -> float | None:
        """1 where the pairs do not hinder each other, 2 where they share one wire.

        None where a difference of times came out negative, in a noisy minute.
        """
        return _ratio(self.two_pairs_ns, self.one_pair_ns)


def _ratio(together_ns: int, alone_ns: int) -> float | None:
    return together_ns / alone_ns if together_ns > 0 and alone_ns > 0 else None


def copies_as_json(copies: Iterable[CopyTiming]) -> list[dict[str, Any]]:
    """Return what `read_copies` reads."""
    return [asdict(timing) for timing in copies]


def read_copies(value: object) -> tuple[CopyTiming, ...]:
    """Read a list of copies.

    Raises:
        MisfitError: it is none.
    """
    return list_of(_copy, value)


def read_both_ways(value: object) -> BothWaysTiming:
    """Read an object that has, among others, the fields of copies both ways.

    Raises:
        MisfitError: it has not.
    """
    pair = as_object(value)
    return BothWaysTiming(
        size_bytes=field(pair, "size_bytes", _size),
        one_way_ns=field(pair, "one_way_ns", _difference),
        both_ways_ns=field(pair, "both_ways_ns", _difference),
    )


def read_at_once(value: object) -> AtOnceTiming:
    """Read an object that has the fields of copies of two pairs at once.

    Raises:
        MisfitError: it has not.
    """
    pair = as_object(value)
    return AtOnceTiming(
        size_bytes=field(pair, "size_bytes", _size),
        one_pair_ns=field(pair, "one_pair_ns", _difference),
        two_pairs_ns=field(pair, "two_pairs_ns", _difference),
    )


def _copy(value: object) -> CopyTiming:
    copy = as_object(value)
    return CopyTiming(
        size_bytes=field(copy, "size_bytes", _size),
        copy_ns=field(copy, "copy_ns", _difference),
        send_ns=field(copy, "send_ns", _core_time),
        receive_ns=field(copy, "receive_ns", _core_time),
    )


def _core_time(value: object) -> int | None:
    return None if value is None else read_time(value)


def _difference(value: object) -> int:
    """Return a difference of times, in a noisy minute negative; what uses it leaves that out."""
    return integer(value, "a time in ns", low=-MAX_NS, high=MAX_NS)


_size = partial(integer, what="a number of bytes from 0 to 10^15", high=MAX_BYTES)
read_time = partial(integer, what="a time in ns", high=MAX_NS)
