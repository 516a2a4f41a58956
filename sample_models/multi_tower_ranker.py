"""A ranker with three towers, one of them as heavy as five of the next.

How likely is it that this user, here and now, watches this video?

    watched videos ─ watched_embedding ─ average ─┐
    profile ──────────────────────────────────────┴ user_1 ─ user_2 ─ user_3 ─┐
    video ────────── video_embedding ─┐                                       │
    description ──────────────────────┴ item_1 ─ item_2 ──────────────────────┼─ rank ─ watched
    time, device … ──────────────────── context_1 ─ context_2 ────────────────┘

The question to an advisor: there are three independent towers, but one is most
of the work. Two devices cannot be more than slightly faster than that tower
alone. Does the advisor find all three, put the two light ones together, and
know the limit before anything runs?

The user tower, with the average over 50 watched videos and layers of 1,024, 512
and 256 units, is that of YouTube's recommender. The other two, Adagrad, and all
sizes below are our assumptions. Multiplications per sample in the dense layers:
user 851,968, item 180,224, context 3,072. Interactions are made up from a fixed
seed.

Set SAMPLE_SIZE=full for 500,000 videos and batches of 1,024; the default, small,
has 5,000 and 64, with the same layers.

Source: Covington, Adams, Sargin: Deep Neural Networks for YouTube
Recommendations, RecSys 2016, https://doi.org/10.1145/2959100.2959190.
"""

import os
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf


class Size(NamedTuple):
    """What differs between the small and the full model."""

    batch: int
    videos: int


SIZES = {
    "small": Size(batch=64, videos=5_000),
    "full": Size(batch=1_024, videos=500_000),
}
SIZE_NAME = os.environ.get("SAMPLE_SIZE", "small")
if SIZE_NAME not in SIZES:
    raise ValueError(f"SAMPLE_SIZE is {SIZE_NAME!r}; choose one of {', '.join(SIZES)}")
SIZE = SIZES[SIZE_NAME]

BATCHES = 8
WATCHED_VIDEOS = 50
EMBEDDING_WIDTH = 64
PROFILE_NUMBERS = 128
DESCRIPTION_NUMBERS = 32
CONTEXT_NUMBERS = 16
USER_UNITS = (1_024, 512, 256)
ITEM_UNITS = (512, 256)
CONTEXT_UNITS = (64, 32)
RANK_UNITS = 256
LEARNING_RATE = 0.01
SEED = 2016

keras.utils.set_random_seed(SEED)


def make_dataset() -> tf.data.Dataset:
    """Return batches of ((watched, profile, video, description, context), watched or not)."""
    random = np.random.default_rng(SEED)
    samples = BATCHES * SIZE.batch

    def numbers(width: int) -> np.ndarray:
        return random.normal(size=(samples, width)).astype(np.float32)

    features = (
        random.integers(SIZE.videos, size=(samples, WATCHED_VIDEOS), dtype=np.int32),
        numbers(PROFILE_NUMBERS),
        random.integers(SIZE.videos, size=samples, dtype=np.int32),
        numbers(DESCRIPTION_NUMBERS),
        numbers(CONTEXT_NUMBERS),
    )
    watched = random.integers(2, size=(samples, 1)).astype(np.float32)
    return tf.data.Dataset.from_tensor_slices((features, watched)).batch(
        SIZE.batch, drop_remainder=True
    )


def tower(vectors: keras.KerasTensor, units: tuple[int, ...], name: str) -> keras.KerasTensor:
    """Return the vectors after one dense layer for each number of units."""
    for number, width in enumerate(units, start=1):
        vectors = keras.layers.Dense(width, activation="relu", name=f"{name}_{number}")(vectors)
    return vectors


def make_model() -> keras.Model:
    """Return the compiled model: three towers and the layers that join them."""
    watched = keras.Input((WATCHED_VIDEOS,), SIZE.batch, dtype="int32", name="watched_videos")
    profile = keras.Input((PROFILE_NUMBERS,), SIZE.batch, name="profile")
    video = keras.Input((), SIZE.batch, dtype="int32", name="video")
    description = keras.Input((DESCRIPTION_NUMBERS,), SIZE.batch, name="description")
    context = keras.Input((CONTEXT_NUMBERS,), SIZE.batch, name="context")

    watched_embedding = keras.layers.Embedding(
        SIZE.videos, EMBEDDING_WIDTH, name="watched_embedding"
    )
    video_embedding = keras.layers.Embedding(SIZE.videos, EMBEDDING_WIDTH, name="video_embedding")
    average = keras.layers.GlobalAveragePooling1D(name="average")
    user = keras.layers.Concatenate(name="user")([average(watched_embedding(watched)), profile])
    item = keras.layers.Concatenate(name="item")([video_embedding(video), description])

    towers = keras.layers.Concatenate(name="towers")(
        [
            tower(user, USER_UNITS, "user"),
            tower(item, ITEM_UNITS, "item"),
            tower(context, CONTEXT_UNITS, "context"),
        ]
    )
    rank = keras.layers.Dense(RANK_UNITS, activation="relu", name="rank")(towers)
    chance = keras.layers.Dense(1, activation="sigmoid", name="chance")(rank)

    ranker = keras.Model(
        [watched, profile, video, description, context], chance, name="multi_tower_ranker"
    )
    ranker.compile(
        optimizer=keras.optimizers.Adagrad(learning_rate=LEARNING_RATE),
        loss=keras.losses.BinaryCrossentropy(),
    )
    return ranker


model = make_model()
dataset = make_dataset()
