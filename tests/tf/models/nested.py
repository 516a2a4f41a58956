"""A subclassed model with its own train_step: nested models, a layer used twice, dict features."""

import keras
import numpy as np
import tensorflow as tf


class Ranker(keras.Model):
    def __init__(self):
        super().__init__()
        self.encoder = keras.Sequential(
            [keras.layers.Dense(6, activation="relu"), keras.layers.Dense(6)], name="encoder"
        )
        self.join = keras.layers.Concatenate(name="join")
        self.score = keras.layers.Dense(1, name="score")

    def call(self, features, training=False):
        left = self.encoder(features["left"], training=training)
        right = self.encoder(features["right"], training=training)
        return self.score(self.join([left, right]))

    def train_step(self, data):
        features, target = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self(features, training=True) - target) ** 2)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        return {"my_loss": loss}


ranker = Ranker()
ranker.compile(optimizer=keras.optimizers.SGD(1e-2, momentum=0.9))

random = np.random.default_rng(0)
left, right, scores = (random.normal(size=(16, n)).astype(np.float32) for n in (5, 5, 1))
features = {"left": left, "right": right}
dataset = tf.data.Dataset.from_tensor_slices((features, scores)).batch(4)
