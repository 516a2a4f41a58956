"""A picture of a model by layer: boxes in the order of data flow, arrows as thick as their bytes.

Matplotlib is imported when a picture is drawn, without pyplot. Left out: the backward pass, whose
arrows run the same ways back, and single ops.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.report.pictures.canvas import (
    FAINT,
    FONT_SIZE,
    INK,
    SMALL_FONT_SIZE,
    drawable,
    plain_style,
    save,
)
from placement_advisor.report.pictures.layer_arrows import (
    ARROW_COLOR,
    UNKNOWN_DASHES,
    Frame,
    draw_arrows,
)
from placement_advisor.report.pictures.layer_boxes import Group
from placement_advisor.report.pictures.layered_layout import Sizes, best_layout

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from placement_advisor.report.pictures.layer_boxes import Box, LayerBoxes

# Okabe & Ito's colours but black, in an order that keeps likely neighbours apart.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442")
NO_GROUP_COLOR = "#9A9A9A"
# Share of the group's colour in the face of a box: text on it keeps a contrast above 9 : 1.
_TINT = 0.22

_BOX_IN = (1.86, 0.56)
_BAR_IN = 0.075
_MARGIN_IN = 0.3
_HEAD_IN = 0.78
_MIN_WIDTH_IN = 9.0
_DPI = 130
# Layouts for data that flows down and to the right; rooms between ranks hold labels of arrows.
_DOWN = Sizes(box_along=0.56, box_across=1.86, gap_along=0.4, gap_across=0.2, lane=0.3, gutter=0.5)
_RIGHT = Sizes(
    box_along=1.86, box_across=0.56, gap_along=0.75, gap_across=0.16, lane=0.2, gutter=0.5
)
_NAME_CHARACTERS = 24


@plain_style()
def draw_layers(boxes: LayerBoxes, path: Path) -> None:
    """Write the picture."""
    ends = [(arrow.source, arrow.target) for arrow in boxes.arrows]
    layout, flows_down = best_layout(len(boxes.boxes), ends, _DOWN, _RIGHT)
    frame = Frame(flows_down=flows_down, sizes=_DOWN if flows_down else _RIGHT)
    figure, ax = _page(*frame.point(layout.length, layout.breadth))
    arrows = dict(zip(ends, boxes.arrows, strict=True))
    draw_arrows(ax, layout, frame, arrows)
    colors = {
        group: NO_GROUP_COLOR if group == Group.OTHER else PALETTE[i % len(PALETTE)]
        for i, group in enumerate(boxes.groups)
    }
    for box, (along, across) in zip(boxes.boxes, layout.centres, strict=True):
        _draw_box(ax, box, frame.point(along, across), colors)
    _draw_head(figure, boxes, colors)
    save(figure, path)


def _page(width: float, height: float) -> tuple[Figure, Axes]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    page_width = max(width + 2 * _MARGIN_IN, _MIN_WIDTH_IN)
    page_height = height + _MARGIN_IN + _HEAD_IN
    figure = Figure(figsize=(page_width, page_height), dpi=_DPI)
    FigureCanvasAgg(figure)
    ax = figure.add_axes((0, 0, 1, 1))
    ax.set_axis_off()
    left = (page_width - width) / 2
    ax.set_xlim(-left, page_width - left)
    ax.set_ylim(page_height - _HEAD_IN, -_HEAD_IN)
    return figure, ax


def _draw_head(figure: Figure, boxes: LayerBoxes, colors: Mapping[str, str]) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    height = figure.get_figheight()
    left = 0.12 / figure.get_figwidth()
    figure.text(
        left, 1 - 0.1 / height, drawable(boxes.title), va="top", fontsize=FONT_SIZE + 3, color=INK
    )
    figure.text(
        left,
        1 - 0.34 / height,
        drawable(boxes.note),
        va="top",
        fontsize=SMALL_FONT_SIZE,
        color=FAINT,
    )
    handles: list[Patch | Line2D] = [
        Patch(label=drawable(group), facecolor=_tint(color), edgecolor=color, linewidth=1.5)
        for group, color in colors.items()
    ]
    if any(arrow.size_bytes is None for arrow in boxes.arrows):
        handles.append(
            Line2D([], [], label="bytes unknown", color=ARROW_COLOR, linestyle=UNKNOWN_DASHES)
        )
    figure.legend(
        handles=handles,
        loc="upper left",
        bbox_to_anchor=(left, 1 - 0.54 / height),
        ncols=len(handles),
        frameon=False,
        fontsize=SMALL_FONT_SIZE,
        borderaxespad=0,
        borderpad=0,
        handlelength=1.2,
        columnspacing=1.4,
    )


def _draw_box(ax: Axes, box: Box, centre: tuple[float, float], colors: Mapping[str, str]) -> None:
    """Draw a box: face and bar in the colours of its groups, each as long as its share."""
    from matplotlib.patches import Rectangle

    width, height = _BOX_IN
    x, y = centre[0] - width / 2, centre[1] - height / 2
    main = max(box.group_shares, key=lambda g: box.group_shares[g], default="")
    color = colors.get(main, NO_GROUP_COLOR)
    ax.add_patch(
        Rectangle((x, y), width, height, facecolor=_tint(color), edgecolor=color, lw=0.8, zorder=3)
    )
    total = sum(box.group_shares.values())
    top = y
    for group, share in box.group_shares.items():
        part = height * share / total
        ax.add_patch(
            Rectangle(
                (x, top), _BAR_IN, part, facecolor=colors.get(group, NO_GROUP_COLOR), lw=0, zorder=4
            )
        )
        top += part
    lines = [
        (_short(box.name), FONT_SIZE, "bold", INK),
        *((t, SMALL_FONT_SIZE, "normal", INK) for t in map(drawable, box.texts)),
    ]
    middle = centre[1] - (len(lines) - 1) * 0.15 / 2
    for place, (text, size, weight, ink) in enumerate(lines):
        ax.text(
            centre[0] + _BAR_IN / 2,
            middle + place * 0.15,
            text,
            ha="center",
            va="center",
            fontsize=size - 1,
            fontweight=weight,
            color=ink,
            zorder=5,
        )


def _short(name: str) -> str:
    """Return a name that fits a box: its end tells most, then its start."""
    name = drawable(name)
    if len(name) <= _NAME_CHARACTERS:
        return name
    tail = _NAME_CHARACTERS * 2 // 3
    return f"{name[: _NAME_CHARACTERS - tail - 1]}…{name[-tail:]}"


def _tint(color: str) -> tuple[float, float, float]:
    from matplotlib.colors import to_rgb

    red, green, blue = (1 - _TINT * (1 - part) for part in to_rgb(color))
    return red, green, blue
