"""``comparison.png``: what each candidate's step is made of, simulated beside measured.

A bar is the step of the device that computes longest: what it computes, what it waits for copies
with nothing to compute (exposed), and the rest. A measured step is timed without the profiler and
cut by the shares that its parts have of profiled steps. Without a profile to rely on, it stays
whole.

Left out: candidates that did not run, if any did, and those that could not be proposed.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from placement_advisor.defaults import BASELINE
from placement_advisor.measurement.measurement import bootstrap_median
from placement_advisor.report.analysis.figures import (
    NO_PROFILE,
    any_ran,
    fastest_first,
    predicted_range,
    predicted_speedup,
    speedup,
    with_range,
)
from placement_advisor.report.document import NOTHING
from placement_advisor.report.pictures.canvas import (
    AXIS_IN,
    COMPUTE_COLOR,
    EXPOSED_COLOR,
    FAINT,
    FONT_SIZE,
    HEAD_IN,
    IDLE_COLOR,
    INK,
    MARGIN_IN,
    NO_PROFILE_COLOR,
    SMALL_FONT_SIZE,
    WIDTH_IN,
    add_head,
    add_time_axis,
    headline,
    new_page,
    plain_style,
    tint,
    write,
)
from placement_advisor.report.pictures.drawn_text import text_width_in, told_apart
from placement_advisor.units import format_ns

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from placement_advisor.analysis.analysis_result import Analysis, Candidate
    from placement_advisor.measurement.measurement import Interval, StepProfile
    from placement_advisor.report.pictures.canvas import Page
    from placement_advisor.simulator.schedule import Schedule

_COLORS = {
    "compute": COMPUTE_COLOR,
    "exposed copies": EXPOSED_COLOR,
    "idle": IDLE_COLOR,
    NO_PROFILE: NO_PROFILE_COLOR,
}
# How much of its colour a simulated bar keeps.
_PALE = 0.45
_NOTE = "The device that computes longest. Exposed copies: it waits for them and computes nothing."
_MEASURED_NOTE = (
    "Above, pale: simulated. Below: timed (95 % interval), cut by the shares of profiled steps."
)
_SIMULATED_NOTE = "Simulated; no step ran."
_ABOVE_ROWS_IN = 0.52
_ROW_IN = 0.26
_BAR_IN = 0.1
# A bar that is alone in its row.
_LONE_BAR_IN = 0.16
# Room for names at most, and between columns.
_NAMES_IN = 3.0
_DEVICES_IN = 1.5
_GAP_IN = 0.2


@plain_style()
def draw_comparison(analysis: Analysis, page: Page = new_page) -> Figure:
    """Return the picture."""
    from matplotlib.patches import Patch

    measured = any_ran(analysis)
    rows = [_row(analysis, candidate, measured) for candidate in fastest_first(analysis)]
    top_in = HEAD_IN + _ABOVE_ROWS_IN
    figure = page(top_in + _ROW_IN * max(1, len(rows)) + AXIS_IN)
    left_in, right_in = _write_columns(figure, rows, measured)
    end_ns = max((row.end_ns for row in rows), default=1)
    ax = add_time_axis(figure, left_in, right_in, top_in, end_ns)
    ax.grid(axis="x", color="#E3E3E3", linewidth=0.6)
    ax.set_axisbelow(True)
    for place, row in enumerate(rows):
        _draw_row(ax, row, top_in + (place + 0.5) * _ROW_IN)
    found = {part for row in rows for parts in (row.simulated, row.measured) for part in parts}
    what = "what a step is made of" if measured else "what a step is made of, simulated"
    handles = [
        Patch(label=part, color=color if measured else tint(color, _PALE))
        for part, color in _COLORS.items()
        if part in found
    ]
    add_head(figure, analysis.model.name, headline(analysis, what), handles)
    note = f"{_NOTE} {_MEASURED_NOTE if measured else _SIMULATED_NOTE}"
    write(figure, MARGIN_IN, HEAD_IN + 0.08, note, size=SMALL_FONT_SIZE, color=FAINT)
    return figure


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """A candidate: the parts of its steps by name, and what is written beside them."""

    name: str
    device: str
    simulated: Mapping[str, float]
    measured: Mapping[str, float]
    interval_ns: Interval | None
    cells: tuple[str, ...]

    @property
    def end_ns(self) -> int:
        """Where the longest of its bars ends."""
        high_ns = self.interval_ns.high if self.interval_ns else 0
        return round(max(high_ns, sum(self.simulated.values()), sum(self.measured.values())))


def _row(analysis: Analysis, candidate: Candidate, measured: bool) -> _Row:
    plan, run = candidate.predicted, candidate.measured
    profile = candidate.profile
    computing = profile.compute_ns if profile else plan.compute_ns if plan else {}
    device = max(analysis.testbed.cluster.device_names(), key=lambda name: computing.get(name, 0))
    step_ns = bootstrap_median(run.step_ns) if measured and run else None
    cells = [format_ns(plan.step_ns) if plan else NOTHING]
    if step_ns is not None:
        cells.append(format_ns(step_ns.median))
    return _Row(
        name=candidate.name,
        device=device,
        simulated=_simulated_parts(plan, device) if plan else {},
        measured=_measured_parts(step_ns.median, profile, device) if step_ns else {},
        interval_ns=step_ns,
        cells=(*cells, _speedup_text(analysis, candidate, measured)),
    )


def _simulated_parts(plan: Schedule, device: str) -> dict[str, float]:
    compute_ns, exposed_ns = plan.compute_ns.get(device, 0), plan.exposed_by_device.get(device, 0)
    return _parts(plan.step_ns, compute_ns, exposed_ns)


def _measured_parts(step_ns: float, profile: StepProfile | None, device: str) -> dict[str, float]:
    if profile is None or not profile.step_ns:
        return {NO_PROFILE: step_ns}
    scale = step_ns / median(profile.step_ns)
    return _parts(
        step_ns,
        profile.compute_ns.get(device, 0) * scale,
        profile.exposed_by_device.get(device, 0) * scale,
    )


def _parts(step_ns: float, compute_ns: float, exposed_ns: float) -> dict[str, float]:
    """Return the parts of a step; medians of profiled steps may add up to more than it."""
    compute_ns = min(compute_ns, step_ns)
    exposed_ns = min(exposed_ns, step_ns - compute_ns)
    return {
        "compute": compute_ns,
        "exposed copies": exposed_ns,
        "idle": step_ns - compute_ns - exposed_ns,
    }


def _speedup_text(analysis: Analysis, candidate: Candidate, measured: bool) -> str:
    if candidate.name == BASELINE:
        return "baseline"
    if not measured:
        return with_range(predicted_speedup(analysis, candidate), predicted_range(candidate))
    factor = speedup(candidate)
    return with_range(factor.median, factor) if factor else NOTHING


def _write_columns(figure: Figure, rows: Sequence[_Row], measured: bool) -> tuple[float, float]:
    """Write what stands on both sides of the bars; return from where to where these have room."""
    names = told_apart([row.name for row in rows], FONT_SIZE, _NAMES_IN)
    devices = told_apart([row.device for row in rows], FONT_SIZE, _DEVICES_IN)
    titles = (
        ("simulated", "measured", "speed-up (95 %)")
        if measured
        else ("simulated", "speed-up (range)")
    )
    left_in, right_in = MARGIN_IN, WIDTH_IN - MARGIN_IN
    for title, texts in (
        ("candidate", [names[row.name] for row in rows]),
        ("device", [devices[row.device] for row in rows]),
    ):
        left_in += _write_column(figure, title, texts, left_in, "left") + _GAP_IN
    for i, title in reversed(list(enumerate(titles))):
        texts = [row.cells[i] for row in rows]
        right_in -= _write_column(figure, title, texts, right_in, "right") + _GAP_IN
    return left_in, right_in


def _write_column(
    figure: Figure, title: str, texts: Sequence[str], x_in: float, side: str
) -> float:
    """Write a column at one side of a place; return its width."""
    top_in = HEAD_IN + _ABOVE_ROWS_IN
    write(figure, x_in, top_in - 0.1, title, size=SMALL_FONT_SIZE, ha=side, color=FAINT)
    for place, text in enumerate(texts):
        write(figure, x_in, top_in + (place + 0.5) * _ROW_IN, text, ha=side)
    widths_in = [text_width_in(text, FONT_SIZE) for text in texts]
    return max([text_width_in(title, SMALL_FONT_SIZE), *widths_in])


def _draw_row(ax: Axes, row: _Row, middle: float) -> None:
    if row.interval_ns is None:
        _draw_bar(ax, row.simulated, middle, _LONE_BAR_IN, _PALE)
        return
    _draw_bar(ax, row.simulated, middle - _BAR_IN / 2, _BAR_IN, _PALE)
    _draw_bar(ax, row.measured, middle + _BAR_IN / 2, _BAR_IN, 1)
    ends_ns = [[row.interval_ns.low], [row.interval_ns.high]]
    off_ns = [[abs(end - row.interval_ns.median) for end in side] for side in ends_ns]
    y = [middle + _BAR_IN / 2]
    ax.errorbar([row.interval_ns.median], y, xerr=off_ns, color=INK, capsize=2.5, lw=1.1)


def _draw_bar(
    ax: Axes, parts: Mapping[str, float], middle: float, height: float, share: float
) -> None:
    start = 0.0
    for part, length in parts.items():
        color = tint(_COLORS[part], share)
        ax.barh(middle, length, height, left=start, color=color, linewidth=0)
        start += length
