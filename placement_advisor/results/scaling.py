"""What `advisor compare-hardware` answers: what further devices bring, simulated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from placement_advisor import __version__
from placement_advisor.analysis import machine_scaling as found
from placement_advisor.analysis.analysis_result import AdviceVerdict
from placement_advisor.analysis.scaled_steps import Limit
from placement_advisor.files.contract import STRICT, Count, Filled, Ns, Positive, Rows, Text, like

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
    mode: Literal["train", "infer"]
    batch_size: Positive
    """On one device."""
    ops: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class Fastest:
    """The machine of most samples per second; None where the step fits on no single device."""

    hardware: Text
    devices: Positive
    """As many as pay."""
    ties: Rows[Text]
    """Not surely beaten."""
    launches_decide: bool
    """Level only by launches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CostsWithin:
    """By which factors costs may be wrong, either way; ranges are what follows."""

    copies: float
    launches: float
    """Or free."""
    ops: float
    """Split against one device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What a step of a family holds on the device that holds most."""

    family: Text
    """Holder of variables."""
    devices: Positive
    peak_bytes: Count
    """On the fullest device."""
    largest_batch: Count | None
    """Samples per device; None: unknown or any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Speedup:
    """Throughput over that of one device."""

    simulated: float
    low: float
    """Costs as wrong as allowed."""
    high: float
    """Likewise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The best step of a scaling on a number of devices."""

    scaling: found.Scaling | None
    """None for one device."""
    family: Text
    """Holder of variables, or of layers."""
    devices: Positive
    devices_used: Positive
    samples: Positive
    """Of all devices."""
    step_ns: Ns
    samples_per_s: float
    """Of all devices."""
    one_device_samples_per_s: float | None
    """As many samples; None if none fit."""
    speedup: Speedup | None
    """None without credible comparison."""
    efficiency: float | None
    """Speed-up over devices; None if above 1."""
    excess: found.Excess | None
    """Why more than `devices`; `launches`: not if they were free."""
    speedup_without_launches: float | None
    """None for one device."""
    limit: Limit | None
    """None if next to nothing."""
    verdict: AdviceVerdict | None
    """Of `analyze --hardware`."""
    price_of_a_million_samples: float | None
    """In the price's unit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """A step of a family that was simulated."""

    scaling: found.Scaling
    family: Text
    """Holder of variables, or of layers."""
    devices: Positive
    samples: Positive
    """Of all devices."""
    step_ns: Ns
    fits: bool
    """In memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OneDevice:
    """A step on one device."""

    samples: Positive
    step_ns: Ns
    samples_per_s: float
    fits: bool
    """In memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KneeAt:
    """With the whole batch on each."""

    devices: Positive
    """As simulated."""
    at_worst: Positive
    """Low ends."""
    at_best: Positive
    """High ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Knee:
    """Up to how many devices each doubling brings at least half of what it could."""

    weak: KneeAt | None
    strong: KneeAt | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What a machine does with the model, by number of devices."""

    hardware: Text
    price_per_hour: float | None
    """Per device, any unit."""
    device_memory_bytes: Count | None
    """First device."""
    verdict: AdviceVerdict | None
    """Of `analyze --hardware`, all devices."""
    answer: Text | None
    costs_within: CostsWithin
    memory: Rows[Memory]
    """Whole batch each; one alone first."""
    best: Rows[Row]
    """By scaling and devices."""
    steps: Rows[Simulated]
    """Other families than `analyze`."""
    one_device: Rows[OneDevice]
    """Own batch and multiples."""
    knee: Knee
    notes: Rows[Text]
    """Not simulated, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """What each further device of machines brings a model; all is from assumed costs."""

    __pydantic_config__: ClassVar = STRICT

    schema_version: Literal[1]
    advisor_version: Text
    model: Model
    basis: Literal["assumed"]
    fastest: Fastest | None
    cheapest: Fastest | None
    machines: Filled[Machine]

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
