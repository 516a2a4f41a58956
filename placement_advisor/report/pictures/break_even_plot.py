"""``break-even.png``: the best split's speed-up against bandwidth, latency and batch, simulated.

Left out: speed-ups so low that nobody asks how low.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from placement_advisor.report.analysis.break_even_text import value_text
from placement_advisor.report.pictures.canvas import (
    BAND_COLOR,
    FAINT,
    FONT_SIZE,
    HEAD_IN,
    INK,
    SIGNS,
    SMALL_FONT_SIZE,
    add_head,
    headline,
    new_page,
    plain_style,
)
from placement_advisor.report.pictures.drawn_text import drawable
from placement_advisor.simulator.break_even import Axis
from placement_advisor.units import format_bandwidth, format_ns

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from placement_advisor.analysis.analysis_result import Analysis
    from placement_advisor.report.pictures.canvas import Page
    from placement_advisor.simulator.break_even import BreakEven, Sweep

_HEIGHT_IN = 4.6
# A third of the speed is as far from winning as a thirtieth.
_LEAST_SPEEDUP = 0.33
_TICKS = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 7.0, 10.0)
# Ticks stand at powers of ten, which need no digits behind the point.
_TRAILING_ZEROS = re.compile(r"\.0+(?= )")
# Share of a panel's width that a label takes.
_LABEL_SHARE = 0.36
_AXIS_TITLES = {
    Axis.BANDWIDTH: "bandwidth of the slowest link between devices",
    Axis.LATENCY: "latency of the slowest link between devices",
    Axis.BATCH: "batch (samples)",
}


@plain_style()
def draw_break_even(analysis: Analysis, found: BreakEven, page: Page = new_page) -> Figure:
    """Return a picture with a panel for each axis that was swept."""
    from matplotlib.layout_engine import ConstrainedLayoutEngine
    from matplotlib.lines import Line2D

    sweeps = found.sweeps()
    splits = dict.fromkeys(point.best.split for sweep in sweeps for point in sweep.points)
    signs = {split: SIGNS[i % len(SIGNS)][0] for i, split in enumerate(splits)}
    figure = page(_HEIGHT_IN)
    below_head = (0, 0, 1, 1 - HEAD_IN / _HEIGHT_IN)
    figure.set_layout_engine(ConstrainedLayoutEngine(rect=below_head))
    row = figure.subplots(1, len(sweeps), squeeze=False, sharey=True)[0]
    for ax, sweep in zip(row, sweeps, strict=True):
        _draw(ax, sweep, found.worthwhile_ratio, signs)
    _scale_speedups(row[0], sweeps)
    basis = "simulated, corrected" if found.corrections else "simulated"
    title = f"speed-up of the best split\nover {drawable(found.baseline)} ({basis})"
    row[0].set_ylabel(title, fontsize=FONT_SIZE)
    handles: list[Artist] = [
        Line2D([], [], label=drawable(split), color=INK, marker=sign, linestyle="", markersize=5)
        for split, sign in signs.items()
    ]
    what = headline(analysis, "break-even of splits that leave the batch whole, simulated")
    add_head(figure, analysis.model.name, what, handles)
    return figure


def _speedup(ratio: float) -> float:
    return min(_TICKS[-1], 1 / ratio) if ratio else _TICKS[-1]


def _scale_speedups(ax: Axes, sweeps: tuple[Sweep, ...]) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    speedups = [_speedup(point.best.ratio) for sweep in sweeps for point in sweep.points]
    ax.set_yscale("log")
    # Room for a line of text above the highest point, and for two below the lowest.
    ax.set_ylim(max(_LEAST_SPEEDUP, 0.85 * min(0.9, *speedups)), 1.14 * max(1.1, *speedups))
    ax.yaxis.set_major_locator(FixedLocator(_TICKS))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter(FuncFormatter(lambda speedup, _: f"{speedup:g}×"))


def _draw(ax: Axes, sweep: Sweep, worthwhile_ratio: float, signs: Mapping[str, str]) -> None:
    from matplotlib.ticker import FuncFormatter, NullLocator

    worthwhile = _speedup(worthwhile_ratio)
    values = [point.value for point in sweep.points]
    ax.set_xscale("log")
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _tick(sweep.axis, value)))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.axhspan(worthwhile, 2 * _TICKS[-1], color=BAND_COLOR, linewidth=0, zorder=0)
    ax.axhline(1, color=FAINT, linewidth=0.8)
    ax.axhline(worthwhile, color=INK, linewidth=0.8, linestyle="--")
    ax.annotate(
        f"a split wins above {worthwhile:.2f}×",
        (0.02, 0.985),
        xycoords="axes fraction",
        va="top",
        fontsize=SMALL_FONT_SIZE,
        color=FAINT,
    )
    ax.plot(
        values, [_speedup(point.best.ratio) for point in sweep.points], color=FAINT, linewidth=1
    )
    for split, sign in signs.items():
        own = [point for point in sweep.points if point.best.split == split]
        ax.plot(
            [point.value for point in own],
            [_speedup(point.best.ratio) for point in own],
            color=INK,
            marker=sign,
            markersize=3.5,
            linestyle="",
        )
    ax.axvline(sweep.here.value, color=INK, linewidth=0.8, linestyle=":")
    ends = (values[0], values[-1])
    here, limit = sweep.here.value, sweep.wins_from.value if sweep.wins_from else None
    is_left = limit is not None and here < limit
    _label(ax, here, 0.075, f"here {value_text(sweep.axis, here)}", ends, to_left=is_left)
    if sweep.wins_from is not None:
        sign = signs[sweep.wins_from.best.split]
        ax.plot(
            sweep.wins_from.value, worthwhile, sign,
            color="white", markeredgecolor=INK, markersize=8,
        )  # fmt: skip
        reach = "up to" if sweep.axis is Axis.LATENCY else "from"
        text = f"wins {reach} {value_text(sweep.axis, sweep.wins_from.value)}"
        _label(ax, sweep.wins_from.value, 0.015, text, ends, to_left=not is_left)
        ax.axvline(sweep.wins_from.value, color=INK, linewidth=0.8)
    ax.set_xlabel(_AXIS_TITLES[sweep.axis], fontsize=FONT_SIZE)
    ax.tick_params(labelsize=SMALL_FONT_SIZE)
    ax.spines[["right", "top"]].set_visible(False)


def _label(
    ax: Axes, value: int, height: float, text: str, ends: tuple[int, int], *, to_left: bool
) -> None:
    """Write beside a vertical line, on the side that is asked for if there is room."""
    share = math.log(value / ends[0]) / math.log(ends[1] / ends[0])
    to_left = share > 1 - _LABEL_SHARE or (to_left and share > _LABEL_SHARE)
    ax.annotate(
        drawable(text),
        (value, height),
        xytext=(-4 if to_left else 4, 0),
        xycoords=("data", "axes fraction"),
        textcoords="offset points",
        ha="right" if to_left else "left",
        va="bottom",
        fontsize=SMALL_FONT_SIZE,
        color=INK,
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
