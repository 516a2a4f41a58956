"""What was measured, and the statistics that are allowed to speak about it.

Every sample is kept; warm-up steps are kept apart. Timing rounds run without the profiler, the
profile comes from separate steps.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferTotal:
    """All copies from one device to another within a step (median over profiled steps).

    ``time_ns`` is the time in which at least one of them was under way: copies that overlap share
    it. ``exposed_ns`` is the part during which the target computed nothing.
    """

    source: str
    target: str
    count: int
    size_bytes: int | None
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
    """

    step_ns: tuple[int, ...]
    compute_ns: Mapping[str, int]
    transfers: tuple[TransferTotal, ...]
    activities: tuple[Activity, ...]
    op_ns: Mapping[str, int]
    timeline: tuple[Span, ...]
    step_memory_bytes: Mapping[str, int] = field(default_factory=dict)

    @property
    def transfer_ns(self) -> int:
        """Time in which a copy was under way, summed over pairs of source and target."""
        return sum(total.time_ns for total in self.transfers)

    @property
    def transfer_count(self) -> int:
        """Copies per step."""
        return sum(total.count for total in self.transfers)

    @property
    def transfer_bytes(self) -> int | None:
        """Bytes across per step, None if the size of any copy is unknown."""
        sizes = [total.size_bytes for total in self.transfers]
        known = [size for size in sizes if size is not None]
        return sum(known) if len(known) == len(sizes) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """A candidate as it really ran.

    ``rounds`` holds the step times of each timing round. ``moved_ops`` are ops that TensorFlow
    ran elsewhere than planned. ``max_relative_difference`` compares outputs and updated variables
    with those of the single-device run; None for that run itself. ``profile_run`` is the folder
    of the TensorBoard profile run.
    """

    warmup_ns: tuple[int, ...]
    rounds: tuple[tuple[int, ...], ...]
    moved_ops: tuple[str, ...]
    max_relative_difference: float | None
    profile: StepProfile | None
    profile_run: str | None

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
    if not samples:
        raise ValueError("no samples")
    values = np.asarray(samples, dtype=float)
    generator = np.random.default_rng(_BOOTSTRAP_SEED)
    picks = generator.integers(0, len(values), (BOOTSTRAP_RESAMPLES, len(values)))
    medians = np.median(values[picks], axis=1)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(medians, [tail, 1 - tail])
    return Interval(median=float(np.median(values)), low=float(low), high=float(high))
