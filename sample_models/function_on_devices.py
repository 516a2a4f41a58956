"""An expensive function of each sample, called once for each quarter of the batch.

Every sample asks for the fixed point of one layer: its answer z solves
z = tanh(z·W + x), found by putting z in again and again (a loop in the graph).

              ┌ x[0:n]   ─ fixed_point ─┐
    samples ──┤ x[n:2n]  ─ fixed_point ─├ TensorArray ─ answers
              │ x[2n:3n] ─ fixed_point ─│
              └ x[3n:4n] ─ fixed_point ─┘
                              │
                              W   one weight, read by all four

No call needs another one. The step is written as one writes it before thinking
of devices: a tf.function, which runs independent calls at once, and a
TensorArray for the answers, because Python code inside runs only once, when the
function is traced.

The question to an advisor: does it see that four loops can run side by side,
two to a device? What does it cost that W lives on one of the devices and that
the others read it from there?

The file says what to analyse by the explicit contract: `workload`.

The loop is that of a deep equilibrium model. The sizes are our assumptions:
small takes 64 samples of width 256; SAMPLE_SIZE=full takes 512 of width 1,024.

Sources: Bai, Kolter, Koltun: Deep Equilibrium Models, NeurIPS 2019,
https://arxiv.org/abs/1909.01377; on calls, loops and TensorArray:
https://www.tensorflow.org/guide/function.
"""

import os
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from placement_advisor import Workload


class Size(NamedTuple):
    """What differs between the small and the full step."""

    samples: int
    width: int
    rounds: int


SIZES = {
    "small": Size(samples=64, width=256, rounds=50),
    "full": Size(samples=512, width=1_024, rounds=100),
}
SIZE_NAME = os.environ.get("SAMPLE_SIZE", "small")
if SIZE_NAME not in SIZES:
    raise ValueError(f"SAMPLE_SIZE is {SIZE_NAME!r}; choose one of {', '.join(SIZES)}")
SIZE = SIZES[SIZE_NAME]

CALLS = 4
SEED = 2019

random = np.random.default_rng(SEED)
# W stretches no vector to more than about half its length (twice the spread, times the root of
# the width), so that each round at least halves the distance to the fixed point.
spread = 0.25 / np.sqrt(SIZE.width)
weight = tf.Variable(
    random.normal(scale=spread, size=(SIZE.width, SIZE.width)), dtype=tf.float32, name="weight"
)


def fixed_point(x: tf.Tensor) -> tf.Tensor:
    """Return z with z = tanh(z·W + x), one row per sample."""
    z = tf.zeros_like(x)
    for _ in tf.range(SIZE.rounds):
        z = tf.tanh(tf.matmul(z, weight) + x)
    return z


@tf.function
def step(samples: tf.Tensor) -> tf.Tensor:
    """Return the fixed points of all samples."""
    share = SIZE.samples // CALLS
    answers = tf.TensorArray(tf.float32, size=CALLS)
    for call in range(CALLS):
        answers = answers.write(call, fixed_point(samples[call * share : (call + 1) * share]))
    return answers.concat()


def workload() -> Workload:
    """Return what to analyse: the step, example inputs, and that nothing is trained."""
    samples = random.normal(size=(SIZE.samples, SIZE.width)).astype(np.float32)
    return Workload(step=step, inputs=(samples,), mode="infer", batch_size=SIZE.samples)
