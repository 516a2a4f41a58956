"""The known step as a model file, which is loaded as a user's is; see `known_step`."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from placement_advisor.tf.acceptance.known_step import LARGE_SIDE, SIDE, numbers, shift
from placement_advisor.workload import Workload


def _held(name: str, value: Any) -> Any:
    return tf.Variable(value, name=name, trainable=False)


near_shift, far_shift = _held("near_shift", shift(SIDE)), _held("far_shift", shift(SIDE))
near_large = _held("near_large", numbers(LARGE_SIDE))
near_large_shift = _held("near_large_shift", shift(LARGE_SIDE))
far_large_shift = _held("far_large_shift", shift(LARGE_SIDE))


def step(near_input: Any) -> tuple[Any, ...]:
    """Return the outputs, in the order of `known_step.outputs`."""
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


def workload() -> Workload:
    """Return the step and its input."""
    return Workload(step=step, inputs=(tf.constant(numbers(SIDE)),), mode="infer")
