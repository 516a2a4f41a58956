"""Training steps of this process, made anew with equal state whenever they are asked for."""

from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

STEPS = 20
BATCH = 16


class Live(NamedTuple):
    """A step, what it is called with, and its variables. ``step`` of a Keras model is the model."""

    step: Any
    batches: list[tuple[Any, ...]]
    variables: list[Any]


def tape_step():
    random = np.random.default_rng(1)
    shapes = {"first": (8, 12), "bias": (12,), "last": (12, 1)}
    weights = [
        tf.Variable(random.normal(size=shape, scale=0.3).astype(np.float32), name=name)
        for name, shape in shapes.items()
    ]
    count = tf.Variable(0, dtype=tf.int64, trainable=False, name="count")

    @tf.function
    def train_step(x, y):
        with tf.GradientTape() as tape:
            hidden = tf.nn.relu(x @ weights[0] + weights[1])
            loss = tf.reduce_mean((hidden @ weights[2] - y) ** 2)
        for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
            weight.assign_sub(0.05 * gradient)
        count.assign_add(1)
        return {"loss": loss, "nothing": None, "count": count.read_value()}

    return Live(train_step, batches((8,)), [*weights, count])


def looping_step():
    """A loop in the step, whose body TensorFlow keeps as a function of its own."""
    weight = tf.Variable(tf.eye(6) * 0.5, name="weight")

    @tf.function
    def train_step(x, y):
        with tf.GradientTape() as tape:
            for _ in tf.range(3):
                x = tf.tanh(x @ weight)
            loss = tf.reduce_mean((tf.reduce_sum(x, 1, keepdims=True) - y) ** 2)
        weight.assign_sub(0.05 * tape.gradient(loss, weight))
        return {"loss": loss}

    return Live(train_step, batches((6,)), [weight])


def looked_up():
    """A table that the step reads."""
    keys, values = tf.constant(["a", "b", "c"]), tf.constant([0, 1, 2], tf.int64)
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, values), 3)
    rows = tf.Variable(tf.random.stateless_normal((4, 5), (1, 2)), name="rows")

    @tf.function
    def train_step(words):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.gather(rows, table.lookup(words)) ** 2)
        rows.assign_sub(0.1 * tf.convert_to_tensor(tape.gradient(loss, rows)))
        return {"loss": loss}

    words = np.array(["a", "b", "c", "d"])
    return Live(train_step, [(np.roll(words, i),) for i in range(STEPS)], [rows])


def shared_embedding():
    """One embedding, called twice, whose gradients are IndexedSlices; Adam; seeded dropout."""
    keras.utils.set_random_seed(3)
    left, right = (keras.Input((10,), dtype="int32", name=name) for name in ("left", "right"))
    embedding = keras.layers.Embedding(50, 8, name="embedding")
    towers = []
    for name, ids in (("left", left), ("right", right)):
        mean = keras.layers.GlobalAveragePooling1D(name=f"{name}_mean")(embedding(ids))
        mean = keras.layers.Dropout(0.3, seed=5, name=f"{name}_dropout")(mean)
        towers.append(keras.layers.Dense(6, activation="relu", name=f"{name}_dense")(mean))
    joined = keras.layers.Concatenate(name="both")(towers)
    model = keras.Model([left, right], keras.layers.Dense(1, name="score")(joined))
    model.compile(optimizer="adam", loss="mse", metrics=["mae"])
    random = np.random.default_rng(4)
    ids = random.integers(0, 50, (STEPS, 2, BATCH, 10)).astype(np.int32)
    targets = random.normal(size=(STEPS, BATCH, 1)).astype(np.float32)
    given = [((one, other), y) for (one, other), y in zip(ids, targets, strict=True)]
    return Live(model, given, [])


class Gan(keras.Model):
    """Two networks and two optimizers; the generator learns from the updated discriminator."""

    def __init__(self, generator, discriminator):
        super().__init__()
        self.generator, self.discriminator = generator, discriminator
        self.measure = keras.losses.BinaryCrossentropy(from_logits=True)

    def call(self, x):
        return self.discriminator(x)

    def compile(self, d_optimizer, g_optimizer):
        super().compile()
        self.d_optimizer, self.g_optimizer = d_optimizer, g_optimizer

    def train_step(self, data):
        noise, real = data
        fake = self.generator(noise)
        both = tf.concat([fake, real], 0)
        is_fake = tf.concat([tf.ones_like(fake[:, :1]), tf.zeros_like(real[:, :1])], 0)
        with tf.GradientTape() as tape:
            d_loss = self.measure(is_fake, self.discriminator(both))
        self._learn(self.d_optimizer, self.discriminator, tape, d_loss)
        with tf.GradientTape() as tape:
            scores = self.discriminator(self.generator(noise))
            g_loss = self.measure(tf.zeros_like(scores), scores)
        self._learn(self.g_optimizer, self.generator, tape, g_loss)
        return {"loss": d_loss, "g_loss": g_loss}

    @staticmethod
    def _learn(optimizer, of, tape, loss):
        weights = of.trainable_weights
        optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))


def gan():
    keras.utils.set_random_seed(8)
    dense = keras.layers.Dense
    generator = keras.Sequential([keras.Input((4,)), dense(9, "tanh"), dense(6)])
    discriminator = keras.Sequential([keras.Input((6,)), dense(9, "tanh"), dense(1)])
    model = Gan(generator, discriminator)
    model.compile(keras.optimizers.SGD(0.5, momentum=0.9), keras.optimizers.Adam(0.01))
    model.d_optimizer.build(discriminator.trainable_weights)
    model.g_optimizer.build(generator.trainable_weights)
    random = np.random.default_rng(9)
    sizes = (STEPS, BATCH, 4), (STEPS, BATCH, 6)
    noise, real = (random.normal(size=size).astype(np.float32) for size in sizes)
    return Live(model, list(zip(noise, real, strict=True)), [])


STEPS_BY_NAME = {
    made.__name__: made for made in (tape_step, looping_step, looked_up, shared_embedding, gan)
}


def variables_of(live):
    """Return all variables, those of an optimizer included, which are made with the first step."""
    if not isinstance(live.step, keras.Model):
        return live.variables
    model = live.step
    is_gan = isinstance(model, Gan)
    optimizers = (model.d_optimizer, model.g_optimizer) if is_gan else (model.optimizer,)
    slots = [variable for optimizer in optimizers for variable in optimizer.variables]
    return [variable.value for variable in (*model.variables, *slots)]


def batches(shape):
    """Return batches of samples of a shape, each with a number to learn."""
    random = np.random.default_rng(2)
    x = random.normal(size=(STEPS, BATCH, *shape)).astype(np.float32)
    y = random.normal(size=(STEPS, BATCH, 1)).astype(np.float32)
    return list(zip(x, y, strict=True))
