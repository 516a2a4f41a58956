"""What in a model file is analysed, and in which order that is looked for."""

from __future__ import annotations

import inspect
from functools import reduce
from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf

from placement_advisor.errors import ModelError
from placement_advisor.tf.load import example_batches
from placement_advisor.tf.load.function_step import (
    function_step,
    is_function,
    signature_of,
    workload_step,
)
from placement_advisor.tf.load.keras_step import keras_step
from placement_advisor.tf.load.run_model_file import describe, hint_for, hint_for_none
from placement_advisor.tf.load.saved_models import is_signature, signature_step
from placement_advisor.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from placement_advisor.tf.load.example_batches import Examples
    from placement_advisor.tf.load.loaded_step import LoadedStep

_STEP_NAMES = ("train_step", "training_step", "step")
_BUILDER_NAMES = ("build_model", "make_model", "create_model", "get_model")
# How people call functions that train, where nothing else says so.
_TRAINING_WORDS = ("train", "step", "update", "fit")
WANTED = (
    "looked for a call of fit, a tf.function or Session.run while it ran, then for workload(), a "
    "tf.function named train_step, training_step or step, a keras.Model, a function build_model(), "
    "make_model(), create_model() or get_model(), and a tf.Module or a tf.function with an "
    "input_signature, with example batches in `dataset` (a tf.data.Dataset) or `inputs` (one batch)"
)


def find_step(
    path: Path,
    namespace: dict[str, Any],
    *,
    name: str | None,
    mode: str | None,
    batch_size: int | None,
) -> LoadedStep:
    """Return the step that a file's names hold: the one called ``name``, or the first found.

    Raises:
        ModelError: there is none, or several that are equally good.
    """
    value, label = _named(path, namespace, name) if name else _first(path, namespace)
    if _is_builder(value):
        value, label = _call(path, value, label), f"{label}()"
    if isinstance(value, Workload):
        return workload_step(path, value, label, mode=mode, batch_size=batch_size)
    if is_signature(value):
        return signature_step(path, value, label, mode=mode, batch_size=batch_size)
    found = example_batches.found_in(path, namespace, batch_size)
    if isinstance(value, keras.Model):
        return keras_step(path, value, label, found, mode=mode, batch_size=batch_size)
    if isinstance(value, tf.Module):
        value, label = _function_of(path, value, label, found)
    if not callable(value):
        raise ModelError(f"{path}: {label!r} is a {type(value).__name__}", hint=WANTED)
    mode = _mode_of(path, label, mode)
    return function_step(path, value, label, found, mode=mode, batch_size=batch_size)


def _named(path: Path, namespace: dict[str, Any], name: str) -> tuple[Any, str]:
    first, *rest = name.split(".")
    try:
        return reduce(getattr, rest, namespace[first]), name
    except (KeyError, AttributeError):
        public = ", ".join(sorted(n for n in namespace if not n.startswith("_")))
        message = f"{path}: nothing is called {name!r}; the file has {public}"
        raise ModelError(message) from None


def _first(path: Path, namespace: dict[str, Any]) -> tuple[Any, str]:
    if "workload" in namespace:
        return namespace["workload"], "workload"
    for name in _STEP_NAMES:
        if is_function(namespace.get(name)):
            return namespace[name], name
    models = _distinct(namespace, lambda value: isinstance(value, keras.Model))
    functions = _distinct(namespace, is_function)
    if not any(getattr(model, "compiled", False) for model in models.values()):
        found = _only_function(namespace, functions)
        if found is not None:
            return found
    if models:
        return _one_of(path, models, "model", lambda value: getattr(value, "compiled", False))
    for name in _BUILDER_NAMES:
        if _is_builder(namespace.get(name)):
            return namespace[name], name
    others = _distinct(
        namespace,
        lambda value: (
            isinstance(value, tf.Module) or (callable(value) and signature_of(value) is not None)
        ),
    )
    if others:
        return _one_of(path, others, "candidate", lambda value: signature_of(value) is not None)
    if functions:
        return _one_of(path, functions, "tf.function", lambda _: False)
    raise ModelError(
        f"{path}: the script ran to its end without a step, and no model found in it",
        hint=hint_for_none(namespace) or WANTED,
    )


def _only_function(namespace: dict[str, Any], functions: dict[str, Any]) -> tuple[Any, str] | None:
    """Return the only function that can be traced, or the only one that trains by its name."""
    has_examples = example_batches.are_in(namespace)
    trains = {name: f for name, f in functions.items() if _trains(name)}
    for choice in (functions, trains):
        if len(choice) == 1:
            (name, function), *_ = choice.items()
            if has_examples or signature_of(function) is not None:
                return function, name
    return _only_step(namespace) if has_examples else None


def _only_step(namespace: dict[str, Any]) -> tuple[Any, str] | None:
    """Return the only step that is a plain function, or a method of an object of the file's own."""
    steps: dict[str, Any] = {}
    for name, value in namespace.items():
        if name in _STEP_NAMES and inspect.isfunction(value):
            steps[name] = value
        elif type(value).__module__ == namespace["__name__"] and not isinstance(value, keras.Model):
            methods = {f"{name}.{step}": getattr(value, step, None) for step in _STEP_NAMES}
            steps.update(
                {label: method for label, method in methods.items() if is_function(method)}
            )
    if len(steps) != 1:
        return None
    ((label, step),) = steps.items()
    return step, label


def _distinct(namespace: dict[str, Any], wanted: Callable[[Any], bool]) -> dict[str, Any]:
    """Return the file's objects of a kind, each under the first of its names; no classes."""
    found: dict[int, tuple[str, Any]] = {}
    for name, value in namespace.items():
        if not isinstance(value, type) and not inspect.ismodule(value) and wanted(value):
            label, _ = found.get(id(value), (name, value))
            found[id(value)] = ("model" if name == "model" else label, value)
    return dict(found.values())


def _one_of(
    path: Path, found: dict[str, Any], kind: str, better: Callable[[Any], bool]
) -> tuple[Any, str]:
    """Return the only one, or the one called ``model``, or the only better one."""
    best = {name: value for name, value in found.items() if better(value)}
    for choice in (found, {n: v for n, v in found.items() if n == "model"}, best):
        if len(choice) == 1:
            (name, value), *_ = choice.items()
            return value, name
    raise ModelError(
        f"{path}: several {kind}s: {', '.join(found)}", hint=f"name one: {path}:{next(iter(found))}"
    )


def _is_builder(value: Any) -> bool:
    """Say whether it is a plain function, or a class, that can be called with nothing."""
    if is_function(value) or not (inspect.isroutine(value) or isinstance(value, type)):
        return False
    try:
        parameters = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):  # Written in C.
        return False
    free = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return all(p.default is not inspect.Parameter.empty or p.kind in free for p in parameters)


def _call(path: Path, builder: Callable[[], Any], label: str) -> Any:
    try:
        value = builder()
    except Exception as error:
        raise ModelError(
            f"{path}: {label}() fails: {describe(error, path)}", hint=hint_for(error)
        ) from None
    if label == "workload" and not isinstance(value, Workload):
        raise ModelError(
            f"{path}: workload() returned a {type(value).__name__}",
            hint="return a placement_advisor.Workload(step=..., inputs=...)",
        )
    if not (callable(value) or isinstance(value, Workload | tf.Module)):
        raise ModelError(f"{path}: {label}() returned a {type(value).__name__}", hint=WANTED)
    return value


def _function_of(path: Path, module: Any, label: str, found: Examples | None) -> tuple[Any, str]:
    """Return the function of a `tf.Module` that is its step."""
    functions = dict(_functions(module))
    declared = {name: f for name, f in functions.items() if signature_of(f) is not None}
    for name in (*_STEP_NAMES, "__call__"):
        if name in declared or (found is not None and name in functions):
            return functions[name], label if name == "__call__" else f"{label}.{name}"
    usable = declared or (functions if found is not None else {})
    if len(usable) == 1:
        (name, function), *_ = usable.items()
        return function, f"{label}.{name}"
    if found is not None and not functions and callable(module):
        return module, label
    if usable:
        names = ", ".join(usable)
        raise ModelError(
            f"{path}: {label} has several functions: {names}",
            hint=f"name one: {path}:{label}.{next(iter(usable))}",
        )
    raise ModelError(
        f"{path}: {label} ({type(module).__name__}) has no tf.function with an input_signature",
        hint=WANTED,
    )


def _functions(module: Any) -> Iterator[tuple[str, Any]]:
    for name in dir(type(module)):
        if is_function(inspect.getattr_static(type(module), name)):
            yield name, getattr(module, name)


def _mode_of(path: Path, label: str, asked: str | None) -> str:
    """Return what a function does, by its name: nothing else says so."""
    own = label.rpartition(".")[2].removesuffix("()")
    if own in _STEP_NAMES and asked == "infer":
        raise ModelError(
            f"{path}: {label} is a training step; --mode infer needs another function, or a "
            f"keras.Model",
            hint="leave --mode out, or name what should be analysed",
        )
    return asked or ("train" if _trains(own) else "infer")


def _trains(name: str) -> bool:
    return any(word in name.lower() for word in _TRAINING_WORDS)
