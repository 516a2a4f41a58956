"""A picture of a model by layer: boxes in the order of data flow, arrows as thick as their bytes.

Names too long for a box are shortened to what tells them apart.

Matplotlib is imported when a picture is drawn, without pyplot. Left out: the backward pass, whose
arrows run the same ways back, and single ops.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.report.pictures.canvas import (
    DEVICE_COLORS,
    FAINT,
    FONT_SIZE,
    INK,
    KIND_COLORS,
    SMALL_FONT_SIZE,
    plain_style,
    save,
    tint,
)
from placement_advisor.report.pictures.drawn_text import text_width_in, told_apart
from placement_advisor.report.pictures.layer_arrows import (
    ARROW_COLOR,
    UNKNOWN_DASHES,
    Frame,
    draw_arrows,
)
from placement_advisor.report.pictures.layer_boxes import Group
from placement_advisor.report.pictures.layered_layout import Sizes, best_layout

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from placement_advisor.report.pictures.layer_boxes import Box, LayerBoxes

NO_GROUP_COLOR = "#9A9A9A"
# Share of the group's colour in the face of a box: text on it keeps a contrast above 9 : 1.
_TINT = 0.22

_BOX_IN = (1.86, 0.56)
_BAR_IN = 0.075
_MARGIN_IN = 0.3
_HEAD_IN = 0.78
_MIN_WIDTH_IN = 8.4
_DPI = 130
# Layouts for data that flows down and to the right; rooms between ranks hold labels of arrows.
_DOWN = Sizes(box_along=0.56, box_across=1.86, gap_along=0.4, gap_across=0.2, lane=0.3, gutter=0.5)
_RIGHT = Sizes(
    box_along=1.86, box_across=0.56, gap_along=0.75, gap_across=0.16, lane=0.2, gutter=0.5
)
_NAME_SIZE = FONT_SIZE - 1
_TEXT_SIZE = SMALL_FONT_SIZE - 1
_TITLE_SIZE = FONT_SIZE + 3
_KEY_IN = 0.35  # The patch of a group in the legend, and the gap behind it.


def plot_layers(boxes: LayerBoxes, path: Path) -> None:
    """Write the picture."""
    with plain_style():
        save(draw_layers(boxes), path)


@plain_style()
def draw_layers(boxes: LayerBoxes) -> Figure:
    """Return the picture."""
    ends = [(arrow.source, arrow.target) for arrow in boxes.arrows]
    layout, flows_down = best_layout(len(boxes.boxes), ends, _DOWN, _RIGHT)
    frame = Frame(flows_down=flows_down, sizes=_DOWN if flows_down else _RIGHT)
    note_in = text_width_in(boxes.note, SMALL_FONT_SIZE)
    figure, ax = _page(*frame.point(layout.length, layout.breadth), least_in=note_in)
    arrows = dict(zip(ends, boxes.arrows, strict=True))
    draw_arrows(ax, layout, frame, arrows)
    kinds = [str(group) for group in Group if group != Group.OTHER]
    devices = [group for group in boxes.groups if group not in list(Group)]
    known = {
        **dict(zip(kinds, KIND_COLORS, strict=True)),
        Group.OTHER: NO_GROUP_COLOR,
        **{name: DEVICE_COLORS[i % len(DEVICE_COLORS)] for i, name in enumerate(devices)},
    }
    colors = {group: known[group] for group in boxes.groups}
    room_in = _BOX_IN[0] - _BAR_IN - 0.1
    names = told_apart([box.name for box in boxes.boxes], _NAME_SIZE, room_in, "bold")
    texts = told_apart([t for box in boxes.boxes for t in box.texts], _TEXT_SIZE, room_in)
    for box, (along, across) in zip(boxes.boxes, layout.centres, strict=True):
        lines = (names[box.name], *(texts[text] for text in box.texts))
        _draw_box(ax, box, lines, frame.point(along, across), colors)
    _draw_head(figure, boxes, colors)
    return figure


def _page(width: float, height: float, *, least_in: float) -> tuple[Figure, Axes]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    page_width = max(width, least_in, _MIN_WIDTH_IN) + 2 * _MARGIN_IN
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

    width, height = figure.get_size_inches()
    left = 0.12 / width
    room_in = width - 0.24
    title = told_apart([boxes.title], _TITLE_SIZE, room_in)[boxes.title]
    for text, below_in, size, color in (
        (title, 0.1, _TITLE_SIZE, INK),
        (boxes.note, 0.34, SMALL_FONT_SIZE, FAINT),
    ):
        figure.text(left, 1 - below_in / height, text, va="top", fontsize=size, color=color)
    groups = told_apart(colors, SMALL_FONT_SIZE, room_in / (len(colors) + 1) - _KEY_IN)
    handles: list[Patch | Line2D] = [
        Patch(label=groups[group], facecolor=tint(color, _TINT), edgecolor=color, linewidth=1.5)
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


def _draw_box(
    ax: Axes,
    box: Box,
    lines: Sequence[str],
    centre: tuple[float, float],
    colors: Mapping[str, str],
) -> None:
    """Draw a box: face and bar in the colours of its groups, each as long as its share."""
    from matplotlib.patches import Rectangle

    width, height = _BOX_IN
    x, y = centre[0] - width / 2, centre[1] - height / 2
    main = max(box.group_shares, key=lambda g: box.group_shares[g], default="")
    color = colors.get(main, NO_GROUP_COLOR)
    ax.add_patch(
        Rectangle(
            (x, y), width, height, facecolor=tint(color, _TINT), edgecolor=color, lw=0.8, zorder=3
        )
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
    middle = centre[1] - (len(lines) - 1) * 0.15 / 2
    for place, text in enumerate(lines):
        ax.text(
            centre[0] + _BAR_IN / 2,
            middle + place * 0.15,
            text,
            ha="center",
            va="center",
            fontsize=_TEXT_SIZE if place else _NAME_SIZE,
            fontweight="normal" if place else "bold",
            color=INK,
            zorder=5,
        )
