"""How much of a batch each device should get, told from what each takes alone.

Model: a line over the batch is fitted to each device's step times. The best split of a global batch
is the one whose slowest device is done soonest and whose shares fit. Left out: what merging costs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from placement_advisor.cost.batch import (
    MAX_MISFIT,
    BatchTime,
    SplitStep,
    Throughput,
    best_split,
    fit_batch_time,
    split_step,
)
from placement_advisor.errors import AdvisorError
from placement_advisor.units import NS_PER_S, format_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from placement_advisor.cost.batch_memory import BatchMemory
    from placement_advisor.machine.devices import Device

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


def best_by_lines(
    devices: Sequence[DeviceSpeed], batch: int, most: Sequence[int | None]
) -> SplitStep:
    """Return the split of a batch whose slowest device is done soonest.

    ``most`` are the samples that each device holds, None for no known limit.

    Raises:
        AdvisorError: the batch does not fit.
    """
    lines = [device.line for device in devices]
    return split_step(lines, best_split(lines, batch, most))


def other_batches(
    devices: Sequence[DeviceSpeed], batch: int, most: Sequence[int | None]
) -> tuple[SplitStep, ...]:
    """Return the best splits of half of a batch, of the batch, and of larger ones that fit."""
    sizes = dict.fromkeys(round(batch * factor) for factor in _BATCHES)
    limits = [limit for limit in most if limit is not None]
    fitting = sum(limits) if len(limits) == len(most) else None
    return tuple(
        best_by_lines(devices, size, most)
        for size in sizes
        if size and (fitting is None or size <= fitting)
    )


def trimmed_mean(times_ns: Sequence[int]) -> float:
    """Return the mean without the tenth at either end, which other work on the machine makes."""
    ordered = sorted(times_ns)
    cut = len(ordered) // 10
    kept = ordered[cut : len(ordered) - cut]
    return sum(kept) / len(kept)
