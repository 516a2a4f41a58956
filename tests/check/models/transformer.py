"""A translator on two devices by hand: the encoder here, the decoder there."""

import tensorflow as tf

FIRST, SECOND = "GPU:0", "GPU:1"
BATCH, WORDS, VOCABULARY, WIDTH, HEADS = 256, 32, 2_000, 128, 4
SEED = 2017
RATE = 1e-3

tf.keras.utils.set_random_seed(SEED)


def attention(name):
    layer = tf.keras.layers.MultiHeadAttention(HEADS, WIDTH // HEADS, name=name)
    layer.build([BATCH, WORDS, WIDTH], [BATCH, WORDS, WIDTH])
    return layer


def dense(name, width, units, activation=None):
    layer = tf.keras.layers.Dense(units, activation, name=name)
    layer.build([BATCH, WORDS, width])
    return layer


def embedding(name):
    layer = tf.keras.layers.Embedding(VOCABULARY, WIDTH, name=name)
    layer.build()
    return layer


with tf.device(FIRST):
    source_embedding = embedding("source_embedding")
    encoder_attention = attention("encoder_attention")
    encoder_wide = dense("encoder_wide", WIDTH, 4 * WIDTH, "relu")
    encoder_narrow = dense("encoder_narrow", 4 * WIDTH, WIDTH)
with tf.device(SECOND):
    target_embedding = embedding("target_embedding")
    decoder_attention = attention("decoder_attention")
    cross_attention = attention("cross_attention")
    decoder_wide = dense("decoder_wide", WIDTH, 4 * WIDTH, "relu")
    decoder_narrow = dense("decoder_narrow", 4 * WIDTH, WIDTH)
    words = dense("words", WIDTH, VOCABULARY)
layers = [source_embedding, encoder_attention, encoder_wide, encoder_narrow]
layers += [target_embedding, decoder_attention, cross_attention]
layers += [decoder_wide, decoder_narrow, words]
variables = [variable.value for layer in layers for variable in layer.trainable_variables]
optimizer = tf.keras.optimizers.SGD(RATE)
optimizer.build(variables)


def loss_of(source, target, following):
    with tf.device(FIRST):
        encoded = source_embedding(source)
        encoded = encoded + encoder_attention(encoded, encoded)
        encoded = encoded + encoder_narrow(encoder_wide(encoded))
    with tf.device(SECOND):
        decoded = target_embedding(target)
        decoded = decoded + decoder_attention(decoded, decoded)
        decoded = decoded + cross_attention(decoded, encoded)
        decoded = decoded + decoder_narrow(decoder_wide(decoded))
        logits = words(decoded)
        with tf.name_scope("loss"):
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(following, logits)
            return tf.reduce_mean(losses)


@tf.function
def train_step(source, target, following):
    loss = loss_of(source, target, following)
    gradients = tf.gradients(loss, variables)
    optimizer.apply_gradients(zip(gradients, variables, strict=True))
    return loss


inputs = tuple(tf.TensorSpec([BATCH, WORDS], tf.int32) for _ in range(3))
