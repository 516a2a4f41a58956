"""The models of published throughputs, compiled to be trained by SGD on batches of zeros.

The published models normalised batches in one fused op, after convolutions without biases
(`convnet_builder.py` of tf_cnn_benchmarks). Keras 3 takes about twenty ops for it, and its ResNets
have biases as well. Both can be built.
"""

from unittest.mock import patch

import keras
import tensorflow as tf
from keras.src import layers as keras_layers

CLASSES = 1_000


class FusedBatchNormalization(keras.layers.BatchNormalization):
    """Keras's batch normalisation in one op, always for training."""

    def call(self, inputs, **_):
        """Return the normalised batch, and note its mean and variance."""
        ones = tf.ones(inputs.shape[-1:])
        normalised, mean, variance, *_ = tf.raw_ops.FusedBatchNormV3(
            x=inputs,
            scale=ones if self.gamma is None else self.gamma,
            offset=0 * ones if self.beta is None else self.beta,
            mean=[],
            variance=[],
            epsilon=self.epsilon,
        )
        for moving, new in ((self.moving_mean, mean), (self.moving_variance, variance)):
            moving.assign(moving * self.momentum + new * (1 - self.momentum))
        return normalised


class UnbiasedConvolution(keras.layers.Conv2D):
    def __init__(self, *sizes, **options):
        super().__init__(*sizes, **{**options, "use_bias": False})


def trained(name, batch, *, is_fused):
    """Return a compiled model by its name in the record, and one batch for it."""
    build, pixels = MODELS[name]
    images = keras.Input((pixels, pixels, 3), batch, name="images")
    layers = keras.layers
    normalisation = FusedBatchNormalization if is_fused else layers.BatchNormalization
    convolution = UnbiasedConvolution if is_fused and "resnet" in name else layers.Conv2D
    with patch.multiple(keras_layers, BatchNormalization=normalisation, Conv2D=convolution):
        model = build(images)
    model.compile(optimizer="sgd", loss="sparse_categorical_crossentropy")
    zeros = tf.data.Dataset.from_tensors(0).map(
        lambda _: (tf.zeros((batch, pixels, pixels, 3)), tf.zeros((batch,), tf.int32))
    )
    return model, zeros


def trained_bert(batch, length):
    """Return a compiled BERT of base size that labels each word, and one batch for it.

    Words are masked and dropped as in NVIDIA's examples; the optimizer neither clips nor decays.
    """
    layers, width, heads, words = keras.layers, 768, 12, 30_522
    ids = keras.Input((length,), batch, dtype="int32")
    positions = keras.ops.arange(length)
    flow = layers.Embedding(words, width)(ids) + layers.Embedding(length, width)(positions)
    flow = layers.Dropout(0.1)(layers.LayerNormalization()(flow))
    mask = (ids >= 0)[:, None, :]
    for _ in range(12):
        attention = layers.MultiHeadAttention(heads, width // heads, dropout=0.1)
        attended = attention(flow, flow, attention_mask=mask)
        flow = layers.LayerNormalization()(flow + layers.Dropout(0.1)(attended))
        inner = layers.Dense(4 * width, activation="gelu")(flow)
        outer = layers.Dropout(0.1)(layers.Dense(width)(inner))
        flow = layers.LayerNormalization()(flow + outer)
    model = keras.Model(ids, layers.Dense(2, activation="softmax")(flow))
    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy")
    zeros = tf.zeros((batch, length), tf.int32)
    return model, tf.data.Dataset.from_tensors((zeros, zeros))


def _alexnet(images):
    """Return five convolutions and three dense layers, as TensorFlow's own benchmark has them."""
    layers = keras.layers
    flow = layers.Conv2D(64, 11, 4, activation="relu")(images)
    flow = layers.MaxPooling2D(3, 2)(flow)
    flow = layers.Conv2D(192, 5, padding="same", activation="relu")(flow)
    flow = layers.MaxPooling2D(3, 2)(flow)
    for filters in (384, 384, 256):
        flow = layers.Conv2D(filters, 3, padding="same", activation="relu")(flow)
    flow = layers.Flatten()(layers.MaxPooling2D(3, 2)(flow))
    for units in (4096, 4096):
        flow = layers.Dense(units, activation="relu")(flow)
    return keras.Model(images, layers.Dense(CLASSES, activation="softmax")(flow))


def _application(name):
    def build(images):
        network = getattr(keras.applications, name)
        return network(weights=None, input_tensor=images, classes=CLASSES)

    return build


def _resnet50_v15(images):
    """Return ResNet-50 with a block's stride in its 3x3, and no bias before batches are normalised.

    As NVIDIA's `resnet_bottleneck_block.py` has it.
    """

    def convolution(*sizes, name, **more):
        block, _, part = name.removesuffix("_conv").rpartition("_")
        if block in ("conv3_block1", "conv4_block1", "conv5_block1") and part in ("1", "2"):
            more["strides"] = int(part)
        return keras.layers.Conv2D(*sizes, name=name, **more | {"use_bias": False})

    with patch.object(keras_layers, "Conv2D", convolution):
        return _application("ResNet50")(images)


# How to build each, and its images' height and width.
MODELS = {
    "alexnet": (_alexnet, 227),
    "inception3": (_application("InceptionV3"), 299),
    "resnet50": (_application("ResNet50"), 224),
    "resnet50v1.5": (_resnet50_v15, 224),
    "resnet152": (_application("ResNet152"), 224),
    "vgg16": (_application("VGG16"), 224),
}
