"""Step time and memory by batch size, and how to share a batch among uneven devices."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, NamedTuple

from placement_advisor.cost.lines import relative_line
from placement_advisor.errors import AdvisorError
from placement_advisor.files.contract import Count, NotNegative
from placement_advisor.units import NS_PER_S, format_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from placement_advisor.machine.devices import Device


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
        """Return the time of a step; a card without samples takes none."""
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
    """Return the step in which each card computes its share of the batch."""
    times = [card.step_ns(share) for card, share in zip(cards, batches, strict=True)]
    return SplitStep(batches=tuple(batches), slowest_ns=max(times, default=0))


def best_split(cards: Sequence[BatchTime], batch: int, most: Sequence[int | None]) -> SplitStep:
    """Return the step in which the slowest card is done soonest.

    ``most`` are the samples that each card's memory can hold, None for no known limit. Of equally
    fast splits, earlier cards get more.

    Raises:
        AdvisorError: the batch does not fit.
    """
    limits = [batch if limit is None else min(limit, batch) for limit in most]
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
    return split_step(cards, found)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchMemory:
    """What a step holds at its peak on one device, simulated: a line over its samples."""

    fixed_bytes: Count
    """Independent of the batch."""
    per_sample_bytes: NotNegative

    def peak_bytes(self, batch: int) -> int:
        """Return what a step of so many samples holds."""
        return round(self.fixed_bytes + self.per_sample_bytes * batch)

    def largest_batch(self, memory_bytes: int | None) -> int | None:
        """Return the most samples that fit; None for no limit that is known."""
        if memory_bytes is None:
            return None
        if memory_bytes < self.fixed_bytes:
            return 0
        if not self.per_sample_bytes:
            return None
        return int((memory_bytes - self.fixed_bytes) / self.per_sample_bytes)


def fit_batch_memory(peak_bytes: Mapping[int, int]) -> BatchMemory:
    """Return the line through the peaks of the two largest batches, by number of samples.

    One batch alone gives its peak for any batch.

    Raises:
        ValueError: no batch.
    """
    *smaller, most = sorted(peak_bytes)
    slope = 0.0
    if smaller:
        grown_bytes = peak_bytes[most] - peak_bytes[smaller[-1]]
        slope = max(0.0, grown_bytes / (most - smaller[-1]))
        # A peak that grows faster than the batch has no fixed part.
        slope = min(slope, peak_bytes[most] / most)
    return BatchMemory(fixed_bytes=round(peak_bytes[most] - slope * most), per_sample_bytes=slope)


def best_batch(cards: Sequence[BatchTime], most: Sequence[int | None]) -> SplitStep | None:
    """Return the step with most samples per second that fits the cards, merging left out.

    ``most`` are the samples that each card's memory holds. None where one is not known: throughput
    may then grow with the batch without end.

    While all cards are done together, throughput changes with the batch in one direction, so it is
    greatest where some card is full; the others get what they compute meanwhile. Each gets a
    multiple of `TILE`, unless it holds less.
    """
    limits = [whole_tiles(limit) for limit in most if limit is not None]
    if len(limits) < len(most):
        return None
    full_ns = [card.step_ns(limit) for card, limit in zip(cards, limits, strict=True) if limit]
    steps = [
        split_step(
            cards,
            [
                whole_tiles(card.largest_batch(step_ns, limit))
                for card, limit in zip(cards, limits, strict=True)
            ],
        )
        for step_ns in full_ns
    ]
    return max(steps, key=lambda step: step.most_samples_per_s, default=None)


# A third size says whether the two others lie on a line by chance.
_PARTS = (1, 2, 4)
# Global batches that are looked at, as multiples of the one asked for.
_BATCHES = (0.5, 1, 2, 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSpeed:
    """What a device takes alone: measured, the line through it, and how far that is off.

    ``residuals`` are (line - measured) / measured of step times, one for each point.
    """

    name: str
    points: tuple[Throughput, ...]
    line: BatchTime
    residuals: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """The split of a batch that equalises devices, beside the even one.

    ``batch_was_asked`` says that the batch is not that of the model file's own examples.

    ``memory`` is simulated, ``most`` the samples that each device holds by it, None for no known
    limit.

    ``best``, ``even``, ``others`` (the best splits of other global batches that fit) and
    ``best_batch`` (the global batch of most samples per second that fits, None where that is not
    known) are by the lines of devices alone; where step times lie on none, there are no others, and
    no best. ``tried`` has the measured step of splits that were
    run, in ns, the even one among them if it fits; ``advised`` is the best of these, or that of the
    lines where none was run.
    """

    model: str
    testbed: str
    batch: int
    batch_was_asked: bool
    devices: tuple[DeviceSpeed, ...]
    memory: BatchMemory
    most: tuple[int | None, ...]
    best: SplitStep
    even: SplitStep
    others: tuple[SplitStep, ...]
    best_batch: SplitStep | None
    advised: tuple[int, ...]
    tried: Mapping[tuple[int, ...], int]
    warnings: tuple[str, ...]

    @property
    def lies_on_lines(self) -> bool:
        """Whether step times say enough of batches that did not run."""
        return misfit_of(self.devices) <= MAX_MISFIT

    @property
    def fastest_alone(self) -> tuple[str, float] | None:
        """The device that makes most of the batch by itself, and its samples per second.

        None if no device holds it.
        """
        rates = {
            device.name: point.samples_per_s
            for device in self.devices
            for point in device.points
            if point.batch == self.batch
        }
        if not rates:
            return None
        name = max(rates, key=rates.__getitem__)
        return name, rates[name]


def sizes_to_time(batch: int) -> tuple[int, ...]:
    """Return the batch sizes at which each device is timed, the largest first."""
    return tuple(dict.fromkeys(batch // part for part in _PARTS if batch // part))


def largest_alone(batch: int, devices: Sequence[Device], memory: BatchMemory) -> int:
    """Return the largest part of a batch that each device holds.

    Raises:
        AdvisorError: a device holds no sample, or all together not the batch.
    """
    most = []
    for device in devices:
        limit = memory.largest_batch(device.memory_bytes)
        if limit is not None and limit < 1:
            raise AdvisorError(
                f"{device.name} has {format_bytes(device.memory_bytes)}: the step holds "
                f"{format_bytes(memory.peak_bytes(1))} for one sample (simulated)",
                hint="leave that device out",
            )
        most.append(batch if limit is None else min(batch, limit))
    if sum(most) < batch:
        raise AdvisorError(
            f"a batch of {batch} does not fit: the devices hold {sum(most)} samples (simulated)",
            hint=f"--batch-size {sum(most)}",
        )
    return min(most)


def speed_of(name: str, step_ns: Mapping[int, Sequence[int]]) -> DeviceSpeed:
    """Return the line of a device from its step times, by number of samples.

    Raises:
        AdvisorError: fewer than two batch sizes.
    """
    points = tuple(
        # The mean, not the median: a device that is slowed down in slices has fast steps and slow.
        Throughput(batch=samples, samples_per_s=samples / trimmed_mean(times) * NS_PER_S)
        for samples, times in step_ns.items()
    )
    line = fit_batch_time(points)
    residuals = tuple(line.step_ns(point.batch) / point.step_ns - 1 for point in points)
    return DeviceSpeed(name=name, points=points, line=line, residuals=residuals)


def misfit_of(devices: Sequence[DeviceSpeed]) -> float:
    """Return by what part of a measured step the line of any device is off at most."""
    return max(abs(each) for device in devices for each in device.residuals)


def other_batches(
    devices: Sequence[DeviceSpeed], batch: int, most: Sequence[int | None]
) -> tuple[SplitStep, ...]:
    """Return the best splits of half of a batch, of the batch, and of larger ones that fit."""
    sizes = dict.fromkeys(round(batch * factor) for factor in _BATCHES)
    limits = [limit for limit in most if limit is not None]
    fitting = sum(limits) if len(limits) == len(most) else None
    lines = [device.line for device in devices]
    return tuple(
        best_split(lines, size, most)
        for size in sizes
        if size and (fitting is None or size <= fitting)
    )


def trimmed_mean(times_ns: Sequence[int]) -> float:
    """Return the mean without the tenth at either end, which other work on the machine makes."""
    ordered = sorted(times_ns)
    cut = len(ordered) // 10
    kept = ordered[cut : len(ordered) - cut]
    return sum(kept) / len(kept)
