"""Text as the pictures draw it: what the font has, how wide it is, names short but told apart."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from itertools import count
from typing import TYPE_CHECKING, Any

from placement_advisor.report.analysis.tables import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

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

    Of a name too long, the words that fewest other names have are kept, of those the last. Names
    that would still be drawn alike are numbered.
    """

    def fits(text: str) -> bool:
        return text_width_in(text, size, weight) <= room_in

    drawn = {name: drawable(name) for name in dict.fromkeys(names)}
    known = Counter(word for text in set(drawn.values()) for word in set(_WORD.findall(text)))
    short = {
        name: text if fits(text) else _shortened(_WORD.findall(text), known, fits)
        for name, text in drawn.items()
    }
    often = Counter(short.values())
    taken = {text for text, times in often.items() if times == 1}
    for name, text in short.items():
        if often[text] > 1:
            short[name] = next(
                numbered
                for number in count(1)
                if (numbered := _longest_start(text, f" #{number}", fits)) not in taken
            )
            taken.add(short[name])
    return short


def _shortened(words: Sequence[str], known: Counter[str], fits: Callable[[str], bool]) -> str:
    kept: set[int] = set()
    for place in sorted(range(len(words)), key=lambda place: (known[words[place]], -place)):
        if fits(_joined(words, kept | {place})):
            kept.add(place)
    return _joined(words, kept) if kept else _longest_start("".join(words), "…", fits)


def _joined(words: Sequence[str], kept: Collection[int]) -> str:
    """Return the words that are kept, with dots for each gap."""
    marked = (word if place in kept else "\0" for place, word in enumerate(words))
    return re.sub("\0+", "…", "".join(marked))


def _longest_start(text: str, end: str, fits: Callable[[str], bool]) -> str:
    lengths = range(len(text), -1, -1)
    return next((text[:n] + end for n in lengths if fits(text[:n] + end)), end)
