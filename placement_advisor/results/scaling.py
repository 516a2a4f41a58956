"""What `advisor compare-hardware` answers: what further devices bring, simulated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from annotated_types import Ge, Le, MinLen

from placement_advisor import __version__
from placement_advisor.analysis import machine_scaling as found
from placement_advisor.analysis.analysis_result import AdviceVerdict
from placement_advisor.analysis.scaled_steps import Limit
from placement_advisor.files.contract import STRICT, Count, Ns, Positive, Rows, Text, like

if TYPE_CHECKING:
    from placement_advisor.analysis.machine_scaling import (
        HardwareComparison,
        MachineScaling,
        Ranked,
        ScaledStep,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """What was traced."""

    name: Text
    """Name of the model or step."""
    mode: Literal["train", "infer"]
    """Training or inference."""
    batch_size: Positive
    """Samples of a step on one device."""
    ops: Count
    """Ops of the step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fastest:
    """The machine of most samples per second; None where the step fits on no single device."""

    hardware: Text
    """The machine as it was given."""
    devices: Positive
    """On so many of its devices, as many as pay."""
    ties: Rows[Text]
    """Machines that it does not surely beat, costs being as wrong as they may be."""
    launches_decide: bool
    """Whether they are level as simulated and would not be if launches cost nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CostsWithin:
    """By which factors costs may be wrong, either way; ranges are what follows."""

    copies: float
    """Copies."""
    launches: float
    """Launches, which may also cost nothing."""
    ops: float
    """The ops of a split against those of one device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What a step of a family holds on the device that holds most."""

    family: Text
    """Who holds variables and updates them."""
    devices: Positive
    """How many of the machine's devices."""
    peak_bytes: Count
    """The most that the device holds at one moment that holds most."""
    largest_batch: Count | None
    """The most samples on each device for which that one has the memory; None where its memory is
    not known or the batch does not change what it holds.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Speedup:
    """Throughput over that of one device."""

    simulated: float
    """With costs as they are."""
    low: float
    """The least if costs are as wrong as they may be."""
    high: float
    """The most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The best step of a scaling on a number of devices."""

    scaling: found.Scaling | None
    """Whether each device has the whole batch or its share; None for one device."""
    family: Text
    """The best split: who holds variables and updates them, or which devices have which layers."""
    devices: Positive
    """How many of the machine's devices there are."""
    devices_used: Positive
    """How many of these it uses."""
    samples: Positive
    """Samples of a step, of all devices."""
    step_ns: Ns
    """The simulated step."""
    samples_per_s: float
    """Throughput of all devices."""
    one_device_samples_per_s: float | None
    """What one device does of as many samples, in one step or in several of its own batch,
    whichever is faster; None where it holds none.
    """
    speedup: Speedup | None
    """None for one device, where that does not hold the step, and if it is too good to be so."""
    efficiency: float | None
    """The speed-up over the number of devices; None if there is none, or more than that number."""
    excess: found.Excess | None
    """Why the speed-up is more than the number of devices: `launches` where it is not if they cost
    nothing; None where it is not more.
    """
    speedup_without_launches: float | None
    """The speed-up if launches cost nothing; None for one device."""
    limit: Limit | None
    """What most of the time is lost to that the devices could have saved; None where next to
    nothing is lost.
    """
    verdict: AdviceVerdict | None
    """That of `advisor analyze --hardware` on so many devices; None where it gives none."""
    price_of_a_million_samples: float | None
    """In the unit of the price; None without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """A step of a family that was simulated."""

    scaling: found.Scaling
    """Whether each device has the whole batch or its share."""
    family: Text
    """Who holds variables and updates them, or which devices have which layers."""
    devices: Positive
    """How many of the machine's devices."""
    samples: Positive
    """Samples of a step, of all devices."""
    step_ns: Ns
    """The simulated step."""
    fits: bool
    """Whether every device has the memory for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OneDevice:
    """A step on one device."""

    samples: Positive
    """Samples of a step."""
    step_ns: Ns
    """The simulated step."""
    samples_per_s: float
    """Throughput."""
    fits: bool
    """Whether the device has the memory for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KneeAt:
    """With the whole batch on each."""

    devices: Positive
    """As simulated."""
    at_worst: Positive
    """At the low ends of the speed-ups."""
    at_best: Positive
    """At the high ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Knee:
    """Up to how many devices each doubling brings at least half of what it could."""

    weak: KneeAt | None
    strong: KneeAt | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What a machine does with the model, by number of devices."""

    hardware: Text
    """The machine as it was given."""
    price_per_hour: float | None
    """Price of a device and hour as given, in whatever unit; None if none was."""
    device_memory_bytes: Count | None
    """What the first device has; None if it is not known."""
    verdict: AdviceVerdict | None
    """That of `advisor analyze --hardware` on all devices; None for machines in levels, and for one
    device.
    """
    answer: Text | None
    """The same in a sentence."""
    costs_within: CostsWithin
    memory: Rows[Memory]
    """What devices hold with the whole batch on each: one alone, then all of them with each family
    that was simulated so. Empty where no other batch could be traced.
    """
    best: Rows[Row]
    """The best step with each scaling on each number of devices, one device first."""
    steps: Rows[Simulated]
    """The simulated steps of all families, but for those of `advisor analyze`."""
    one_device: Rows[OneDevice]
    """What one device does alone with its batch and with multiples of it."""
    knee: Knee
    notes: Rows[Text]
    """What could not be simulated, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """What each further device of machines brings a model; all is from assumed costs."""

    __pydantic_config__: ClassVar = STRICT

    schema_version: Annotated[int, Ge(1), Le(1)]
    advisor_version: Text
    """Version of placement-advisor that simulated the steps."""
    model: Model
    basis: Literal["assumed"]
    """Where the costs come from."""
    fastest: Fastest | None
    cheapest: Fastest | None
    machines: Annotated[Rows[Machine], MinLen(1)]
    """The machines, in the order in which they were given."""

    @classmethod
    def of(cls, compared: HardwareComparison) -> Scaling:
        """Return it as it is published."""
        return cls(
            schema_version=1,
            advisor_version=__version__,
            model=like(Model, compared, name=compared.model, batch_size=compared.batch),
            basis="assumed",
            fastest=_ranked(compared.fastest()),
            cheapest=_ranked(compared.cheapest()),
            machines=tuple(map(_machine, compared.machines)),
        )


def _ranked(ranked: Ranked | None) -> Fastest | None:
    if ranked is None:
        return None
    return Fastest(
        hardware=ranked.machine.label,
        devices=ranked.step.devices,
        ties=tuple(machine.label for machine in ranked.ties),
        launches_decide=ranked.is_by_launches,
    )


def _machine(machine: MachineScaling) -> Machine:
    knees = {}
    for scaling in found.Scaling:
        knee = machine.knee(scaling)
        knees[scaling.value] = None if knee is None else like(KneeAt, knee)
    return like(
        Machine,
        machine,
        hardware=machine.label,
        device_memory_bytes=machine.memory_bytes,
        costs_within=like(CostsWithin, machine.doubt),
        memory=tuple(like(Memory, held) for held in machine.memory),
        best=tuple(_row(machine, step) for step in machine.rows),
        steps=tuple(like(Simulated, step) for step in machine.steps),
        one_device=tuple(like(OneDevice, one) for one in machine.alone),
        knee=Knee(**knees),
        notes=tuple(machine.notes),
    )


def _row(machine: MachineScaling, step: ScaledStep) -> Row:
    speedup, bare = step.speedup, step.without_launches
    return like(
        Row,
        step,
        scaling=None if step.devices == 1 else step.scaling,
        devices_used=step.used,
        one_device_samples_per_s=step.alone_per_s,
        speedup=None
        if speedup is None
        else Speedup(simulated=speedup.median, low=speedup.low, high=speedup.high),
        speedup_without_launches=1 / bare if bare else None,
        price_of_a_million_samples=machine.cost_per_million(step),
    )
