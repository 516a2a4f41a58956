"""Plots step times and speed-ups: ``comparison.png``, ``break-even.png``, and machines.

A bar of the comparison is the step of the device that computes longest: compute, waits
for copies, rest. The break-even picture shows the best split's simulated speed-up against
bandwidth, latency and batch. The scaling picture shows the speed-up over one device by
machine and scaling.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from placement_advisor.analysis.machine_scaling import HardwareComparison, Scaling
from placement_advisor.defaults import BASELINE
from placement_advisor.measurement.measurement import Interval, StepProfile, bootstrap_median
from placement_advisor.report import statements
from placement_advisor.report.analysis_report import sweep_outcome, value_text
from placement_advisor.report.document import NOTHING
from placement_advisor.report.pictures import canvas
from placement_advisor.report.pictures.timeline_plot import MEASURED, SIMULATED
from placement_advisor.simulator.break_even import Axis, BreakEven, Sweep
from placement_advisor.units import counted, format_bandwidth, format_ns

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from placement_advisor.analysis.analysis_result import Analysis, Candidate


_COLORS = {
    "compute": canvas.COMPUTE_COLOR,
    "waits for copies": canvas.COPY_COLOR,
    "idle": canvas.IDLE_COLOR,
    statements.NO_PROFILE: canvas.NO_PROFILE_COLOR,
}
# How much of its colour a simulated bar keeps.
_PALE = 0.45
_NOTE = "The device that computes longest. Waits for copies: it computes nothing meanwhile."
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


@canvas.plain_style()
def draw_comparison(analysis: Analysis, page: canvas.Page = canvas.new_page) -> Figure:
    """Return the picture."""
    from matplotlib.patches import Patch

    measured = statements.any_ran(analysis)
    shown = statements.fastest_first(analysis)
    rows = [_row(analysis, candidate, measured) for candidate in shown]
    top_in = canvas.HEAD_IN + _ABOVE_ROWS_IN
    figure = page(top_in + _ROW_IN * max(1, len(rows)) + canvas.AXIS_IN)
    left_in, right_in = _write_columns(figure, rows, measured)
    end_ns = max((row.end_ns for row in rows), default=1)
    ax = canvas.add_time_axis(figure, left_in, right_in, top_in, end_ns)
    ax.grid(axis="x", color=canvas.BAND_COLOR, linewidth=0.6)
    ax.set_axisbelow(True)
    for place, row in enumerate(rows):
        _draw_row(ax, row, top_in + (place + 0.5) * _ROW_IN)
    found = {part for row in rows for parts in (row.simulated, row.measured) for part in parts}
    handles = [
        Patch(label=part, color=color if measured else canvas.tint(color, _PALE))
        for part, color in _COLORS.items()
        if part in found
    ]
    canvas.add_head(figure, analysis.title, canvas.headline(analysis, shown), handles)
    note = f"{_NOTE} {_MEASURED_NOTE if measured else _SIMULATED_NOTE}"
    canvas.write(
        figure,
        canvas.MARGIN_IN,
        canvas.HEAD_IN + 0.08,
        note,
        size=canvas.SMALL_FONT_SIZE,
        color=canvas.FAINT,
    )
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
    devices = analysis.testbed.cluster.device_names()
    parts = step_parts(candidate, devices)
    step_ns = bootstrap_median(run.step_ns) if measured and run else None
    cells = [format_ns(plan.step_ns) if plan else NOTHING]
    if step_ns is not None:
        cells.append(format_ns(step_ns.median))
    return _Row(
        name=candidate.name,
        device=_busiest(candidate, devices),
        simulated=parts.get(SIMULATED, {}),
        measured=parts[MEASURED] if step_ns else {},
        interval_ns=step_ns,
        cells=(*cells, _speedup_text(analysis, candidate, measured)),
    )


def _busiest(candidate: Candidate, devices: Sequence[str]) -> str:
    shown = candidate.profile or candidate.predicted
    return max(devices, key=lambda name: shown.compute_ns.get(name, 0) if shown else 0)


def step_parts(candidate: Candidate, devices: Sequence[str]) -> dict[str, dict[str, float]]:
    """Return what a step is made of on the device that computes longest, in ns by part.

    Simulated and measured, as far as there are any.
    """
    plan, timed_ns = candidate.predicted, statements.timed_ns(candidate)
    device = _busiest(candidate, devices) if devices else ""
    found = {}
    if plan is not None:
        exposed_ns = plan.exposed_by_device.get(device, 0)
        found[SIMULATED] = _parts(plan.step_ns, plan.compute_ns.get(device, 0), exposed_ns)
    if timed_ns is not None:
        found[MEASURED] = _measured_parts(timed_ns, candidate.profile, device)
    return found


def _measured_parts(step_ns: float, profile: StepProfile | None, device: str) -> dict[str, float]:
    if profile is None or not profile.step_ns:
        return {statements.NO_PROFILE: step_ns}
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
        "waits for copies": exposed_ns,
        "idle": step_ns - compute_ns - exposed_ns,
    }


def _speedup_text(analysis: Analysis, candidate: Candidate, measured: bool) -> str:
    if candidate.name == BASELINE:
        return "baseline"
    if not measured:
        times = statements.predicted_speedup(analysis, candidate)
        return statements.with_range(times, statements.predicted_range(candidate))
    factor = statements.speedup(candidate)
    return statements.with_range(factor.median, factor) if factor else NOTHING


def _write_columns(figure: Figure, rows: Sequence[_Row], measured: bool) -> tuple[float, float]:
    """Write what stands on both sides of the bars; return from where to where these have room."""
    names = canvas.told_apart([row.name for row in rows], canvas.FONT_SIZE, _NAMES_IN)
    devices = canvas.told_apart([row.device for row in rows], canvas.FONT_SIZE, _DEVICES_IN)
    titles = (
        ("simulated", "measured", "speed-up (95 %)")
        if measured
        else ("simulated", "speed-up (range)")
    )
    left_in, right_in = canvas.MARGIN_IN, canvas.WIDTH_IN - canvas.MARGIN_IN
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
    top_in = canvas.HEAD_IN + _ABOVE_ROWS_IN
    canvas.write(
        figure, x_in, top_in - 0.1, title, size=canvas.SMALL_FONT_SIZE, ha=side, color=canvas.FAINT
    )
    for place, text in enumerate(texts):
        canvas.write(figure, x_in, top_in + (place + 0.5) * _ROW_IN, text, ha=side)
    widths_in = [canvas.text_width_in(text, canvas.FONT_SIZE) for text in texts]
    return max([canvas.text_width_in(title, canvas.SMALL_FONT_SIZE), *widths_in])


def _draw_row(ax: Axes, row: _Row, middle: float) -> None:
    if row.interval_ns is None:
        _draw_bar(ax, row.simulated, middle, _LONE_BAR_IN, _PALE)
        return
    _draw_bar(ax, row.simulated, middle - _BAR_IN / 2, _BAR_IN, _PALE)
    _draw_bar(ax, row.measured, middle + _BAR_IN / 2, _BAR_IN, 1)
    ends_ns = [[row.interval_ns.low], [row.interval_ns.high]]
    off_ns = [[abs(end - row.interval_ns.median) for end in side] for side in ends_ns]
    y = [middle + _BAR_IN / 2]
    ax.errorbar([row.interval_ns.median], y, xerr=off_ns, color=canvas.INK, capsize=2.5, lw=1.1)


def _draw_bar(
    ax: Axes, parts: Mapping[str, float], middle: float, height: float, share: float
) -> None:
    start = 0.0
    for part, length in parts.items():
        color = canvas.tint(_COLORS[part], share)
        ax.barh(middle, length, height, left=start, color=color, linewidth=0)
        start += length


_BREAK_EVEN_HEIGHT_IN = 4.6
# A third of the speed is as far from winning as a thirtieth.
_LEAST_SPEEDUP = 0.33
_TICKS = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 7.0, 10.0)
# Ticks stand at powers of ten, which need no digits behind the point.
_TRAILING_ZEROS = re.compile(r"\.0+(?= )")
# Share of a panel's width that a label takes.
_LABEL_SHARE = 0.36
AXIS_TITLES = {
    Axis.BANDWIDTH: "bandwidth of the slowest link between devices",
    Axis.LATENCY: "latency of the slowest link between devices",
    Axis.BATCH: "batch (samples)",
}


@canvas.plain_style()
def draw_break_even(
    analysis: Analysis, found: BreakEven, page: canvas.Page = canvas.new_page
) -> Figure:
    """Return a picture with a panel for each axis that was swept."""
    from matplotlib.layout_engine import ConstrainedLayoutEngine
    from matplotlib.lines import Line2D

    sweeps = found.sweeps()
    splits = dict.fromkeys(split for sweep in sweeps for split in sweep.splits())
    signs = {split: canvas.SIGNS[i % len(canvas.SIGNS)][0] for i, split in enumerate(splits)}
    figure = page(_BREAK_EVEN_HEIGHT_IN)
    below_head = (0, 0, 1, 1 - canvas.HEAD_IN / _BREAK_EVEN_HEIGHT_IN)
    figure.set_layout_engine(ConstrainedLayoutEngine(rect=below_head))
    row = figure.subplots(1, len(sweeps), squeeze=False, sharey=True)[0]
    for ax, sweep in zip(row, sweeps, strict=True):
        _draw_sweep(ax, sweep, found.worthwhile_ratio, signs)
    _scale_speedups(row[0], sweeps)
    basis = "simulated, corrected" if found.corrections else "simulated"
    title = f"speed-up of the best split\nover {canvas.drawable(found.baseline)} ({basis})"
    row[0].set_ylabel(title, fontsize=canvas.FONT_SIZE)
    handles: list[Artist] = [
        Line2D(
            [],
            [],
            label=canvas.drawable(split),
            color=canvas.INK,
            marker=sign,
            linestyle="",
            markersize=5,
        )
        for split, sign in signs.items()
    ]
    what = ", ".join(map(sweep_outcome, sweeps[:1])) or "what a split's speed-up depends on"
    canvas.add_head(figure, analysis.title, canvas.drawable(f"{what}, simulated"), handles)
    return figure


def drawn_speedup(ratio: float) -> float:
    """Return the speed-up of a ratio, at most what there are ticks for."""
    return min(_TICKS[-1], 1 / ratio) if ratio else _TICKS[-1]


def _scale_speedups(ax: Axes, sweeps: tuple[Sweep, ...]) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    speedups = [drawn_speedup(point.best.ratio) for sweep in sweeps for point in sweep.points]
    ax.set_yscale("log")
    # Room for a line of text above the highest point, and for two below the lowest.
    ax.set_ylim(max(_LEAST_SPEEDUP, 0.85 * min(0.9, *speedups)), 1.14 * max(1.1, *speedups))
    ax.yaxis.set_major_locator(FixedLocator(_TICKS))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter(FuncFormatter(lambda speedup, _: f"{speedup:g}×"))


def _draw_sweep(ax: Axes, sweep: Sweep, worthwhile_ratio: float, signs: Mapping[str, str]) -> None:
    from matplotlib.ticker import FuncFormatter, NullLocator

    worthwhile = drawn_speedup(worthwhile_ratio)
    values = [point.value for point in sweep.points]
    ax.set_xscale("log")
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _tick(sweep.axis, value)))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.axhspan(worthwhile, 2 * _TICKS[-1], color=canvas.BAND_COLOR, linewidth=0, zorder=0)
    ax.axhline(1, color=canvas.FAINT, linewidth=0.8)
    ax.axhline(worthwhile, color=canvas.INK, linewidth=0.8, linestyle="--")
    ax.annotate(
        f"a split wins above {worthwhile:.2f}×",
        (0.02, 0.985),
        xycoords="axes fraction",
        va="top",
        fontsize=canvas.SMALL_FONT_SIZE,
        color=canvas.FAINT,
    )
    speedups = [drawn_speedup(point.best.ratio) for point in sweep.points]
    ax.plot(values, speedups, color=canvas.FAINT, linewidth=1)
    for split, sign in signs.items():
        own = [i for i, point in enumerate(sweep.points) if point.best.split == split]
        ax.plot(values, speedups, sign, color=canvas.INK, markersize=3.5, markevery=own)
    ax.axvline(sweep.here.value, color=canvas.INK, linewidth=0.8, linestyle=":")
    ends = (values[0], values[-1])
    here, limit = sweep.here.value, sweep.wins_from.value if sweep.wins_from else None
    is_left = limit is not None and here < limit
    _label(ax, here, 0.075, f"here {value_text(sweep.axis, here)}", ends, to_left=is_left)
    if sweep.wins_from is not None:
        sign = signs[sweep.wins_from.best.split]
        ax.plot(
            sweep.wins_from.value, worthwhile, sign,
            color="white", markeredgecolor=canvas.INK, markersize=8,
        )  # fmt: skip
        text = f"{wins_words(sweep.axis)} {value_text(sweep.axis, sweep.wins_from.value)}"
        _label(ax, sweep.wins_from.value, 0.015, text, ends, to_left=not is_left)
        ax.axvline(sweep.wins_from.value, color=canvas.INK, linewidth=0.8)
    ax.set_xlabel(AXIS_TITLES[sweep.axis], fontsize=canvas.FONT_SIZE)
    ax.tick_params(labelsize=canvas.SMALL_FONT_SIZE)
    ax.spines[["right", "top"]].set_visible(False)


def wins_words(axis: Axis) -> str:
    """Return what stands before the value where a split begins to win."""
    return "wins up to" if axis is Axis.LATENCY else "wins from"


def _label(
    ax: Axes, value: int, height: float, text: str, ends: tuple[int, int], *, to_left: bool
) -> None:
    """Write beside a vertical line, on the side that is asked for if there is room."""
    share = math.log(value / ends[0]) / math.log(ends[1] / ends[0])
    to_left = share > 1 - _LABEL_SHARE or (to_left and share > _LABEL_SHARE)
    ax.annotate(
        canvas.drawable(text),
        (value, height),
        xytext=(-4 if to_left else 4, 0),
        xycoords=("data", "axes fraction"),
        textcoords="offset points",
        ha="right" if to_left else "left",
        va="bottom",
        fontsize=canvas.SMALL_FONT_SIZE,
        color=canvas.INK,
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1},
    )


def _tick(axis: Axis, value: float) -> str:
    match axis:
        case Axis.BANDWIDTH:
            text = format_bandwidth(value)
        case Axis.LATENCY:
            text = format_ns(value)
        case Axis.BATCH:
            text = f"{value:,.0f}"
    return _TRAILING_ZEROS.sub("", text)


_SCALING_HEIGHT_IN = 4.4
_TITLES = {
    Scaling.STRONG: "the same training: the batch shared",
    Scaling.WEAK: "more samples a step: the batch on each",
}


@canvas.plain_style()
def draw_scaling(compared: HardwareComparison) -> Figure:
    """Return a picture with a panel for strong and one for weak scaling."""
    figure = canvas.new_page(_SCALING_HEIGHT_IN)
    figure.set_layout_engine("constrained")
    row = figure.subplots(1, len(_TITLES), sharey=True)
    for ax, scaling in zip(row, _TITLES, strict=True):
        _draw_machines(ax, compared, scaling)
    row[0].set_ylabel("times as fast as one device (simulated)", fontsize=canvas.FONT_SIZE)
    row[0].legend(frameon=False, fontsize=canvas.FONT_SIZE, loc="upper left")
    figure.suptitle(
        f"{canvas.drawable(f'{compared.model}: {_scaling_outcome(compared)} (simulated)')}\n"
        f"{compared.mode}, a batch of {compared.batch}: speed-up by number of devices, thin lines "
        "its range; a ring marks the knee",
        fontsize=canvas.FONT_SIZE,
    )
    return figure


def _scaling_outcome(compared: HardwareComparison) -> str:
    """Return up to how many devices of the fastest machine pay."""
    first = compared.fastest()
    if first is None:
        return "no machine holds it on one device"
    knees = ((first.machine.knee(scaling), title) for scaling, title in _TITLES.items())
    told = (
        f"up to {counted(knee.devices, 'device')} with {title.partition(': ')[2]}"
        for knee, title in knees
        if knee is not None
    )
    return f"{first.machine.label} pays {', '.join(told)}"


def _draw_machines(ax: Axes, compared: HardwareComparison, scaling: Scaling) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    counts = sorted({1, *(row.devices for machine in compared.machines for row in machine.rows)})
    most = counts[-1]
    ax.plot([1, most], [1, most], color=canvas.FAINT, linewidth=0.8, linestyle="--")
    # A split can be faster where more threads launch, so this is no bound.
    ax.annotate(
        "N× on N devices",
        (most, most),
        ha="right",
        fontsize=canvas.SMALL_FONT_SIZE,
        color=canvas.FAINT,
    )
    for number, machine in enumerate(compared.machines):
        sign, dashes = canvas.SIGNS[number % len(canvas.SIGNS)]
        knee = machine.knee(scaling)
        if knee is None:
            continue
        shown = [step for step in machine.best(scaling) if step.speedup is not None]
        devices = [1, *(step.devices for step in shown)]
        found = [Interval(median=1.0, low=1.0, high=1.0), *(s.speedup for s in shown if s.speedup)]
        speedups = [each.median for each in found]
        ax.plot(
            devices, speedups, color=canvas.INK, linestyle=dashes, linewidth=1.1, marker=sign,
            markersize=4, label=canvas.drawable(machine.label),
        )  # fmt: skip
        for ends in ([each.low for each in found], [each.high for each in found]):
            ax.plot(devices, ends, color=canvas.INK, linestyle=dashes, linewidth=0.4)
        ax.plot(
            [knee.devices], [speedups[devices.index(knee.devices)]],
            color=canvas.INK, marker="o", markersize=11, fillstyle="none",
        )  # fmt: skip
    ax.set_title(_TITLES[scaling], fontsize=canvas.FONT_SIZE)
    ax.set_xlabel("devices", fontsize=canvas.FONT_SIZE)
    ax.set_xscale("log", base=2)
    ax.set_yscale("log", base=2)
    ax.xaxis.set_major_locator(FixedLocator(counts))
    ax.xaxis.set_minor_locator(NullLocator())
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.tick_params(labelsize=canvas.FONT_SIZE)
