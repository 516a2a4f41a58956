"""Far too deep a network for MNIST digits: all work and hardly any weights.

    image ─ conv_1 ─ conv_2 ─ … ─ conv_n ─ flatten ─ digit
            (all at 28 × 28, nothing is ever pooled)

A Keras user with two unequal cards (a GTX 1080 Ti and a GTX 1080) made his
network over-deep on purpose, so that the cards had work to do, and split each
batch in proportion to their speed: 512 samples to one and 355 to the other gave
2,026 samples per second, an even split 1,810, the better card alone 1,260.

The question to an advisor: as with every chain, parts of this model cannot run
side by side, and a cut between two layers costs copies of large activations. A
split of the batch is another matter, as the weights to keep equal are few. Does
the advisor name what could help and what cannot?

His layers are not published. What is known is that 1,024 samples fit 11 GB, that
710 do not fit 8 GB, and 0.7 ms per sample. From that we made the full size: 24
convolutions of 64 filters, which with their ReLUs put out 10 MB per sample and
take 4.0 GFLOP to train on one. The images are noise from a fixed seed. SGD is
our assumption.

Set SAMPLE_SIZE=full for that, 512 samples and MNIST's 60,000 images; the
default, small, is shorter, narrower and takes 32 samples.

Source: Keras issue 9155, API design review multi-gpu-ratios,
https://github.com/keras-team/keras/issues/9155.
"""

import os
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf


class Size(NamedTuple):
    """What differs between the small and the full model."""

    batch: int
    images: int
    convolutions: int
    filters: int


SIZES = {
    "small": Size(batch=32, images=512, convolutions=6, filters=8),
    "full": Size(batch=512, images=60_000, convolutions=24, filters=64),
}
SIZE_NAME = os.environ.get("SAMPLE_SIZE", "small")
if SIZE_NAME not in SIZES:
    raise ValueError(f"SAMPLE_SIZE is {SIZE_NAME!r}; choose one of {', '.join(SIZES)}")
SIZE = SIZES[SIZE_NAME]

SHAPE = (28, 28, 1)
DIGITS = 10
FILTER_PIXELS = 3
LEARNING_RATE = 0.01
SEED = 2018

keras.utils.set_random_seed(SEED)


def make_dataset() -> tf.data.Dataset:
    """Return batches of (images, digits)."""
    random = np.random.default_rng(SEED)
    images = random.integers(256, size=(SIZE.images, *SHAPE), dtype=np.uint8)
    digits = random.integers(DIGITS, size=SIZE.images)

    def scale(image: tf.Tensor, digit: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.cast(image, tf.float32) / 255, digit

    return (
        tf.data.Dataset.from_tensor_slices((images, digits))
        .map(scale, num_parallel_calls=tf.data.AUTOTUNE)
        .cache()
        .shuffle(SIZE.images, seed=SEED)
        .batch(SIZE.batch, drop_remainder=True)
        .prefetch(tf.data.AUTOTUNE)
    )


def make_model() -> keras.Model:
    """Return the compiled model."""
    convolutions = [
        keras.layers.Conv2D(
            SIZE.filters,
            FILTER_PIXELS,
            padding="same",
            activation="relu",
            kernel_initializer="he_normal",
            name=f"conv_{number}",
        )
        for number in range(1, SIZE.convolutions + 1)
    ]
    deep_mnist = keras.Sequential(
        [
            keras.Input(SHAPE, name="image"),
            *convolutions,
            keras.layers.Flatten(name="flatten"),
            keras.layers.Dense(DIGITS, activation="softmax", name="digit"),
        ],
        name="deep_mnist",
    )
    deep_mnist.compile(
        optimizer=keras.optimizers.SGD(learning_rate=LEARNING_RATE),
        loss=keras.losses.SparseCategoricalCrossentropy(),
    )
    return deep_mnist


model = make_model()
dataset = make_dataset()
