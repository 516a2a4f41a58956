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

    ``batch_was_asked`` says that the batch is not that of the model file's own examples.

    ``best``, ``even`` and ``others``, the best splits of other global batches, are by the lines of
    devices alone. ``tried`` has the measured step of splits that were run, in ns, the even one
    among them; ``advised`` is the best of these, or that of the lines where none was run.
    """

    model: str
    testbed: str
    batch: int
    batch_was_asked: bool
    devices: tuple[DeviceSpeed, ...]
    best: SplitStep
    even: SplitStep
    others: tuple[SplitStep, ...]
    advised: tuple[int, ...]
    tried: Mapping[tuple[int, ...], int]
    warnings: tuple[str, ...]

    @property
    def fastest_alone(self) -> tuple[str, float]:
        """The device that makes most of the batch by itself, and its samples per second."""
        rates = {
            device.name: point.samples_per_s
            for device in self.devices
            for point in device.points
            if point.batch == self.batch
        }
        name = max(rates, key=rates.__getitem__)
        return name, rates[name]


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
        Throughput(batch=samples, samples_per_s=samples / trimmed_mean(times) * NS_PER_S)
        for samples, times in step_ns.items()
    )
    line = fit_batch_time(points)
    residuals = tuple(line.step_ns(point.batch) / point.step_ns - 1 for point in points)
    return DeviceSpeed(name=name, points=points, line=line, residuals=residuals)


def best_by_lines(devices: Sequence[DeviceSpeed], batch: int) -> SplitStep:
    """Return the split of a batch whose slowest device is done soonest.

    Raises:
        AdvisorError: the batch cannot be split.
    """
    lines = [device.line for device in devices]
    return split_step(lines, best_split(lines, batch), None)


def other_batches(devices: Sequence[DeviceSpeed], batch: int) -> tuple[SplitStep, ...]:
    """Return the best splits of half of a batch, of the batch, and of larger ones."""
    sizes = dict.fromkeys(round(batch * factor) for factor in _BATCHES)
    return tuple(best_by_lines(devices, size) for size in sizes if size)


def trimmed_mean(times_ns: Sequence[int]) -> float:
    """Return the mean without the tenth at either end, which other work on the machine makes."""
    ordered = sorted(times_ns)
    cut = len(ordered) // 10
    kept = ordered[cut : len(ordered) - cut]
    return sum(kept) / len(kept)
