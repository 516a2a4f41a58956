"""Sequence to sequence with LSTMs: loops over time, and layers stacked on them.

An encoder reads a sentence; its final states start a decoder, which predicts
each next word of the translation from the true words before it (teacher
forcing):

    source ─ embedding ─ LSTM ─ LSTM ─ … (outputs unused)
                           │      │   states
                           ▼      ▼
    target ─ embedding ─ LSTM ─ LSTM ─ … ─ softmax over the vocabulary ─ next_word

Each LSTM is a loop over the words (`While` in the graph), not one op per word.

The question to an advisor: the authors put every layer on a GPU of its own and
the softmax on four more, and were 3.7 times as fast. They could, because layer
2 reads word 1 while layer 1 reads word 2. Here a layer is one loop, which hands
on its output only when all words are read. What is left to win? And does the
advisor price what is inside the loop?

The four layers of 1,000 cells, the 1,000 numbers per word, the vocabularies of
160,000 and 80,000 words, the batch of 128, SGD at 0.7, gradients clipped to
norm 5, uniform initial weights and the reversed source are the paper's. Made up
from a fixed seed: the sentences, of 30 words each (about the paper's average).

Set SAMPLE_SIZE=full for these sizes (384 million parameters).

Source: Sutskever, Vinyals, Le: Sequence to Sequence Learning with Neural
Networks, NIPS 2014, https://arxiv.org/abs/1409.3215.
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
    source_vocabulary: int
    target_vocabulary: int
    layers: int
    cells: int


SIZES = {
    "small": Size(
        batch=16, words=12, source_vocabulary=4_000, target_vocabulary=2_000, layers=2, cells=128
    ),
    "full": Size(
        batch=128,
        words=30,
        source_vocabulary=160_000,
        target_vocabulary=80_000,
        layers=4,
        cells=1_000,
    ),
}
SIZE_NAME = os.environ.get("SAMPLE_SIZE", "small")
if SIZE_NAME not in SIZES:
    raise ValueError(f"SAMPLE_SIZE is {SIZE_NAME!r}; choose one of {', '.join(SIZES)}")
SIZE = SIZES[SIZE_NAME]

BATCHES = 4
START = 0  # the word that the decoder reads first
LEARNING_RATE = 0.7
MAX_GRADIENT_NORM = 5.0
SEED = 2014

keras.utils.set_random_seed(SEED)


def make_dataset() -> tf.data.Dataset:
    """Return batches of ((source, target), next_word)."""
    random = np.random.default_rng(SEED)
    sentences = BATCHES * SIZE.batch
    source = random.integers(1, SIZE.source_vocabulary, (sentences, SIZE.words))
    next_word = random.integers(1, SIZE.target_vocabulary, (sentences, SIZE.words))
    target = np.insert(next_word[:, :-1], 0, START, axis=1)
    pairs = ((source[:, ::-1], target), next_word)
    return tf.data.Dataset.from_tensor_slices(pairs).batch(SIZE.batch, drop_remainder=True)


def make_model() -> keras.Model:
    """Return the compiled model: an encoder, whose states start the decoder."""
    source = keras.Input((SIZE.words,), SIZE.batch, dtype="int32", name="source")
    target = keras.Input((SIZE.words,), SIZE.batch, dtype="int32", name="target")

    def initial_weights() -> keras.initializers.Initializer:
        return keras.initializers.RandomUniform(-0.08, 0.08)

    def embedding(vocabulary: int, name: str) -> keras.layers.Embedding:
        return keras.layers.Embedding(vocabulary, SIZE.cells, initial_weights(), name=name)

    def lstm(name: str) -> keras.layers.LSTM:
        return keras.layers.LSTM(
            SIZE.cells,
            kernel_initializer=initial_weights(),
            recurrent_initializer=initial_weights(),
            return_sequences=True,
            return_state=True,
            name=name,
        )

    read = embedding(SIZE.source_vocabulary, "source_embedding")(source)
    written = embedding(SIZE.target_vocabulary, "target_embedding")(target)
    for number in range(1, SIZE.layers + 1):
        read, *states = lstm(f"encoder_{number}")(read)
        written, *_ = lstm(f"decoder_{number}")(written, initial_state=states)
    next_word = keras.layers.Dense(
        SIZE.target_vocabulary,
        activation="softmax",
        kernel_initializer=initial_weights(),
        name="next_word",
    )(written)

    seq2seq = keras.Model([source, target], next_word, name="lstm_seq2seq")
    seq2seq.compile(
        optimizer=keras.optimizers.SGD(
            learning_rate=LEARNING_RATE, global_clipnorm=MAX_GRADIENT_NORM
        ),
        loss=keras.losses.SparseCategoricalCrossentropy(),
    )
    return seq2seq


model = make_model()
dataset = make_dataset()
