"""A raw training step: name scopes, a nested tf.function, a tape, descent by hand, many dtypes."""

import numpy as np
import tensorflow as tf

random = np.random.default_rng(0)


def weights(*shape):
    return random.normal(scale=0.3, size=shape).astype(np.float32)


kernels = {
    name: tf.Variable(weights(*shape), name=f"{name}/kernel")
    for name, shape in {"tower_a": (6, 5), "tower_b": (6, 5), "head": (10, 1)}.items()
}
steps_done = tf.Variable(0, dtype=tf.int64, name="steps_done")
seen_large = tf.Variable(False, name="seen_large")
label = tf.Variable("start", name="label")
half = tf.Variable(tf.cast(weights(1), tf.bfloat16), name="half")


@tf.function
def dense(inputs, kernel):
    with tf.name_scope("dense"):
        return tf.tanh(inputs @ kernel)


@tf.function
def train_step(left, right, target):
    with tf.GradientTape() as tape:
        with tf.name_scope("tower_a"):
            a = dense(left, kernels["tower_a"])
        with tf.name_scope("tower_b"):
            b = dense(right, kernels["tower_b"])
        with tf.name_scope("head"):
            noise = tf.random.uniform([4, 1], maxval=0.1)
            prediction = tf.concat([a, b], axis=1) @ kernels["head"] + noise
        prediction += tf.cast(half, tf.float32)
        loss = tf.reduce_mean((prediction - target) ** 2)
    variables = [*kernels.values(), half]
    before = kernels["head"].read_value()
    for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
        variable.assign_sub(tf.cast(0.1, variable.dtype) * gradient)
    steps_done.assign_add(1)
    seen_large.assign(tf.logical_or(seen_large, loss > 0.5))
    label.assign(tf.strings.as_string(steps_done))
    return {
        "loss": loss,
        "moved": tf.reduce_sum(kernels["head"] - before),
        "steps": steps_done.read_value(),
        "label": label.read_value(),
    }


dataset = tf.data.Dataset.from_tensor_slices(
    (weights(16, 6), weights(16, 6), weights(16, 1))
).batch(4)
