"""A step with tf.gradients instead of a tape, a device of its own, and one batch."""

import numpy as np
import tensorflow as tf

random = np.random.default_rng(0)
first = tf.Variable(random.normal(size=(3, 4)).astype(np.float32), name="first")
second = tf.Variable(random.normal(size=(4, 1)).astype(np.float32), name="second")


@tf.function
def step(batch):
    with tf.name_scope("bottom"):
        hidden = tf.nn.relu(batch @ first)
    with tf.name_scope("top"), tf.device("/CPU:0"):
        loss = tf.reduce_sum(hidden @ second)
    for variable, gradient in zip(
        (first, second), tf.gradients(loss, [first, second]), strict=True
    ):
        variable.assign_sub(0.01 * gradient)
    return loss


inputs = random.normal(size=(8, 3)).astype(np.float32)
