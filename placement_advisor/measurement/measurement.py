"""A `Measurement` holds the samples of a placement, a `Comparison` the verdict on it.

Warm-up steps are kept apart. Timing rounds run without the profiler; the profile comes from
separate steps. Steps are compared within a round only: rounds of all candidates are
interleaved, so that what slows the machine for a while slows both sides of a ratio.

Intervals of a median hold at every look: one may look after each sample, and stop on it. The
sequential test bets against each possible median; under the true one its wealth is a fair
game's, which exceeds ``1 / error`` at any time with probability ``error`` at most. Intervals
also allow for the number of candidates.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from itertools import count
from math import comb
from statistics import median
from typing import TYPE_CHECKING

from placement_advisor import defaults
from placement_advisor.files.contract import Count, Ns, Text
from placement_advisor.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from placement_advisor.machine.clock_range import ClockRange
    from placement_advisor.measurement.verification import Verification


CONFIDENCE = 0.95
# Enough resamples for two stable digits of a 95 % interval (Efron & Tibshirani, 1993, ch. 13).
BOOTSTRAP_RESAMPLES = 4_000
_BOOTSTRAP_SEED = 20_201


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A median with its 95 % interval."""

    median: float
    low: float
    high: float

    @property
    def inverted(self) -> Interval:
        """The interval of one over it: a speed-up from a ratio of step times, or the reverse."""
        return Interval(median=1 / self.median, low=1 / self.high, high=1 / self.low)


class Invariant(StrEnum):
    """What holds of every step; `laws` says why."""

    DEVICE_WITHIN_STEP = "device-within-step"
    COPIES_WITHIN_STEP = "copies-within-step"
    PARTS_ADD_UP = "parts-add-up"
    PROFILE_OF_TIMED_STEP = "profile-of-timed-step"
    RATIO_AGREES = "ratio-agrees"


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A law, and the figures that break it, in words."""

    law: Invariant
    what: str


class SizeBasis(StrEnum):
    """Where the bytes of copies come from: the profile itself, or the shapes in the graph."""

    PROFILE = "profile"
    SHAPES = "shapes"


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferTotal:
    """All copies from one device to another within a step (median over profiled steps).

    ``time_ns`` is the time in which at least one of them was under way: copies that overlap share
    it. ``exposed_ns`` is the part during which the target computed nothing. ``size_basis`` is that
    of the bytes, *shapes* if that of any copy is, None where they are not known.
    """

    source: str
    target: str
    count: int
    size_bytes: int | None
    size_basis: SizeBasis | None
    time_ns: int
    exposed_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """A kernel or a sort of copies, over all profiled steps.

    Copies that overlap between the same two devices share their time, as on a link that serves one
    after the other.
    """

    name: Text
    """Kernel or kind of copy."""
    calls: Count
    total_ns: Ns
    """Sum over all calls."""
    min_ns: Ns
    max_ns: Ns
    is_copy: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One bar of a timeline; ``lane`` is a device or ``source → target``."""

    lane: str
    name: str
    start_ns: int
    end_ns: int
    is_copy: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StepProfile:
    """What the profiler saw, per step (median over the profiled steps).

    ``op_ns`` holds the median time of each op by name, ``timeline`` the spans of the step whose
    length is the median one, counted from its start. ``step_memory_bytes`` is what a step holds at
    its worst moment above what stands between steps, by device; devices whose allocator reported
    nothing are missing.

    ``exposed_by_device`` is the time in which a device waited for a copy and computed nothing,
    wherever that came from. ``unseen_copies`` names copies that the step makes and the profile does
    not show: how many there are in all, and their bytes, is then unknown. ``broken_laws`` are those
    that any of the profiled steps breaks.

    ``clocks`` has, for devices of other hosts, how far their clock is ahead of the command's; it is
    taken to be in the middle of that range. ``clock_contradiction_ns`` is more than 0 where what
    crossed between hosts fits no offsets: clocks were set, or drifted more than clocks do.
    """

    step_ns: tuple[int, ...]
    compute_ns: Mapping[str, int]
    exposed_by_device: Mapping[str, int]
    transfers: tuple[TransferTotal, ...]
    activities: tuple[Activity, ...]
    op_ns: Mapping[str, int]
    timeline: tuple[Span, ...]
    step_memory_bytes: Mapping[str, int] = field(default_factory=dict)
    unseen_copies: tuple[str, ...] = ()
    broken_laws: tuple[Violation, ...] = ()
    clocks: Mapping[str, ClockRange] = field(default_factory=dict)
    clock_contradiction_ns: int = 0

    @property
    def clock_uncertainty_ns(self) -> int | None:
        """How far what is shown of any device may be from where it belongs in time.

        None where all devices share the command's clock.
        """
        uncertain = (clock.uncertainty_ns for clock in self.clocks.values())
        return max(uncertain, default=None)

    @property
    def exposed_ns(self) -> int:
        """What the device that waits longest for copies waits, computing nothing."""
        return max(self.exposed_by_device.values(), default=0)

    @property
    def transfer_ns(self) -> int:
        """Time in which a copy was under way, summed over pairs of source and target."""
        return sum(total.time_ns for total in self.transfers)

    @property
    def transfer_count(self) -> int | None:
        """Copies per step, None if the profile does not show all of them."""
        return None if self.unseen_copies else sum(total.count for total in self.transfers)

    @property
    def transfer_bytes(self) -> int | None:
        """Bytes across per step, None if a copy was not seen or the size of any is unknown."""
        sizes = [total.size_bytes for total in self.transfers]
        known = [size for size in sizes if size is not None]
        return sum(known) if len(known) == len(sizes) and not self.unseen_copies else None

    @property
    def bytes_are_a_floor(self) -> bool:
        """False: `transfer_bytes` are all of them, or unknown."""
        return False

    @property
    def size_basis(self) -> SizeBasis | None:
        """Where the bytes across come from, None where they are not known or there are none."""
        found = {total.size_basis for total in self.transfers}
        if self.transfer_bytes is None or not found:
            return None
        return SizeBasis.SHAPES if SizeBasis.SHAPES in found else SizeBasis.PROFILE


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """A candidate as it really ran.

    ``rounds`` holds the step times of each timing round, none of those before it joined.
    ``moved_ops`` are ops that TensorFlow ran elsewhere than planned. ``verification`` compares what
    steps changed and put out with the single-device run; None for that run itself. ``profile_run``
    is the folder of the TensorBoard profile run.
    """

    warmup_ns: tuple[int, ...]
    rounds: tuple[tuple[int, ...], ...]
    moved_ops: tuple[str, ...]
    verification: Verification | None
    profile: StepProfile | None
    profile_run: str | None

    @property
    def round_count(self) -> int:
        """In how many rounds it was timed."""
        return sum(1 for steps in self.rounds if steps)

    @property
    def step_ns(self) -> tuple[int, ...]:
        """Every timed step, in order."""
        return tuple(step for steps in self.rounds for step in steps)

    @property
    def profiler_overhead(self) -> float | None:
        """Median profiled step over median unprofiled step."""
        if self.profile is None or not self.profile.step_ns or not self.step_ns:
            return None
        return median(self.profile.step_ns) / median(self.step_ns)


def bootstrap_median(samples: Sequence[float]) -> Interval:
    """Return the median of samples with its percentile bootstrap interval.

    The resampling is seeded: equal samples give equal intervals.

    Raises:
        ValueError: no samples.

    Source: Efron & Tibshirani, An Introduction to the Bootstrap (1993), ch. 13.
    """
    import numpy as np  # `show` reads what was measured, and needs none of it.

    if not samples:
        raise ValueError("no samples")
    values = np.asarray(samples, dtype=float)
    generator = np.random.default_rng(_BOOTSTRAP_SEED)
    picks = generator.integers(0, len(values), (BOOTSTRAP_RESAMPLES, len(values)))
    medians = np.median(values[picks], axis=1)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(medians, [tail, 1 - tail])
    return Interval(median=float(np.median(values)), low=float(low), high=float(high))


class FailureKind(StrEnum):
    """Why a candidate has no result."""

    CRASHED = "crashed"
    TIMED_OUT = "timed-out"
    OUT_OF_MEMORY = "out-of-memory"
    NOT_APPLICABLE = "not-applicable"
    DOES_NOT_FIT = "does-not-fit"
    WRONG_RESULT = "wrong-result"


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateFailure:
    """What went wrong with one candidate.

    ``message`` is a sentence; ``in_full`` all that there is to read, empty if that is no more.
    """

    kind: FailureKind
    message: str
    in_full: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputTiming:
    """Batches of the user's dataset, taken one after the other with no step in between, measured.

    ``batch_ns`` has the time of each batch, warm-up left out. A pipeline that prefetches hands
    batches out in bursts, so that the mean and not the median tells its rate.
    ``transformations`` are the kinds of the dataset's transformations, source first, as TensorFlow
    calls them but for versions: ``TensorSliceDataset``, ``ParallelMapDataset``. They are empty
    where the dataset does not tell.
    """

    batch_ns: tuple[int, ...]
    transformations: tuple[str, ...]

    def samples_per_s(self, batch_size: int) -> float:
        """Return the rate, given the samples in a batch.

        Raises:
            ZeroDivisionError: the batches took no time.
        """
        return batch_size * len(self.batch_ns) * NS_PER_S / sum(self.batch_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopTiming:
    """Times of a step in `fit`, measured; ``one_ns`` and ``several_ns`` have one for each round.

    In ``several_ns`` a call runs ``steps_per_call`` steps (Keras' ``steps_per_execution``).
    """

    steps_per_call: int
    one_ns: tuple[int, ...]
    several_ns: tuple[int, ...]

    @property
    def saved_shares(self) -> tuple[float, ...]:
        """What several steps for each call saved of a step, in each round."""
        rounds = zip(self.one_ns, self.several_ns, strict=True)
        return tuple(1 - several / one for one, several in rounds)


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
        if self.ratio.high < defaults.WORTHWHILE_RATIO:
            return Verdict.FASTER
        if self.ratio.low > defaults.WORTHWHILE_RATIO:
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


def overall_verdict(comparisons: Collection[Comparison]) -> Verdict:
    """Return what all of them say: faster if one is, slower if each is."""
    verdicts = {comparison.verdict for comparison in comparisons}
    for verdict in (Verdict.FASTER, Verdict.INCONCLUSIVE):
        if verdict in verdicts:
            return verdict
    return Verdict.SLOWER


def is_in_doubt(comparisons: Collection[Comparison]) -> bool:
    """Return whether more rounds may change which one to prefer, or whether to prefer any."""
    best = min(comparisons, key=lambda each: each.ratio.median)
    return best.verdict is not Verdict.FASTER and overall_verdict(comparisons) is not Verdict.SLOWER
