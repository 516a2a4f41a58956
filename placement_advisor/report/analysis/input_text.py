"""The user's input pipeline beside the step that it feeds, both measured."""

from __future__ import annotations

from statistics import mean, median
from typing import TYPE_CHECKING

from placement_advisor.defaults import BASELINE
from placement_advisor.report.analysis.tables import AS_IS
from placement_advisor.units import NS_PER_S, format_ns

if TYPE_CHECKING:
    from placement_advisor.analysis.analysis_result import Analysis


def input_line(analysis: Analysis) -> str | None:
    """Return how fast the dataset is alone and how fast the step is; None if it was not timed."""
    timing, batch_size = analysis.input_timing, analysis.model.batch_size
    if timing is None:
        return None
    if batch_size is None:
        alone = f"a batch every {format_ns(mean(timing.batch_ns))} alone"
    else:
        alone = f"{_rate(timing.samples_per_s(batch_size))} alone"
    kinds = f" ({' → '.join(timing.transformations)})" if timing.transformations else ""
    return f"input: {alone}{_step(analysis)}, measured{kinds}"


def _step(analysis: Analysis) -> str:
    """Return what the user's own step takes, else the one on a single device."""
    batch_size = analysis.model.batch_size
    times_ns, name = analysis.as_is or (), AS_IS
    if not times_ns:
        alone = next((c.measured for c in analysis.candidates if c.name == BASELINE), None)
        times_ns, name = (alone.step_ns if alone else ()), BASELINE
    if not times_ns:
        return ""
    step_ns = median(times_ns)
    speed = format_ns(step_ns) if batch_size is None else _rate(batch_size * NS_PER_S / step_ns)
    return f"; the step ({name}) takes {speed}"


def _rate(samples_per_s: float) -> str:
    return f"{float(f'{samples_per_s:.3g}'):,.0f} samples/s"
