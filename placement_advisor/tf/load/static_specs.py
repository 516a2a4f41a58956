"""Specs with unknown sizes -> specs with known ones, and what was assumed for that.

A graph is placed, costed and run at one shape, so every size must be known. The leading size is
the batch, by convention.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from placement_advisor.errors import ModelError

# What Keras' fit() takes if nothing is said.
DEFAULT_BATCH_SIZE = 32
# An unknown size behind the batch is mostly the length of a sequence; also a workable image.
DEFAULT_LENGTH = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticSpecs:
    """Specs without unknown sizes; ``assumed`` says in words what was filled in."""

    specs: Any
    assumed: tuple[str, ...]


def static_specs(specs: Any, batch_size: int | None, *, given: int | None = None) -> StaticSpecs:
    """Fill unknown sizes in: ``batch_size`` if the user asked for one, else ``given``, else ours.

    Raises:
        ModelError: there is a tensor whose sizes cannot be assumed, or a fixed batch that is not
            the one asked for.
    """
    flat = tf.nest.flatten(specs)
    for spec in flat:
        _check(spec)
    leading = [spec.shape[0] for spec in flat if spec.shape.rank]
    if batch_size is not None and leading and None not in leading and batch_size not in leading:
        raise ModelError(
            f"the inputs have a fixed batch of {leading[0]}, not {batch_size}",
            hint="leave --batch-size out, or leave the batch open in the model",
        )
    batch = batch_size or given or DEFAULT_BATCH_SIZE
    assumed = []
    if None in leading and batch_size is None and given is None:
        assumed.append(f"batch {batch} assumed")
    if any(None in spec.shape[1:] for spec in flat if spec.shape.rank):
        assumed.append(f"unknown sizes taken as {DEFAULT_LENGTH}")

    def fill(spec: Any) -> Any:
        shape = [DEFAULT_LENGTH if size is None else size for size in spec.shape]
        if shape and spec.shape[0] is None:
            shape[0] = batch
        return tf.TensorSpec(shape, spec.dtype, spec.name)

    return StaticSpecs(specs=tf.nest.map_structure(fill, specs), assumed=tuple(assumed))


def spec_of(value: Any) -> Any:
    """Return the spec of a tensor; a spec is its own."""
    if isinstance(value, tf.TypeSpec):
        return value
    return tf.TensorSpec(value.shape, value.dtype)


def _check(spec: Any) -> None:
    name = getattr(spec, "name", None) or "an input"
    if not isinstance(spec, tf.TensorSpec):
        raise ModelError(
            f"{name} is declared as a {type(spec).__name__}",
            hint="declare dense tensors (tf.TensorSpec)",
        )
    if spec.shape.rank is None:
        raise ModelError(
            f"{name} has an unknown number of dimensions",
            hint="give example `inputs`, or workload() with inputs, in a Python file",
        )
