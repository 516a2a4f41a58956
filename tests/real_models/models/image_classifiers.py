"""Networks of `keras.applications` with random weights, compiled to be trained on noise."""

import keras
import numpy as np
import tensorflow as tf

BATCH = 4
CLASSES = 1_000


def trained(name: str, pixels: int = 224) -> tuple[keras.Model, tf.data.Dataset]:
    """Return the compiled network of that name, and two batches for it."""
    keras.utils.set_random_seed(7)
    images = keras.Input((pixels, pixels, 3), BATCH, name="images")
    build = getattr(keras.applications, name)
    model = build(weights=None, input_tensor=images, classes=CLASSES)
    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy")
    random = np.random.default_rng(7)
    noise = random.uniform(size=(2 * BATCH, pixels, pixels, 3)).astype(np.float32)
    classes = random.integers(CLASSES, size=2 * BATCH)
    return model, tf.data.Dataset.from_tensor_slices((noise, classes)).batch(BATCH)
