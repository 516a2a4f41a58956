"""Made-up batches for a traced step: valid ids and classes, else numbers from a fixed seed.

And a second batch for a step that came with one: in equal steps a late update looks like the right
one.

What a step costs depends on the shapes of its inputs and hardly on their values, as long as they
are valid: an id outside its table is an error on a CPU and silently zero on a GPU.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from placement_advisor.errors import ModelError
from placement_advisor.tf.load.example_batches import EXAMPLE_BATCHES
from placement_advisor.tf.load.input_domains import Domain, input_domains

if TYPE_CHECKING:
    from collections.abc import Sequence

_SEED = 20_203
# 0 and 1 are valid as any id, class, segment or flag of which nothing is known.
_SMALL_INTEGERS = 2
# For scalars that steer a step: a rate, or a probability to keep. Zero could divide.
_SCALAR = 0.5
# Enough words for lookups of different buckets.
_WORDS = np.array([f"word{i}" for i in range(100)], dtype=object)


def make_batches(function: Any, specs: Any, names: Sequence[str]) -> tuple[Any, ...]:
    """Return different batches that a concrete function takes; ``names`` are those of its inputs.

    Raises:
        ModelError: an input is of a type that has no values.
    """
    random = np.random.default_rng(_SEED)
    domains = input_domains(function)
    flat = tf.nest.flatten(specs)
    for spec, name in zip(flat, names, strict=True):
        if spec.dtype in (tf.resource, tf.variant) or spec.dtype.is_quantized:
            raise ModelError(
                f"input {name!r} has type {spec.dtype.name}, for which no values can be made up",
                hint="give example `inputs` in a Python file",
            )
    return tuple(
        tf.nest.pack_sequence_as(
            specs,
            [
                tf.constant(_values(random, spec, domain), spec.dtype)
                for spec, domain in zip(flat, domains, strict=True)
            ],
        )
        for _ in range(EXAMPLE_BATCHES)
    )


def resampled(batch: Any, batch_size: int) -> Any | None:
    """Return a batch of samples of one, some of them twice, in order; None if there can be none.

    There can be none where samples have numbers that rise from each to the next, which may stand
    for their places: indices of a sparse tensor, ends of ragged rows.
    """

    def is_of_samples(tensor: Any) -> bool:
        return bool(tensor.shape.rank) and tensor.shape[0] == batch_size

    of_samples = [tensor for tensor in tf.nest.flatten(batch) if is_of_samples(tensor)]
    if not of_samples or any(map(_rises, of_samples)):
        return None
    rows = np.sort(np.random.default_rng(_SEED).integers(batch_size, size=batch_size))
    return tf.nest.map_structure(
        lambda tensor: tf.gather(tensor, rows) if is_of_samples(tensor) else tensor, batch
    )


def _rises(tensor: Any) -> bool:
    """Say whether integers rise from row to row, by the first number in which rows differ."""
    if not tensor.dtype.is_integer:
        return False
    rows = np.asarray(tensor).reshape(len(tensor), -1).tolist()
    return all(row < following for row, following in pairwise(rows))


def _values(random: np.random.Generator, spec: Any, domain: Domain) -> Any:
    shape = tuple(spec.shape)
    if domain.members is not None:
        return random.choice(domain.members, shape)
    if spec.dtype == tf.string:
        return random.choice(_WORDS, shape)
    if spec.dtype == tf.bool:  # A single one is a switch, such as `training`.
        return random.random(shape) < _SCALAR if shape else False
    dtype = spec.dtype.as_numpy_dtype
    if domain.below is not None or spec.dtype.is_integer:
        below = domain.below or _SMALL_INTEGERS
        if spec.dtype.is_integer:
            below = min(below, int(spec.dtype.max) + 1)
        return random.integers(below, size=shape).astype(dtype)
    if not shape:
        return np.asarray(_SCALAR, dtype)
    return random.standard_normal(shape).astype(dtype)
