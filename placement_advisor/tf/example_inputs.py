"""Made-up batches for a traced step: valid ids and classes, else numbers from a fixed seed.

What a step costs depends on the shapes of its inputs and hardly on their values, as long as they
are valid: an id outside its table is an error on a CPU and silently zero on a GPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from placement_advisor.errors import ModelError
from placement_advisor.tf.examples import EXAMPLE_BATCHES
from placement_advisor.tf.input_domains import Domain, input_domains

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
