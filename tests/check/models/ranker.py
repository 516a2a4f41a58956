"""The ranker's three towers on two devices by hand: the user's alone, the light ones together."""

import tensorflow as tf

FIRST, SECOND = "GPU:0", "GPU:1"
BATCH, VIDEOS, WATCHED = 8_192, 5_000, 50
EMBEDDING, PROFILE, DESCRIPTION, CONTEXT = 64, 128, 32, 16
USER_UNITS, ITEM_UNITS, CONTEXT_UNITS = (1_024, 512, 256), (512, 256), (64, 32)
RANK_UNITS = 256
SEED = 2016
RATE = 0.01

tf.keras.utils.set_random_seed(SEED)


def tower(name, units):
    return [tf.keras.layers.Dense(n, "relu", name=f"{name}_{i}") for i, n in enumerate(units, 1)]


def through(layers, vectors):
    for layer in layers:
        vectors = layer(vectors)
    return vectors


def build(layers, width):
    for layer in layers:
        layer.build([BATCH, width])
        width = layer.units


with tf.device(FIRST):
    watched_embedding = tf.keras.layers.Embedding(VIDEOS, EMBEDDING, name="watched_embedding")
    watched_embedding.build()
    user_tower = tower("user", USER_UNITS)
    build(user_tower, EMBEDDING + PROFILE)
    rank = tf.keras.layers.Dense(RANK_UNITS, "relu", name="rank")
    chance = tf.keras.layers.Dense(1, name="chance")
    build([rank, chance], USER_UNITS[-1] + ITEM_UNITS[-1] + CONTEXT_UNITS[-1])
with tf.device(SECOND):
    video_embedding = tf.keras.layers.Embedding(VIDEOS, EMBEDDING, name="video_embedding")
    video_embedding.build()
    item_tower = tower("item", ITEM_UNITS)
    build(item_tower, EMBEDDING + DESCRIPTION)
    context_tower = tower("context", CONTEXT_UNITS)
    build(context_tower, CONTEXT)
layers = [watched_embedding, *user_tower, rank, chance]
layers += [video_embedding, *item_tower, *context_tower]
variables = [variable.value for layer in layers for variable in layer.trainable_variables]
optimizer = tf.keras.optimizers.SGD(RATE)
optimizer.build(variables)


def loss_of(watched, profile, video, description, context, clicks):
    with tf.device(FIRST):
        average = tf.reduce_mean(watched_embedding(watched), axis=1)
        user = through(user_tower, tf.concat([average, profile], axis=1))
    with tf.device(SECOND):
        item = through(item_tower, tf.concat([video_embedding(video), description], axis=1))
        surroundings = through(context_tower, context)
    with tf.device(FIRST), tf.name_scope("loss"):
        towers = tf.concat([user, item, surroundings], axis=1)
        logits = chance(rank(towers))
        return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(clicks, logits))


@tf.function
def train_step(watched, profile, video, description, context, clicks):
    loss = loss_of(watched, profile, video, description, context, clicks)
    gradients = tf.gradients(loss, variables)
    optimizer.apply_gradients(zip(gradients, variables, strict=True))
    return loss


inputs = (
    tf.TensorSpec([BATCH, WATCHED], tf.int32),
    tf.TensorSpec([BATCH, PROFILE]),
    tf.TensorSpec([BATCH], tf.int32),
    tf.TensorSpec([BATCH, DESCRIPTION]),
    tf.TensorSpec([BATCH, CONTEXT]),
    tf.TensorSpec([BATCH, 1]),
)
