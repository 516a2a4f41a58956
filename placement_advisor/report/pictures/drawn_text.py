"""Text as the pictures draw it: what the font has, how wide it is, names short but told apart."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from functools import cache, partial
from itertools import count
from typing import TYPE_CHECKING, Any

from placement_advisor.report.document import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

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
