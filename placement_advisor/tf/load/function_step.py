"""A function of the user's own -> step: tf.functions, callables, and explicit workloads."""

from __future__ import annotations

import contextlib
import inspect
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from placement_advisor.errors import ModelError
from placement_advisor.tf.load import example_batches
from placement_advisor.tf.load.loaded_step import LoadedStep, leading_size, numbered

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from placement_advisor.tf.load.example_batches import Examples
    from placement_advisor.workload import Workload

_NO_EXAMPLES_HINT = (
    "give the file example batches in `dataset` (a tf.data.Dataset) or `inputs` (one batch, a "
    "tuple with one entry for each argument), or the step an input_signature"
)


def is_function(value: Any) -> bool:
    """Say whether it is a `tf.function`."""
    return hasattr(value, "get_concrete_function") and hasattr(value, "python_function")


def signature_of(function: Any) -> tuple[Any, ...] | None:
    """Return the specs that a function declares for its arguments, None if it declares none."""
    signature = getattr(function, "input_signature", None)
    return tuple(signature) if signature is not None else None


def _takes_nothing(function: Any) -> bool:
    try:
        return not inspect.signature(getattr(function, "python_function", function)).parameters
    except (TypeError, ValueError):  # Written in C.
        return False


def function_step(
    path: Path,
    function: Any,
    label: str,
    found: Examples | None,
    *,
    mode: str,
    batch_size: int | None,
) -> LoadedStep:
    """Return a step that calls the function with what was found, or what its signature says.

    Raises:
        ModelError: there is neither.
    """
    signature = signature_of(function)
    if _takes_nothing(function):
        found = example_batches.Examples(specs=(), batches=((),), origin="which takes no inputs")
    elif found is None and signature is not None:
        found = example_batches.made_up(path, signature, "its input_signature", batch_size)
    if found is None:
        raise ModelError(f"{path}: {label}: no example batches", hint=_NO_EXAMPLES_HINT)
    kind = "tf.function" if is_function(function) else type(function).__name__
    return _step(path, function, label, f"{label} ({kind})", found, mode=mode)


def workload_step(
    path: Path, workload: Workload, label: str, *, mode: str | None, batch_size: int | None
) -> LoadedStep:
    """Return the step that an explicit workload describes.

    Raises:
        ModelError: its inputs cannot be used, or another mode is asked for.
    """
    if mode not in (None, workload.mode):
        raise ModelError(
            f"{path}: {label} has mode {workload.mode!r}, not {mode!r}", hint="leave --mode out"
        )
    where = f"the inputs of {label}"
    if isinstance(workload.inputs, example_batches.DATASETS):
        found = example_batches.from_dataset(path, workload.inputs, where, batch_size)
    else:
        found = example_batches.from_values(
            path, workload.inputs, where, batch_size, given=workload.batch_size
        )
    size = None if batch_size else workload.batch_size
    what = f"{label} (Workload)"
    return _step(path, workload.step, label, what, found, mode=workload.mode, batch_size=size)


def _step(
    path: Path,
    function: Any,
    label: str,
    what: str,
    found: Examples,
    *,
    mode: str,
    batch_size: int | None = None,
) -> LoadedStep:
    # A tf.function would be traced at its own signature, which leaves sizes open.
    own = getattr(function, "python_function", function)
    found = found.changed(_as_arguments(own))
    try:
        names = _argument_names(own, found.specs)
    except TypeError as error:
        raise ModelError(
            f"{path}: {label} does not take its example batch: {error}",
            hint="a batch is a tuple with one entry for each argument, or a dict by their names",
        ) from None
    return LoadedStep(
        name=label,
        mode=mode,
        chosen=f"{what}, {found.origin}",
        step=_of_one_argument(own),
        specs=found.specs,
        batches=found.batches,
        batch_size=batch_size or leading_size(found.specs),
        input_names=names,
        dataset=found.dataset,
        takes_batch_size=found.takes_batch_size,
    )


def _of_one_argument(function: Callable[..., Any]) -> Callable[..., Any]:
    def step(arguments: tuple[Any, ...]) -> Any:
        return function(*arguments)

    return step


def _as_arguments(function: Callable[..., Any]) -> Callable[[Any], tuple[Any, ...]]:
    """Return what makes a tuple of arguments of a batch."""
    names: tuple[str, ...] = ()
    with contextlib.suppress(ValueError):  # Written in C: its arguments have no names.
        names = tuple(inspect.signature(function).parameters)

    def arguments(batch: Any) -> tuple[Any, ...]:
        if isinstance(batch, dict) and set(batch) == set(names):
            return tuple(batch[name] for name in names)
        is_one = not isinstance(batch, tuple) or (hasattr(batch, "_fields") and len(names) == 1)
        return (batch,) if is_one else tuple(batch)

    return arguments


def _argument_names(function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[str, ...]:
    """Return names for all tensors of the arguments.

    Raises:
        TypeError: the function does not take that many.
    """
    single = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    given: list[str] = []
    with contextlib.suppress(ValueError):  # Written in C: its arguments have no names.
        signature = inspect.signature(function)
        signature.bind(*arguments)
        given = [p.name for p in signature.parameters.values() if p.kind in single]
    names: list[str] = []
    for i, argument in enumerate(arguments):
        base = given[i] if i < len(given) else f"input_{i}"
        names += numbered(base, len(tf.nest.flatten(argument)))
    return tuple(names)
