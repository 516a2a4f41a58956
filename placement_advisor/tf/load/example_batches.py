"""The example batches of a model file, or the specs that stand for them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf
from keras import KerasTensor

from placement_advisor.errors import ModelError
from placement_advisor.tf.load.run_model_file import describe
from placement_advisor.tf.load.static_specs import spec_of, static_specs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

# Enough different batches to see state change from step to step, few enough to keep in memory.
EXAMPLE_BATCHES = 4
DATASETS = (tf.data.Dataset, keras.utils.PyDataset)


@dataclass(frozen=True, slots=True, kw_only=True)
class Examples:
    """Batches of equal shapes, and their specs. Without batches, some are made up from the specs.

    ``origin`` says in words where the batches come from, ``dataset`` is the `tf.data.Dataset` that
    they come from, as the user wrote it, if it is one. ``takes_batch_size``: batches of another
    size than they have can be asked for.
    """

    specs: Any
    batches: tuple[Any, ...]
    origin: str
    dataset: Any | None = None
    takes_batch_size: bool = True

    def changed(self, change: Callable[[Any], Any]) -> Examples:
        """Return the same examples with the structure of each batch changed."""
        return replace(
            self,
            specs=change(self.specs),
            batches=tuple(change(batch) for batch in self.batches),
        )


def are_in(namespace: dict[str, Any]) -> bool:
    """Say whether a file has examples under the names that are looked for."""
    inputs = namespace.get("inputs")
    # `inputs = keras.Input(...)` is part of a model.
    symbolic = any(isinstance(value, KerasTensor) for value in tf.nest.flatten(inputs))
    given = inputs is not None and not symbolic
    return given or isinstance(namespace.get("dataset"), DATASETS)


def found_in(path: Path, namespace: dict[str, Any], batch_size: int | None) -> Examples | None:
    """Return the examples in a file's ``dataset`` or ``inputs``, None if it has neither.

    Raises:
        ModelError: they cannot be used.
    """
    if not are_in(namespace):
        return None
    if isinstance(namespace.get("dataset"), DATASETS):
        return from_dataset(path, namespace["dataset"], "`dataset`", batch_size)
    return from_values(path, namespace["inputs"], "`inputs`", batch_size)


def from_dataset(path: Path, dataset: Any, label: str, batch_size: int | None) -> Examples:
    """Take the first batches of a dataset, batched anew if a size is asked for.

    Raises:
        ModelError: it fails, or holds no batch.
    """
    is_python = not isinstance(dataset, tf.data.Dataset)
    if batch_size is not None and is_python:
        raise ModelError(
            f"{path}: --batch-size needs a tf.data.Dataset; the batches of {label} have the size "
            "that they have"
        )
    own, origin = None if is_python else dataset, f"batches from {label}"
    samples = None if batch_size is None else dataset.unbatch()
    if samples is not None:
        dataset = samples.batch(batch_size, drop_remainder=True)
    try:
        batches = tuple(_take(path, dataset, label))
        if samples is not None and not batches:
            # Fewer than a batch has. What a step takes hardly depends on their values.
            repeated = samples.repeat().batch(batch_size, drop_remainder=True)
            batches = tuple(_take(path, repeated, label))
            origin += ", its samples several times"
    except ModelError:
        raise
    except Exception as error:
        raise ModelError(f"{path}: {label} fails: {describe(error, path)}") from None
    if not batches:
        raise ModelError(f"{path}: {label} is empty")
    return Examples(
        specs=tf.nest.map_structure(spec_of, batches[0]),
        batches=batches,
        origin=origin,
        dataset=own,
        takes_batch_size=not is_python,
    )


def from_values(
    path: Path, values: Any, label: str, batch_size: int | None, *, given: int | None = None
) -> Examples:
    """Take one batch of tensors, or of specs whose unknown sizes are filled in.

    Raises:
        ModelError: it is neither, or has a size of its own other than the one asked for.
    """
    flat = tf.nest.flatten(values)
    if any(isinstance(value, tf.TypeSpec) for value in flat):
        if not all(isinstance(value, tf.TypeSpec) for value in flat):
            raise ModelError(
                f"{path}: {label} mixes specs with values", hint="give all as specs, or none"
            )
        return made_up(path, values, f"the specs in {label}", batch_size, given=given)
    _check_dense(path, values)
    try:
        batch = tf.nest.map_structure(tf.convert_to_tensor, values)
    except (TypeError, ValueError) as error:
        raise ModelError(f"{path}: {label} is not made of tensors: {error}") from None
    specs = tf.nest.map_structure(spec_of, batch)
    if batch_size is not None:
        raise ModelError(
            f"{path}: --batch-size needs a `dataset`; {label} has the size that it has"
        )
    return Examples(
        specs=specs, batches=(batch,), origin=f"one batch from {label}", takes_batch_size=False
    )


def made_up(
    path: Path, specs: Any, label: str, batch_size: int | None, *, given: int | None = None
) -> Examples:
    """Return examples whose batches are yet to be made up from specs.

    Raises:
        ModelError: the specs leave more open than can be assumed.
    """
    try:
        static = static_specs(specs, batch_size, given=given)
    except ModelError as error:
        raise ModelError(f"{path}: {error.message}", hint=error.hint) from None
    origin = ", ".join((f"batches made up for {label}", *static.assumed))
    flat = tf.nest.flatten(specs)
    is_open = any(spec.shape.rank and spec.shape[0] is None for spec in flat)
    return Examples(specs=static.specs, batches=(), origin=origin, takes_batch_size=is_open)


def _check_dense(path: Path, batch: Any) -> None:
    for tensor in tf.nest.flatten(batch):
        if isinstance(tensor, tf.RaggedTensor | tf.SparseTensor):
            raise ModelError(
                f"{path}: the example batches hold a {type(tensor).__name__}",
                hint="hand it over as dense tensors (to_tensor, tf.sparse.to_dense)",
            )


def _take(path: Path, dataset: Any, label: str) -> Iterator[Any]:
    shapes = None
    for batch in _first(dataset):
        _check_dense(path, batch)
        found = [tensor.shape.as_list() for tensor in tf.nest.flatten(batch)]
        shapes = shapes or found
        if found == shapes:  # One graph is traced; batches of another shape would need another.
            yield batch


def _first(dataset: Any) -> Iterator[Any]:
    if isinstance(dataset, tf.data.Dataset):
        yield from dataset.take(EXAMPLE_BATCHES)
    else:
        for i in range(min(EXAMPLE_BATCHES, dataset.num_batches or EXAMPLE_BATCHES)):
            yield tf.nest.map_structure(tf.convert_to_tensor, dataset[i])
