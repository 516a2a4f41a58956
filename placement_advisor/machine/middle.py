"""The middle of several measurements of one thing, number by number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from statistics import median
from typing import Any, TypeVar

T = TypeVar("T")


def middle(values: Sequence[T]) -> T:
    """Return a value of the same shape with the median of each number; whole numbers stay whole.

    Shapes are dataclasses, mappings and tuples of numbers. Where some are None, the median is that
    of the others.
    """
    return _middle(values)  # type: ignore[no-any-return]


def _middle(values: Sequence[Any]) -> Any:
    known = [value for value in values if value is not None]
    first = known[0] if known else None
    if is_dataclass(first) and not isinstance(first, type):
        parts = {part.name: [getattr(each, part.name) for each in known] for part in fields(first)}
        return replace(first, **{name: _middle(each) for name, each in parts.items()})
    if isinstance(first, Mapping):
        return {key: _middle([each[key] for each in known]) for key in first}
    if isinstance(first, tuple):
        return tuple(map(_middle, zip(*known, strict=True)))
    if isinstance(first, int):
        return round(median(known))
    return None if first is None else median(known)
