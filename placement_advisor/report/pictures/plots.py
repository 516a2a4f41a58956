"""Pictures of an analysis: ``timeline.png`` and ``comparison.png``.

Simulated stands above measured. Matplotlib is imported when a picture is drawn, without pyplot,
so no display and no global state is involved. Left out: names of ops in bars too narrow for them,
and messages of failures, which the other reports show.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from placement_advisor.report.analysis.tables import StepFigures, candidate_figures, was_measured
from placement_advisor.report.pictures.bars import Bar, Lanes, candidate_lanes
from placement_advisor.report.pictures.canvas import (
    BAND_COLOR,
    COMPUTE_COLOR,
    COPY_COLOR,
    EXPOSED_COLOR,
    FAINT,
    FONT_SIZE,
    INK,
    SMALL_FONT_SIZE,
    STEP_COLOR,
    add_legend,
    add_title,
    drawable,
    new_figure,
    panel_title,
    plain_style,
    save,
)
from placement_advisor.units import NS_PER_MS, format_ns

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

    from placement_advisor.analysis.analysis_result import Analysis

# A character of the small font is about this wide on the picture; used to keep names in bars.
_CHARACTER_IN = 0.068
# Width of the lanes once labels are taken off, and pixels across it: less than this is invisible.
_LANES_IN = 9.4
_PIXELS_ACROSS = 1_200
_LANE_IN = 0.27
# Rows of a group beside its lanes: the heading above and the gap below.
_HEADING_ROWS = 1.0
_GAP_ROWS = 0.45
# An op wider than this many pixels is parted from the next by a hairline.
_PARTED_PIXELS = 5

_BAR_IN = 0.19


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """One pair of bars of the comparison."""

    label: str
    color: str
    simulated_ns: int | None
    measured_ns: int | None

    @property
    def longest_ns(self) -> int:
        """Length of the longer bar, 0 if there is none."""
        return max(self.simulated_ns or 0, self.measured_ns or 0)


@plain_style()
def plot_timeline(analysis: Analysis, path: Path) -> None:
    """Write a picture with a lane per device and link, simulated above measured per candidate.

    The measured lanes show the profiled step of median length.
    """
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    panels = [(c, candidate_lanes(analysis, c, _PIXELS_ACROSS)) for c in analysis.candidates]
    figure, axes = new_figure([_LANE_IN * _rows(groups) for _, groups in panels])
    for (candidate, groups), ax in zip(panels, axes, strict=True):
        panel_title(ax, candidate)
        if groups:
            _draw_groups(ax, groups)
        else:
            ax.set_axis_off()
    add_title(figure, analysis, "one step over time")
    add_legend(
        figure,
        [
            Patch(label="compute", color=COMPUTE_COLOR),
            Patch(label="copy", color=COPY_COLOR),
            Line2D([], [], label="end of step", color=INK, linestyle="--", linewidth=1.2),
        ],
    )
    save(figure, path)


@plain_style()
def plot_comparison(analysis: Analysis, path: Path) -> None:
    """Write a picture of compute per device, copies, exposed copies and step of each candidate."""
    from matplotlib.patches import Patch

    panels = [(c, _comparison_rows(*candidate_figures(c))) for c in analysis.candidates]
    bars = 2.6 if was_measured(analysis) else 1.6
    figure, axes = new_figure([_BAR_IN * bars * max(len(rows), 1) for _, rows in panels])
    longest_ns = max((row.longest_ns for _, rows in panels for row in rows), default=0)
    for (candidate, rows), ax in zip(panels, axes, strict=True):
        panel_title(ax, candidate)
        if rows:
            _draw_comparison(ax, rows, longest_ns or NS_PER_MS)
        else:
            ax.set_axis_off()
    add_title(figure, analysis, "compute against copies")
    handles: list[Artist] = [Patch(label="simulated", **_bar_style(STEP_COLOR, is_simulated=True))]
    if was_measured(analysis):
        handles.append(Patch(label="measured", **_bar_style(STEP_COLOR, is_simulated=False)))
    add_legend(figure, handles)
    save(figure, path)


def _rows(groups: list[Lanes]) -> float:
    return sum(_HEADING_ROWS + len(group.names) + _GAP_ROWS for group in groups) or 1.0


def _draw_groups(ax: Axes, groups: list[Lanes]) -> None:
    """Draw groups of lanes under one another over one time axis."""
    end_ns = groups[0].end_ns
    ax.set_xlim(0, 1.004 * end_ns / NS_PER_MS)  # The last dashed line in full.
    ax.set_ylim(_rows(groups), 0)
    ax.set_xlabel("ms", fontsize=FONT_SIZE)
    ax.spines[["left", "right", "top"]].set_visible(False)
    ticks: list[float] = []
    labels: list[str] = []
    top = 0.0
    for group in groups:
        _group_heading(ax, group, top)
        for place, name in enumerate(group.names):
            middle = top + _HEADING_ROWS + place + 0.5
            ax.axhspan(middle - 0.42, middle + 0.42, color=BAND_COLOR, linewidth=0, zorder=0)
            _draw_lane(ax, group.bars[name], middle, end_ns)
            _beside(ax, middle, format_ns(group.busy_ns[name]))
            ticks.append(middle)
            labels.append(drawable(name))
        height = _HEADING_ROWS + len(group.names)
        step_ms = group.step_ns / NS_PER_MS
        ax.plot([step_ms, step_ms], [top + _HEADING_ROWS, top + height], color=INK, ls="--", lw=1.2)
        top += height + _GAP_ROWS
    ax.set_yticks(ticks, labels)
    ax.tick_params(axis="y", length=0)
    ax.tick_params(labelsize=FONT_SIZE)


def _group_heading(ax: Axes, group: Lanes, top: float) -> None:
    middle = top + _HEADING_ROWS * 0.55
    ax.annotate(
        group.heading,
        (0, middle),
        xycoords=("axes fraction", "data"),
        va="center",
        fontsize=FONT_SIZE,
        fontstyle="italic",
        color=INK,
    )
    _beside(ax, middle, "busy")


def _beside(ax: Axes, y: float, text: str) -> None:
    ax.annotate(
        text,
        (1, y),
        xytext=(8, 0),
        xycoords=("axes fraction", "data"),
        textcoords="offset points",
        va="center",
        fontsize=SMALL_FONT_SIZE,
        color=FAINT,
        annotation_clip=False,
    )


def _draw_lane(ax: Axes, bars: tuple[Bar, ...], middle: float, end_ns: int) -> None:
    height = 0.72
    pixel_ns = end_ns / _PIXELS_ACROSS
    for is_copy, color in ((False, COMPUTE_COLOR), (True, COPY_COLOR)):
        spans = [
            (bar.start_ns / NS_PER_MS, max(bar.end_ns - bar.start_ns, pixel_ns) / NS_PER_MS)
            for bar in bars
            if bar.is_copy is is_copy
        ]
        ax.broken_barh(spans, (middle - height / 2, height), facecolors=color, linewidth=0)
    for bar in bars:
        if bar.end_ns - bar.start_ns > _PARTED_PIXELS * pixel_ns:
            start_ms = bar.start_ns / NS_PER_MS
            ax.vlines(start_ms, middle - height / 2, middle + height / 2, color="white", lw=0.6)
        name = drawable(bar.name)
        room_in = (bar.end_ns - bar.start_ns) / end_ns * _LANES_IN
        if name and len(name) * _CHARACTER_IN < room_in - 0.1:
            ax.text(
                (bar.start_ns + bar.end_ns) / 2 / NS_PER_MS,
                middle,
                name,
                ha="center",
                va="center_baseline",
                fontsize=SMALL_FONT_SIZE,
                color=INK if bar.is_copy else "white",
            )


def _comparison_rows(predicted: StepFigures | None, ran: StepFigures | None) -> list[_Row]:
    if predicted is None and ran is None:
        return []

    def row(label: str, color: str, field: str) -> _Row:
        return _Row(
            label=label,
            color=color,
            simulated_ns=getattr(predicted, field, None),
            measured_ns=getattr(ran, field, None),
        )

    simulated = (predicted.compute_ns if predicted else None) or {}
    measured = (ran.compute_ns if ran else None) or {}
    return [
        row("step", STEP_COLOR, "step_ns"),
        *(
            _Row(
                label=f"compute {device}",
                color=COMPUTE_COLOR,
                simulated_ns=simulated.get(device),
                measured_ns=measured.get(device),
            )
            for device in dict.fromkeys([*simulated, *measured])
        ),
        row("copies", COPY_COLOR, "transfer_ns"),
        row("copies, exposed", EXPOSED_COLOR, "exposed_ns"),
    ]


def _draw_comparison(ax: Axes, rows: list[_Row], longest_ns: int) -> None:
    paired = any(row.measured_ns is not None for row in rows)
    height = 0.36 if paired else 0.5
    shift = height / 2 if paired else 0
    for place, row in enumerate(rows):
        _draw_bar(
            ax, row.simulated_ns, place - shift, height, _bar_style(row.color, is_simulated=True)
        )
        _draw_bar(
            ax, row.measured_ns, place + shift, height, _bar_style(row.color, is_simulated=False)
        )
    ax.set_yticks(range(len(rows)), [drawable(row.label) for row in rows])
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ax.set_xlim(0, 1.1 * longest_ns / NS_PER_MS)  # Room for the text behind the longest bar.
    ax.set_xlabel("ms per step", fontsize=FONT_SIZE)
    ax.tick_params(axis="y", length=0)
    ax.tick_params(labelsize=FONT_SIZE)
    ax.spines[["right", "top"]].set_visible(False)
    ax.grid(axis="x", color="#DDDDDD", linewidth=0.6)
    ax.set_axisbelow(True)


def _draw_bar(
    ax: Axes, time_ns: int | None, y: float, height: float, style: dict[str, Any]
) -> None:
    if time_ns is None:
        return
    width_ms = time_ns / NS_PER_MS
    ax.barh(y, width_ms, height * 0.92, **style)
    ax.annotate(
        format_ns(time_ns),
        (width_ms, y),
        xytext=(4, 0),
        textcoords="offset points",
        va="center",
        fontsize=SMALL_FONT_SIZE,
        color=INK,
    )


def _bar_style(color: str, *, is_simulated: bool) -> dict[str, Any]:
    """Return an outline with hatching for simulated bars, a solid fill for measured ones."""
    if not is_simulated:
        return {"color": color}
    return {"facecolor": "white", "edgecolor": color, "hatch": "////", "linewidth": 1.0}
