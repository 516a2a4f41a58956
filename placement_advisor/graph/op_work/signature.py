"""What a formula sees of an op, and what it answers. Free of TensorFlow."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable


class WorkBasis(StrEnum):
    """Where an op's flops and bytes accessed come from.

    ``FORMULA``: a formula for its kind. ``SIZES``: none; bytes in plus bytes out, flops unknown.
    """

    FORMULA = "formula"
    SIZES = "sizes"


class TensorSpec(NamedTuple):
    """Shape and element type of a tensor, or of the variable that a handle stands for.

    ``shape`` is None where the rank or any dimension is unknown. ``item_bytes`` is None for
    elements without a fixed size (texts, variants). ``is_handle`` marks a resource; its shape and
    items are the variable's, None if it holds something else.
    """

    shape: tuple[int, ...] | None
    dtype: str
    item_bytes: int | None
    is_handle: bool = False

    @property
    def elements(self) -> int | None:
        """Number of elements, None if unknown."""
        return None if self.shape is None else prod(self.shape)

    @property
    def size_bytes(self) -> int | None:
        """Bytes of the tensor, None if unknown."""
        if self.shape is None or self.item_bytes is None:
            return None
        return prod(self.shape) * self.item_bytes


class Signature(NamedTuple):
    """One op as a formula sees it.

    ``attribute`` returns an attribute by name as a plain Python value (int, float, bool, str,
    list, None if the op has none of that name). ``constant_input`` returns the value of an input
    that is a constant (as nested lists or a number), None if it is not one.
    """

    kind: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    attribute: Callable[[str], Any]
    constant_input: Callable[[int], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Arithmetic and memory traffic of one run of an op; None where unknown."""

    flops: int | None
    bytes_accessed: int | None
    basis: WorkBasis


NO_WORK = Work(flops=0, bytes_accessed=0, basis=WorkBasis.FORMULA)
