"""Objects that tests hand over, in a child."""

from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

import placement_advisor
from placement_advisor.tf.hand_over import hand_over

X = np.linspace(-1, 1, 48, dtype=np.float32).reshape(8, 6)
Y = X[:, :1] ** 2


class Doubled(keras.layers.Layer):
    """A class that no other process knows."""

    def call(self, x):
        return 2 * x


def model(*, own_class):
    """Return a compiled model."""
    inputs = keras.Input((6,), name="features")
    x = keras.layers.Dense(4, activation="relu", name="hidden")(inputs)
    x = Doubled()(x) if own_class else x
    made = keras.Model(inputs, keras.layers.Dense(1, name="score")(x), name="small")
    made.compile("adam", "mse")
    return made


def write(kind, folder):
    """Hand something over; return the file, or what is said of it."""
    weight = tf.Variable(tf.fill((6, 1), 0.5), name="weight")

    @tf.function
    def train_step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((x @ weight - y) ** 2)
        weight.assign_sub(0.1 * tape.gradient(loss, weight))
        return loss

    @tf.function
    def calls_python(x):
        return tf.py_function(lambda value: value, [x @ weight], tf.float32)

    given = {
        "model": (model(own_class=False), X, Y),
        "own class": (model(own_class=True), X, Y),
        "dataset": (train_step, tf.data.Dataset.from_tensors((X, Y))),
        "function": (train_step, X, Y),
        "python": (calls_python, X),
    }
    step, *inputs = given[kind]
    try:
        return str(hand_over(step, tuple(inputs), None, Path(folder) / "object"))
    except placement_advisor.AdvisorError as error:
        return f"{error}; {error.hint}"
