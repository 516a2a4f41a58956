"""A raw step whose loop and branch use two variables each, with a device of its own; no scopes."""

import keras
import numpy as np
import tensorflow as tf

random = np.random.default_rng(0)
matrix = tf.Variable(random.normal(scale=0.3, size=(4, 4)).astype(np.float32))
offset = tf.Variable(random.normal(size=(4,)).astype(np.float32))
count = tf.Variable(0)
total = tf.Variable(0.0)
head = tf.Variable(random.normal(size=(4, 1)).astype(np.float32))
optimizer = keras.optimizers.Adam(1e-2)


@tf.function
def train_step(batch, target):
    def advance(i, state):
        count.assign_add(1)
        with tf.device("/CPU:0"):
            return i + 1, tf.tanh(state @ matrix + offset)

    with tf.GradientTape() as tape:
        state = tf.while_loop(lambda i, _: i < 3, advance, (0, batch))[1]
        loss = tf.reduce_mean((state @ head - target) ** 2)
    variables = [matrix, offset, head]
    optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
    if loss > 0.1:
        total.assign_add(loss)
    else:
        count.assign_add(100)
    return loss, count.read_value()


dataset = tf.data.Dataset.from_tensor_slices(
    (random.normal(size=(16, 4)).astype(np.float32), random.normal(size=(16, 1)).astype(np.float32))
).batch(4)
