"""A step of which everything is known before it runs: ops, tensors that cross, results.

Two devices, *near* and *far*, multiply matrices and send each other what comes out. One factor of
each product moves columns to the right by one, the others hold small whole numbers: whatever the
order of sums, and in TF32 and bfloat16 too, results are exact.

`known_model` builds it with TensorFlow; nothing here imports that.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from placement_advisor.machine.calibration import REFERENCE_WIDTH

if TYPE_CHECKING:
    from collections.abc import Mapping

MODEL = Path(__file__).with_name("known_model.py")
# Products as those whose time is measured without the profiler.
SIDE = REFERENCE_WIDTH
# A product that takes a GPU well over the few µs of any kernel, and a core no more than 0.1 s.
LARGE_SIDE = 1024
_FLOAT32_BYTES = 4
# Whole numbers below 64: bfloat16 holds them, and their sums over a row stay far below what float32
# does (2**24).
_VALUES = 64


class End(StrEnum):
    """One of the two devices; names of its ops and variables begin so."""

    NEAR = "near"
    FAR = "far"


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownCopy:
    """A tensor that goes from one device to the other, once, however many ops read it there."""

    producer: str
    readers: tuple[str, ...]
    size_bytes: int

    @property
    def source(self) -> End:
        """The device on which it is made."""
        return end_of(self.producer)


OPS = (
    *("near/product_1", "near/product_2", "near/product_3", "near/row_sums", "near/large_product"),
    *("far/product_1", "far/product_2", "far/product_3", "far/sums_added"),
    *("far/large_sum", "far/large_product", "far/large_total"),
    *("near/last_product", "near/total", "near/large_sum"),
)
# Those of `SIDE` and of `LARGE_SIDE`, whose times are known.
PRODUCTS = tuple(name for name in OPS if "/product_" in name)
LARGE_PRODUCTS = tuple(name for name in OPS if name.endswith("/large_product"))
_MATRIX_BYTES = _FLOAT32_BYTES * SIDE**2
_LARGE_BYTES = _FLOAT32_BYTES * LARGE_SIDE**2
COPIES = (
    KnownCopy(
        producer="near/product_3",
        readers=("far/product_1",),
        size_bytes=_MATRIX_BYTES,
    ),
    KnownCopy(
        producer="near/row_sums", readers=("far/sums_added",), size_bytes=_FLOAT32_BYTES * SIDE
    ),
    KnownCopy(
        producer="near/large_product",
        readers=("far/large_sum", "far/large_product"),
        size_bytes=_LARGE_BYTES,
    ),
    KnownCopy(producer="far/product_3", readers=("near/last_product",), size_bytes=_MATRIX_BYTES),
    KnownCopy(producer="far/sums_added", readers=("near/total",), size_bytes=_MATRIX_BYTES),
    KnownCopy(producer="far/large_total", readers=("near/large_sum",), size_bytes=_LARGE_BYTES),
)


def end_of(name: str) -> End:
    """Return on which device an op or a variable stands; the input is near."""
    return End.FAR if name.startswith(End.FAR) else End.NEAR


def copies_from(source: End) -> tuple[KnownCopy, ...]:
    """Return the tensors that leave a device."""
    return tuple(copy for copy in COPIES if copy.source is source)


def numbers(side: int) -> Any:
    """Return a square matrix in which no two neighbours are equal, in rows, columns, diagonals."""
    rows, columns = np.indices((side, side))
    return ((3 * rows + 5 * columns) % _VALUES).astype(np.float32)


def shift(side: int) -> Any:
    """Return the matrix that moves columns to the right by one, the last one to the front."""
    return np.roll(np.eye(side, dtype=np.float32), 1, axis=1)


def outputs() -> Mapping[str, Any]:
    """Return what the step puts out, by the ops that make it, in order.

    They are near: what a step returns is brought to the first device.
    """
    small, large = numbers(SIDE), numbers(LARGE_SIDE)
    row_sums = small.sum(axis=1, keepdims=True)
    return {
        "near/total": np.roll(small, 7, axis=1) + np.roll(small, 6, axis=1) + row_sums,
        "near/large_sum": 2 * (2 * np.roll(large, 1, axis=1) + np.roll(large, 2, axis=1)),
    }
