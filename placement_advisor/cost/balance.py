"""How much of a batch each device should get, told from what each takes alone.

Model: a line over the batch is fitted to each device's step times. The best split of a global batch
is the one whose slowest device is done soonest. Left out: what merging shares costs, and memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from placement_advisor.cost.batch import (
    BatchTime,
    SplitStep,
    Throughput,
    best_split,
    fit_batch_time,
    split_step,
)
from placement_advisor.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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

    ``others`` are the best splits of other global batches.
    """

    model: str
    testbed: str
    batch: int
    devices: tuple[DeviceSpeed, ...]
    best: SplitStep
    even: SplitStep
    others: tuple[SplitStep, ...]
    warnings: tuple[str, ...]


def sizes_to_time(batch: int) -> tuple[int, ...]:
    """Return the batch sizes at which each device is timed, the largest first."""
    return tuple(dict.fromkeys(batch // part for part in _PARTS if batch // part))


def speed_of(name: str, step_ns: Mapping[int, Sequence[int]]) -> DeviceSpeed:
    """Return the line of a device from its step times, by number of samples.

    Raises:
        AdvisorError: fewer than two batch sizes.
    """
    points = tuple(
        # The mean, not the median: a device that is slowed down in slices has fast steps and slow.
        Throughput(batch=samples, samples_per_s=samples / _mean(times) * NS_PER_S)
        for samples, times in step_ns.items()
    )
    line = fit_batch_time(points)
    residuals = tuple(line.step_ns(point.batch) / point.step_ns - 1 for point in points)
    return DeviceSpeed(name=name, points=points, line=line, residuals=residuals)


def balanced(
    devices: Sequence[DeviceSpeed], batch: int, *, model: str, testbed: str, warnings: Sequence[str]
) -> Balance:
    """Return the best split of a global batch, the even one, and those of other batches.

    Raises:
        AdvisorError: the batch cannot be split.
    """
    lines = [device.line for device in devices]

    def best(global_batch: int) -> SplitStep:
        return split_step(lines, best_split(lines, global_batch), None)

    base, more = divmod(batch, len(lines))
    even = [base + (i < more) for i in range(len(lines))]
    sizes = dict.fromkeys(round(batch * factor) for factor in _BATCHES)
    return Balance(
        model=model,
        testbed=testbed,
        batch=batch,
        devices=tuple(devices),
        best=best(batch),
        even=split_step(lines, even, None),
        others=tuple(best(size) for size in sizes if size),
        warnings=tuple(warnings),
    )


def _mean(times_ns: Sequence[int]) -> float:
    """Return the mean without the tenth at either end, which other work on the machine makes."""
    ordered = sorted(times_ns)
    cut = len(ordered) // 10
    kept = ordered[cut : len(ordered) - cut]
    return sum(kept) / len(kept)
