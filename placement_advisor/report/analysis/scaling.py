"""What more devices do for throughput, at the same batch and at the same batch per device.

*Strong scaling* keeps the global batch, so training stays what it is and step times compare. *Weak
scaling* keeps the batch of each replica: more samples a step, another training. What strong scaling
measured is the speed-up of the verdict, a median of ratios within rounds, which is not the ratio of
the medians beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from placement_advisor.defaults import BASELINE
from placement_advisor.units import NS_PER_S, format_ns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from placement_advisor.analysis.analysis_result import Candidate

TITLE = "Scaling with the batch"
WHICH = (
    "the same training, faster: strong scaling, which the verdict is about; more samples per "
    "second: weak scaling, whose larger batch brings a part of that on one device as well, and "
    "wants another learning rate"
)
_STRONG, _WEAK = "strong scaling", "weak scaling"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingRow:
    """A step on some devices: its candidate, the global batch, its time simulated and measured.

    ``speedup`` is that over the single device as its rounds have it, None without a comparison.
    """

    name: str
    candidate: str
    devices: int
    batch: int
    predicted_ns: int | None
    measured_ns: int | None
    speedup: float | None = None

    def samples_per_s(self, step_ns: float) -> float:
        """Return the throughput of a step that takes so long."""
        return self.batch / step_ns * NS_PER_S


def scaling(candidates: Sequence[Candidate]) -> tuple[ScalingRow, ...]:
    """Return the single device, strong and weak scaling; nothing where the batch was not split."""
    alone = next((c for c in candidates if c.name == BASELINE), None)
    splits = [c for c in candidates if c.samples is not None]
    if alone is None or not splits:
        return ()
    whole = sum(splits[0].samples or ())
    return (
        _strong(BASELINE, 1, whole, alone),
        *(_strong(_STRONG, _devices(c), whole, c) for c in splits),
        *(
            ScalingRow(
                name=_WEAK,
                candidate=c.name,
                devices=_devices(c),
                batch=len(c.samples or ()) * whole,
                predicted_ns=c.weak_predicted_ns,
                measured_ns=_median(c.weak_measured_ns),
            )
            for c in splits
        ),
    )


def scaling_lines(candidates: Sequence[Candidate]) -> list[str]:
    """Return a line for each row, and which of them answers which question."""
    rows = scaling(candidates)
    if not rows:
        return []
    return [
        *(_line(row, rows[0]) for row in rows),
        WHICH,
    ]


def row_as_json(row: ScalingRow) -> dict[str, Any]:
    """Return a row as the public contract has it."""
    return {
        "name": row.name,
        "candidate": row.candidate,
        "devices": row.devices,
        "batch": row.batch,
        "predicted_ns": row.predicted_ns,
        "measured_ns": row.measured_ns,
    }


def _devices(candidate: Candidate) -> int:
    placement = candidate.placement
    return len(set(placement.device_of.values())) if placement is not None else 0


def _strong(name: str, devices: int, batch: int, candidate: Candidate) -> ScalingRow:
    return ScalingRow(
        name=name,
        candidate=candidate.name,
        devices=devices,
        batch=batch,
        predicted_ns=candidate.predicted.step_ns if candidate.predicted else None,
        measured_ns=_median(candidate.measured.step_ns if candidate.measured else ()),
        speedup=None if candidate.comparison is None else candidate.comparison.speedup.median,
    )


def _median(step_ns: tuple[int, ...]) -> int | None:
    return round(median(step_ns)) if step_ns else None


def _line(row: ScalingRow, alone: ScalingRow) -> str:
    figures = [
        _figures(row, alone, row.measured_ns, alone.measured_ns, "measured"),
        _figures(row, alone, row.predicted_ns, alone.predicted_ns, "simulated"),
    ]
    where = "1 device" if row.devices == 1 else f"{row.devices} devices"
    told = "; ".join(filter(None, figures)) or "not simulated"
    what = row.name if row.name == row.candidate else f"{row.name} ({row.candidate})"
    return f"{what}, {where}, {row.batch} samples a step: {told}"


def _figures(
    row: ScalingRow, alone: ScalingRow, step_ns: int | None, alone_ns: int | None, basis: str
) -> str:
    if not step_ns:
        return ""
    rate = row.samples_per_s(step_ns)
    times = ""
    if basis == "measured" and row.speedup is not None:
        times = f", {row.speedup:.2f}× within rounds"
    elif row.batch == alone.batch and row is not alone and alone_ns:
        times = f", {rate / alone.samples_per_s(alone_ns):.2f}×"
    return f"{format_ns(step_ns)}, {rate:,.0f} samples/s{times} ({basis})"
