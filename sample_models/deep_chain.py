"""A deep plain chain: nothing to split, and the advisor should say so.

Every layer needs the layer before it, and no two layers can ever run at once:

    image ─ dense_1 ─ dense_2 ─ dense_3 ─ … ─ dense_n ─ digit

The question to an advisor: does it see that there is nothing to gain, and what
does a copy cost? Any second device can only wait. If the device changes at
every layer, each step pays for two copies per layer (one forward, one backward)
of a small tensor: that is the price of a copy's latency, and of little else.

The network is the plain one against which highway networks were measured: thin
layers of 71 units for MNIST digits, up to 100 of them, trained by SGD with
momentum. Images are noise from a fixed seed. Our assumptions: ReLU, the batch
of 128, the learning rate.

Set SAMPLE_SIZE=full for the 100 layers; the default, small, has 50.

Source: Srivastava, Greff, Schmidhuber: Training Very Deep Networks, NIPS 2015,
https://arxiv.org/abs/1507.06228.
"""

import os

import keras
import numpy as np
import tensorflow as tf

LAYERS_OF_SIZE = {"small": 50, "full": 100}
SIZE_NAME = os.environ.get("SAMPLE_SIZE", "small")
if SIZE_NAME not in LAYERS_OF_SIZE:
    raise ValueError(f"SAMPLE_SIZE is {SIZE_NAME!r}; choose one of {', '.join(LAYERS_OF_SIZE)}")
LAYERS = LAYERS_OF_SIZE[SIZE_NAME]

BATCH_SIZE = 128
BATCHES = 8
PIXELS = 28 * 28
UNITS = 71
DIGITS = 10
LEARNING_RATE = 0.01
MOMENTUM = 0.9
SEED = 2015

keras.utils.set_random_seed(SEED)


def make_dataset() -> tf.data.Dataset:
    """Return batches of (images, digits)."""
    random = np.random.default_rng(SEED)
    images = random.random((BATCHES * BATCH_SIZE, PIXELS), dtype=np.float32)
    digits = random.integers(DIGITS, size=len(images))
    return tf.data.Dataset.from_tensor_slices((images, digits)).batch(
        BATCH_SIZE, drop_remainder=True
    )


def make_model() -> keras.Model:
    """Return the compiled model: one layer after the other."""
    layers = [
        keras.layers.Dense(
            UNITS, activation="relu", kernel_initializer="he_normal", name=f"dense_{number}"
        )
        for number in range(1, LAYERS)
    ]
    chain = keras.Sequential(
        [
            keras.Input((PIXELS,), BATCH_SIZE, name="image"),
            *layers,
            keras.layers.Dense(DIGITS, activation="softmax", name="digit"),
        ],
        name="deep_chain",
    )
    chain.compile(
        optimizer=keras.optimizers.SGD(learning_rate=LEARNING_RATE, momentum=MOMENTUM),
        loss=keras.losses.SparseCategoricalCrossentropy(),
    )
    return chain


model = make_model()
dataset = make_dataset()
