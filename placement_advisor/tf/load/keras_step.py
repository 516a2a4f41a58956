"""Keras model -> step: training through its own ``train_step``, or inference."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf

from placement_advisor.errors import ModelError
from placement_advisor.tf.load import example_batches
from placement_advisor.tf.load.loaded_step import LoadedStep, leading_size, numbered
from placement_advisor.tf.load.run_model_file import describe, hint_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from placement_advisor.tf.load.example_batches import Examples

_NO_INPUTS_HINT = (
    "give the file example batches in `dataset` (a tf.data.Dataset) or `inputs` (one batch), or "
    "describe the step in workload()"
)


def keras_step(
    path: Path,
    model: Any,
    label: str,
    found: Examples | None,
    *,
    mode: str | None,
    batch_size: int | None,
) -> LoadedStep:
    """Return the model's step on what was found, or on batches made up for its inputs.

    Raises:
        ModelError: it cannot be trained, or its inputs are unknown or do not fit.
    """
    compiled = getattr(model, "compiled", False)
    mode = mode or ("train" if compiled else "infer")
    if mode == "train" and not compiled:
        raise ModelError(
            f"{path}: {label} is not compiled", hint="call model.compile(...), or use --mode infer"
        )
    if found is None:
        specs, origin = _declared_inputs(path, model, label)
        found = example_batches.made_up(path, specs, origin, batch_size)
    alone = _is_x_alone(model, found.specs)
    features = found.specs if alone else found.specs[0]
    try:
        if mode == "train":
            found = _ready_to_train(model, found, features, alone=alone)
        else:
            found = found if alone else found.changed(lambda batch: batch[0])
            if not model.built:
                model(_symbolic(features))
    except Exception as error:
        batch = "its example batch" if found.batches else "a batch of the shapes of its inputs"
        raise ModelError(
            f"{path}: {label} does not take {batch}: {describe(error, path)}",
            hint=hint_for(error),
        ) from None

    def train(batch: Any) -> Any:
        return model.train_step(batch)

    def infer(batch: Any) -> Any:
        return model(batch, training=False)

    state = "compiled" if compiled else "not compiled"
    return LoadedStep(
        name=model.name,
        mode=mode,
        chosen=f"{label} ({state} {type(model).__name__}), {found.origin}",
        step=train if mode == "train" else infer,
        specs=found.specs,
        batches=found.batches,
        batch_size=leading_size(features),
        input_names=_input_names(model, features, found.specs),
        model=model,
        dataset=found.dataset,
        takes_batch_size=found.takes_batch_size,
    )


def _is_x_alone(model: Any, batch: Any) -> bool:
    """Say whether a batch is x, and not (x,), (x, y) or (x, y, weights)."""
    inputs = getattr(model, "inputs", None) or ()
    # As many tensors as the model takes: none is left to be a target. Of several in one, that is x.
    is_x = 1 < len(inputs) == len(tf.nest.flatten(batch))
    return not isinstance(batch, tuple) or (is_x and len(batch) > 1)


def _declared_inputs(path: Path, model: Any, label: str) -> tuple[Any, str]:
    """Return specs for the inputs of a model, and in words where they come from."""
    declared = getattr(model, "_inputs_struct", None)  # Functional: nested as the user made them.
    if declared is None:
        declared = getattr(model, "inputs", None)
        declared = declared[0] if isinstance(declared, list) and len(declared) == 1 else declared
    if declared is not None:
        return tf.nest.map_structure(_spec, declared), "its inputs"
    shapes = (model.get_build_config() or {}).get("input_shape") if model.built else None
    if shapes is None:
        raise ModelError(
            f"{path}: {label} ({type(model).__name__}) does not say what inputs it takes",
            hint=_NO_INPUTS_HINT,
        )
    return _specs_of_shapes(shapes), "the shapes it was built for"


def _spec(tensor: Any) -> Any:
    if getattr(tensor, "sparse", False) or getattr(tensor, "ragged", False):
        raise ModelError(f"input {tensor.name!r} is not dense", hint="only dense inputs are read")
    return tf.TensorSpec(tensor.shape, tensor.dtype, name=tensor.name)


def _specs_of_shapes(shapes: Any) -> Any:
    """Turn nested shapes into specs with an open batch; what was built does not know dtypes."""
    if isinstance(shapes, dict):
        return {name: _specs_of_shapes(shape) for name, shape in shapes.items()}
    if all(size is None or isinstance(size, int) for size in shapes):
        return tf.TensorSpec([None, *shapes[1:]], keras.config.floatx())
    return [_specs_of_shapes(shape) for shape in shapes]


def _ready_to_train(model: Any, found: Examples, features: Any, *, alone: bool) -> Examples:
    """Build what training needs; targets are made up where some are needed and none are there.

    Raises:
        Exception: whatever the model raises for these inputs.
    """
    own_step = type(model).train_step is not keras.Model.train_step
    has_targets = not alone and len(found.specs) > 1
    # A train_step of the user's own may well need no targets, as that of a GAN.
    if has_targets or (own_step and found.batches) or (model.loss is None and not own_step):
        if alone and isinstance(features, tuple):  # Keras would take it for (x, y).
            found = found.changed(lambda batch: (batch,))
        _build(model, found.specs, own_step=own_step)
        return found
    origin = found.origin
    if found.batches:
        origin = f"{origin}, which has no targets, so all values made up"
    errors = []
    for specs in _guesses(model, features):
        try:
            _build(model, specs, own_step=own_step)
            if model.loss is None:  # Only its train_step knows what it takes.
                tf.function(model.train_step).get_concrete_function(specs)
        except Exception as error:
            errors.append(error)
        else:
            return replace(found, specs=specs, batches=(), origin=origin)
    raise errors[0]


def _guesses(model: Any, features: Any) -> Iterator[Any]:
    """Yield what a batch may look like, the likeliest first."""
    if model.loss is None:
        yield features
        if type(model).call is keras.Model.call:  # Only its parts are called, as in a GAN.
            return
    outputs = model(_symbolic(features))
    # By its name a loss wants classes, or a tensor like the output; some losses hide it.
    yield features, _targets(model, outputs, _wants_classes)
    yield features, _targets(model, outputs, lambda loss: not _wants_classes(loss))


def _build(model: Any, specs: Any, *, own_step: bool) -> None:
    try:
        model._symbolic_build(data_batch=specs)
    except Exception:
        if not own_step:  # A train_step of the user's own may use neither call() nor the loss.
            raise


def _targets(model: Any, outputs: Any, wants_classes: Callable[[Any], bool]) -> Any:
    """Return specs of targets, nested as the outputs."""
    flat = tf.nest.flatten(outputs)
    loss = model.loss
    if isinstance(loss, dict):
        names = sorted(outputs) if isinstance(outputs, dict) else model.output_names
        losses = [loss.get(name) for name in names]
    elif isinstance(loss, list | tuple):
        losses = list(loss)
    else:
        losses = [loss] * len(flat)
    specs = [
        tf.TensorSpec(output.shape[:-1], tf.int32)
        if wants_classes(loss) and len(output.shape) > 1
        else tf.TensorSpec(output.shape, keras.config.floatx())
        for output, loss in zip(flat, losses, strict=True)
    ]
    return tf.nest.pack_sequence_as(outputs, specs)


def _wants_classes(loss: Any) -> bool:
    names = (loss, getattr(loss, "__name__", ""), getattr(loss, "name", ""), type(loss).__name__)
    return any("sparse" in name.lower() for name in names if isinstance(name, str))


def _symbolic(specs: Any) -> Any:
    return tf.nest.map_structure(
        lambda spec: keras.KerasTensor(tuple(spec.shape), spec.dtype.name), specs
    )


def _input_names(model: Any, features: Any, batch: Any) -> tuple[str, ...]:
    count = len(tf.nest.flatten(features))
    named = tuple(tensor.name for tensor in getattr(model, "inputs", None) or ())
    names = list(named if len(named) == count else (f"input_{i}" for i in range(count)))
    others = len(tf.nest.flatten(batch)) - count
    return tuple(names + (numbered("target", others) if others else []))
