"""What further devices bring, as the public contract of ``advisor compare-hardware --json``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from placement_advisor import __version__
from placement_advisor.analysis.machine_scaling import Scaling

if TYPE_CHECKING:
    from placement_advisor.analysis.machine_scaling import (
        HardwareComparison,
        MachineScaling,
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
        "machines": [_machine(machine) for machine in compared.machines],
    }


def _machine(machine: MachineScaling) -> dict[str, Any]:
    return {
        "hardware": machine.label,
        "price_per_hour": machine.price_per_hour,
        "device_memory_bytes": machine.memory_bytes,
        "memory": [held._asdict() for held in machine.memory],
        "steps": [_step(machine, step) for step in machine.steps],
        "one_device_with_larger_batch": [
            {**one._asdict(), "samples_per_s": one.samples_per_s} for one in machine.larger
        ],
        "knee": {
            scaling.value: None if (knee := machine.knee(scaling)) is None else knee.devices
            for scaling in Scaling
        },
        "notes": list(machine.notes),
    }


def _step(machine: MachineScaling, step: ScaledStep) -> dict[str, Any]:
    return {
        "scaling": None if step.devices == 1 else step.scaling.value,
        "family": step.family,
        "devices": step.devices,
        "samples": step.samples,
        "step_ns": step.step_ns,
        "samples_per_s": step.samples_per_s,
        "speedup": step.speedup,
        "efficiency": step.efficiency,
        "fits": step.fits,
        "limit": None if step.limit is None else step.limit.value,
        "cost_per_million_samples": machine.cost_per_million(step),
    }
