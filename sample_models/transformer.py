"""The transformer of "Attention is all you need": encoder and decoder for translation.

    source ─ embed ─ encoder_1 ─ … ─ encoder_n ──────────┬─ (keys and values)
               │                                         │
    target ─ embed ─ decoder_1 ─ … ─ decoder_n ─ project to the vocabulary ─ next_word
                      each: self-attention, attention to the encoder, feed forward

The question to an advisor: encoder and decoder look like two towers, but they
meet early. The decoder can only embed its words and attend to itself before its
first layer asks for the end of the encoder; and embedding and projection are
one matrix, read in three places. Wide ops inside a layer (8 heads, 2,048 hidden
units) are single ops already: no placement of ops divides them.

Base model of the paper: 6 + 6 layers, width 512, 8 heads of 64, 2,048 hidden
units, dropout 0.1, one embedding of 37,000 words shared by source, target and
the projection, sine positions, Adam with a warm-up of 4,000 steps. The paper's
batch of 25,000 words on 8 GPUs is 48 sentences of 64 words here, the share of
one. The decoder must not look ahead (causal mask), and no one looks at padding
(padding masks; the loss ignores it too). Made up from a fixed seed: the
sentences, of varying length. Left out: label smoothing, beam search.

Set SAMPLE_SIZE=full for the base model; the default, small, is 2 + 2 narrow
layers.

Source: Vaswani et al.: Attention Is All You Need, NIPS 2017,
https://arxiv.org/abs/1706.03762.
"""

import os
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf


class Size(NamedTuple):
    """What differs between the small and the full model."""

    batch: int
    words: int
    vocabulary: int
    layers: int
    width: int
    heads: int
    hidden: int


SIZES = {
    "small": Size(batch=8, words=24, vocabulary=2_000, layers=2, width=128, heads=4, hidden=256),
    "full": Size(batch=48, words=64, vocabulary=37_000, layers=6, width=512, heads=8, hidden=2_048),
}
SIZE_NAME = os.environ.get("SAMPLE_SIZE", "small")
if SIZE_NAME not in SIZES:
    raise ValueError(f"SAMPLE_SIZE is {SIZE_NAME!r}; choose one of {', '.join(SIZES)}")
SIZE = SIZES[SIZE_NAME]

BATCHES = 4
PADDING, START = 0, 1
DROPOUT = 0.1
WARM_UP_STEPS = 4_000
LONGEST_WAVE = 10_000
SEED = 2017

keras.utils.set_random_seed(SEED)


class Embed(keras.layers.Layer):
    """Words to vectors with their position added, and vectors back to words."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name)
        self.words = keras.layers.ReversibleEmbedding(
            SIZE.vocabulary,
            SIZE.width,
            embeddings_initializer=keras.initializers.RandomNormal(stddev=SIZE.width**-0.5),
            name="words",
        )
        position = np.arange(SIZE.words)[:, None]
        angle = position / LONGEST_WAVE ** (np.arange(0, SIZE.width, 2) / SIZE.width)
        self.positions = np.concatenate([np.sin(angle), np.cos(angle)], axis=1).astype(np.float32)

    def build(self, input_shape: tuple) -> None:
        """Make the one matrix of both directions."""
        self.words.build(input_shape)

    def call(self, inputs: keras.KerasTensor, reverse: bool = False) -> keras.KerasTensor:
        """Return the words' vectors or, in reverse, the vectors' scores of all words."""
        if reverse:
            return self.words(inputs, reverse=True)
        return self.words(inputs) * SIZE.width**0.5 + self.positions


class WarmUp(keras.optimizers.schedules.LearningRateSchedule):
    """The paper's learning rate: rises for the first steps, then falls as 1/√step."""

    def __call__(self, step: tf.Tensor) -> tf.Tensor:
        """Return the learning rate of a step."""
        step = keras.ops.cast(step, "float32") + 1
        return SIZE.width**-0.5 * keras.ops.minimum(step**-0.5, step * WARM_UP_STEPS**-1.5)


def make_dataset() -> tf.data.Dataset:
    """Return batches of ((source, target), next_word), padded at the end."""
    random = np.random.default_rng(SEED)
    count = BATCHES * SIZE.batch

    def sentences() -> np.ndarray:
        lengths = random.integers(SIZE.words // 2, SIZE.words + 1, (count, 1))
        words = random.integers(START + 1, SIZE.vocabulary, (count, SIZE.words))
        return np.where(np.arange(SIZE.words) < lengths, words, PADDING)

    source, next_word = sentences(), sentences()
    target = np.insert(next_word[:, :-1], 0, START, axis=1)
    target[next_word == PADDING] = PADDING
    pairs = ((source, target), next_word)
    return tf.data.Dataset.from_tensor_slices(pairs).batch(SIZE.batch, drop_remainder=True)


def add_and_norm(
    vectors: keras.KerasTensor, change: keras.KerasTensor, name: str
) -> keras.KerasTensor:
    """Return the vectors after a sub-layer: residual connection, then normalisation."""
    change = keras.layers.Dropout(DROPOUT, name=f"{name}_dropout")(change)
    total = keras.layers.Add(name=f"{name}_add")([vectors, change])
    return keras.layers.LayerNormalization(name=f"{name}_norm")(total)


def attend(
    vectors: keras.KerasTensor,
    memory: keras.KerasTensor,
    real_words: keras.KerasTensor,
    name: str,
    causal: bool = False,
) -> keras.KerasTensor:
    """Return the vectors after attention to those places of the memory that are real words."""
    attention = keras.layers.MultiHeadAttention(SIZE.heads, SIZE.width // SIZE.heads, name=name)
    change = attention(vectors, memory, attention_mask=real_words, use_causal_mask=causal)
    return add_and_norm(vectors, change, name)


def feed_forward(vectors: keras.KerasTensor, name: str) -> keras.KerasTensor:
    """Return the vectors after two dense layers, the same for each word."""
    hidden = keras.layers.Dense(SIZE.hidden, activation="relu", name=f"{name}_hidden")(vectors)
    return add_and_norm(vectors, keras.layers.Dense(SIZE.width, name=f"{name}_out")(hidden), name)


def make_model() -> keras.Model:
    """Return the compiled model."""
    source = keras.Input((SIZE.words,), SIZE.batch, dtype="int32", name="source")
    target = keras.Input((SIZE.words,), SIZE.batch, dtype="int32", name="target")
    # To every place of a sentence, the places that it may attend to.
    real_source = keras.ops.not_equal(source, PADDING)[:, None, :]
    real_target = keras.ops.not_equal(target, PADDING)[:, None, :]
    embed = Embed(name="embed")

    read = keras.layers.Dropout(DROPOUT, name="source_dropout")(embed(source))
    for number in range(1, SIZE.layers + 1):
        read = attend(read, read, real_source, f"encoder_{number}_self")
        read = feed_forward(read, f"encoder_{number}_forward")

    written = keras.layers.Dropout(DROPOUT, name="target_dropout")(embed(target))
    for number in range(1, SIZE.layers + 1):
        written = attend(written, written, real_target, f"decoder_{number}_self", causal=True)
        written = attend(written, read, real_source, f"decoder_{number}_cross")
        written = feed_forward(written, f"decoder_{number}_forward")
    next_word = embed(written, reverse=True)

    transformer = keras.Model([source, target], next_word, name="transformer")
    transformer.compile(
        optimizer=keras.optimizers.Adam(WarmUp(), beta_1=0.9, beta_2=0.98, epsilon=1e-9),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=PADDING),
    )
    return transformer


model = make_model()
dataset = make_dataset()
