"""What more devices do for throughput, at the same batch and at the same batch per device.

*Strong scaling* keeps the global batch, so training stays what it is and step times compare. *Weak
scaling* keeps the batch of each replica: more samples a step, another training. What strong scaling
measured is the speed-up of the verdict, a median of ratios within rounds, which is not the ratio of
the medians beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.results.analysis import ScalingRow, scaling
from placement_advisor.units import NS_PER_S, format_ns

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from placement_advisor.analysis.analysis_result import Candidate

TITLE = "Scaling with the batch"
WHICH = (
    "the same training, faster: strong scaling, which the verdict is about; more samples per "
    "second: weak scaling, whose larger batch brings a part of that on one device as well, and "
    "wants another learning rate"
)


def scaling_lines(candidates: Sequence[Candidate]) -> list[str]:
    """Return a line for each row, and which of them answers which question."""
    rows = scaling(candidates)
    if not rows:
        return []
    within_rounds = speedups(candidates)
    return [*(_line(row, rows[0], within_rounds) for row in rows), WHICH]


def speedups(candidates: Iterable[Candidate]) -> dict[str, float]:
    """Return the speed-up of each over the single device, as its rounds have it, by its name."""
    return {c.name: c.comparison.speedup.median for c in candidates if c.comparison is not None}


def _line(row: ScalingRow, alone: ScalingRow, within_rounds: Mapping[str, float]) -> str:
    speedup = within_rounds.get(row.candidate) if row.batch == alone.batch else None
    figures = [
        _figures(row, alone, row.measured_ns, alone.measured_ns, "measured", speedup),
        _figures(row, alone, row.predicted_ns, alone.predicted_ns, "simulated"),
    ]
    where = "1 device" if row.devices == 1 else f"{row.devices} devices"
    told = "; ".join(filter(None, figures)) or "not simulated"
    what = row.name if row.name == row.candidate else f"{row.name} ({row.candidate})"
    return f"{what}, {where}, {row.batch} samples a step: {told}"


def _figures(
    row: ScalingRow,
    alone: ScalingRow,
    step_ns: int | None,
    alone_ns: int | None,
    basis: str,
    speedup: float | None = None,
) -> str:
    if not step_ns:
        return ""
    rate = row.batch / step_ns * NS_PER_S
    times = ""
    if speedup is not None:
        times = f", {speedup:.2f}× within rounds"
    elif row.batch == alone.batch and row is not alone and alone_ns:
        times = f", {alone_ns / step_ns:.2f}×"
    return f"{format_ns(step_ns)}, {rate:,.0f} samples/s{times} ({basis})"
