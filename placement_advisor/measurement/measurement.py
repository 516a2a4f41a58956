"""What was measured, and the statistics that are allowed to speak about it.

Every sample is kept; warm-up steps are kept apart. Timing rounds run without the profiler, the
profile comes from separate steps.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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


class Law(StrEnum):
    """What holds of every step; `laws` says why."""

    DEVICE_WITHIN_STEP = "device-within-step"
    COPIES_WITHIN_STEP = "copies-within-step"
    PARTS_ADD_UP = "parts-add-up"
    PROFILE_OF_TIMED_STEP = "profile-of-timed-step"
    RATIO_AGREES = "ratio-agrees"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenLaw:
    """A law, and the figures that break it, in words."""

    law: Law
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
    """One row of the nvprof-style table: all events of one name over all profiled steps.

    Copies that overlap on their way between the same two devices share their time, each having
    the moment in which it is the next to arrive, as on a link that serves one after the other.
    """

    name: str
    calls: int
    total_ns: int
    min_ns: int
    max_ns: int
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
    broken_laws: tuple[BrokenLaw, ...] = ()
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
