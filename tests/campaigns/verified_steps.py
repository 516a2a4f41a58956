"""The steps of the matrix of broken runs: small models of every kind that verification meets.

Each is a model file with an optimizer and a learning rate that are filled in. Half draw random
numbers or statistics of the batch, so that replicas need not compute what one device does.
"""

OPTIMIZERS = {
    "sgd": "keras.optimizers.SGD({rate})",
    "momentum": "keras.optimizers.SGD({rate}, momentum=0.9)",
    "adam": "keras.optimizers.Adam({rate})",
}
BATCH = 16

_HEAD = f"""
import keras
import numpy as np
import tensorflow as tf
from keras import layers

keras.utils.set_random_seed(11)
random = np.random.default_rng(11)
BATCH = {BATCH}
optimizer = OPTIMIZER
def batches(*arrays):
    return tf.data.Dataset.from_tensor_slices(arrays).batch(BATCH, drop_remainder=True)
def normal(*shape):
    return random.normal(size=(4 * BATCH, *shape)).astype("float32")
def ids(highest, *shape):
    return random.integers(0, highest, (4 * BATCH, *shape)).astype("int32")
"""

_BODIES = {
    # Dropout twice, and a penalty on weights.
    "dropout_mlp": """
model = keras.Sequential([keras.Input((12,)), layers.Dense(16, "relu"), layers.Dropout(0.3),
    layers.Dense(16, "tanh", kernel_regularizer="l2"), layers.Dropout(0.5), layers.Dense(3)])
model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(True), metrics=["accuracy"])
dataset = batches(normal(12), ids(3))
""",
    # Batch normalization behind convolutions; the first has a bias that cannot change the loss.
    "norm_convolutions": """
image = keras.Input((8, 8, 3))
x = layers.BatchNormalization()(layers.Conv2D(4, 3)(image))
x = layers.Conv2D(6, 3, use_bias=False)(layers.Activation("relu")(x))
x = layers.GlobalAveragePooling2D()(layers.Activation("relu")(layers.BatchNormalization()(x)))
model = keras.Model(image, layers.Dense(3)(x))
model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(True))
dataset = batches(normal(8, 8, 3), ids(3))
""",
    # Both at once, on two towers of dense layers.
    "norm_dropout_towers": """
left, right = keras.Input((6,)), keras.Input((5,))
def tower(x):
    x = layers.BatchNormalization()(layers.Dense(8)(x))
    return layers.Dropout(0.25)(layers.Dense(8, "relu")(x))
x = layers.Concatenate()([tower(left), tower(right)])
model = keras.Model([left, right], layers.Dense(1)(x))
model.compile(optimizer, "mse")
dataset = batches((normal(6), normal(5)), normal(1))
""",
    # A raw step that draws with kernels that keep a state of their own.
    "raw_noise": """
w = [tf.Variable(random.normal(size=s).astype("float32") / 3, name=n)
     for n, s in (("one", (7, 9)), ("two", (9, 9)), ("three", (9, 2)))]
optimizer.build(w)
@tf.function
def train_step(x, y):
    with tf.GradientTape() as tape:
        h = tf.nn.dropout(tf.nn.relu(x @ w[0]), 0.2)
        h = tf.tanh((h + tf.random.normal(tf.shape(h), 0.0, 0.1)) @ w[1])
        loss = tf.reduce_mean((h @ w[2] - y) ** 2)
    optimizer.apply_gradients(zip(tape.gradient(loss, w), w))
    return loss
dataset = batches(normal(7), normal(2))
""",
    # Tables of which rows are looked up, some of them twice in a batch.
    "embedding_towers": """
user, item = keras.Input((4,), dtype="int32"), keras.Input((), dtype="int32")
words = layers.Embedding(30, 6)
left = layers.Dense(5, "relu")(layers.Flatten()(words(user)))
right = layers.Dense(5, "relu")(layers.Embedding(20, 6)(item))
model = keras.Model([user, item], layers.Dense(1)(layers.Concatenate()([left, right])))
model.compile(optimizer, "mse", metrics=["mae"])
dataset = batches((ids(30, 4), ids(20)), normal(1))
""",
    # Attention, whose keys have a bias that cannot change the loss, and layer normalization.
    "attention": """
x = start = keras.Input((5, 8))
x = layers.LayerNormalization()(x + layers.MultiHeadAttention(2, 4)(x, x))
x = layers.LayerNormalization()(x + layers.Dense(8)(layers.Dense(16, "gelu")(x)))
model = keras.Model(start, layers.Dense(2)(layers.GlobalAveragePooling1D()(x)))
model.compile(optimizer, "mse")
dataset = batches(normal(5, 8), normal(2))
""",
    # A recurrent layer, whose loop is one op, and clipped gradients.
    "recurrent": """
x = start = keras.Input((6, 5))
model = keras.Model(start, layers.Dense(2)(layers.LSTM(7)(x)))
optimizer.global_clipnorm = 0.5
model.compile(optimizer, "mse")
dataset = batches(normal(6, 5), normal(2))
""",
    # One example batch, given as values.
    "one_batch": """
w = [tf.Variable(random.normal(size=s).astype("float32") / 3, name=n)
     for n, s in (("one", (7, 9)), ("two", (9, 2)))]
optimizer.build(w)
@tf.function
def train_step(x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((tf.nn.relu(x @ w[0]) @ w[1] - y) ** 2)
    optimizer.apply_gradients(zip(tape.gradient(loss, w), w))
    return loss
inputs = normal(7)[:BATCH], normal(2)[:BATCH]
""",
    # Updates written by hand: differences are assigned, and slots kept beside.
    "raw_updates": """
rate = tf.Variable(RATE, name="learning_rate", trainable=False)
w = [tf.Variable(random.normal(size=s).astype("float32") / 3, name=n)
     for n, s in (("one", (6, 10)), ("two", (10, 10)), ("three", (10, 1)))]
m = [tf.Variable(tf.zeros_like(v), trainable=False, name=v.name[:-2] + "_m") for v in w]
s = [tf.Variable(tf.zeros_like(v), trainable=False, name=v.name[:-2] + "_s") for v in w]
KIND = "NAME"
@tf.function
def train_step(x, y):
    with tf.GradientTape() as tape:
        h = tf.tanh(tf.nn.relu(x @ w[0]) @ w[1])
        loss = tf.reduce_mean((h @ w[2] - y) ** 2)
    for v, mean, square, g in zip(w, m, s, tape.gradient(loss, w)):
        if KIND == "sgd":
            v.assign(v - rate * g)
        elif KIND == "momentum":
            mean.assign(0.9 * mean + g)
            v.assign_sub(rate * mean)
        else:
            mean.assign_add(0.1 * (g - mean))
            square.assign_add(0.001 * (g * g - square))
            v.assign_sub(rate * mean / (tf.sqrt(square) + 1e-7))
    return loss
dataset = batches(normal(6), normal(1))
""",
}
STEPS = tuple(_BODIES)


def model_file(step, optimizer, rate):
    head = _HEAD.replace("OPTIMIZER", OPTIMIZERS[optimizer].format(rate=rate))
    return head + _BODIES[step].replace("RATE", str(rate)).replace("NAME", optimizer)
