"""A chain of convolutions: no two layers can run at once, but samples need nothing of one another.

Its weights are few kilobytes, its work is large: half of the batch to a device must win.
"""

import keras
import numpy as np
import tensorflow as tf

BATCH_SIZE = 64
PIXELS = 28
FILTERS = 32
LAYERS = 4
SEED = 19

keras.utils.set_random_seed(SEED)
model = keras.Sequential(
    [
        keras.Input((PIXELS, PIXELS, 1), BATCH_SIZE, name="image"),
        *(
            keras.layers.Conv2D(FILTERS, 3, padding="same", activation="relu", name=f"conv_{layer}")
            for layer in range(LAYERS)
        ),
        keras.layers.MaxPooling2D(4, name="pool"),
        keras.layers.Flatten(name="flat"),
        keras.layers.Dense(10, name="digit"),
    ],
    name="heavy_batch",
)
model.compile(
    optimizer=keras.optimizers.SGD(0.01),
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
)

random = np.random.default_rng(SEED)
images = random.normal(size=(2 * BATCH_SIZE, PIXELS, PIXELS, 1)).astype(np.float32)
digits = random.integers(10, size=2 * BATCH_SIZE)
dataset = tf.data.Dataset.from_tensor_slices((images, digits)).batch(BATCH_SIZE)
