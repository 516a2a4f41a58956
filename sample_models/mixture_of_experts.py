"""A language model with a mixture of experts: each word goes to two of many experts.

In every other block the feed-forward part is a set of experts. A router sends
each word to the two experts that it rates highest:

                            ┌─ expert_1 ─┐
    words ─ self-attention ─┤─ expert_2 ─├─ combine ─ next block ─ … ─ next_word
               router ──────┤     …      ├──┘
              (dispatch)    └─ expert_n ─┘

The question to an advisor: experts are as independent as branches can be, and
their weights are most of the model; experts on different devices is how such
models are run. But all branches start at one dispatch and end in one combine.
Is what a device computes for its experts worth two copies of their words?

Dispatch and combine are einsums with a fixed capacity, so that all shapes are
known: an expert takes at most `capacity` words, first come first served, and
words beyond it pass by on the residual connection. The rule of two experts, the
capacity of twice the even share and the loss that balances the load are
GShard's. The width of 768, the 12 heads, 2,048 hidden units, 12 blocks and
32,128 words are those of Switch-Base, with 16 experts here, so that the model
fits one machine. Made up from a fixed seed: the texts. Left out: GShard's
random choice whether to use the second expert.

Set SAMPLE_SIZE=full for these sizes. SAMPLE_SIZE=large has 4 blocks of 512 with 8
experts: a step of some seconds on one core, where the full one takes most of a minute.
The default, small, is 2 narrow blocks.

Sources: Lepikhin et al.: GShard, https://arxiv.org/abs/2006.16668; Fedus, Zoph,
Shazeer: Switch Transformers, https://arxiv.org/abs/2101.03961.
"""

import os
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf
from keras import ops


class Size(NamedTuple):
    """What differs between the small and the full model."""

    batch: int
    words: int
    vocabulary: int
    blocks: int
    width: int
    heads: int
    hidden: int
    experts: int


SIZES = {
    "small": Size(
        batch=4, words=32, vocabulary=1_000, blocks=2, width=128, heads=4, hidden=256, experts=4
    ),
    "large": Size(
        batch=8, words=128, vocabulary=8_000, blocks=4, width=512, heads=8, hidden=2_048, experts=8
    ),
    "full": Size(
        batch=8,
        words=512,
        vocabulary=32_128,
        blocks=12,
        width=768,
        heads=12,
        hidden=2_048,
        experts=16,
    ),
}
SIZE_NAME = os.environ.get("SAMPLE_SIZE", "small")
if SIZE_NAME not in SIZES:
    raise ValueError(f"SAMPLE_SIZE is {SIZE_NAME!r}; choose one of {', '.join(SIZES)}")
SIZE = SIZES[SIZE_NAME]

BATCHES = 4
CHOICES = 2
CAPACITY = CHOICES * SIZE.words // SIZE.experts  # words of one text that one expert takes
BALANCE_WEIGHT = 0.01
LEARNING_RATE = 1e-3
SEED = 2020

keras.utils.set_random_seed(SEED)


class MixtureOfExperts(keras.layers.Layer):
    """Sends each word to its best experts and adds up their answers, weighted.

    Shapes are written as in the einsums: b texts, w words, e experts, c places of an expert,
    d width.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name=name)
        self.router = keras.layers.Dense(
            SIZE.experts, use_bias=False, activation="softmax", name="router"
        )
        self.experts = [
            keras.Sequential(
                [
                    keras.layers.Dense(SIZE.hidden, activation="relu", name="hidden"),
                    keras.layers.Dense(SIZE.width, name="out"),
                ],
                name=f"expert_{number}",
            )
            for number in range(1, SIZE.experts + 1)
        ]

    def build(self, input_shape: tuple) -> None:
        """Make the weights of the router and of each expert."""
        self.router.build(input_shape)
        for expert in self.experts:
            expert.build((input_shape[0], CAPACITY, input_shape[2]))

    def call(self, vectors: keras.KerasTensor) -> keras.KerasTensor:
        """Return the weighted answers of each word's experts, 0 for words without a place."""
        combine = self.route(self.router(vectors))
        dispatch = ops.cast(combine > 0, vectors.dtype)
        places = ops.einsum("bwec,bwd->ebcd", dispatch, vectors)
        answers = [
            expert(mine)
            for expert, mine in zip(self.experts, ops.unstack(places, SIZE.experts), strict=True)
        ]
        return ops.einsum("bwec,ebcd->bwd", combine, ops.stack(answers))

    def route(self, share: keras.KerasTensor) -> keras.KerasTensor:
        """Return the weight [b, w, e, c] of each place in each word's answer."""
        best_share, best = ops.top_k(share, CHOICES)
        best_share /= ops.sum(best_share, axis=-1, keepdims=True)
        first = ops.one_hot(best[..., 0], SIZE.experts)
        self.add_loss(
            BALANCE_WEIGHT
            * SIZE.experts
            * ops.mean(ops.sum(ops.mean(first, axis=1) * ops.mean(share, axis=1), axis=-1))
        )

        combine = 0.0
        taken = ops.zeros_like(first[:, :1])
        for choice in range(CHOICES):
            chosen = ops.one_hot(best[..., choice], SIZE.experts)
            place = ops.cumsum(chosen, axis=1) - 1 + taken
            taken += ops.sum(chosen, axis=1, keepdims=True)
            # Of a place at or beyond the capacity, one_hot makes zeros: the word is dropped.
            place = ops.one_hot(ops.cast(place, "int32"), CAPACITY)
            weight = best_share[..., choice, None] * chosen
            combine += weight[..., None] * place
        return combine


def make_dataset() -> tf.data.Dataset:
    """Return batches of (words, next_words)."""
    random = np.random.default_rng(SEED)
    texts = random.integers(SIZE.vocabulary, size=(BATCHES * SIZE.batch, SIZE.words + 1))
    return tf.data.Dataset.from_tensor_slices((texts[:, :-1], texts[:, 1:])).batch(
        SIZE.batch, drop_remainder=True
    )


def block(vectors: keras.KerasTensor, number: int) -> keras.KerasTensor:
    """Return the vectors after self-attention and a feed-forward part."""
    name = f"block_{number}"
    normed = keras.layers.LayerNormalization(name=f"{name}_attention_norm")(vectors)
    attention = keras.layers.MultiHeadAttention(
        SIZE.heads, SIZE.width // SIZE.heads, name=f"{name}_attention"
    )
    vectors += attention(normed, normed, use_causal_mask=True)

    normed = keras.layers.LayerNormalization(name=f"{name}_forward_norm")(vectors)
    if number % 2 == 0:
        return vectors + MixtureOfExperts(name=f"{name}_experts")(normed)
    hidden = keras.layers.Dense(SIZE.hidden, activation="relu", name=f"{name}_hidden")(normed)
    return vectors + keras.layers.Dense(SIZE.width, name=f"{name}_out")(hidden)


def make_model() -> keras.Model:
    """Return the compiled model."""
    words = keras.Input((SIZE.words,), SIZE.batch, dtype="int32", name="words")
    vectors = keras.layers.Embedding(SIZE.vocabulary, SIZE.width, name="embedding")(words)
    for number in range(1, SIZE.blocks + 1):
        vectors = block(vectors, number)
    vectors = keras.layers.LayerNormalization(name="last_norm")(vectors)
    next_word = keras.layers.Dense(SIZE.vocabulary, name="next_word")(vectors)

    mixture = keras.Model(words, next_word, name="mixture_of_experts")
    mixture.compile(
        optimizer=keras.optimizers.Adam(learning_rate=LEARNING_RATE),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    return mixture


model = make_model()
dataset = make_dataset()
