"""Sums whose work is known, to calibrate a roofline: run and profiled like any model.

A large product of matrices shows the peak, a large addition the bandwidth, and small ops of several
kinds what an op takes at least.
"""

import numpy as np
import tensorflow as tf

from placement_advisor import Workload

WIDTH = 1_024
# 4 MB each: three of them are more than a core's own caches hold (2 MB here), and TensorFlow gets
# the memory for the result from what it freed, as for nearly all tensors of a step. From 32 MB on,
# and often before, it comes fresh from the system, which takes several times as long.
NUMBERS = 1 << 20
ROUNDS = 20


@tf.function
def step(matrix, one, other, few):
    """Return the ends of all; only they cross to who asks."""
    product = tf.linalg.matmul(matrix, matrix, name="peak")
    total = tf.add(one, other, name="bandwidth")
    for i in range(ROUNDS):
        with tf.name_scope(f"least_{i}"):
            turned = tf.transpose(few)
            joined = tf.concat([turned, few], 0)
            few = tf.cast(tf.cast(joined[:4], tf.int32), tf.float32)
            few = tf.maximum(few * 0.5, few) + tf.reduce_sum(few)
    return product[0, 0], total[0], few


def workload():
    ones = np.ones(NUMBERS, np.float32)
    few = np.zeros((4, 4), np.float32)
    inputs = (np.ones((WIDTH, WIDTH), np.float32), ones, ones, few)
    return Workload(step=step, inputs=inputs, mode="infer")
