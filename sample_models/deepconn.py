"""DeepCoNN: a recommender with two identical towers, and why it is the first sample.

The model reads everything a user has written and everything written about an
item, and predicts the rating that the user would give:

    user reviews ─ word_ids ─ word_embedding ─ conv ─ pool ─ flatten ─ dense ─┐
                      │             │                                         ├ rating
    item reviews ─ word_ids ─ word_embedding ─ conv ─ pool ─ flatten ─ dense ─┘

Two towers that meet only in a dot product look made for two devices. A student
study of 2018 tried it on two K80 GPUs and found that one tower per GPU was
slower than a single GPU. The catch is in what the towers share: one lookup
table and one embedding. Nothing below says where anything runs; finding the
towers, and whether to split them, is the advisor's work.

The layers, the loss, Adam at 1e-4, the batch of 32, the 800 words of a review
and the 26,352 rated pairs are the study's. Its reviews are replaced by made-up
ones from a fixed seed, with the word frequencies of a language (Zipf's law).

Left out of the study's input pipeline: reading records from files, and a
shuffle of finished batches (the pairs made here are in random order already).

Set SAMPLE_SIZE=full for the study's sizes; the default, small, keeps a step
short enough to try many on two CPU cores.

Source: Zheng, Noroozi, Yu: Joint Deep Modeling of Users and Items Using
Reviews for Recommendation, WSDM 2017, https://doi.org/10.1145/3018661.3018665.
"""

import os
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf


class Size(NamedTuple):
    """What differs between the small and the full model."""

    review_words: int
    vocabulary_words: int
    writers: int
    pairs: int


SIZES = {
    # For the demo: half the words of a review, so that a step takes tens of
    # milliseconds on one core, and a fifth of the vocabulary.
    "small": Size(review_words=400, vocabulary_words=10_000, writers=100, pairs=2_048),
    # The study gives the length of a review and the number of rated pairs. It
    # does not give its vocabulary or its number of users and items: 50,000
    # words and 1,000 of each are our assumption.
    "full": Size(review_words=800, vocabulary_words=50_000, writers=1_000, pairs=26_352),
}
SIZE_NAME = os.environ.get("SAMPLE_SIZE", "small")
if SIZE_NAME not in SIZES:
    raise ValueError(f"SAMPLE_SIZE is {SIZE_NAME!r}; choose one of {', '.join(SIZES)}")
SIZE = SIZES[SIZE_NAME]

BATCH_SIZE = 32
EMBEDDING_WIDTH = 50
FILTERS = 10
FILTER_WORDS = 3
DENSE_UNITS = 64
LEARNING_RATE = 1e-4
PADDING = "unk"  # not in the vocabulary, so it becomes the id of unknown words
SEED = 2018

# How often each rating is given, 1 to 5 stars. Our assumption: people mostly
# review what they like. Ratings do not depend on the words, for placement
# depends on the shapes and not on what is learnt.
RATING_SHARES = (0.06, 0.06, 0.12, 0.26, 0.50)

keras.utils.set_random_seed(SEED)
vocabulary = [f"word{rank}" for rank in range(1, SIZE.vocabulary_words + 1)]


def make_reviews(random: np.random.Generator) -> list[str]:
    """Return one text per writer; some need truncation and some need padding."""
    frequency = 1 / np.arange(1, SIZE.vocabulary_words + 1)
    frequency /= frequency.sum()
    words = np.array(vocabulary)
    lengths = random.integers(SIZE.review_words // 2, 2 * SIZE.review_words, SIZE.writers)
    return [" ".join(random.choice(words, length, p=frequency)) for length in lengths]


def make_dataset() -> tf.data.Dataset:
    """Return batches of ((user_reviews, item_reviews), ratings)."""
    random = np.random.default_rng(SEED)
    user_texts = tf.constant(make_reviews(random))
    item_texts = tf.constant(make_reviews(random))
    users = random.integers(SIZE.writers, size=SIZE.pairs)
    items = random.integers(SIZE.writers, size=SIZE.pairs)
    ratings = random.choice(np.arange(1, 6), (SIZE.pairs, 1), p=RATING_SHARES)

    def words_of(text: tf.Tensor) -> tf.Tensor:
        return tf.strings.split(text)[: SIZE.review_words]

    def parse(user: tf.Tensor, item: tf.Tensor, rating: tf.Tensor) -> tuple:
        return (words_of(user_texts[user]), words_of(item_texts[item])), rating

    pairs = tf.data.Dataset.from_tensor_slices((users, items, ratings.astype(np.float32)))
    return (
        pairs.map(parse, num_parallel_calls=tf.data.AUTOTUNE)
        .padded_batch(
            BATCH_SIZE,
            padded_shapes=(([SIZE.review_words], [SIZE.review_words]), [1]),
            padding_values=((PADDING, PADDING), 0.0),
            drop_remainder=True,
        )
        .prefetch(tf.data.AUTOTUNE)
    )


def tower(vectors: keras.KerasTensor, name: str) -> keras.KerasTensor:
    """Return a summary of one side's reviews from the vectors of their words."""
    features = keras.layers.Conv1D(FILTERS, FILTER_WORDS, activation="tanh", name=f"{name}_conv")
    pool = keras.layers.MaxPooling1D(pool_size=2, strides=1, name=f"{name}_pool")
    flatten = keras.layers.Flatten(name=f"{name}_flatten")
    dense = keras.layers.Dense(DENSE_UNITS, activation="relu", name=f"{name}_dense")
    return dense(flatten(pool(features(vectors))))


def make_model() -> keras.Model:
    """Return the compiled model: one lookup table and one embedding, two towers."""
    shape = (SIZE.review_words,)
    user_review = keras.Input(shape, BATCH_SIZE, dtype="string", name="user_review")
    item_review = keras.Input(shape, BATCH_SIZE, dtype="string", name="item_review")

    word_ids = keras.layers.StringLookup(vocabulary=vocabulary, name="word_ids")
    word_embedding = keras.layers.Embedding(
        word_ids.vocabulary_size(), EMBEDDING_WIDTH, name="word_embedding"
    )

    user = tower(word_embedding(word_ids(user_review)), "user")
    item = tower(word_embedding(word_ids(item_review)), "item")
    rating = keras.layers.Dot(axes=1, name="rating")([user, item])

    deepconn = keras.Model([user_review, item_review], rating, name="deepconn")
    deepconn.compile(
        optimizer=keras.optimizers.Adam(learning_rate=LEARNING_RATE),
        loss=keras.losses.MeanSquaredError(),
    )
    return deepconn


model = make_model()
dataset = make_dataset()
