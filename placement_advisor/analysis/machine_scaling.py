"""What a machine does with a model, by number of devices: what `advisor compare-hardware` answers.

The *knee* is the last number of devices at which doubling them brings at least half of what it
could: speed-ups are of the best family on each.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from placement_advisor.analysis.scaled_steps import Limit
from placement_advisor.units import NS_PER_S

# A doubling that brings less than half of what it could.
_KNEE = 1.5
_SECONDS_PER_HOUR = 3_600


class Scaling(StrEnum):
    """What stays the same while devices are added: the batch of each, or that of all."""

    WEAK = "weak"
    STRONG = "strong"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaledStep:
    """A simulated step on the first devices of a machine.

    ``samples`` are those of all devices together, ``efficiency`` is the throughput of a device over
    that of one alone; where layers are split, of one that takes all samples of a host. ``limit`` is
    None where next to nothing is lost; it is memory where the step does not fit.
    """

    scaling: Scaling
    family: str
    devices: int
    samples: int
    step_ns: int
    efficiency: float
    limit: Limit | None

    @property
    def fits(self) -> bool:
        """Whether every device has the memory for it."""
        return self.limit is not Limit.MEMORY

    @property
    def samples_per_s(self) -> float:
        """The throughput of all devices."""
        return self.samples / self.step_ns * NS_PER_S

    @property
    def speedup(self) -> float:
        """The throughput over that of one device, as of `efficiency`."""
        return self.efficiency * self.devices


class OneDevice(NamedTuple):
    """A simulated step of so many samples on one device, and whether that has the memory for it."""

    samples: int
    step_ns: int
    fits: bool

    @property
    def samples_per_s(self) -> float:
        """Its throughput."""
        return self.samples / self.step_ns * NS_PER_S


class FamilyMemory(NamedTuple):
    """What a family's step on so many devices holds on the one that holds most.

    Each device has the model's batch. ``largest_batch`` is the most samples for each that fit, None
    where that is not known.
    """

    family: str
    devices: int
    peak_bytes: int
    largest_batch: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineScaling:
    """What a machine does with a model, by number of devices; ``steps`` begin with one device.

    ``larger`` has one device with the samples of several, where layers were split among these.
    ``memory`` is that of one device alone and of all devices, ``memory_bytes`` what each of these
    has, None if it is not known. ``price_per_hour`` is that of a device, None if it is not known.
    ``notes`` say what could not be simulated.
    """

    label: str
    steps: tuple[ScaledStep, ...]
    larger: tuple[OneDevice, ...]
    memory: tuple[FamilyMemory, ...]
    memory_bytes: int | None
    price_per_hour: float | None
    notes: tuple[str, ...]

    def best(self, scaling: Scaling) -> tuple[ScaledStep, ...]:
        """Return the step with the largest speed-up that fits on each number of devices."""
        best: dict[int, ScaledStep] = {}
        for step in self.steps:
            known = best.get(step.devices)
            is_asked = step.scaling is scaling or step.devices == 1
            if is_asked and step.fits and (known is None or step.speedup > known.speedup):
                best[step.devices] = step
        return tuple(best[devices] for devices in sorted(best))

    def knee(self, scaling: Scaling) -> ScaledStep | None:
        """Return the step on as many devices as each doubling up to them pays for."""
        best = self.best(scaling)
        last = best[0] if best else None
        for step in best[1:]:
            assert last is not None
            doublings = step.devices / last.devices
            if step.speedup / last.speedup < 1 + (_KNEE - 1) * (doublings - 1):
                break
            last = step
        return last

    def cost_per_million(self, step: ScaledStep) -> float | None:
        """Return what a million samples cost, in the unit of the price; None without a price."""
        if self.price_per_hour is None:
            return None
        hours = 1e6 / step.samples_per_s / _SECONDS_PER_HOUR
        return hours * self.price_per_hour * step.devices


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareComparison:
    """A model on several machines; ``batch`` is its own, ``ops`` are those of its step."""

    model: str
    mode: str
    batch: int
    ops: int
    machines: tuple[MachineScaling, ...]
