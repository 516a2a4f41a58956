"""A deep network for digits as a pipeline by hand: its first half here, the second there."""

import tensorflow as tf

FIRST, SECOND = "GPU:0", "GPU:1"
BATCH, FILTERS, DIGITS = 1_024, 32, 10
SEED = 2018
RATE = 0.01

tf.keras.utils.set_random_seed(SEED)


def conv(name):
    return tf.keras.layers.Conv2D(FILTERS, 3, padding="same", activation="relu", name=name)


with tf.device(FIRST):
    conv_1, conv_2, conv_3 = conv("conv_1"), conv("conv_2"), conv("conv_3")
    conv_1.build([BATCH, 28, 28, 1])
    conv_2.build([BATCH, 28, 28, FILTERS])
    conv_3.build([BATCH, 28, 28, FILTERS])
with tf.device(SECOND):
    conv_4, conv_5 = conv("conv_4"), conv("conv_5")
    conv_4.build([BATCH, 28, 28, FILTERS])
    conv_5.build([BATCH, 28, 28, FILTERS])
    flatten = tf.keras.layers.Flatten(name="flatten")
    digit = tf.keras.layers.Dense(DIGITS, name="digit")
    digit.build([BATCH, 28 * 28 * FILTERS])
layers = [conv_1, conv_2, conv_3, conv_4, conv_5, digit]
variables = [variable.value for layer in layers for variable in layer.trainable_variables]
optimizer = tf.keras.optimizers.SGD(RATE)
optimizer.build(variables)


def loss_of(images, digits):
    with tf.device(FIRST):
        lower = conv_3(conv_2(conv_1(images)))
    with tf.device(SECOND):
        upper = conv_5(conv_4(lower))
        logits = digit(flatten(upper))
        with tf.name_scope("loss"):
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(digits, logits)
            return tf.reduce_mean(losses)


@tf.function
def train_step(images, digits):
    loss = loss_of(images, digits)
    gradients = tf.gradients(loss, variables)
    optimizer.apply_gradients(zip(gradients, variables, strict=True))
    return loss


inputs = (tf.TensorSpec([BATCH, 28, 28, 1]), tf.TensorSpec([BATCH], tf.int32))
