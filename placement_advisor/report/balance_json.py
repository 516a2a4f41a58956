"""How to share a batch among devices, as the public contract of ``advisor balance --json``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from placement_advisor import __version__

if TYPE_CHECKING:
    from placement_advisor.cost.batch import SplitStep
    from placement_advisor.cost.batch_balance import Balance, DeviceSpeed

SCHEMA_VERSION = 1


def balance_as_json(balance: Balance) -> dict[str, Any]:
    """Return the content, valid against ``load_schema("balance")``."""
    return {
        "schema_version": SCHEMA_VERSION,
        "advisor_version": __version__,
        "model": balance.model,
        "testbed": balance.testbed,
        "batch": balance.batch,
        "warnings": list(balance.warnings),
        "memory": {
            "fixed_bytes": balance.memory.fixed_bytes,
            "per_sample_bytes": balance.memory.per_sample_bytes,
        },
        "devices": [
            _device(device, most)
            for device, most in zip(balance.devices, balance.most, strict=True)
        ],
        "advised": list(balance.advised),
        "tried": [
            {"samples": list(samples), "step_ns": step_ns}
            for samples, step_ns in balance.tried.items()
        ],
        "best": _split(balance.best),
        "even": _split(balance.even),
        "other_batches": [_split(split) for split in balance.others],
        "best_batch": None if balance.best_batch is None else _split(balance.best_batch),
    }


def _device(device: DeviceSpeed, most_samples: int | None) -> dict[str, Any]:
    return {
        "name": device.name,
        "most_samples": most_samples,
        "fixed_ns": device.line.fixed_ns,
        "per_sample_ns": device.line.per_sample_ns,
        "measured": [
            {"samples": point.batch, "step_ns": round(point.step_ns), "residual": residual}
            for point, residual in zip(device.points, device.residuals, strict=True)
        ],
    }


def _split(split: SplitStep) -> dict[str, Any]:
    return {
        "samples": list(split.batches),
        "slowest_ns": split.slowest_ns,
        "most_samples_per_s": split.most_samples_per_s,
    }
