"""What more devices do for throughput, at the same batch and at the same batch per device.

*Strong scaling* keeps the global batch, so training stays what it is and step times compare. *Weak
scaling* keeps the batch of each device: more samples a step, another training.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from placement_advisor.batch_split.split_graph import FAMILY as BATCH
from placement_advisor.report.tables import BASELINE
from placement_advisor.units import NS_PER_S, format_ns

if TYPE_CHECKING:
    from placement_advisor.analysis import Analysis, Candidate

TITLE = "Scaling with the batch"
_STRONG, _WEAK = "strong scaling", "weak scaling"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingRow:
    """A step on some devices: the global batch, and its time as simulated and as measured."""

    name: str
    devices: int
    batch: int
    predicted_ns: int | None
    measured_ns: int | None

    def samples_per_s(self, step_ns: float) -> float:
        """Return the throughput of a step that takes so long."""
        return self.batch / step_ns * NS_PER_S


def scaling(analysis: Analysis) -> tuple[ScalingRow, ...]:
    """Return the single device, strong and weak scaling; nothing where the batch was not split."""
    candidates = {candidate.name: candidate for candidate in analysis.candidates}
    batch, alone = candidates.get(BATCH), candidates.get(BASELINE)
    samples = None if batch is None else batch.samples
    if batch is None or alone is None or samples is None:
        return ()
    whole, count = sum(samples), len(samples)
    return (
        _row(BASELINE, 1, whole, alone),
        _row(_STRONG, count, whole, batch),
        ScalingRow(
            name=_WEAK,
            devices=count,
            batch=count * whole,
            predicted_ns=analysis.weak_step_ns,
            measured_ns=None,
        ),
    )


def scaling_lines(analysis: Analysis) -> list[str]:
    """Return a line for each row, and which of them answers which question."""
    rows = scaling(analysis)
    if not rows:
        return []
    return [
        *(_line(row, rows[0]) for row in rows),
        "the same training, faster: strong scaling, which the verdict is about; more samples per "
        "second: weak scaling, whose larger batch wants another learning rate",
    ]


def _row(name: str, devices: int, batch: int, candidate: Candidate) -> ScalingRow:
    measured = candidate.measured.step_ns if candidate.measured else ()
    return ScalingRow(
        name=name,
        devices=devices,
        batch=batch,
        predicted_ns=candidate.predicted.step_ns if candidate.predicted else None,
        measured_ns=round(median(measured)) if measured else None,
    )


def _line(row: ScalingRow, alone: ScalingRow) -> str:
    figures = [
        _figures(row, alone, row.measured_ns, alone.measured_ns, "measured"),
        _figures(row, alone, row.predicted_ns, alone.predicted_ns, "simulated"),
    ]
    where = "1 device" if row.devices == 1 else f"{row.devices} devices"
    told = "; ".join(filter(None, figures)) or "not simulated"
    return f"{row.name}, {where}, {row.batch} samples a step: {told}"


def _figures(
    row: ScalingRow, alone: ScalingRow, step_ns: int | None, alone_ns: int | None, basis: str
) -> str:
    if not step_ns:
        return ""
    rate = row.samples_per_s(step_ns)
    times = ""
    if row is not alone and alone_ns:
        times = f", {rate / alone.samples_per_s(alone_ns):.2f}×"
    return f"{format_ns(step_ns)}, {rate:,.0f} samples/s{times} ({basis})"
