"""The step of a model by number of devices of a machine, as `compare-hardware` answers.

A step on several devices is held against one device that does as many samples: in one step, or in
several of its own batch, whichever is faster. So what a larger batch brings one device as well,
which is much where a step waits for launches, is not taken for what further devices bring.

The *knee* is the last number of devices at which doubling them brings at least half of what it
could: speed-ups are of the best step on each.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from placement_advisor.defaults import WORTHWHILE_SPEEDUP
from placement_advisor.files.contract import Count, Ns, Positive, Text
from placement_advisor.measurement.measurement import Interval
from placement_advisor.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from placement_advisor.analysis.analysis_result import AdviceVerdict
    from placement_advisor.analysis.scaled_steps import Limit
    from placement_advisor.simulator.sensitivity import CostUncertainty, PredictedRatio


# A doubling that brings less than half of what it could.
_KNEE = 1.5
_SECONDS_PER_HOUR = 3_600


class Scaling(StrEnum):
    """What stays the same while devices are added: the batch of each, or that of all."""

    WEAK = "weak"
    STRONG = "strong"


class Excess(StrEnum):
    """Why a step is faster than one device by more than the number of devices.

    ``LAUNCHES``: with launches that cost nothing it is not. ``UNEXPLAINED``: nothing that was taken
    out of the simulation makes it vanish.
    """

    LAUNCHES = "launches"
    UNEXPLAINED = "unexplained"


@dataclass(frozen=True, slots=True)
class SimulatedStep:
    """A step of a family that was simulated."""

    scaling: Scaling
    family: Text
    """Says who holds the variables or layers."""
    devices: Positive
    samples: Positive
    """Of all devices."""
    step_ns: Ns
    fits: bool
    """Memory suffices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaledStep:
    """A step on a number of devices: the best there, or one of one device; it may use fewer.

    It uses ``used`` of the ``devices``, for ``samples`` in all, and ``fits`` their memory.
    ``ratio`` is the time of a sample over that on one device, which does as many at
    ``alone_per_s``; it is None for that device itself, and where no single device holds the step.
    ``without_launches`` is that ratio if
    launches cost nothing. ``if_wrong_ns`` is the step where costs are wrong, by the ways of the
    doubt, and without launches last. ``limit`` is what most is lost to, None where next to
    nothing is. ``verdict`` is that of `advisor analyze` on these devices, None where it gives none.
    """

    scaling: Scaling
    family: str
    devices: int
    used: int
    samples: int
    step_ns: int
    fits: bool = True
    alone_per_s: float | None = None
    ratio: PredictedRatio | None = None
    without_launches: float | None = None
    limit: Limit | None = None
    if_wrong_ns: tuple[int, ...] = ()
    verdict: AdviceVerdict | None = None

    @property
    def samples_per_s(self) -> float:
        """The throughput of all devices."""
        return self.samples / self.step_ns * NS_PER_S

    @property
    def excess(self) -> Excess | None:
        """Why it is more than so many times as fast as one device, None if it is not."""
        if self.ratio is None or self.ratio.ratio * self.devices >= 1:
            return None
        bare = self.without_launches
        return Excess.LAUNCHES if bare and bare * self.devices >= 1 else Excess.UNEXPLAINED

    @property
    def speedup(self) -> Interval | None:
        """The throughput over that of one device and its range; None if it is not explained."""
        if self.ratio is None or self.excess is Excess.UNEXPLAINED:
            return None
        ratio = self.ratio
        return Interval(median=ratio.ratio, low=ratio.low, high=ratio.high).inverted

    @property
    def efficiency(self) -> float | None:
        """The speed-up over the number of devices; None if there is none, or more than that."""
        return None if self.speedup is None or self.excess else self.speedup.median / self.devices


@dataclass(frozen=True, slots=True)
class FamilyMemory:
    """What a step of a family holds on the device that holds most."""

    family: Text
    """Says who holds the variables."""
    devices: Positive
    """Each has the batch of the model."""
    peak_bytes: Count
    """On the fullest device."""
    largest_batch: Count | None
    """Samples on each device that fit."""


@dataclass(frozen=True, slots=True)
class Knee:
    """Up to how many devices each doubling brings at least half of what it could."""

    devices: Positive
    """As simulated."""
    at_worst: Positive
    """At low ends of ranges."""
    at_best: Positive
    """At the high ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineScaling:
    """What a machine does with a model, by number of devices.

    ``rows`` has the best step of each scaling on each number of devices, that of one device first
    if it fits, ``steps`` what was simulated of all families, ``alone`` one device with ever larger
    batches. ``answer`` is that of `advisor analyze` on all devices, None where it gives none.
    ``memory`` is that of one device alone and of all devices, ``memory_bytes`` what each of these
    has, None if it is not known. ``price_per_hour`` is that of a device, None if it is not known.
    ``notes`` say what could not be simulated.
    """

    label: str
    answer: str | None
    verdict: AdviceVerdict | None
    doubt: CostUncertainty
    rows: tuple[ScaledStep, ...]
    steps: tuple[SimulatedStep, ...]
    alone: tuple[ScaledStep, ...]
    memory: tuple[FamilyMemory, ...]
    memory_bytes: int | None
    price_per_hour: float | None
    notes: tuple[str, ...]

    def best(self, scaling: Scaling) -> tuple[ScaledStep, ...]:
        """Return the best step on each number of devices."""
        return tuple(row for row in self.rows if row.scaling is scaling or row.devices == 1)

    def knee(self, scaling: Scaling) -> Knee | None:
        """Return up to how many devices each doubling pays; None where nothing fits on one."""
        best = [row for row in self.best(scaling) if row.devices == 1 or row.speedup is not None]
        if not best or best[0].devices > 1:
            return None
        one = Interval(median=1.0, low=1.0, high=1.0)
        speedups = [row.speedup or one for row in best]
        curves = zip(*((each.median, each.low, each.high) for each in speedups), strict=True)
        devices = [row.devices for row in best]
        return Knee(*(_knee(devices, curve) for curve in curves))

    def cost_per_million(self, step: ScaledStep) -> float | None:
        """Return what a million samples cost, in the unit of the price; None without a price."""
        if self.price_per_hour is None:
            return None
        hours = 1e6 / step.samples_per_s / _SECONDS_PER_HOUR
        return hours * self.price_per_hour * step.devices


def _knee(devices: Sequence[int], speedups: Sequence[float]) -> int:
    last = 0
    for this in range(1, len(devices)):
        doublings = devices[this] / devices[last]
        if speedups[this] / speedups[last] < 1 + (_KNEE - 1) * (doublings - 1):
            break
        last = this
    return devices[last]


class Ranked(NamedTuple):
    """The first of several machines, and those that it does not surely beat.

    ``is_by_launches``: they tie as simulated and would not if launches cost nothing, where another
    may be first, ``without_launches``.
    """

    machine: MachineScaling
    step: ScaledStep
    ties: tuple[MachineScaling, ...]
    is_by_launches: bool
    without_launches: MachineScaling


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareComparison:
    """A model on several machines; ``batch`` is its own, ``ops`` are those of its step."""

    model: str
    mode: str
    batch: int
    ops: int
    machines: tuple[MachineScaling, ...]

    def fastest(self) -> Ranked | None:
        """Return the machine of most samples per second; see `_first` for what is compared."""
        return self._first(lambda machine, step: 1.0)

    def cheapest(self) -> Ranked | None:
        """Return the machine of the least price for a sample, None if one has no price."""
        if any(machine.price_per_hour is None for machine in self.machines):
            return None
        return self._first(lambda machine, step: (machine.price_per_hour or 0) * step.devices)

    def _first(self, price: Callable[[MachineScaling, ScaledStep], float]) -> Ranked | None:
        """Return the machine of the least time, or price, for a sample.

        Each has the whole batch on as many devices as pay. Machines are compared with costs as they
        are and in each way in which they may be wrong, which is the same for all: launches are the
        host's, and how copies are known does not differ.
        """
        entries = []
        for machine in self.machines:
            knee = machine.knee(Scaling.WEAK)
            if knee is None:
                continue
            step = next(s for s in machine.best(Scaling.WEAK) if s.devices == knee.devices)
            of_sample = price(machine, step) / step.samples
            entries.append(
                (machine, step, [n * of_sample for n in (step.step_ns, *step.if_wrong_ns)])
            )
        if not entries:
            return None
        first, step, costs = min(entries, key=lambda entry: entry[2][0])
        ties, is_by_launches = [], False
        for other, _, theirs in entries:
            if other is first:
                continue
            *ratios, bare = (b / a for a, b in zip(costs, theirs, strict=True))
            if min(ratios) / max(first.doubt.ops, other.doubt.ops) > 1:
                continue
            ties.append(other)
            is_level = ratios[0] < WORTHWHILE_SPEEDUP
            is_by_launches |= is_level and not 1 / WORTHWHILE_SPEEDUP < bare < WORTHWHILE_SPEEDUP
        bare_first, *_ = min(entries, key=lambda entry: entry[2][-1])
        return Ranked(first, step, tuple(ties), is_by_launches, bare_first)
