"""ResNet-50: a chain with short cuts, as Keras ships it, trained from nothing.

Sixteen blocks follow one another. Each has a main path of three convolutions
and a short cut round it; in the first block of every stage the short cut holds
a convolution of its own:

    image ─ conv ─ pool ─┬─ conv ─ conv ─ conv ─┬─ add ─┬─ conv ─ conv ─ conv ─┬─ add ─ … ─ class
                         └───────── conv ───────┘       └──────────────────────┘
                              first of a stage               the other blocks

The question to an advisor: are these two-way branches worth two devices? They
are many, but each starts and ends in the whole block's tensor, and the short
cut has little to do. What the model suggests is not a split of the graph but a
pipeline, or copies of the model with a batch each.

The network, the 224² pixels, the 1,000 classes, SGD with momentum 0.9 and the
learning rate 0.1 are the paper's; its batch of 256 on several GPUs is 32 here,
a usual share of one GPU, and the learning rate shrinks with it. Images are
noise from a fixed seed. Left out: weight decay and the falling learning rate.

Set SAMPLE_SIZE=full for these sizes; the default, small, is the same network
on 2 images of 32² pixels in 10 classes.

Source: He, Zhang, Ren, Sun: Deep Residual Learning for Image Recognition, CVPR
2016, https://arxiv.org/abs/1512.03385; https://keras.io/api/applications/resnet.
"""

import os
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf


class Size(NamedTuple):
    """What differs between the small and the full model."""

    batch: int
    pixels: int
    classes: int


SIZES = {
    "small": Size(batch=2, pixels=32, classes=10),
    "full": Size(batch=32, pixels=224, classes=1_000),
}
SIZE_NAME = os.environ.get("SAMPLE_SIZE", "small")
if SIZE_NAME not in SIZES:
    raise ValueError(f"SAMPLE_SIZE is {SIZE_NAME!r}; choose one of {', '.join(SIZES)}")
SIZE = SIZES[SIZE_NAME]

BATCHES = 4
LEARNING_RATE = 0.1 / 256 * SIZE.batch
MOMENTUM = 0.9
SEED = 2016

keras.utils.set_random_seed(SEED)


def make_dataset() -> tf.data.Dataset:
    """Return batches of (images, classes); pixels are already centred round 0."""
    random = np.random.default_rng(SEED)
    shape = (BATCHES * SIZE.batch, SIZE.pixels, SIZE.pixels, 3)
    images = random.standard_normal(shape, dtype=np.float32)
    classes = random.integers(SIZE.classes, size=len(images))
    return tf.data.Dataset.from_tensor_slices((images, classes)).batch(
        SIZE.batch, drop_remainder=True
    )


def make_model() -> keras.Model:
    """Return the compiled model, with random weights."""
    image = keras.Input((SIZE.pixels, SIZE.pixels, 3), SIZE.batch, name="image")
    resnet = keras.applications.ResNet50(
        weights=None, input_tensor=image, classes=SIZE.classes, name="resnet50"
    )
    resnet.compile(
        optimizer=keras.optimizers.SGD(learning_rate=LEARNING_RATE, momentum=MOMENTUM),
        loss=keras.losses.SparseCategoricalCrossentropy(),
    )
    return resnet


model = make_model()
dataset = make_dataset()
