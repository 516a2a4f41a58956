"""Two towers so small that starting a second device takes longer than both of them.

Every split must lose.
"""

import numpy as np
import tensorflow as tf

BATCH_SIZE = 8
UNITS = 8
SEED = 19

random = np.random.default_rng(SEED)
left_weights = tf.Variable(random.normal(size=(UNITS, UNITS)).astype(np.float32), name="left")
right_weights = tf.Variable(random.normal(size=(UNITS, UNITS)).astype(np.float32), name="right")


@tf.function
def train_step(left, right):
    with tf.GradientTape() as tape:
        difference = tf.tanh(left @ left_weights) - tf.tanh(right @ right_weights)
        loss = tf.reduce_mean(tf.square(difference))
    variables = (left_weights, right_weights)
    for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
        variable.assign_sub(0.01 * gradient)
    return loss


inputs = tuple(random.normal(size=(2, BATCH_SIZE, UNITS)).astype(np.float32))
