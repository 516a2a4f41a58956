"""DLRM: a recommender that is mostly tables, with little to compute.

Will this user click on this advertisement? The 13 numbers of an impression go
through a network; its 26 categories (site, device, advertiser …) are looked up
in a table each. All 27 vectors meet in the dot products of every pair:

    numbers ──── bottom_mlp ──┬────────────────┐
    category 1 ─ table_1 ─────┤                │
    category 2 ─ table_2 ─────┼─ interaction ──┴─ top_mlp ─ click
        …                     │  (pairwise dots)
    category 26 ─ table_26 ───┘

The question to an advisor: the parameters are in the tables and the arithmetic
in the two networks. The 26 lookups are towers of next to no work, and all
meet in one layer. Is anything to be won by putting tables elsewhere, as one has
to when they no longer fit one device? A hint: how a table is updated matters
more than how it is read. Compare the bytes of a table with those of the rows
that a batch touches.

The model is written as a subclass with a train_step of its own, as in many code
bases. Everything else is the authors' setting for the Criteo Kaggle data: the
number of rows of each table, 16 numbers per row, networks of 512-256-64-16 and
512-256-1, batches of 128, SGD at 0.1. As their --max-ind-range does, large
tables are cut short: at 4,000,000 rows in SAMPLE_SIZE=full (1.2 GB), at 10,000
in the default, small. Impressions are made up from a fixed seed, categories by
Zipf's law.

Source: Naumov et al.: Deep Learning Recommendation Model for Personalization
and Recommendation Systems, https://arxiv.org/abs/1906.00091.
"""

import os

import keras
import numpy as np
import tensorflow as tf

MOST_ROWS_OF_SIZE = {"small": 10_000, "full": 4_000_000}
SIZE_NAME = os.environ.get("SAMPLE_SIZE", "small")
if SIZE_NAME not in MOST_ROWS_OF_SIZE:
    raise ValueError(f"SAMPLE_SIZE is {SIZE_NAME!r}; choose one of {', '.join(MOST_ROWS_OF_SIZE)}")
MOST_ROWS = MOST_ROWS_OF_SIZE[SIZE_NAME]

CRITEO_ROWS = (
    1_460, 583, 10_131_227, 2_202_608, 305, 24, 12_517, 633, 3, 93_145, 5_683, 8_351_593, 3_194,
    27, 14_992, 5_461_306, 10, 5_652, 2_173, 4, 7_046_547, 18, 15, 286_181, 105, 142_572,
)  # fmt: skip
ROWS = [min(rows, MOST_ROWS) for rows in CRITEO_ROWS]
ROW_WIDTH = 16
NUMBERS = 13
BOTTOM_UNITS = (512, 256, 64, ROW_WIDTH)
TOP_UNITS = (512, 256)
BATCH_SIZE = 128
BATCHES = 8
LEARNING_RATE = 0.1
SEED = 2019

keras.utils.set_random_seed(SEED)


class Interaction(keras.layers.Layer):
    """The dot product of every pair of vectors, behind the first of them."""

    def call(self, vectors: list[tf.Tensor]) -> tf.Tensor:
        """Return [batch, width + pairs] from vectors of [batch, width]."""
        stacked = tf.stack(vectors, axis=1)
        dots = tf.matmul(stacked, stacked, transpose_b=True)
        count = len(vectors)
        rows, columns = np.tril_indices(count, k=-1)
        pairs = tf.gather(tf.reshape(dots, (-1, count * count)), rows * count + columns, axis=1)
        return tf.concat([vectors[0], pairs], axis=1)


class DLRM(keras.Model):
    """The model, with a training step of its own."""

    def __init__(self) -> None:
        super().__init__(name="dlrm")
        self.bottom_mlp = keras.Sequential(
            [keras.layers.Dense(units, activation="relu") for units in BOTTOM_UNITS],
            name="bottom_mlp",
        )
        self.tables = [
            keras.layers.Embedding(rows, ROW_WIDTH, name=f"table_{number}")
            for number, rows in enumerate(ROWS, start=1)
        ]
        self.interaction = Interaction(name="interaction")
        self.top_mlp = keras.Sequential(
            [keras.layers.Dense(units, activation="relu") for units in TOP_UNITS]
            + [keras.layers.Dense(1, activation="sigmoid")],
            name="top_mlp",
        )

    def call(self, impressions: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        """Return the chance of a click for (numbers, categories)."""
        numbers, categories = impressions
        vectors = [self.bottom_mlp(numbers)]
        vectors += [table(categories[:, place]) for place, table in enumerate(self.tables)]
        return self.top_mlp(self.interaction(vectors))

    def train_step(self, batch: tuple) -> dict[str, tf.Tensor]:
        """Update all weights once; return the loss before."""
        impressions, clicks = batch
        with tf.GradientTape() as tape:
            loss = self.compute_loss(y=clicks, y_pred=self(impressions, training=True))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        return {"loss": loss}


def make_dataset() -> tf.data.Dataset:
    """Return batches of ((numbers, categories), clicks)."""
    random = np.random.default_rng(SEED)
    impressions = BATCHES * BATCH_SIZE
    numbers = np.log1p(random.exponential(size=(impressions, NUMBERS))).astype(np.float32)
    # Popular categories have low numbers; a number beyond the last row starts again at the first.
    ranks = random.zipf(1.2, size=(impressions, len(ROWS)))
    categories = (ranks % np.array(ROWS)).astype(np.int32)
    clicks = random.integers(2, size=(impressions, 1)).astype(np.float32)
    return tf.data.Dataset.from_tensor_slices(((numbers, categories), clicks)).batch(
        BATCH_SIZE, drop_remainder=True
    )


def make_model() -> keras.Model:
    """Return the compiled model."""
    dlrm = DLRM()
    dlrm.compile(
        optimizer=keras.optimizers.SGD(learning_rate=LEARNING_RATE),
        loss=keras.losses.BinaryCrossentropy(),
    )
    return dlrm


model = make_model()
dataset = make_dataset()
