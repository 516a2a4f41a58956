"""Twelve models that everyone can have: ten of `keras.applications`, a BERT and a DLRM.

`compiled` builds one as Keras makes it, to be trained by Adam (the DLRM by Adagrad, as its authors
do) on a batch of zeros. Weights are drawn at random, as nothing here depends on them.

Sources: Devlin et al., BERT (NAACL 2019), the base model with 128 tokens and a classifier; Naumov
et al., Deep Learning Recommendation Model (arXiv 1906.00091), with tables of 200,000 rows.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

import keras
import tensorflow as tf

if TYPE_CHECKING:
    from collections.abc import Callable

APPLICATIONS = (
    "ConvNeXtTiny",
    "DenseNet121",
    "EfficientNetB0",
    "InceptionResNetV2",
    "InceptionV3",
    "MobileNetV2",
    "NASNetMobile",
    "ResNet50",
    "VGG16",
    "Xception",
)
PUBLIC_MODELS = (*APPLICATIONS, "BERT", "DLRM")
BATCH = 32

_CLASSES = 1_000
_PIXELS = 224
_TOKENS, _WORDS, _WIDTH, _HEADS, _BLOCKS = 128, 30_522, 768, 12, 12
_TABLES, _ROWS, _FEATURES, _DENSE = 26, 200_000, 64, 13


def compiled(name: str) -> tuple[keras.Model, tf.data.Dataset]:
    """Return a compiled model by its name in `PUBLIC_MODELS`, and one batch for it."""
    if name in APPLICATIONS:
        images = keras.Input((_PIXELS, _PIXELS, 3), BATCH, name="images")
        model = getattr(keras.applications, name)(
            weights=None, input_tensor=images, classes=_CLASSES
        )
    else:
        model = _BUILDERS[name]()
    optimizer = "adagrad" if name == "DLRM" else "adam"
    model.compile(optimizer=optimizer, loss="sparse_categorical_crossentropy")
    shapes = [(tuple(tensor.shape), tensor.dtype) for tensor in model.inputs]
    zeros = tf.data.Dataset.from_tensors(0).map(
        lambda _: (
            tuple(tf.zeros(shape, dtype) for shape, dtype in shapes),
            tf.zeros((BATCH,), tf.int32),
        )
    )
    return model, zeros


def _bert(blocks: int = _BLOCKS) -> keras.Model:
    layers = keras.layers
    words = keras.Input((_TOKENS,), BATCH, "int32", name="words")
    segments = keras.Input((_TOKENS,), BATCH, "int32", name="segments")
    places = layers.Embedding(_TOKENS, _WIDTH, name="places")(tf.range(_TOKENS)[tf.newaxis])
    flow = layers.Embedding(_WORDS, _WIDTH, name="word_embedding")(words)
    flow = flow + layers.Embedding(2, _WIDTH, name="segment_embedding")(segments) + places
    flow = layers.LayerNormalization()(flow)
    for block in range(blocks):
        attended = layers.MultiHeadAttention(
            _HEADS, _WIDTH // _HEADS, name=f"block_{block}_attention"
        )(flow, flow)
        flow = layers.LayerNormalization()(flow + attended)
        hidden = layers.Dense(4 * _WIDTH, "gelu", name=f"block_{block}_in")(flow)
        hidden = layers.Dense(_WIDTH, name=f"block_{block}_out")(hidden)
        flow = layers.LayerNormalization()(flow + hidden)
    pooled = layers.Dense(_WIDTH, "tanh", name="pooler")(flow[:, 0])
    return keras.Model([words, segments], layers.Dense(2, "softmax")(pooled))


def _dlrm() -> keras.Model:
    layers = keras.layers
    dense = keras.Input((_DENSE,), BATCH, name="numbers")
    ids = [keras.Input((), BATCH, "int32", name=f"id_{table}") for table in range(_TABLES)]
    bottom = dense
    for units in (512, 256, _FEATURES):
        bottom = layers.Dense(units, "relu")(bottom)
    vectors = [bottom, *(layers.Embedding(_ROWS, _FEATURES)(each) for each in ids)]
    products = [layers.Dot(1)(pair) for pair in combinations(vectors, 2)]
    top = layers.Concatenate()([bottom, *products])
    for units in (512, 256):
        top = layers.Dense(units, "relu")(top)
    return keras.Model([dense, *ids], layers.Dense(2, "softmax")(top))


_BUILDERS: dict[str, Callable[[], keras.Model]] = {
    "BERT": _bert,
    "BERT24": lambda: _bert(24),
    "DLRM": _dlrm,
}
