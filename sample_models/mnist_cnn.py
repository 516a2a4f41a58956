"""A small network for MNIST digits, with an input pipeline that follows good habits.

    image ─ conv ─ pool ─ flatten ─ dense ─ digit

The question to an advisor: this is the model with which TensorFlow's own guide
shows how to train on several GPUs, as copies of the model that each take their
share of the batch. Its layers form a chain, so parts of it cannot run side by
side. Is a step long enough for two devices to be worth their trouble at all?
And where are the weights? Not in the convolution: `dense`, behind the flatten,
has 99 % of them.

Layers, loss, Adam, accuracy and the batch of 64 are the guide's. Made up from a
fixed seed: the images, noise of the shape of MNIST's.

The habits in the pipeline: scale in `map` with AUTOTUNE, cache what costs work,
shuffle after the cache, drop the odd last batch, prefetch.

A step is the same at both sizes. The default, small, comes with 1,024 images,
SAMPLE_SIZE=full with as many as MNIST has, 60,000.

Source: TensorFlow, Distributed training with Keras,
https://www.tensorflow.org/tutorials/distribute/keras.
"""

import os

import keras
import numpy as np
import tensorflow as tf

IMAGES_OF_SIZE = {"small": 1_024, "full": 60_000}
SIZE_NAME = os.environ.get("SAMPLE_SIZE", "small")
if SIZE_NAME not in IMAGES_OF_SIZE:
    raise ValueError(f"SAMPLE_SIZE is {SIZE_NAME!r}; choose one of {', '.join(IMAGES_OF_SIZE)}")
IMAGES = IMAGES_OF_SIZE[SIZE_NAME]

BATCH_SIZE = 64
SHAPE = (28, 28, 1)
DIGITS = 10
FILTERS = 32
FILTER_PIXELS = 3
DENSE_UNITS = 64
SHUFFLE_IMAGES = 10_000
SEED = 1998

keras.utils.set_random_seed(SEED)


def make_dataset() -> tf.data.Dataset:
    """Return batches of (images, digits)."""
    random = np.random.default_rng(SEED)
    images = random.integers(256, size=(IMAGES, *SHAPE), dtype=np.uint8)
    digits = random.integers(DIGITS, size=IMAGES)

    def scale(image: tf.Tensor, digit: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.cast(image, tf.float32) / 255, digit

    return (
        tf.data.Dataset.from_tensor_slices((images, digits))
        .map(scale, num_parallel_calls=tf.data.AUTOTUNE)
        .cache()
        .shuffle(SHUFFLE_IMAGES, seed=SEED)
        .batch(BATCH_SIZE, drop_remainder=True)
        .prefetch(tf.data.AUTOTUNE)
    )


def make_model() -> keras.Model:
    """Return the compiled model."""
    mnist_cnn = keras.Sequential(
        [
            keras.Input(SHAPE, name="image"),
            keras.layers.Conv2D(FILTERS, FILTER_PIXELS, activation="relu", name="conv"),
            keras.layers.MaxPooling2D(name="pool"),
            keras.layers.Flatten(name="flatten"),
            keras.layers.Dense(DENSE_UNITS, activation="relu", name="dense"),
            keras.layers.Dense(DIGITS, name="digit"),
        ],
        name="mnist_cnn",
    )
    mnist_cnn.compile(
        optimizer=keras.optimizers.Adam(),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return mnist_cnn


model = make_model()
dataset = make_dataset()
