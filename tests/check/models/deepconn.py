"""DeepCoNN on two devices by hand: a tower on each, the table beside the first."""

import tensorflow as tf

FIRST, SECOND = "GPU:0", "GPU:1"
BATCH, WORDS, VOCABULARY = 2_048, 400, 10_000
EMBEDDING, FILTERS, UNITS = 50, 10, 64
SEED = 2018
RATE = 1e-4

initializer = tf.keras.initializers.GlorotUniform(seed=SEED)


def weight(name, *shape):
    return tf.Variable(initializer(shape), name=name)


with tf.device(FIRST):
    table = weight("words/table", VOCABULARY, EMBEDDING)
    user_filter = weight("user_conv/filter", 3, EMBEDDING, FILTERS)
    user_kernel = weight("user_dense/kernel", (WORDS - 2) * FILTERS, UNITS)
with tf.device(SECOND):
    item_filter = weight("item_conv/filter", 3, EMBEDDING, FILTERS)
    item_kernel = weight("item_dense/kernel", (WORDS - 2) * FILTERS, UNITS)
variables = [table, user_filter, user_kernel, item_filter, item_kernel]
optimizer = tf.keras.optimizers.SGD(RATE)
optimizer.build(variables)


def conv(vectors, kernel):
    return tf.tanh(tf.nn.conv1d(vectors, kernel, stride=1, padding="VALID"))


def dense(features, kernel):
    return tf.nn.relu(tf.matmul(tf.reshape(features, [BATCH, -1]), kernel))


def loss_of(user_words, item_words, ratings):
    with tf.device(FIRST):
        with tf.name_scope("words"):
            user_vectors = tf.gather(table, user_words)
            item_vectors = tf.gather(table, item_words)
        with tf.name_scope("user_conv"):
            user = conv(user_vectors, user_filter)
        with tf.name_scope("user_dense"):
            user = dense(user, user_kernel)
    with tf.device(SECOND):
        with tf.name_scope("item_conv"):
            item = conv(item_vectors, item_filter)
        with tf.name_scope("item_dense"):
            item = dense(item, item_kernel)
    with tf.device(FIRST), tf.name_scope("rating"):
        rating = tf.reduce_sum(user * item, axis=1)
        return tf.reduce_mean((rating - ratings) ** 2)


@tf.function
def train_step(user_words, item_words, ratings):
    loss = loss_of(user_words, item_words, ratings)
    gradients = tf.gradients(loss, variables)
    optimizer.apply_gradients(zip(gradients, variables, strict=True))
    return loss


words = tf.TensorSpec([BATCH, WORDS], tf.int32)
inputs = (words, words, tf.TensorSpec([BATCH]))
