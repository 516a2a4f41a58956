"""Two equal towers of large products, each with an input of its own, that meet in one number.

Nearly all work lies in the products, whose weights fit a core's cache, and little goes between the
towers: one to a device must win.
"""

import keras
import numpy as np
import tensorflow as tf

BATCH_SIZE = 1_024
NUMBERS = 64
UNITS = 256
LAYERS = 6
SEED = 19

keras.utils.set_random_seed(SEED)


def tower(x, name):
    for layer in range(LAYERS):
        x = keras.layers.Dense(UNITS, activation="relu", name=f"{name}_{layer}")(x)
    return keras.layers.Dense(8, name=f"{name}_top")(x)


left = keras.Input((NUMBERS,), BATCH_SIZE, name="left")
right = keras.Input((NUMBERS,), BATCH_SIZE, name="right")
score = keras.layers.Dot(axes=1, name="score")([tower(left, "left"), tower(right, "right")])
model = keras.Model([left, right], score, name="heavy_towers")
model.compile(optimizer=keras.optimizers.SGD(0.01), loss="mean_squared_error")

random = np.random.default_rng(SEED)
numbers = random.normal(size=(2 * BATCH_SIZE, NUMBERS)).astype(np.float32)
dataset = tf.data.Dataset.from_tensor_slices(
    ((numbers, numbers[::-1].copy()), numbers[:, :1].copy())
).batch(BATCH_SIZE)
