"""Fitting a parabola: a training step written by hand, and far too small to split.

The step fits y = 5x² + 3 with three weights, from 100 points of the curve:

    x ─ features [x², x, 1] ─ times weights ─ prediction ─┐
                                  ▲                       ├ mean squared error
    y ────────────────────────────│───────────────────────┘       │
                                  └──────────── Adam ◄── gradient ┘

The question to an advisor: does it take a plain tf.function with a GradientTape,
where no layer has a name, and does it see that there is nothing to win? All
arithmetic of a step takes microseconds; one copy between devices takes longer.

The example comes from a guide, where it shows `make_parallel`: every input is
split along the batch, the function runs once per device on its share, and the
losses are averaged. Its numbers are kept: Adam at 0.1, 100 samples a step in
[-10, 10], 1,000 steps, after which the weights are close to 5, 0 and 3.

A step is the same at both sizes. The default, small, comes with 16 batches,
SAMPLE_SIZE=full with those of all 1,000 steps.

Source: Kazemi: Effective TensorFlow, "Multi-GPU processing with data
parallelism", https://github.com/vahidk/EffectiveTensorflow.
"""

import os

import keras
import numpy as np
import tensorflow as tf

STEPS_OF_SIZE = {"small": 16, "full": 1_000}
SIZE_NAME = os.environ.get("SAMPLE_SIZE", "small")
if SIZE_NAME not in STEPS_OF_SIZE:
    raise ValueError(f"SAMPLE_SIZE is {SIZE_NAME!r}; choose one of {', '.join(STEPS_OF_SIZE)}")
STEPS = STEPS_OF_SIZE[SIZE_NAME]

BATCH_SIZE = 100
LEARNING_RATE = 0.1
SEED = 2017

random = np.random.default_rng(SEED)
weights = tf.Variable(random.normal(size=3), dtype=tf.float32, name="weights")
optimizer = keras.optimizers.Adam(learning_rate=LEARNING_RATE)
optimizer.build([weights])


@tf.function
def train_step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    """Take one step of Adam and return the loss before it."""
    with tf.GradientTape() as tape:
        features = tf.stack([x**2, x, tf.ones_like(x)], axis=1)
        prediction = tf.linalg.matvec(features, weights)
        loss = tf.reduce_mean((prediction - y) ** 2)
    gradients = tape.gradient(loss, [weights])
    optimizer.apply_gradients(zip(gradients, [weights], strict=True))
    return loss


def make_dataset() -> tf.data.Dataset:
    """Return batches of (x, y), points of the curve."""
    x = random.uniform(-10, 10, STEPS * BATCH_SIZE).astype(np.float32)
    y = 5 * x**2 + 3
    return tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH_SIZE, drop_remainder=True)


dataset = make_dataset()
