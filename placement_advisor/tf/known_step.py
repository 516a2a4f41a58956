"""A step of which everything is known before it runs: ops, tensors that cross, results.

Two devices, *near* and *far*, multiply matrices and send each other what comes out. One factor of
each product moves columns to the right by one, the others hold small whole numbers: whatever the
order of sums, and in TF32 and bfloat16 too, results are exact.

The file is a model, too, which is loaded as a user's is; only then is TensorFlow imported.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from placement_advisor.machine.calibration import REFERENCE_WIDTH
from placement_advisor.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Mapping


MODEL = Path(__file__)
# Names of ops and variables begin with the device that they are for.
NEAR, FAR = "near", "far"
# Products as those whose time is measured without the profiler.
SIDE = REFERENCE_WIDTH
# A product that takes a GPU well over the few µs of any kernel, and a core no more than 0.1 s.
LARGE_SIDE = 1024
_FLOAT32_BYTES = 4
_MATRIX_BYTES = _FLOAT32_BYTES * SIDE**2
_LARGE_BYTES = _FLOAT32_BYTES * LARGE_SIDE**2
# Whole numbers below 64: bfloat16 holds them, and their sums over a row stay far below what float32
# does (2**24).
_VALUES = 64


class KnownCopy(NamedTuple):
    """A tensor that goes from one device to the other, once, however many ops read it there."""

    producer: str
    readers: tuple[str, ...]
    size_bytes: int


OPS = (
    *("near/product_1", "near/product_2", "near/product_3", "near/row_sums", "near/large_product"),
    *("far/product_1", "far/product_2", "far/product_3", "far/sums_added"),
    *("far/large_sum", "far/large_product", "far/large_total"),
    *("near/last_product", "near/total", "near/large_sum"),
)
COPIES = (
    KnownCopy("near/product_3", ("far/product_1",), _MATRIX_BYTES),
    KnownCopy("near/row_sums", ("far/sums_added",), _FLOAT32_BYTES * SIDE),
    KnownCopy("near/large_product", ("far/large_sum", "far/large_product"), _LARGE_BYTES),
    KnownCopy("far/product_3", ("near/last_product",), _MATRIX_BYTES),
    KnownCopy("far/sums_added", ("near/total",), _MATRIX_BYTES),
    KnownCopy("far/large_total", ("near/large_sum",), _LARGE_BYTES),
)


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


def workload() -> Workload:
    """Return the step and its input, as the loader of models asks for them."""
    import tensorflow as tf

    def held(name: str, value: Any) -> Any:
        return tf.Variable(value, name=name, trainable=False)

    near_shift, far_shift = held("near_shift", shift(SIDE)), held("far_shift", shift(SIDE))
    near_large = held("near_large", numbers(LARGE_SIDE))
    near_large_shift = held("near_large_shift", shift(LARGE_SIDE))
    far_large_shift = held("far_large_shift", shift(LARGE_SIDE))

    def step(near_input: Any) -> tuple[Any, ...]:
        with tf.name_scope("near/"):
            small = near_input
            for count in (1, 2, 3):
                small = tf.linalg.matmul(small, near_shift, name=f"product_{count}")
            row_sums = tf.reduce_sum(small, axis=1, keepdims=True, name="row_sums")
            # An op beside a small product would share its time.
            with tf.control_dependencies([row_sums]):
                large = tf.linalg.matmul(near_large, near_large_shift, name="large_product")
        with tf.name_scope("far/"):
            there = small
            for count in (1, 2, 3):
                there = tf.linalg.matmul(there, far_shift, name=f"product_{count}")
            sums_added = tf.add(there, row_sums, name="sums_added")
            with tf.control_dependencies([sums_added]):
                far_sum = tf.add(large, large, name="large_sum")
                far_product = tf.linalg.matmul(large, far_large_shift, name="large_product")
            far_total = tf.add(far_sum, far_product, name="large_total")
        with tf.name_scope("near/"):
            last = tf.linalg.matmul(there, near_shift, name="last_product")
            total = tf.add(last, sums_added, name="total")
            near_sum = tf.add(far_total, far_total, name="large_sum")
        return total, near_sum

    return Workload(step=step, inputs=(tf.constant(numbers(SIDE)),), mode="infer")
