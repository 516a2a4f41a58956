"""DeepCoNN trained as a study trained it: one tower on each of two GPUs.

This is a training script and no model file. It parses its arguments, builds the
model of `deepconn.py` with a tower under each `tf.device`, and calls `fit`:

    /GPU:0   user reviews ─ word_ids ─ word_embedding ─ user ─┐
                               │              │                ├ rating
    /GPU:1   item reviews ─────┴──────────────┴─────── item ──┘

The study of 2018 expected two GPUs to take about half the time of one, and found
them slower. Is that so here, and why? Ask about the script as it is:

    advisor analyze sample_models/train_deepconn.py -- --epochs 3

The layers, the loss and the batch are those of `deepconn.py`, which says where
they come from. Which ops the study placed with its towers we do not know: both
towers look their words up themselves, in tables that stand on the first GPU.
"""

import argparse

import keras
import tensorflow as tf
from deepconn import (
    DENSE_UNITS,
    EMBEDDING_WIDTH,
    FILTER_WORDS,
    FILTERS,
    LEARNING_RATE,
    make_dataset,
    vocabulary,
)


def tower(name: str) -> keras.Sequential:
    """Return the layers that make a summary of one side's reviews."""
    return keras.Sequential(
        [
            keras.layers.Conv1D(FILTERS, FILTER_WORDS, activation="tanh", name=f"{name}_conv"),
            keras.layers.MaxPooling1D(pool_size=2, strides=1, name=f"{name}_pool"),
            keras.layers.Flatten(name=f"{name}_flatten"),
            keras.layers.Dense(DENSE_UNITS, activation="relu", name=f"{name}_dense"),
        ],
        name=name,
    )


class SplitDeepConn(keras.Model):
    """Two towers on two GPUs that share one lookup table and one embedding."""

    def __init__(self) -> None:
        super().__init__(name="deepconn")
        with tf.device("/GPU:0"):
            self.word_ids = keras.layers.StringLookup(vocabulary=vocabulary, name="word_ids")
            self.word_embedding = keras.layers.Embedding(
                self.word_ids.vocabulary_size(), EMBEDDING_WIDTH, name="word_embedding"
            )
        self.user, self.item = tower("user"), tower("item")
        self.rating = keras.layers.Dot(axes=1, name="rating")

    def call(self, reviews: tuple) -> tf.Tensor:
        """Return the rating that each user would give."""
        user_review, item_review = reviews
        with tf.device("/GPU:0"):
            user = self.user(self.word_embedding(self.word_ids(user_review)))
        with tf.device("/GPU:1"):
            item = self.item(self.word_embedding(self.word_ids(item_review)))
        return self.rating([user, item])


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser(description="Train DeepCoNN, one tower on each of two GPUs.")
    parser.add_argument("--epochs", type=int, default=1)
    asked = parser.parse_args()

    model = SplitDeepConn()
    model.compile(
        optimizer=keras.optimizers.Adam(learning_rate=LEARNING_RATE),
        loss=keras.losses.MeanSquaredError(),
    )
    model.fit(make_dataset(), epochs=asked.epochs)


if __name__ == "__main__":
    main()
