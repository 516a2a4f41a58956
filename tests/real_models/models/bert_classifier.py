"""BERT with a classifier on top, built from its configuration and compiled to be fine-tuned.

Layers, names and inputs are those of keras_hub's `BertTextClassifier`, in plain Keras: the package
itself would bring sixteen others into the tests, among them 190 MB of tensorflow-text.

Source: Devlin, Chang, Lee, Toutanova: BERT, NAACL 2019, https://aclanthology.org/N19-1423.
"""

from dataclasses import dataclass

import keras
import numpy as np
import tensorflow as tf
from keras import layers

SEGMENTS = 2
CLASSES = 2
DROPOUT = 0.1


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """The defaults are BERT's base size."""

    layers: int = 12
    width: int = 768
    heads: int = 12
    vocabulary: int = 30_522
    positions: int = 512
    tokens: int = 128
    batch: int = 4


class TokenAndPositionEmbedding(layers.Layer):
    """A vector for what a token is, plus one for where it stands."""

    def __init__(self, vocabulary: int, positions: int, width: int, **options: object) -> None:
        super().__init__(**options)
        self.token_embedding = layers.Embedding(vocabulary, width, name="token_embedding")
        self._shape = (positions, width)

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        self.token_embedding.build(input_shape)
        self.position_embeddings = self.add_weight(shape=self._shape, name="position_embeddings")

    def call(self, token_ids: tf.Tensor) -> tf.Tensor:
        vectors = self.token_embedding(token_ids)
        return vectors + self.position_embeddings[: vectors.shape[1]]


def _encoder_layer(x: tf.Tensor, mask: tf.Tensor, size: Configuration, name: str) -> tf.Tensor:
    """Return self-attention and a feed-forward part, each added to what it was given."""
    attended = layers.MultiHeadAttention(
        size.heads, size.width // size.heads, dropout=DROPOUT, name=f"{name}_self_attention"
    )(x, x, attention_mask=mask)
    attended = layers.Dropout(DROPOUT, name=f"{name}_attention_dropout")(attended)
    x = layers.Add(name=f"{name}_attention_add")([x, attended])
    x = layers.LayerNormalization(epsilon=1e-12, name=f"{name}_attention_norm")(x)
    hidden = layers.Dense(4 * size.width, "gelu", name=f"{name}_intermediate")(x)
    hidden = layers.Dense(size.width, name=f"{name}_output")(hidden)
    hidden = layers.Dropout(DROPOUT, name=f"{name}_output_dropout")(hidden)
    x = layers.Add(name=f"{name}_output_add")([x, hidden])
    return layers.LayerNormalization(epsilon=1e-12, name=f"{name}_output_norm")(x)


def fine_tuned(size: Configuration) -> tuple[keras.Model, tf.data.Dataset]:
    """Return the compiled model, and two batches of random tokens for it."""
    keras.utils.set_random_seed(7)
    inputs = {
        name: keras.Input((size.tokens,), size.batch, dtype="int32", name=name)
        for name in ("token_ids", "segment_ids", "padding_mask")
    }
    x = layers.Add(name="embeddings_add")(
        [
            TokenAndPositionEmbedding(
                size.vocabulary, size.positions, size.width, name="token_and_position_embedding"
            )(inputs["token_ids"]),
            layers.Embedding(SEGMENTS, size.width, name="segment_embedding")(inputs["segment_ids"]),
        ]
    )
    x = layers.LayerNormalization(epsilon=1e-12, name="embeddings_layer_norm")(x)
    x = layers.Dropout(DROPOUT, name="embeddings_dropout")(x)
    mask = layers.Reshape((1, size.tokens), name="attention_mask")(inputs["padding_mask"])
    for i in range(size.layers):
        x = _encoder_layer(x, mask, size, f"transformer_layer_{i}")
    first = layers.Dense(size.width, "tanh", name="pooled_dense")(x[:, 0, :])
    pooled = layers.Dropout(DROPOUT, name="classifier_dropout")(first)
    model = keras.Model(inputs, layers.Dense(CLASSES, name="logits")(pooled), name="bert")
    model.compile(
        optimizer=keras.optimizers.AdamW(learning_rate=5e-5),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    random = np.random.default_rng(7)
    shape = (2 * size.batch, size.tokens)
    texts = {
        "token_ids": random.integers(size.vocabulary, size=shape, dtype=np.int32),
        "segment_ids": np.broadcast_to(np.arange(size.tokens) * 2 // size.tokens, shape).astype(
            np.int32
        ),
        "padding_mask": np.ones(shape, np.int32),
    }
    labels = random.integers(CLASSES, size=2 * size.batch)
    return model, tf.data.Dataset.from_tensor_slices((texts, labels)).batch(size.batch)
