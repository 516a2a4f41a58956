"""Three sums whose work is known, to calibrate a roofline: it is run and profiled like any model.

A large product of matrices shows the peak, a large addition the bandwidth, and a chain of single
numbers what an op takes at least.
"""

import numpy as np
import tensorflow as tf

from placement_advisor import Workload

WIDTH = 1_024
# 16 MB each: three of them are far larger than a core's own caches (2 MB here).
NUMBERS = 4 << 20
CHAIN = 200


@tf.function
def step(matrix: tf.Tensor, one: tf.Tensor, other: tf.Tensor, number: tf.Tensor) -> tuple:
    """Return the ends of all three; only they cross to who asks."""
    product = tf.linalg.matmul(matrix, matrix, name="peak")
    total = tf.add(one, other, name="bandwidth")
    for i in range(CHAIN):
        number = tf.add(number, number, name=f"least_{i}")
    return product[0, 0], total[0], number


def workload() -> Workload:
    """Return what to analyse."""
    ones = np.ones(NUMBERS, np.float32)
    inputs = (np.ones((WIDTH, WIDTH), np.float32), ones, ones, np.float32(0))
    return Workload(step=step, inputs=inputs, mode="infer")
