"""Two towers over one lookup table and one embedding; a text tensor, (x, y) batches, Adam."""

import keras
import numpy as np
import tensorflow as tf

words = [f"w{i}" for i in range(20)]
word_ids = keras.layers.StringLookup(vocabulary=words, name="word_ids")
embedding = keras.layers.Embedding(21, 8, name="embedding")


def tower(inputs, name):
    hidden = keras.layers.Conv1D(4, 3, activation="tanh", name=f"{name}_conv")(
        embedding(word_ids(inputs))
    )
    hidden = keras.layers.MaxPooling1D(2, 1, name=f"{name}_pool")(hidden)
    hidden = keras.layers.Flatten(name=f"{name}_flatten")(hidden)
    return keras.layers.Dense(6, activation="relu", name=f"{name}_dense")(hidden)


user = keras.Input((10,), 4, dtype="string", name="user")
item = keras.Input((10,), 4, dtype="string", name="item")
rating = keras.layers.Dot(axes=1, name="rating")([tower(user, "user"), tower(item, "item")])
model = keras.Model([user, item], rating)
model.compile(optimizer=keras.optimizers.Adam(1e-2), loss="mse", metrics=["mae"])

random = np.random.default_rng(0)
users, items = random.choice([*words, "unseen"], (16, 10)), random.choice(words, (16, 10))
ratings = random.normal(size=(16, 1)).astype(np.float32)
dataset = tf.data.Dataset.from_tensor_slices(((users, items), ratings)).batch(4)
