"""A recurrent layer as a loop, RMSprop."""

import keras
import numpy as np
import tensorflow as tf

model = keras.Sequential(
    [
        keras.Input((5, 3)),
        keras.layers.LSTM(4, unroll=False, name="memory"),
        keras.layers.Dense(1, name="head"),
    ]
)
model.compile(optimizer=keras.optimizers.RMSprop(1e-2), loss="mse")

random = np.random.default_rng(0)
words, targets = (random.normal(size=size).astype(np.float32) for size in ((16, 5, 3), (16, 1)))
dataset = tf.data.Dataset.from_tensor_slices((words, targets)).batch(4)
