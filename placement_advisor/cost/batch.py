"""Step time against batch size, and how to share a batch among uneven cards.

Model: a step takes a fixed time (launches, weights) plus a time per sample, so small batches waste
a card. Where a sample is more work the larger the batch is, the line is drawn over that work, in
samples of the step's own batch, and some batch has the best rate. Cards that train together wait
for the slowest one; then they synchronise. A card that gets no samples takes no part. Left out:
that a card computes some batch sizes better than others, and that cards on one host disturb each
other.

Source: the published measurements of a GTX 1080 Ti, alone at four batch sizes, follow the line
within 0.3 %; `docs/study.md` has the figures.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, NamedTuple

from placement_advisor.cost.lines import relative_line
from placement_advisor.errors import AdvisorError
from placement_advisor.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_MIN_BATCHES = 2
# Step times on a busy machine wander by a tenth; what is further off is no line, and nothing is
# told from it. Judgement: less would refuse true lines, more would let a curve pass for one.
MAX_MISFIT = 0.15
# Judgement: at 90 % of the best rate no larger batch gains more than a ninth; 95 % would ask for
# twice that batch (19·a/b in place of 9·a/b), which trains less well per sample.
GOOD_SHARE = 0.9
# A curve says nothing so far from where it was fitted, so no batch is named there. How far is
# judgement: as far as break-even goes.
MAX_FACTOR = 64
# Of what is advised: kernels compute a tile of so many rows as fast as a part of one.
TILE = 8
# Sums of rates are off by rounding.
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """A measurement: samples per second of one card at a batch size.

    ``within`` is the factor by which repeats were off it at most, as far as there were any.

    Raises:
        AdvisorError: a batch or a rate that is not positive.
    """

    batch: int
    samples_per_s: float
    within: float = 1.0

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
    """Step time of one card as a line over the work of its batch; neither part is negative.

    ``worth`` is the work of so many samples, in samples of the step's own batch: their number,
    where all samples are the same work.
    """

    fixed_ns: int
    per_sample_ns: float
    worth: Callable[[int], float] = float

    def step_ns(self, batch: int) -> int:
        """Return the time of a step; a card without samples takes none.

        Raises:
            ValueError: a negative batch.
        """
        if batch < 0:
            raise ValueError(f"batch {batch}")
        return round(self.fixed_ns + self.per_sample_ns * self.worth(batch)) if batch else 0

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


class LargerBatch(NamedTuple):
    """How near to its best rate a step is, and the batch that is near enough.

    ``share`` is its rate over ``best_samples_per_s``. ``batch`` is the least multiple of `TILE` at
    `GOOD_SHARE` of that, and takes ``step_ns``; None if it is more than `MAX_FACTOR` times as
    large. ``peak`` is about the batch beyond which the rate falls again, None if it is not known
    to.
    """

    share: float
    best_samples_per_s: float
    batch: int | None
    step_ns: float
    peak: int | None


def larger_batch(
    step_ns: Callable[[int], float], batch: int, *, is_even: bool
) -> LargerBatch | None:
    """Return how much faster a sample is in a larger batch.

    None if the batch is near enough to the best rate, or a sample gets faster without end.
    ``step_ns`` is what a step of so many samples takes. ``is_even``: what grows does so evenly, so
    that rates have a limit; else the best is that of a batch up to `MAX_FACTOR` times as large.
    """

    def rate(samples: int) -> float:
        return samples / step_ns(samples)

    sizes = [batch * times for times in _doubled(MAX_FACTOR)]
    last = sizes[-1]
    if is_even:
        of_sample_ns = (step_ns(last) - step_ns(sizes[-2])) / (last - sizes[-2])
        if of_sample_ns <= 0:
            return None
        best, most = 1 / of_sample_ns, last
    else:
        place = sizes.index(max(sizes, key=rate))
        most = _peak(rate, sizes[max(place - 1, 0)], sizes[min(place + 1, len(sizes) - 1)])
        best = max(rate(most), rate(batch))
    enough = GOOD_SHARE * best * (1 - _ROUNDING)
    if rate(batch) >= enough:
        return None
    tiles = range(ceil((batch + 1) / TILE) * TILE, ceil(most / TILE) * TILE + 1, TILE)
    place = bisect_left(tiles, x=True, key=lambda samples: rate(samples) >= enough)
    good = tiles[place] if place < len(tiles) else None
    return LargerBatch(
        share=rate(batch) / best,
        best_samples_per_s=best * NS_PER_S,
        batch=good,
        step_ns=step_ns(good or last),
        peak=most if most < last else None,
    )


def larger_batch_by(
    points: Sequence[Throughput], batch: int, worth: Callable[[int], float], *, is_even: bool
) -> LargerBatch | None:
    """Return the larger batch that measurements lead to, up to those at ``batch``.

    None if they are too few, lie on no line over the work of their batches, or do not grow.
    """
    smaller = [point for point in points if point.batch <= batch]
    if len({point.batch for point in smaller}) < _MIN_BATCHES:
        return None
    line = fit_batch_time(smaller, worth)
    if misfit(line, smaller) > MAX_MISFIT:
        return None
    return larger_batch(line.step_ns, batch, is_even=is_even)


def whole_tiles(batch: int) -> int:
    """Return the largest multiple of `TILE` up to a batch; below `TILE` the batch."""
    return batch - batch % TILE if batch >= TILE else batch


def _peak(rate: Callable[[int], float], least: int, last: int) -> int:
    """Return the multiple of `TILE` with the best rate, between two batches around it.

    So a step at another batch has the same.
    """
    tiles = range(ceil(least / TILE) * TILE, last + 1, TILE)
    falls = bisect_left(tiles, x=True, key=lambda samples: rate(samples + TILE) <= rate(samples))
    return tiles[min(falls, len(tiles) - 1)] if tiles else last


def _doubled(most: int) -> list[int]:
    return [2**power for power in range(most.bit_length())]


def fit_batch_time(
    points: Sequence[Throughput], worth: Callable[[int], float] = float
) -> BatchTime:
    """Return the line that fits a card's measurements best.

    Least squares on (fit - measured) / measured of the step times, so that small batches count as
    much as large ones. ``worth`` is that of `BatchTime`.

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
    fixed_ns, per_sample_ns = relative_line(
        [(worth(point.batch), point.step_ns) for point in points]
    )
    return BatchTime(fixed_ns=round(fixed_ns), per_sample_ns=per_sample_ns, worth=worth)


def misfit(line: BatchTime, points: Sequence[Throughput]) -> float:
    """Return by what part of a measured step a line is off at most."""
    return max(abs(line.step_ns(point.batch) / point.step_ns - 1) for point in points)


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
