"""Step time against batch size, and how to share a batch among uneven cards.

Model: a step takes a fixed time (launches, weights) plus a time per sample, so small batches waste
a card. Cards that train together wait for the slowest one; then they synchronise. A card that gets
no samples takes no part. Left out: that a card computes some batch sizes better than others, and
that cards on one host disturb each other.

Source: the published measurements of a GTX 1080 Ti, alone at four batch sizes, follow the line
within 0.3 %; `docs/study.md` has the figures.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

from placement_advisor.cost.lines import relative_line
from placement_advisor.errors import AdvisorError
from placement_advisor.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Sequence

_MIN_BATCHES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """A measurement: samples per second of one card at a batch size.

    Raises:
        AdvisorError: a batch or a rate that is not positive.
    """

    batch: int
    samples_per_s: float

    def __post_init__(self) -> None:
        if self.batch <= 0 or not 0 < self.samples_per_s < float("inf"):
            raise AdvisorError(
                f"{self.samples_per_s} samples/s at batch {self.batch}: both must be positive"
            )

    @property
    def step_ns(self) -> float:
        """Time of one step."""
        return self.batch / self.samples_per_s * NS_PER_S


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchTime:
    """Step time of one card as a line over its batch; neither part is negative."""

    fixed_ns: int
    per_sample_ns: float

    def step_ns(self, batch: int) -> int:
        """Return the time of a step; a card without samples takes none.

        Raises:
            ValueError: a negative batch.
        """
        if batch < 0:
            raise ValueError(f"batch {batch}")
        return round(self.fixed_ns + self.per_sample_ns * batch) if batch else 0

    def largest_batch(self, step_ns: int, limit: int) -> int:
        """Return the most samples, up to ``limit``, that a step of that time can hold."""
        return bisect_right(range(1, limit + 1), step_ns, key=self.step_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitStep:
    """One synchronous step over several cards.

    ``slowest_ns`` is the time of the card that the others wait for. What it takes to agree after
    that is not known.
    """

    batches: tuple[int, ...]
    slowest_ns: int

    @property
    def most_samples_per_s(self) -> float:
        """Samples per second of all cards, an upper bound: synchronising costs an unknown time.

        Raises:
            ZeroDivisionError: a step that takes no time.
        """
        return sum(self.batches) * NS_PER_S / self.slowest_ns


def fit_batch_time(points: Sequence[Throughput]) -> BatchTime:
    """Return the line that fits a card's measurements best.

    Least squares on (fit - measured) / measured of the step times, so that small batches count as
    much as large ones.

    Raises:
        AdvisorError: fewer than two distinct batch sizes.
    """
    batches = {point.batch for point in points}
    if len(batches) < _MIN_BATCHES:
        raise AdvisorError(
            f"a card was measured at {len(batches)} distinct batch sizes, a line needs "
            f"{_MIN_BATCHES}",
            hint="measure it at another batch size",
        )
    fixed_ns, per_sample_ns = relative_line([(point.batch, point.step_ns) for point in points])
    return BatchTime(fixed_ns=round(fixed_ns), per_sample_ns=per_sample_ns)


def split_step(cards: Sequence[BatchTime], batches: Sequence[int]) -> SplitStep:
    """Return the step in which each card computes its share of the batch.

    Raises:
        ValueError: not one share per card, or a negative share.
    """
    times = [card.step_ns(share) for card, share in zip(cards, batches, strict=True)]
    return SplitStep(batches=tuple(batches), slowest_ns=max(times, default=0))


def best_split(
    cards: Sequence[BatchTime], batch: int, most: Sequence[int | None] | None = None
) -> tuple[int, ...]:
    """Return the shares of a batch with which the slowest card is done soonest.

    ``most`` are the samples that each card's memory can hold, None for no known limit. Of equally
    fast splits, earlier cards get more.

    Raises:
        AdvisorError: the batch does not fit.
        ValueError: a negative batch, or not one limit per card.
    """
    if batch < 0:
        raise ValueError(f"batch {batch}")
    given = most if most is not None else [None] * len(cards)
    limits = [
        batch if limit is None else min(limit, batch) for _, limit in zip(cards, given, strict=True)
    ]
    if sum(limits) < batch:
        raise AdvisorError(
            f"a batch of {batch} does not fit: the cards hold {sum(limits)} samples",
            hint="take a smaller batch",
        )

    def shares(step_ns: int) -> list[int]:
        return [
            card.largest_batch(step_ns, limit) for card, limit in zip(cards, limits, strict=True)
        ]

    enough_ns = max((c.step_ns(n) for c, n in zip(cards, limits, strict=True)), default=0)
    fastest_ns = bisect_left(range(enough_ns), batch, key=lambda step_ns: sum(shares(step_ns)))
    found = shares(fastest_ns)
    surplus = sum(found) - batch
    for i in reversed(range(len(found))):
        given_back = min(surplus, found[i])
        found[i] -= given_back
        surplus -= given_back
    return tuple(found)
