"""Loads the step of a model file, SavedModel, Keras file or frozen graph.

A model file is searched for what to analyze in a fixed order. The inputs of a TF1 frozen
graph are its placeholders; its outputs are those asked for, or its leaves.
"""

from __future__ import annotations

import difflib
import inspect
from contextlib import suppress
from dataclasses import replace
from functools import reduce
from itertools import chain
from typing import TYPE_CHECKING, Any
from zipfile import is_zipfile

import keras
import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf import saved_model_pb2

from placement_advisor.errors import ModelError
from placement_advisor.graph.name_patterns import first_names
from placement_advisor.processes.calls import is_user_code
from placement_advisor.tf.load import example_batches, loaded_step, model_source, session_step
from placement_advisor.tf.load.capture import Capture
from placement_advisor.tf.load.captured_step import Rerun, captured
from placement_advisor.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from placement_advisor.tf.answers import CapturedCall
    from placement_advisor.tf.load.example_batches import Examples
    from placement_advisor.tf.load.loaded_step import LoadedStep
    from placement_advisor.tf.load.model_source import ModelSource


_DEFAULT_SIGNATURE = "serving_default"


def load_saved_model(source: ModelSource) -> LoadedStep:
    """Return the step of a SavedModel's signature.

    Raises:
        ModelError: it cannot be read, or has no such signature.
    """
    path = source.file
    try:
        loaded = tf.saved_model.load(str(path))
    except Exception as error:  # Damaged files show up as errors of every kind.
        raise ModelError(f"{path}: not a SavedModel that TensorFlow reads: {error}") from None
    name, signatures = source.name, dict(getattr(loaded, "signatures", {}))
    listed = ", ".join(signatures) or "none"
    if name is not None and name not in signatures:
        raise ModelError(f"{path}: no signature is called {name!r}; it has {listed}")
    usual = [_DEFAULT_SIGNATURE] if _DEFAULT_SIGNATURE in signatures else [*signatures]
    if name is None and len(usual) == 1:
        (name,) = usual
    if name is None:
        raise ModelError(
            f"{path}: no signature {_DEFAULT_SIGNATURE!r}; it has {listed}",
            hint=f"name one: {path}:{next(iter(signatures))}"
            if signatures
            else "save it with signatures=..., or describe a step in a Python file",
        )
    step = signature_step(source, signatures[name], name)
    return replace(step, owner=loaded)


def signature_step(source: ModelSource, signature: Any, label: str) -> LoadedStep:
    """Return the step that calls a concrete function at a batch of known size.

    Raises:
        ModelError: it is asked to train.
    """
    if source.mode == "train":
        raise ModelError(
            f"{source.file}: {label} is a signature, which cannot be trained",
            hint="leave --mode out",
        )
    specs = signature.structured_input_signature
    found = example_batches.made_up(source, specs, "its signature")

    def call(batch: Any) -> Any:
        arguments, named = batch
        return signature(*arguments, **named)

    flat = tf.nest.flatten(specs)
    bases = loaded_step.numbered("input", len(flat))
    old_loops = session_step.has_v1_control_flow(signature.graph)
    return loaded_step.step_on(
        found,
        f"{label} (signature)",
        name=label,
        mode="infer",
        step=call,
        input_names=tuple(spec.name or base for spec, base in zip(flat, bases, strict=True)),
        trace=session_step.tracer_of(signature) if old_loops else None,
    )


def load_keras_file(source: ModelSource) -> LoadedStep:
    """Return the step of a model that Keras has saved.

    Raises:
        ModelError: it cannot be read.
    """
    path = source.file
    if source.name is not None:
        raise ModelError(f"{path}: a Keras file holds one model, none called {source.name!r}")
    if not is_zipfile(path):
        raise ModelError(
            f"{path}: damaged, or no Keras file: it is not a zip archive",
            hint="save it again with model.save(...)",
        )
    try:
        model = keras.models.load_model(path)
    except Exception as error:
        # Keras puts whole configurations around the reason.
        reason = str(error).rpartition("Exception encountered: ")[2]
        reason = reason.partition(" Full object config")[0].strip() or type(error).__name__
        raise ModelError(
            f"{path}: Keras cannot load it: {reason}",
            hint="write a Python file with a function build_model() that imports your classes "
            "and returns keras.models.load_model(...). If the model needs a lambda and "
            "you trust it, set safe_mode=False",
        ) from None
    return loaded_step.keras_step(source, model, "the saved model", None)


_VARIABLES = frozenset(
    {"Variable", "VariableV2", "VarHandleOp", "TemporaryVariable", "AutoReloadVariable"}
)
# A leaf of these kinds computes nothing that anyone asks for.
_NO_RESULTS = frozenset(
    {"Placeholder", "PlaceholderWithDefault", "Const", "NoOp", "Assert", "Exit"}
)
# Enough to choose from; a graph that lost its outputs can have hundreds of leaves.
_LISTED = 12


def load_frozen_graph(source: ModelSource) -> LoadedStep:
    """Return the step that computes the outputs of a frozen graph.

    Raises:
        ModelError: it cannot be read, still holds variables, or its outputs are not clear.
    """
    path = source.file
    if source.name is not None:
        raise ModelError(
            f"{path}: :{source.name} names nothing in a graph",
            hint=f"use --outputs {source.name}",
        )
    if source.mode == "train":
        raise ModelError(f"{path}: a frozen graph cannot be trained", hint="leave --mode out")
    graph_def = _read(path)
    has_devices = any(node.device for node in _nodes(graph_def))
    for node in _nodes(graph_def):
        node.device = ""
    graph = _imported(path, graph_def)
    wanted = _outputs(path, graph, source.outputs)
    inputs = _inputs(graph, wanted)
    specs = {
        op.name: tf.TensorSpec(op.outputs[0].shape, op.outputs[0].dtype, name=op.name)
        for op in inputs
    }
    found = example_batches.made_up(source, specs, "its placeholders")

    names = sorted(specs)  # As a dictionary is flattened.

    def compute(*values: Any) -> Any:
        feeds = {f"{name}:0": value for name, value in zip(names, values, strict=True)}
        return tf.graph_util.import_graph_def(
            graph_def, input_map=feeds, return_elements=wanted, name=""
        )

    def trace(specs: Any) -> Any:
        """Import into a graph of its own: a tf.function cannot hold loops of TF1."""
        return tf.compat.v1.wrap_function(compute, tf.nest.flatten(specs))

    imported = trace(found.specs)

    def step(batch: dict[str, Any]) -> Any:
        return imported(*tf.nest.flatten(batch))

    return loaded_step.step_on(
        found,
        f"frozen graph with outputs {', '.join(wanted)}",
        name=path.stem,
        mode="infer",
        step=step,
        input_names=tuple(names),
        trace=trace,
        has_devices=has_devices,
    )


def _read(path: Path) -> Any:
    content = path.read_bytes()
    graph_def = _parsed(tf.compat.v1.GraphDef, content)
    if not graph_def.node:
        saved = _parsed(saved_model_pb2.SavedModel, content)
        if any(meta_graph.graph_def.node for meta_graph in saved.meta_graphs):
            raise ModelError(
                f"{path}: a SavedModel's graph, without its variables",
                hint="give the SavedModel's directory",
            )
        raise ModelError(
            f"{path}: not a graph (GraphDef)", hint="give a frozen graph in binary form"
        )
    variable = next((node for node in graph_def.node if node.op in _VARIABLES), None)
    if variable is not None:
        raise ModelError(
            f"{path}: not frozen: it holds variables such as {variable.name!r} ({variable.op})",
            hint="freeze it (variables to constants), or give the SavedModel's directory",
        )
    return graph_def


def _parsed(kind: Any, content: bytes) -> Any:
    """Return a message of a kind, empty if that is not what the content is."""
    with suppress(DecodeError):
        return kind.FromString(content)
    return kind()


def _nodes(graph_def: Any) -> Iterator[Any]:
    bodies = (function.node_def for function in graph_def.library.function)
    return chain(graph_def.node, *bodies)


def _imported(path: Path, graph_def: Any) -> Any:
    graph = tf.Graph()
    try:
        with graph.as_default():
            tf.graph_util.import_graph_def(graph_def, name="")
    except Exception as error:  # Damaged graphs fail in many ways.
        raise ModelError(f"{path}: TensorFlow cannot import it: {error}") from None
    return graph


def _outputs(path: Path, graph: Any, asked: tuple[str, ...]) -> list[str]:
    """Return the names of the tensors that are computed."""
    if asked:
        return [tensor for words in asked for tensor in _tensors(path, graph, words)]
    leaves = [op for op in graph.get_operations() if _is_leaf(op)]
    if len(leaves) == 1:
        return [tensor.name for tensor in leaves[0].outputs]
    listed = first_names([op.name for op in leaves], _LISTED) or "none"
    raise ModelError(
        f"{path}: which outputs? {len(leaves)} ops are read by no other: {listed}",
        hint="name those that you ask the graph for: --outputs a,b",
    )


def _is_leaf(op: Any) -> bool:
    read = any(tensor.consumers() for tensor in op.outputs)
    # Each branch of a conditional of TensorFlow 1 begins with one that only orders its ops.
    pivot = op.type == "Identity" and op.inputs[0].op.type == "Switch"
    return bool(op.outputs) and not read and not pivot and op.type not in _NO_RESULTS


def _tensors(path: Path, graph: Any, words: str) -> list[str]:
    name, _, port = words.partition(":")
    try:
        outputs = graph.get_operation_by_name(name).outputs
        found = [outputs[int(port)]] if port else list(outputs)
    except (KeyError, ValueError, IndexError):
        found = []
    if not found:
        close = difflib.get_close_matches(name, [op.name for op in graph.get_operations()])
        raise ModelError(
            f"{path}: no output is called {words!r}",
            hint=f"close: {', '.join(close)}" if close else "give names of ops, or op:0",
        )
    return [tensor.name for tensor in found]


def _inputs(graph: Any, outputs: list[str]) -> list[Any]:
    """Return the placeholders that the outputs depend on, in the graph's order."""
    ends = (graph.get_tensor_by_name(name).op for name in outputs)
    needed = session_step.ancestors(ends, ())
    return [op for op in graph.get_operations() if op in needed and op.type == "Placeholder"]


_STEP_NAMES = ("train_step", "training_step", "step")
_BUILDER_NAMES = ("build_model", "make_model", "create_model", "get_model")
# How people call functions that train, where nothing else says so.
_TRAINING_WORDS = ("train", "step", "update", "fit")
WANTED = (
    "looked first for a call of fit, a tf.function or Session.run while it ran. Then for "
    "workload(), a tf.function named train_step, training_step or step, and a keras.Model. "
    "Then for build_model(), make_model(), create_model() or get_model(). Last for a tf.Module "
    "or a tf.function with an input_signature, with batches in `dataset` (a tf.data.Dataset) "
    "or `inputs` (one batch)"
)


def find_step(source: ModelSource, namespace: dict[str, Any]) -> LoadedStep:
    """Return the step that a file's names hold: the one that is asked for, or the first found.

    Raises:
        ModelError: there is none, or several that are equally good.
    """
    path = source.file
    if source.name:
        label, value = source.name, _named(path, namespace, source.name)
    else:
        label, value = _first(path, namespace)
    if _is_builder(value):
        label, value = f"{label}()", _call(path, value, label)
    if isinstance(value, Workload):
        return loaded_step.workload_step(source, value, label)
    if hasattr(value, "structured_input_signature") and hasattr(value, "captured_inputs"):
        return signature_step(source, value, label)
    found = example_batches.found_in(source, namespace)
    if isinstance(value, keras.Model):
        return loaded_step.keras_step(source, value, label, found)
    if isinstance(value, tf.Module):
        label, value = _function_of(path, value, label, found)
    if not callable(value):
        raise ModelError(f"{path}: {label!r} is a {type(value).__name__}", hint=WANTED)
    return loaded_step.function_step(source, value, label, found, _mode_of(source, label))


def _named(path: Path, namespace: dict[str, Any], name: str) -> Any:
    first, *rest = name.split(".")
    try:
        return reduce(getattr, rest, namespace[first])
    except (KeyError, AttributeError):
        public = ", ".join(sorted(n for n in namespace if not n.startswith("_")))
        message = f"{path}: nothing is called {name!r}; the file has {public}"
        raise ModelError(message) from None


def _first(path: Path, namespace: dict[str, Any]) -> tuple[str, Any]:
    if "workload" in namespace:
        return "workload", namespace["workload"]
    for name in _STEP_NAMES:
        if loaded_step.is_function(namespace.get(name)):
            return name, namespace[name]
    models = _distinct(namespace, lambda value: isinstance(value, keras.Model))
    functions = _distinct(namespace, loaded_step.is_function)
    if not any(getattr(model, "compiled", False) for model in models.values()):
        found = _only_function(namespace, functions)
        if found is not None:
            return found
    if models:
        return _one_of(path, models, "model", lambda value: getattr(value, "compiled", False))
    for name in _BUILDER_NAMES:
        if _is_builder(namespace.get(name)):
            return name, namespace[name]
    others = _distinct(
        namespace,
        lambda value: (
            isinstance(value, tf.Module)
            or (callable(value) and loaded_step.signature_of(value) is not None)
        ),
    )
    if others:
        return _one_of(
            path, others, "candidate", lambda value: loaded_step.signature_of(value) is not None
        )
    if functions:
        return _one_of(path, functions, "tf.function", lambda _: False)
    raise ModelError(
        f"{path}: the script ran to its end without a step, and no model found in it",
        hint=model_source.hint_for_none(namespace) or WANTED,
    )


def _only_function(namespace: dict[str, Any], functions: dict[str, Any]) -> tuple[str, Any] | None:
    """Return the only function that can be traced, or the only one that trains by its name."""
    has_examples = example_batches.are_in(namespace)
    trains = {name: f for name, f in functions.items() if _trains(name)}
    for choice in (functions, trains):
        if len(choice) == 1:
            ((name, function),) = choice.items()
            if has_examples or loaded_step.signature_of(function) is not None:
                return name, function
    return _only_step(namespace) if has_examples else None


def _only_step(namespace: dict[str, Any]) -> tuple[str, Any] | None:
    """Return the only step that is a plain function, or a method of an object of the file's own."""
    steps = {name: namespace.get(name) for name in _STEP_NAMES}
    steps = {name: value for name, value in steps.items() if inspect.isfunction(value)}
    for name, value in namespace.items():
        if type(value).__module__ == namespace["__name__"] and not isinstance(value, keras.Model):
            methods = {f"{name}.{step}": getattr(value, step, None) for step in _STEP_NAMES}
            steps |= {
                label: each for label, each in methods.items() if loaded_step.is_function(each)
            }
    return next(iter(steps.items())) if len(steps) == 1 else None


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
) -> tuple[str, Any]:
    """Return the only one, or the one called ``model``, or the only better one."""
    best = {name: value for name, value in found.items() if better(value)}
    for choice in (found, {n: v for n, v in found.items() if n == "model"}, best):
        if len(choice) == 1:
            return next(iter(choice.items()))
    raise ModelError(
        f"{path}: several {kind}s: {', '.join(found)}", hint=f"name one: {path}:{next(iter(found))}"
    )


def _is_builder(value: Any) -> bool:
    """Say whether it is a plain function, or a class, that can be called with nothing."""
    if loaded_step.is_function(value) or not (inspect.isroutine(value) or isinstance(value, type)):
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
            f"{path}: {label}() fails: {model_source.describe(error, path)}",
            hint=model_source.hint_for(error),
        ) from None
    if label == "workload" and not isinstance(value, Workload):
        raise ModelError(
            f"{path}: workload() returned a {type(value).__name__}",
            hint="return a placement_advisor.Workload(step=..., inputs=...)",
        )
    if not (callable(value) or isinstance(value, Workload | tf.Module)):
        raise ModelError(f"{path}: {label}() returned a {type(value).__name__}", hint=WANTED)
    return value


def _function_of(path: Path, module: Any, label: str, found: Examples | None) -> tuple[str, Any]:
    """Return the function of a `tf.Module` that is its step."""
    functions = dict(_functions(module))
    declared = {name: f for name, f in functions.items() if loaded_step.signature_of(f) is not None}
    for name in (*_STEP_NAMES, "__call__"):
        if name in declared or (found is not None and name in functions):
            return label if name == "__call__" else f"{label}.{name}", functions[name]
    usable = declared or (functions if found is not None else {})
    if len(usable) == 1:
        ((name, function),) = usable.items()
        return f"{label}.{name}", function
    if found is not None and not functions and callable(module):
        return label, module
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
        if loaded_step.is_function(inspect.getattr_static(type(module), name)):
            yield name, getattr(module, name)


def _mode_of(source: ModelSource, label: str) -> str:
    """Return what a function does, by its name: nothing else says so."""
    own = label.rpartition(".")[2].removesuffix("()")
    if own in _STEP_NAMES and source.mode == "infer":
        raise ModelError(
            f"{source.file}: {label} is a training step; --mode infer needs another function, or a "
            f"keras.Model",
            hint="leave --mode out, or name what should be analysed",
        )
    return source.mode or ("train" if _trains(own) else "infer")


def _trains(name: str) -> bool:
    return any(word in name.lower() for word in _TRAINING_WORDS)


def load(
    source: ModelSource,
    go_on: Callable[[Callable[[], LoadedStep]], None],
    again: tuple[CapturedCall, Sequence[Any]] | None = None,
) -> LoadedStep:
    """Load what the path holds.

    A program that trains is left standing within a step: ``go_on`` is called there with what
    returns that step, and is not to return. What was captured of it before, and the tensors of its
    batch, have it run ``again`` up to that call.

    Raises:
        ModelError: it fails, or holds nothing that can be analysed.
    """
    file = source.file
    kind = model_source.source_kind(file)
    if source.outputs and kind is not model_source.SourceKind.FROZEN_GRAPH:
        raise ModelError(
            f"{file}: --outputs names what a frozen graph (.pb) computes",
            hint=f"name an object of a Python file, or a signature, like this: {file}:NAME",
        )
    if kind is not model_source.SourceKind.PYTHON and (
        source.arguments or source.step or source.module
    ):
        raise ModelError(
            f"{file}: it is not a script, so it takes no arguments behind --, no -m and no --step",
            hint="leave them out, or give the .py file of a script",
        )
    match kind:
        case model_source.SourceKind.KERAS:
            return load_keras_file(source)
        case model_source.SourceKind.SAVED_MODEL:
            return load_saved_model(source)
        case model_source.SourceKind.FROZEN_GRAPH:
            return load_frozen_graph(source)

    def is_users(name: str) -> bool:
        return is_user_code(name, file)

    def stop(seen: Capture) -> None:
        go_on(lambda: captured(seen, source))

    capture = (
        Capture(is_users, stop, source.step) if again is None else Rerun(is_users, stop, *again)
    )
    if source.name is not None or model_source.declares(file, "workload"):
        with capture.watching(steps=False):
            return find_step(
                source, model_source.run_file(file, WANTED, arguments=source.arguments)
            )
    with capture.watching():
        namespace = model_source.run_program(
            file, WANTED, arguments=source.arguments, module=source.module
        )
        capture.end()
    if capture.chosen() is not None:
        return captured(capture, source)
    return find_step(source, namespace)
