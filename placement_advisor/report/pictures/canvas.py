"""What both pictures share: colours, sizes, titles, legend, and saving without pyplot."""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING

from placement_advisor.errors import AdvisorError
from placement_advisor.report.analysis.tables import (
    as_is_interval,
    one_line,
    range_text,
    speedup,
    times_text,
)
from placement_advisor.testbed.trial import BASELINE
from placement_advisor.units import format_ns

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from placement_advisor.analysis.analysis_result import Analysis, Candidate

# Okabe & Ito's colours, told apart with every common colour blindness (jfly.uni-koeln.de/color).
COMPUTE_COLOR = "#0072B2"
COPY_COLOR = "#E69F00"
EXPOSED_COLOR = "#D55E00"
STEP_COLOR = "#4D4D4D"
INK = "#222222"
FAINT = "#767676"
BAND_COLOR = "#F3F4F6"

FONT_SIZE = 9
SMALL_FONT_SIZE = 8
# Height of a panel beside its bars: title and axis. Height of a picture beside its panels.
_PANEL_IN = 0.9
_HEAD_IN = 0.35

DPI = 130
WIDTH_IN = 12.0
# Characters that the font of the pictures is sure to have: Latin.
_KNOWN_BELOW = 0x250


@contextlib.contextmanager
def plain_style() -> Iterator[None]:
    """Draw in Matplotlib's own style, whatever a `matplotlibrc` says in the current folder.

    What Matplotlib has to say of its caches, which it can do without, is left out.

    Raises:
        AdvisorError: Matplotlib has no place for its files, not even for a while.
    """
    log = logging.getLogger("matplotlib")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        from matplotlib import style
    except OSError as error:
        log.setLevel(level)
        raise AdvisorError(
            f"no picture can be drawn: {error}",
            hint="name a folder for temporary files with TMPDIR",
        ) from None
    try:
        with style.context("default"):
            yield
    finally:
        log.setLevel(level)


def panel_title(ax: Axes, candidate: Candidate) -> None:
    """Name the candidate at the left of its panel, and how it came out at the right."""
    ax.set_title(drawable(candidate.name), loc="left", fontsize=FONT_SIZE + 2, fontweight="bold")
    ax.set_title(_outcome(candidate), loc="right", fontsize=FONT_SIZE, color=INK)


def _outcome(candidate: Candidate) -> str:
    if candidate.failure is not None:
        return f"failed: {candidate.failure.kind.value}"
    if candidate.measured is None or not candidate.measured.step_ns:
        return "simulated only"
    factor = speedup(candidate)
    if candidate.name == BASELINE or factor is None:
        return "measured baseline" if candidate.name == BASELINE else "measured"
    return f"measured speed-up {times_text(factor.median)} (95 % {range_text(factor)})"


def add_title(figure: Figure, analysis: Analysis, what: str) -> None:
    """Head the picture with the model, and with the user's own step where it was measured."""
    as_is = as_is_interval(analysis)
    text = f"{drawable(analysis.model.name)}: {what}"
    if as_is is not None:
        text += f" (as-is, with all of the machine: {format_ns(as_is.median)} measured)"
    figure.suptitle(text, x=0.008, ha="left", fontsize=FONT_SIZE + 3)


def add_legend(figure: Figure, handles: list[Artist]) -> None:
    """Put the legend beside the title, where a tall picture shows it at once."""
    legend = figure.legend(
        handles=handles,
        loc="upper right",
        ncols=len(handles),
        frameon=False,
        fontsize=FONT_SIZE,
        borderaxespad=0.4,
    )
    legend.set_in_layout(False)


def new_figure(heights_in: Sequence[float]) -> tuple[Figure, list[Axes]]:
    """Return a figure with panels of these heights, titles and axes not counted."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    height_in = sum(heights_in) + _PANEL_IN * len(heights_in) + _HEAD_IN
    layout = ConstrainedLayoutEngine(h_pad=0.09)
    figure = Figure(figsize=(WIDTH_IN, height_in), dpi=DPI, layout=layout)
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(heights_in), 1, squeeze=False, height_ratios=heights_in)
    return figure, list(axes[:, 0])


def save(figure: Figure, path: Path) -> None:
    """Write the picture."""
    figure.savefig(path, format="png", facecolor="white")


def drawable(text: str) -> str:
    """Return text with a question mark for what the font may lack, so that nothing warns."""
    return "".join(
        character if ord(character) < _KNOWN_BELOW or character == "→" else "?"
        for character in one_line(text)
    ).replace("$", r"\$")
