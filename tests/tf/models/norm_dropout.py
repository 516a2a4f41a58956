"""Batch norm with moving averages, dropout with Keras' seeds, momentum; weighted batches."""

import keras
import numpy as np
import tensorflow as tf

model = keras.Sequential(
    [
        keras.Input((6,)),
        # No bias: its gradient would be zero, that is rounding noise.
        keras.layers.Dense(8, use_bias=False),
        keras.layers.BatchNormalization(),
        keras.layers.Activation("relu"),
        keras.layers.Dropout(0.5),
        keras.layers.Dense(8, activation="relu"),
        keras.layers.Dense(1),
    ]
)
model.compile(optimizer=keras.optimizers.SGD(1e-2, momentum=0.9), loss="mse")

random = np.random.default_rng(0)
samples, targets = (random.normal(size=(32, size)).astype(np.float32) for size in (6, 1))
weights = random.uniform(size=(32, 1)).astype(np.float32)
dataset = tf.data.Dataset.from_tensor_slices((samples, targets, weights)).batch(8)
