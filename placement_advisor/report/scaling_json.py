"""What further devices bring, as the public contract of ``advisor compare-hardware --json``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from placement_advisor import __version__
from placement_advisor.analysis.machine_scaling import Scaling

if TYPE_CHECKING:
    from placement_advisor.analysis.machine_scaling import (
        HardwareComparison,
        MachineScaling,
        Ranked,
        ScaledStep,
    )

SCHEMA_VERSION = 1


def hardware_comparison_as_json(compared: HardwareComparison) -> dict[str, Any]:
    """Return the content, valid against ``load_schema("scaling")``."""
    return {
        "schema_version": SCHEMA_VERSION,
        "advisor_version": __version__,
        "model": {
            "name": compared.model,
            "mode": compared.mode,
            "batch_size": compared.batch,
            "ops": compared.ops,
        },
        "basis": "assumed",
        "fastest": _ranked(compared.fastest()),
        "cheapest": _ranked(compared.cheapest()),
        "machines": [_machine(machine) for machine in compared.machines],
    }


def _ranked(ranked: Ranked | None) -> dict[str, Any] | None:
    if ranked is None:
        return None
    return {
        "hardware": ranked.machine.label,
        "devices": ranked.step.devices,
        "ties": [machine.label for machine in ranked.ties],
        "launches_decide": ranked.is_by_launches,
    }


def _machine(machine: MachineScaling) -> dict[str, Any]:
    doubt = machine.doubt
    return {
        "hardware": machine.label,
        "price_per_hour": machine.price_per_hour,
        "device_memory_bytes": machine.memory_bytes,
        "verdict": machine.verdict,
        "answer": machine.answer,
        "costs_within": {"copies": doubt.copies, "launches": doubt.launches, "ops": doubt.ops},
        "memory": [held._asdict() for held in machine.memory],
        "best": [_best(machine, step) for step in machine.rows],
        "steps": [step._asdict() for step in machine.steps],
        "one_device": [
            {**one._asdict(), "samples_per_s": one.samples_per_s} for one in machine.alone
        ],
        "knee": {
            scaling.value: None if (knee := machine.knee(scaling)) is None else knee._asdict()
            for scaling in Scaling
        },
        "notes": list(machine.notes),
    }


def _best(machine: MachineScaling, step: ScaledStep) -> dict[str, Any]:
    speedup, bare = step.speedup, step.without_launches
    return {
        "scaling": None if step.devices == 1 else step.scaling.value,
        "family": step.family,
        "devices": step.devices,
        "devices_used": step.used,
        "samples": step.samples,
        "step_ns": step.step_ns,
        "samples_per_s": step.samples_per_s,
        "one_device_samples_per_s": step.alone_per_s,
        "speedup": None
        if speedup is None
        else {"simulated": speedup.median, "low": speedup.low, "high": speedup.high},
        "efficiency": step.efficiency,
        "excess": step.excess,
        "speedup_without_launches": 1 / bare if bare else None,
        "limit": step.limit,
        "verdict": step.verdict,
        "price_of_a_million_samples": machine.cost_per_million(step),
    }
