"""A picture of what further devices bring: speed-up over one device, by machine and scaling."""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.analysis.machine_scaling import Scaling
from placement_advisor.measurement.measurement import Interval
from placement_advisor.report.pictures.canvas import (
    FAINT,
    FONT_SIZE,
    INK,
    SIGNS,
    SMALL_FONT_SIZE,
    new_page,
    plain_style,
)
from placement_advisor.report.pictures.drawn_text import drawable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from placement_advisor.analysis.machine_scaling import HardwareComparison

_HEIGHT_IN = 4.4
_TITLES = {
    Scaling.STRONG: "the same training: the batch shared",
    Scaling.WEAK: "more samples a step: the batch on each",
}


@plain_style()
def draw_scaling(compared: HardwareComparison) -> Figure:
    """Return a picture with a panel for strong and one for weak scaling."""
    figure = new_page(_HEIGHT_IN)
    figure.set_layout_engine("constrained")
    row = figure.subplots(1, len(_TITLES), sharey=True)
    for ax, scaling in zip(row, _TITLES, strict=True):
        _draw(ax, compared, scaling)
    row[0].set_ylabel("times as fast as one device (simulated)", fontsize=FONT_SIZE)
    row[0].legend(frameon=False, fontsize=FONT_SIZE, loc="upper left")
    figure.suptitle(
        f"{drawable(compared.model)}, {compared.mode}, a batch of {compared.batch}: "
        "speed-up by number of devices, thin lines its range; a ring marks the knee",
        fontsize=FONT_SIZE,
    )
    return figure


def _draw(ax: Axes, compared: HardwareComparison, scaling: Scaling) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    counts = sorted({1, *(row.devices for machine in compared.machines for row in machine.rows)})
    most = counts[-1]
    ax.plot([1, most], [1, most], color=FAINT, linewidth=0.8, linestyle="--")
    # A split can be faster where more threads launch, so this is no bound.
    ax.annotate("N× on N devices", (most, most), ha="right", fontsize=SMALL_FONT_SIZE, color=FAINT)
    for number, machine in enumerate(compared.machines):
        sign, dashes = SIGNS[number % len(SIGNS)]
        knee = machine.knee(scaling)
        if knee is None:
            continue
        shown = [step for step in machine.best(scaling) if step.speedup is not None]
        devices = [1, *(step.devices for step in shown)]
        found = [Interval(median=1.0, low=1.0, high=1.0), *(s.speedup for s in shown if s.speedup)]
        speedups = [each.median for each in found]
        ax.plot(
            devices, speedups, color=INK, linestyle=dashes, linewidth=1.1, marker=sign,
            markersize=4, label=drawable(machine.label),
        )  # fmt: skip
        for ends in ([each.low for each in found], [each.high for each in found]):
            ax.plot(devices, ends, color=INK, linestyle=dashes, linewidth=0.4)
        ax.plot(
            [knee.devices], [speedups[devices.index(knee.devices)]],
            color=INK, marker="o", markersize=11, fillstyle="none",
        )  # fmt: skip
    ax.set_title(_TITLES[scaling], fontsize=FONT_SIZE)
    ax.set_xlabel("devices", fontsize=FONT_SIZE)
    ax.set_xscale("log", base=2)
    ax.set_yscale("log", base=2)
    ax.xaxis.set_major_locator(FixedLocator(counts))
    ax.xaxis.set_minor_locator(NullLocator())
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.tick_params(labelsize=FONT_SIZE)
