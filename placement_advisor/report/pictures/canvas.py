"""What all pictures share: colours, sizes, the heading, text that fits, and saving.

Positions are in inches from the upper left corner, and Matplotlib lays nothing out: what has
its place pushes nothing else. Names too long for their place are shortened so that they
remain distinct.
"""

from __future__ import annotations

import contextlib
import logging
import re
from bisect import bisect_left
from collections import Counter
from functools import cache, partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from placement_advisor.defaults import BASELINE
from placement_advisor.errors import AdvisorError
from placement_advisor.report import statements
from placement_advisor.report.document import one_line
from placement_advisor.units import format_ns, time_unit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from placement_advisor.analysis.analysis_result import Analysis, Candidate

    Page: TypeAlias = Callable[[float], Figure]


# Characters that the font of the pictures is sure to have: Latin.
_KNOWN_BELOW = 0x250
_FONT = "DejaVu Sans"
_DPI = 100
# A word with the numbers behind it and what parts it from the next: "layer_3/", "Conv2D_", "V2".
_WORD = re.compile(r"(?:[A-Z]+[a-z]*|[a-z]+|\d+|[^\W\da-zA-Z_]+)(?:[_:-]?\d+)*[\W_]*|[\W_]+")


def drawable(text: str) -> str:
    """Return text with a question mark for what the font may lack, so that nothing warns."""
    return "".join(
        character if ord(character) < _KNOWN_BELOW or character in "→…" else "?"
        for character in one_line(text)
    )


def text_width_in(text: str, size: float, weight: str = "normal") -> float:
    """Return how wide a line is."""
    from matplotlib.font_manager import FontProperties

    font = FontProperties(family=_FONT, size=size, weight=weight)
    width, *_ = _renderer().get_text_width_height_descent(text, font, ismath=False)
    return float(width) / _DPI


@cache
def _renderer() -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    canvas: Any = FigureCanvasAgg(Figure(dpi=_DPI))
    return canvas.get_renderer()


def told_apart(
    names: Iterable[str], size: float, room_in: float, weight: str = "normal"
) -> dict[str, str]:
    """Return what to draw for each name: itself, or as much of it as there is room for.

    Of a name too long, those words are kept first that tell it from most others; then the last.
    Names that would still be drawn alike are numbered.
    """

    def fits(text: str) -> bool:
        return text_width_in(text, size, weight) <= room_in

    drawn = {name: drawable(name) for name in dict.fromkeys(names)}
    words = {text: _WORD.findall(text) for text in drawn.values()}
    short = {}
    for name, text in drawn.items():
        others = [set(its_words) for other, its_words in words.items() if other != text]
        short[name] = text if fits(text) else _shortened(words[text], others, fits)
    often = Counter(short.values())
    taken = {text for text, times in often.items() if times == 1}
    for name, text in short.items():
        if often[text] > 1:
            short[name] = next(
                numbered
                for number in count(1)
                if (numbered := _numbered(text, number, fits)) not in taken
            )
            taken.add(short[name])
    return short


def _numbered(text: str, number: int, fits: Callable[[str], bool]) -> str:
    end = f" ({number})"
    return _longest_start(text, lambda start: fits(start + end)) + end


def _shortened(
    words: Sequence[str], others: Sequence[set[str]], fits: Callable[[str], bool]
) -> str:
    """Return words from between which others are left out; one that tells most may be cut."""
    kept: dict[int, str] = {}

    def fits_with(place: int, text: str) -> bool:
        return fits(_joined(words, kept | {place: text}))

    left, alike = list(range(len(words))), others
    while left:
        place = min(left, key=lambda place: (sum(words[place] in o for o in alike), -place))
        left.remove(place)
        if fits_with(place, words[place]):
            kept[place] = words[place]
        elif alike or not kept:
            kept[place] = _longest_start(words[place], partial(fits_with, place))
        alike = [other for other in alike if words[place] in other]
    return _joined(words, kept)


def _joined(words: Sequence[str], kept: Mapping[int, str]) -> str:
    """Return what is kept of the words, with dots for what is not."""
    parts = (kept.get(place, "") for place in range(len(words)))
    marked = (
        part if part == word else f"{part}\0" for part, word in zip(parts, words, strict=True)
    )
    return re.sub("\0+", "…", "".join(marked))


def _longest_start(text: str, fits: Callable[[str], bool]) -> str:
    """Return as much of the beginning as fits."""
    return text[: bisect_left(range(1, len(text) + 1), True, key=lambda n: not fits(text[:n]))]


# A colour has one meaning in all pictures and in the page: `style.css` is the one place of both.
_STYLE = Path(__file__).parents[1] / "tensorboard" / "static" / "style.css"
_LIGHT = _STYLE.read_text(encoding="utf-8").partition("}")[0]
_COLORS = dict(re.findall(r"--([\w-]+): (#\w{6});", _LIGHT))
COMPUTE_COLOR, COPY_COLOR, LAUNCH_COLOR, IDLE_COLOR, NO_PROFILE_COLOR = map(
    _COLORS.__getitem__, ("compute", "copy", "launch", "idle", "no-profile")
)
INK, FAINT, BAND_COLOR = map(_COLORS.__getitem__, ("ink", "faint", "band"))
# A sign and the dashes of its line; with more than these, they begin again.
SIGNS = (
    ("o", "-"), ("s", (0, (5, 2))), ("^", (0, (1, 1.5))), ("D", (0, (5, 2, 1, 2))),
    ("v", (0, (8, 3))), ("P", (0, (3, 1, 1, 1, 1, 1))),
)  # fmt: skip

FONT_SIZE = 9
SMALL_FONT_SIZE = 8
_TITLE_SIZE = FONT_SIZE + 3
# Room for the name of a candidate in a title.
_NAME_IN = 2.5

# 1,200 pixels across: shown as it is on any screen, in a report and in TensorBoard.
DPI = 100
WIDTH_IN = 12.0
MARGIN_IN = 0.12
# Title and legend above everything else; numbers and title of an axis of time below.
HEAD_IN = 0.62
AXIS_IN = 0.46


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
        # A dollar sign is one, not the begin of a formula.
        with style.context(["default", {"text.parse_math": False}]):
            yield
    finally:
        log.setLevel(level)


def new_page(height_in: float) -> Figure:
    """Return an empty picture."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH_IN, height_in), dpi=DPI)
    FigureCanvasAgg(figure)
    return figure


def shown_page(height_in: float) -> Figure:
    """Return an empty picture that pyplot knows, so that a notebook shows it."""
    from matplotlib import pyplot

    return pyplot.figure(figsize=(WIDTH_IN, height_in), dpi=DPI)


def add_time_axis(
    figure: Figure, left_in: float, right_in: float, top_in: float, end_ns: int
) -> Axes:
    """Return axes that end above the foot: ns across, inches from the picture's top downwards."""
    from matplotlib.ticker import FuncFormatter

    unit_ns, unit = time_unit(end_ns)
    height_in = figure.get_figheight()
    ax = figure.add_axes(
        (
            left_in / WIDTH_IN,
            AXIS_IN / height_in,
            (right_in - left_in) / WIDTH_IN,
            1 - (top_in + AXIS_IN) / height_in,
        )
    )
    ax.set_xlim(0, 1.004 * end_ns)  # A line at the end in full.
    ax.set_ylim(height_in - AXIS_IN, top_in)
    ax.set_yticks([])
    ax.set_xlabel(unit, fontsize=FONT_SIZE)
    ax.xaxis.set_major_formatter(FuncFormatter(lambda time_ns, _: f"{time_ns / unit_ns:g}"))
    ax.tick_params(labelsize=FONT_SIZE)
    ax.spines[["left", "right", "top"]].set_visible(False)
    return ax


def headline(analysis: Analysis, candidates: Sequence[Candidate]) -> str:
    """Return what a picture of candidates shows: how the first split came out, and what it loses.

    The user's own step stands behind, where it was measured.
    """
    shown = [each for each in candidates if each.name != BASELINE] or [*candidates]
    told = statements.outcome_text(analysis, shown[0]) if shown else "nothing was simulated"
    if shown:
        name = told_apart([shown[0].name], _TITLE_SIZE, _NAME_IN)[shown[0].name]
        told = f"{name} {told}"
    if (as_is := statements.as_is_interval(analysis)) is not None:
        told += f" (as-is, with all of the machine: {format_ns(as_is.median)})"
    return told if statements.any_ran(analysis) else f"{told}, simulated"


def add_head(figure: Figure, name: str, what: str, handles: Sequence[Artist]) -> None:
    """Head the picture: a name, shortened where there is no room for it, and the legend."""
    text = what and f": {what}"
    width_in, height_in = figure.get_size_inches()
    room_in = width_in - 2 * MARGIN_IN - text_width_in(text, _TITLE_SIZE)
    short = told_apart([name], _TITLE_SIZE, room_in)[name]
    write(figure, MARGIN_IN, 0.19, short + text, size=_TITLE_SIZE)
    figure.legend(
        handles=handles,
        loc="center left",
        bbox_to_anchor=(MARGIN_IN / width_in, 1 - 0.45 / height_in),
        ncols=len(handles),
        frameon=False,
        fontsize=FONT_SIZE,
        borderaxespad=0,
        borderpad=0,
        columnspacing=1.6,
    ).set_in_layout(False)


def write(
    figure: Figure, x_in: float, y_in: float, text: str, *, size: float = FONT_SIZE, **style: Any
) -> None:
    """Write one line around a height."""
    width_in, height_in = figure.get_size_inches()
    place = (x_in / width_in, 1 - y_in / height_in)
    figure.text(*place, text, va="center_baseline", fontsize=size, **{"color": INK, **style})


def write_on(ax: Axes, x: float, y: float, text: str, *, size: float, **style: Any) -> None:
    """Write one line around a point of axes."""
    style = {"color": INK, "ha": "center", "va": "center_baseline", "fontsize": size, **style}
    ax.text(x, y, text, **style)


def tint(color: str, share: float) -> tuple[float, float, float]:
    """Return a colour of which a share is left, the rest white."""
    from matplotlib.colors import to_rgb

    red, green, blue = (1 - share * (1 - part) for part in to_rgb(color))
    return red, green, blue


@plain_style()
def save(figure: Figure, path: Path) -> None:
    """Write the picture."""
    figure.savefig(path, format="png", facecolor="white")
