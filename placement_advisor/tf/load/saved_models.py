"""SavedModel directories and Keras files -> step."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any
from zipfile import is_zipfile

import keras
import tensorflow as tf

from placement_advisor.errors import ModelError
from placement_advisor.tf.load import example_batches, v1_graphs
from placement_advisor.tf.load.keras_step import keras_step
from placement_advisor.tf.load.loaded_step import LoadedStep, leading_size, numbered

if TYPE_CHECKING:
    from pathlib import Path

_DEFAULT_SIGNATURE = "serving_default"


def load_saved_model(
    path: Path, *, name: str | None, mode: str | None, batch_size: int | None
) -> LoadedStep:
    """Return the step of a SavedModel's signature.

    Raises:
        ModelError: it cannot be read, or has no such signature.
    """
    try:
        loaded = tf.saved_model.load(str(path))
    except Exception as error:  # Damaged files show up as errors of every kind.
        raise ModelError(f"{path}: not a SavedModel that TensorFlow reads: {error}") from None
    signatures = dict(getattr(loaded, "signatures", {}))
    listed = ", ".join(signatures) or "none"
    if name is not None and name not in signatures:
        raise ModelError(f"{path}: no signature is called {name!r}; it has {listed}")
    if name is None and _DEFAULT_SIGNATURE in signatures:
        name = _DEFAULT_SIGNATURE
    elif name is None and len(signatures) == 1:
        name = next(iter(signatures))
    if name is None:
        raise ModelError(
            f"{path}: no signature {_DEFAULT_SIGNATURE!r}; it has {listed}",
            hint=f"name one: {path}:{next(iter(signatures))}"
            if signatures
            else "save it with signatures=..., or describe a step in a Python file",
        )
    step = signature_step(path, signatures[name], name, mode=mode, batch_size=batch_size)
    return replace(step, owner=loaded)


def is_signature(value: Any) -> bool:
    """Say whether it is a function with a graph of its own: a concrete function."""
    return hasattr(value, "structured_input_signature") and hasattr(value, "captured_inputs")


def signature_step(
    path: Path, signature: Any, label: str, *, mode: str | None, batch_size: int | None
) -> LoadedStep:
    """Return the step that calls a concrete function at a batch of known size.

    Raises:
        ModelError: it is asked to train.
    """
    if mode == "train":
        raise ModelError(
            f"{path}: {label} is a signature, which cannot be trained", hint="leave --mode out"
        )
    specs = signature.structured_input_signature
    found = example_batches.made_up(path, specs, "its signature", batch_size)

    def call(batch: Any) -> Any:
        arguments, named = batch
        return signature(*arguments, **named)

    flat = tf.nest.flatten(specs)
    bases = numbered("input", len(flat))
    old_loops = v1_graphs.has_v1_control_flow(signature.graph)
    return LoadedStep(
        name=label,
        mode="infer",
        chosen=f"{label} (signature), {found.origin}",
        step=call,
        specs=found.specs,
        batches=(),
        batch_size=leading_size(found.specs),
        takes_batch_size=found.takes_batch_size,
        input_names=tuple(spec.name or base for spec, base in zip(flat, bases, strict=True)),
        trace=v1_graphs.tracer_of(signature) if old_loops else None,
    )


def load_keras_file(
    path: Path, *, name: str | None, mode: str | None, batch_size: int | None
) -> LoadedStep:
    """Return the step of a model that Keras has saved.

    Raises:
        ModelError: it cannot be read.
    """
    if name is not None:
        raise ModelError(f"{path}: a Keras file holds one model, none called {name!r}")
    if not is_zipfile(path):
        raise ModelError(
            f"{path}: damaged, or no Keras file: it is no zip archive",
            hint="save it anew with model.save(...)",
        )
    try:
        model = keras.models.load_model(path)
    except Exception as error:
        # Keras puts whole configurations around the reason.
        reason = str(error).rpartition("Exception encountered: ")[2]
        reason = reason.partition(" Full object config")[0].strip() or type(error).__name__
        raise ModelError(
            f"{path}: Keras cannot load it: {reason}",
            hint="write a Python file with a function build_model() that returns "
            "keras.models.load_model(...), after it has imported classes of yours that the model "
            "needs, or with safe_mode=False if it needs a lambda and you trust it",
        ) from None
    return keras_step(path, model, "the saved model", None, mode=mode, batch_size=batch_size)
