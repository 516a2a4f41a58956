"""Pictures of an analysis: ``timeline.png`` and ``comparison.png``.

Simulated stands above measured. Matplotlib is imported when a picture is drawn, without pyplot,
so no display and no global state is involved. Left out: names of ops in bars too narrow for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.report.bars import Bar, Lanes, candidate_lanes
from placement_advisor.report.tables import (
    BASELINE,
    StepFigures,
    as_is_interval,
    candidate_figures,
    one_line,
    range_text,
    speedup,
    times_text,
    was_measured,
)
from placement_advisor.units import NS_PER_MS, format_ns

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from placement_advisor.analysis import Analysis, Candidate

# Okabe & Ito's colours, told apart with every common colour blindness (jfly.uni-koeln.de/color).
COMPUTE_COLOR = "#0072B2"
COPY_COLOR = "#E69F00"
EXPOSED_COLOR = "#D55E00"
STEP_COLOR = "#4D4D4D"
_INK = "#222222"
_FAINT = "#767676"
_BAND_COLOR = "#F3F4F6"

_DPI = 130
_WIDTH_IN = 12.0
_LANE_IN = 0.27
_FONT_SIZE = 9
_SMALL_FONT_SIZE = 8
# A character of the small font is about this wide on the picture; used to keep names in bars.
_CHARACTER_IN = 0.068
# Width of the lanes once labels are taken off, and pixels across it: less than this is invisible.
_LANES_IN = 9.4
_PIXELS_ACROSS = 1_200
# Beside the lanes of a group: its heading; beside the groups of a candidate: title and axis.
_HEADING_ROWS = 1.0
_GAP_ROWS = 0.45
_TITLE_IN = 0.85
_LEGEND_IN = 0.75

_BAR_IN = 0.19
# Characters that the font of the pictures is sure to have.
_KNOWN_BELOW = 0x250


def plot_timeline(analysis: Analysis, path: Path) -> None:
    """Write a picture with a lane per device and link, simulated above measured per candidate.

    The measured lanes show the profiled step of median length.
    """
    panels = [(c, candidate_lanes(analysis, c, _PIXELS_ACROSS)) for c in analysis.candidates]
    heights_in = [_TITLE_IN + _LANE_IN * _rows(groups) for _, groups in panels]
    figure = _figure(sum(heights_in) + _LEGEND_IN)
    axes = figure.subplots(len(panels), 1, squeeze=False, height_ratios=heights_in)
    for (candidate, groups), ax in zip(panels, axes[:, 0], strict=True):
        _panel_title(ax, candidate, analysis)
        _draw_groups(ax, groups)
    _title(figure, analysis, "one step over time")
    _legend(figure, [("compute", COMPUTE_COLOR, False), ("copy", COPY_COLOR, False)])
    _save(figure, path)


def plot_comparison(analysis: Analysis, path: Path) -> None:
    """Write a picture of compute per device, copies, exposed copies and step of each candidate."""
    measured = was_measured(analysis)
    panels = [(c, _comparison_rows(*candidate_figures(c))) for c in analysis.candidates]
    bars = 2 if measured else 1
    heights_in = [_TITLE_IN + _BAR_IN * (bars + 0.6) * len(rows) for _, rows in panels]
    figure = _figure(sum(heights_in) + _LEGEND_IN)
    axes = figure.subplots(len(panels), 1, squeeze=False, sharex=True, height_ratios=heights_in)
    for (candidate, rows), ax in zip(panels, axes[:, 0], strict=True):
        _panel_title(ax, candidate, analysis)
        _draw_comparison(ax, rows, measured)
    longest_ns = max(
        (time_ns or 0 for _, rows in panels for _, _, *times in rows for time_ns in times),
        default=0,
    )
    axes[-1, 0].set_xlim(0, 1.12 * max(longest_ns, 1) / NS_PER_MS)
    axes[-1, 0].set_xlabel("ms per step")
    _title(figure, analysis, "compute against copies")
    entries = [("simulated", STEP_COLOR, True)]
    _legend(figure, [*entries, ("measured", STEP_COLOR, False)] if measured else entries)
    _save(figure, path)


def _rows(groups: list[Lanes]) -> float:
    return sum(_HEADING_ROWS + len(group.names) + _GAP_ROWS for group in groups) or 1


def _draw_groups(ax: Axes, groups: list[Lanes]) -> None:
    """Draw groups of lanes under one another over one time axis."""
    end_ns = max((group.end_ns for group in groups), default=1)
    ax.set_xlim(0, end_ns / NS_PER_MS)
    ax.set_ylim(_rows(groups), 0)
    ax.set_xlabel("ms")
    ax.spines[["left", "right", "top"]].set_visible(False)
    ticks: list[float] = []
    labels: list[str] = []
    top = 0.0
    for group in groups:
        _group_heading(ax, group, top)
        for place, name in enumerate(group.names):
            middle = top + _HEADING_ROWS + place + 0.5
            ax.axhspan(middle - 0.42, middle + 0.42, color=_BAND_COLOR, linewidth=0, zorder=0)
            _draw_lane(ax, group.bars[name], middle, end_ns)
            _beside(ax, middle, format_ns(group.busy_ns[name]))
            ticks.append(middle)
            labels.append(_drawable(name))
        height = _HEADING_ROWS + len(group.names)
        step_ms = group.step_ns / NS_PER_MS
        ax.plot(
            [step_ms, step_ms], [top + _HEADING_ROWS, top + height], color=_INK, ls="--", lw=1.2
        )
        top += height + _GAP_ROWS
    ax.set_yticks(ticks, labels)
    ax.tick_params(axis="y", length=0)


def _group_heading(ax: Axes, group: Lanes, top: float) -> None:
    middle = top + _HEADING_ROWS * 0.55
    ax.annotate(
        group.heading,
        (0, middle),
        xycoords=("axes fraction", "data"),
        va="center",
        fontsize=_FONT_SIZE,
        fontstyle="italic",
        color=_INK,
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
        fontsize=_SMALL_FONT_SIZE,
        color=_FAINT,
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
        # A hairline parts ops that follow one another without a pause.
        if bar.end_ns - bar.start_ns > 5 * pixel_ns:
            start_ms = bar.start_ns / NS_PER_MS
            ax.vlines(start_ms, middle - height / 2, middle + height / 2, color="white", lw=0.6)
        name = _drawable(bar.name)
        room_in = (bar.end_ns - bar.start_ns) / end_ns * _LANES_IN
        if name and len(name) * _CHARACTER_IN < room_in - 0.1:
            ax.text(
                (bar.start_ns + bar.end_ns) / 2 / NS_PER_MS,
                middle,
                name,
                ha="center",
                va="center_baseline",
                fontsize=_SMALL_FONT_SIZE,
                color=_INK if bar.is_copy else "white",
                parse_math=False,
            )


def _comparison_rows(
    predicted: StepFigures | None, ran: StepFigures | None
) -> list[tuple[str, str, int | None, int | None]]:
    """Return label, colour, simulated and measured time of each bar."""

    def both(name: str) -> tuple[int | None, int | None]:
        return (
            getattr(predicted, name) if predicted else None,
            getattr(ran, name) if ran else None,
        )

    simulated = (predicted.compute_ns if predicted else None) or {}
    measured = (ran.compute_ns if ran else None) or {}
    rows = [("step", STEP_COLOR, *both("step_ns"))]
    rows += [
        (f"compute {device}", COMPUTE_COLOR, simulated.get(device), measured.get(device))
        for device in dict.fromkeys([*simulated, *measured])
    ]
    rows.append(("copies", COPY_COLOR, *both("transfer_ns")))
    rows.append(("copies, exposed", EXPOSED_COLOR, *both("exposed_ns")))
    return rows


def _draw_comparison(
    ax: Axes, rows: list[tuple[str, str, int | None, int | None]], measured: bool
) -> None:
    height = 0.36 if measured else 0.6
    shift = height / 2 if measured else 0
    for place, (_, color, *times_ns) in enumerate(rows):
        for time_ns, y, is_simulated in (
            (times_ns[0], place - shift, True),
            (times_ns[1], place + shift, False),
        ):
            if time_ns is None:
                continue
            width_ms = time_ns / NS_PER_MS
            ax.barh(y, width_ms, height * 0.92, **_bar_style(color, is_simulated))
            ax.annotate(
                format_ns(time_ns),
                (width_ms, y),
                xytext=(4, 0),
                textcoords="offset points",
                va="center",
                fontsize=_SMALL_FONT_SIZE,
                color=_INK,
            )
    ax.set_yticks(range(len(rows)), [_drawable(row[0]) for row in rows])
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)
    ax.spines[["right", "top"]].set_visible(False)
    ax.grid(axis="x", color="#DDDDDD", linewidth=0.6)
    ax.set_axisbelow(True)


def _bar_style(color: str, is_simulated: bool) -> dict[str, object]:
    """Return an outline with hatching for simulated bars, a solid fill for measured ones."""
    if not is_simulated:
        return {"color": color}
    return {"facecolor": "white", "edgecolor": color, "hatch": "////", "linewidth": 1.0}


def _panel_title(ax: Axes, candidate: Candidate, analysis: Analysis) -> None:
    ax.set_title(_drawable(candidate.name), loc="left", fontsize=_FONT_SIZE + 2, fontweight="bold")
    ax.set_title(_outcome(candidate, analysis), loc="right", fontsize=_FONT_SIZE, color=_INK)


def _outcome(candidate: Candidate, analysis: Analysis) -> str:
    if candidate.failure is not None:
        return f"no result: {candidate.failure.kind.value}"
    if candidate.measured is None or not candidate.measured.step_ns:
        return "simulated only"
    factor = speedup(candidate)
    if candidate.name == BASELINE or factor is None:
        return "measured baseline" if candidate.name == BASELINE else "measured"
    return f"measured speed-up {times_text(factor.median)} (95 % {range_text(factor)})"


def _title(figure: Figure, analysis: Analysis, what: str) -> None:
    as_is = as_is_interval(analysis)
    text = f"{_drawable(analysis.model.name)}: {what}"
    if as_is is not None:
        text += f"   (as-is, all of the machine: {format_ns(as_is.median)}, measured)"
    figure.suptitle(text, x=0.01, ha="left", fontsize=_FONT_SIZE + 3, parse_math=False)


def _legend(figure: Figure, entries: list[tuple[str, str, bool]]) -> None:
    from matplotlib.patches import Patch

    figure.legend(
        handles=[
            Patch(label=label, **_bar_style(color, hatched))  # type: ignore[arg-type]
            for label, color, hatched in entries
        ],
        loc="outside lower left",
        ncols=len(entries),
        frameon=False,
        fontsize=_FONT_SIZE,
    )


def _figure(height_in: float) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_WIDTH_IN, height_in), dpi=_DPI, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _save(figure: Figure, path: Path) -> None:
    figure.savefig(path, format="png", facecolor="white")


def _drawable(text: str) -> str:
    """Return text with a question mark for what the font may lack, so that nothing warns."""
    return "".join(
        character if ord(character) < _KNOWN_BELOW or character == "→" else "?"
        for character in one_line(text)
    ).replace("$", r"\$")
