"""A set of names in few words: ``user_*``, ``block_1_* … block_6_*``, ``rating``.

Names are taken apart after ``_ / . - @``. ``user_*`` stands for all names that begin so, a range
for all whose number lies between its ends. A pattern never stands for a name that is not in the
set.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

# Two are said sooner by name.
MIN_RANGE = 3
_PIECE = re.compile(r"[^_/.@-]*[_/.@-]|[^_/.@-]+")
_NUMBER = re.compile(r"(\d+)([_/.@-]?)")


def name_patterns(names: Collection[str], among: Collection[str]) -> list[str]:
    """Return patterns for ``names``, which are some of ``among``, much in the order of these."""
    root = _Tree()
    wanted = set(names)
    for name in dict.fromkeys(among):
        root.add(name, is_wanted=name in wanted)
    return [pattern for child in root.groups() for pattern in _patterns(child)]


def listed(names: Sequence[str], most: int | None = None) -> str:
    """Return the names as one phrase, cut where they are more than ``most``."""
    if most is None or len(names) <= most:
        return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
    return first_names(names, most)


def first_names(names: Sequence[str], most: int) -> str:
    """Return the first names, and how many there are beyond them.

    >>> first_names(["a", "b", "c"], 2), first_names(["a", "b"], 2)
    ('a, b and 1 more', 'a, b')
    """
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


@dataclass(slots=True)
class _Tree:
    """Names by their pieces. ``name`` is the one that ends here, if any."""

    prefix: str = ""
    children: dict[str, _Tree] = field(default_factory=dict)
    name: str | None = None
    is_wanted: bool = False
    wanted: int = 0
    total: int = 0

    def add(self, name: str, *, is_wanted: bool) -> None:
        """Add a name at its place."""
        node = self
        for piece in ["", *_PIECE.findall(name)]:
            if piece:
                node = node.children.setdefault(piece, _Tree(node.prefix + piece))
            node.wanted += is_wanted
            node.total += 1
        node.name, node.is_wanted = name, is_wanted

    @property
    def is_whole(self) -> bool:
        """Whether all names here are wanted."""
        return self.wanted == self.total

    @property
    def is_plain(self) -> bool:
        """Whether all names here are wanted, and there is one way to write them."""
        return self.is_whole and (self.name is None or not self.children)

    def groups(self) -> Iterator[list[_Tree]]:
        """Yield the children, those that count up and are whole together, in numeric order."""
        numbered: dict[str, list[tuple[int, _Tree]]] = {}
        for piece, child in self.children.items():
            match = _NUMBER.fullmatch(piece)
            if match is None:
                yield [child]
            else:
                kind = match[2] + ("*" if child.children else "")
                numbered.setdefault(kind, []).append((int(match[1]), child))
        for counted in numbered.values():
            counted.sort(key=lambda pair: pair[0])
            for whole, run in groupby(counted, key=lambda pair: pair[1].is_plain):
                found = [child for _, child in run]
                if whole and len(found) >= MIN_RANGE:
                    yield found
                else:
                    yield from ([child] for child in found)


def _patterns(group: list[_Tree]) -> Iterator[str]:
    if len(group) > 1:
        yield f"{_start(group[0])} … {_start(group[-1])}"
        return
    (tree,) = group
    if tree.is_whole and tree.total > 1 and tree.name is None:
        yield f"{tree.prefix}*"
        return
    if tree.is_wanted and tree.name is not None:
        yield tree.name
    for child in tree.groups():
        yield from _patterns(child)


def _start(tree: _Tree) -> str:
    return f"{tree.prefix}*" if tree.children else tree.prefix
