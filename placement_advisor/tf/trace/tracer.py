"""Traces a workload to a flat graph (a `Bundle`) and an op graph.

It also notes where the program created variables, which device each line asked for, and which
large tensors are filled in by an op.
"""

from __future__ import annotations

import gc
import random
import re
import sys
import weakref
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import keras
import numpy as np
import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2
from tensorflow.python.eager import context
from tensorflow.python.framework import ops
from tensorflow.python.framework.config import is_op_determinism_enabled
from tensorflow.python.ops import array_ops

from placement_advisor.errors import ModelError
from placement_advisor.files.source_files import SourceFiles
from placement_advisor.graph.op import Role
from placement_advisor.graph.op_graph import OpGraph, TracedAs
from placement_advisor.processes import children
from placement_advisor.processes.calls import is_user_code
from placement_advisor.tf.answers import AUTO_JIT, DroppedScope, LeftOut, SourceLine, Traced
from placement_advisor.tf.load import model_source
from placement_advisor.tf.load.example_batches import make_batches, resampled
from placement_advisor.tf.load.loader import load
from placement_advisor.tf.trace import bundle, flat_step
from placement_advisor.tf.trace.flat_step import FlatStep, flatten
from placement_advisor.tf.trace.op_graph_builder import composites_of, op_graph
from placement_advisor.tf.trace.op_layers import CONTAINER_MARK, LAYER_ATTRIBUTE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from types import FrameType

    from placement_advisor.tf.load.loaded_step import LoadedStep
    from placement_advisor.tf.trace.bodies import Composite


# Bodies of loops and branches have numbers in their names that each trace counts on.
_COUNTED = re.compile(r"_\d+|_rewritten$")

# A function's name and that of an op in it.
Fill = tuple[str, str]


def large_fills(graph: Any) -> frozenset[Fill]:
    """Return the tensors that a traced graph, or a function in it, fills in when it runs."""
    found: dict[str, set[Fill]] = {"Fill": set(), "Const": set()}
    for each in (graph, *(function.graph for function in graph._functions.values())):
        for op in each.get_operations():
            if op.type in found:
                found[op.type].add((_name(each), op.name))
    return frozenset(found["Fill"] - found["Const"])


@contextmanager
def filled_in(fills: frozenset[Fill]) -> Iterator[None]:
    """Trace what is traced within so that it fills in these, however small they are."""
    own_choice = array_ops._constant_if_small

    def constant_if_small(value: Any, shape: Any, dtype: Any, name: str, layout: Any = None) -> Any:
        if (_name(ops.get_default_graph()), name.rstrip("/")) in fills:
            return None
        return own_choice(value, shape, dtype, name, layout=layout)

    array_ops._constant_if_small = constant_if_small
    try:
        yield
    finally:
        array_ops._constant_if_small = own_choice


def _name(graph: Any) -> str:
    return _COUNTED.sub("", getattr(graph, "name", ""))


class Created(NamedTuple):
    """A variable, the device that was asked for, and the lines that created it, innermost first.

    The device is in TensorFlow's spelling, empty outside of all scopes.
    """

    reference: weakref.ref[Any]
    device: str
    frames: tuple[tuple[str, int], ...]


class VariableLog:
    """The variables created within `recording`, in order; those that are gone keep their place."""

    def __init__(self) -> None:
        """Begin with none."""
        self._created: list[Created] = []
        self._built: dict[tuple[str, str], tuple[tuple[str, int], ...]] = {}

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record what is created within; under a strategy each variable once, not its copies."""

        def create(next_creator: Any, **arguments: Any) -> Any:
            variable = next_creator(**arguments)
            device = _scope()
            frames = tuple(_frames(sys._getframe(1)))
            self._created.append(Created(weakref.ref(variable), device, frames))
            return variable

        original = keras.Layer.symbolic_call

        def call(layer: Any, *args: Any, **kwargs: Any) -> Any:
            device = _scope()
            if device:
                frames = tuple(_frames(sys._getframe(1)))
                for part in layer._flatten_layers():  # Of a model, what its layers are called.
                    self._built[part.name, device] = frames
            return original(layer, *args, **kwargs)

        keras.Layer.symbolic_call = call
        try:
            with tf.variable_creator_scope(create):
                yield
        finally:
            keras.Layer.symbolic_call = original

    def created(self, handles: Mapping[str, Any]) -> dict[str, tuple[int, Created]]:
        """Return each variable that was recorded, with its place in the order, by its handle."""
        names = {id(handle): name for name, handle in handles.items()}
        found = {}
        for place, created in enumerate(self._created):
            name = names.get(id(getattr(created.reference(), "handle", None)))
            if name is not None:
                found[name] = place, created
        return found

    def built(self) -> dict[tuple[str, str], tuple[tuple[str, int], ...]]:
        """Return the files and lines that called a layer of a functional model in a device scope.

        By the layer's name and the device, in TensorFlow's spelling.
        """
        return dict(self._built)

    def variables(self) -> list[Any | None]:
        """Return them in order, None for those that are gone."""
        return [created.reference() for created in self._created]


def _scope() -> str:
    """Return the device of the scope around eager code, nothing if there is none."""
    return context.context().device_name or "" if tf.executing_eagerly() else ""


def _frames(frame: FrameType | None) -> Iterator[tuple[str, int]]:
    while frame is not None:
        yield frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back


# What asks for a device: an op, or the call of a layer.
K = TypeVar("K")
_HERE = (None, "localhost")
_NAMED_DEVICE = re.compile(r"""\bdevice\(\s*["']([^"'{}]+)["']\s*\)""")


@cache
def short_device(device: str) -> str:
    """Return a device of TensorFlow's as ``GPU:1``; one of another process keeps job and task.

    Without a number it is the first of its type.
    """
    spec = tf.DeviceSpec.from_string(device)
    place = f"{spec.device_type}:{spec.device_index or 0}" if spec.device_type else ""
    if spec.job in _HERE:
        return place or device
    return f"/job:{spec.job}/task:{spec.task or 0}" + (f"/{place}" if place else "")


class UserLines:
    """Which lines of tracebacks are the user's, with files named as reports name them."""

    def __init__(self, model_file: Path) -> None:
        """Take the file whose folder holds what is theirs."""
        self._model_file = model_file
        self._shown_as: dict[str, str | None] = {}
        self._kept: dict[tuple[SourceLine, ...], tuple[SourceLine, ...]] = {}

    def among(self, frames: Iterable[tuple[str, int]]) -> tuple[SourceLine, ...]:
        """Return the user's lines of files and lines; equal answers are one object."""
        named = ((self._name(file), line) for file, line in frames)
        found = tuple(SourceLine(file, line) for file, line in named if file is not None)
        return self._kept.setdefault(found, found)

    def _name(self, file: str) -> str | None:
        """Return the user's file as reports name it, None if it is not theirs."""
        if file not in self._shown_as:
            ours, model = is_user_code(file, self._model_file), self._model_file
            is_model = ours and Path(file).resolve() == model.resolve()
            self._shown_as[file] = (str(model) if is_model else file) if ours else None
        return self._shown_as[file]


def source_stacks(
    operations: Mapping[str, Any], names: Iterable[str], lines: UserLines
) -> dict[str, tuple[SourceLine, ...]]:
    """Return the user's lines that led to ops of a traced graph, innermost first, where known."""

    @cache
    def stack(name: str) -> tuple[SourceLine, ...]:
        operation = operations.get(name)
        if operation is None:  # Of a function that was inlined: its name begins with the call's.
            return stack(name.rpartition("/")[0]) if "/" in name else ()
        if operation.traceback is None:  # It was imported, and nobody's code made it.
            return ()
        frames = reversed(operation.traceback.get_user_frames())
        return lines.among((frame.filename, frame.lineno) for frame in frames)

    found = {name: stack(name) for name in names}
    return {name: made_by for name, made_by in found.items() if made_by}


def scopes(
    requested_device_of: Mapping[K, str], lines_of: Mapping[K, tuple[SourceLine, ...]]
) -> dict[K, SourceLine]:
    """Return the line of the user's scope that makes an op ask for its device, where it is told.

    ``lines_of`` has the lines that led to an op or created a variable, innermost first.
    """
    files = SourceFiles(Path())

    @cache
    def scope(device: str, lines: tuple[SourceLine, ...]) -> SourceLine | None:
        for file, line in lines:
            number = files.scope(file, line)
            named = number and _NAMED_DEVICE.search(files.text(file, number) or "")
            if number and (not named or _is(named[1], device)):
                return SourceLine(file, number)
        return None

    found = {op: scope(device, lines_of.get(op, ())) for op, device in requested_device_of.items()}
    return {op: line for op, line in found.items() if line is not None}


def dropped_scopes(
    built: Mapping[tuple[str, str], Iterable[tuple[str, int]]],
    graph: OpGraph,
    requested_device_of: Mapping[str, str],
    lines: UserLines,
) -> tuple[DroppedScope, ...]:
    """Return the scopes in which layers of the step were called, and in which none of its ops is.

    ``built`` has the lines that called a layer in the scope of a device.
    """
    ops_of: defaultdict[str, list[str]] = defaultdict(list)
    for op in graph.ops:
        if op.role is not Role.VARIABLE:
            for part in (op.layer or "").split("/"):  # A second call of a layer is layer@2.
                ops_of[part.partition("@")[0]].append(op.name)
    device_of = {
        (layer, named): short_device(named)
        for layer, named in built
        if layer in ops_of
        and all(requested_device_of.get(op) != short_device(named) for op in ops_of[layer])
    }
    line_of = scopes(device_of, {call: lines.among(built[call]) for call in device_of})
    layers_of: defaultdict[tuple[str, SourceLine | None], list[str]] = defaultdict(list)
    for call, device in device_of.items():
        layers_of[device, line_of.get(call)].append(call[0])
    return tuple(
        DroppedScope(device, tuple(layers), line) for (device, line), layers in layers_of.items()
    )


def _is(named: str, device: str) -> bool:
    try:
        return short_device(named) == device
    except ValueError:  # TensorFlow reads no device in it.
        return False


SEED = 20_201

_workload: LoadedStep | None = None
_step: TracedStep | None = None
_log = VariableLog()


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedStep:
    """A loaded step as it was traced: its concrete function, as a flat graph, as an op graph.

    ``path`` is the user's file.
    """

    path: Path
    loaded: LoadedStep
    function: Any
    flat: FlatStep
    graph: OpGraph
    composites: Mapping[str, Composite]

    def members(self) -> dict[str, frozenset[str]]:
        """Return the ops within each loop or conditional of the op graph."""
        own = {op.name for op in self.graph.ops}
        return {name: found.members.difference(own) for name, found in self.composites.items()}

    def traced_as(self) -> TracedAs:
        """Return what another graph of the same model may have otherwise."""
        return TracedAs(
            mode=self.loaded.mode,
            batch_size=self.loaded.batch_size,
            inputs=tuple(map(_type, tf.nest.flatten(self.loaded.specs))),
            outputs=tuple(_type(each) for each in self.function.outputs if each is not None),
        )

    def batches(self) -> tuple[tuple[Any, ...], ...]:
        """Return the example batches as arrays, flattened."""
        return tuple(map(_arrays, self.loaded.batches))


def _type(spec: Any) -> str:
    shape = "any shape" if spec.shape.rank is None else spec.shape.as_list()
    return f"{spec.dtype.name} {shape}"


def trace_step(path: Path, loaded: LoadedStep, *, like: TracedStep | None = None) -> TracedStep:
    """Trace a step; example batches are made up if it has none.

    ``like`` is the same step traced at another batch, whose choices of constants are taken over,
    and whose examples have become those of this one.

    Raises:
        ModelError: it cannot be traced, or holds state that cannot be moved.
    """
    with filled_in(large_fills(like.function.graph) if like is not None else frozenset()):
        function = trace_for(path, loaded)
    with paused_collection():
        try:
            if not loaded.batches:
                batches = make_batches(function, loaded.specs, loaded.input_names)
                loaded = replace(loaded, batches=batches)
            elif like is None and len(loaded.batches) == 1 and loaded.batch_size is not None:
                another = resampled(*loaded.batches, loaded.batch_size)
                if another is not None:
                    loaded = replace(loaded, batches=(*loaded.batches, another))
            flat = flatten(function, labels(function.graph, loaded.model))
        except ModelError as error:
            raise ModelError(f"{path}: {loaded.name}: {error.message}", hint=error.hint) from None
        composites = composites_of(flat)
        graph = op_graph(
            flat,
            composites,
            text_bytes(flat.inputs, loaded.batches[0]),
            is_tf32_allowed=tf.config.experimental.tensor_float_32_execution_enabled(),
        )
    return TracedStep(
        path=path, loaded=loaded, function=function, flat=flat, graph=graph, composites=composites
    )


def load_workload(source: model_source.ModelSource) -> str:
    """Load what the user points at, keep it in this process, and say what was chosen.

    A program that trains is left standing within a step; all calls are answered from there on.

    Raises:
        ModelError: the file fails or holds nothing that can be analysed.
    """
    global _workload
    seed_everything()

    def keep(loaded: LoadedStep) -> str:
        global _workload
        _workload = loaded
        return loaded.chosen

    with _log.recording():
        return keep(load(source, lambda find: children.go_on_within(lambda: keep(find()))))


def trace_workload(path: str, folder: str | None) -> Traced:
    """Trace the loaded workload and return its op graph.

    Its bundle, for those who run it, is written into ``folder`` if one is given, unless it calls
    Python: such a step runs here alone.

    Raises:
        ModelError: the step cannot be traced, or holds state that cannot be moved.
    """
    global _workload, _step
    is_made_up = not loaded_workload().batches
    with _log.recording():
        _step = step = trace_step(Path(path), loaded_workload())
    _workload = workload = step.loaded
    in_python = step.flat.python_call()
    if folder is not None and in_python is None:
        step.flat.bundle(step.batches()).save(Path(folder))
    own = {op.name for op in step.graph.ops}
    handles = {name: held.handle for name, held in step.flat.state.variables.items()}
    lines = UserLines(Path(path))
    created = _log.created(handles)
    asked = {op.name: op.source.device() for op in step.flat.ops if op.source is not None}
    asked |= {name: variable.device for name, (_, variable) in created.items() if variable.device}
    operations = {op.name: op for op in step.function.graph.get_operations()}
    if workload.origin is not None:
        operations |= workload.origin
        copied = {name: operations[name].device for name in handles if name in operations}
        asked |= {name: device for name, device in copied.items() if device}
    requested = {name: short_device(device) for name, device in asked.items() if device}
    stack_of = source_stacks(operations, own, lines)
    created_at = {
        name: found
        for name, (_, variable) in created.items()
        if (found := lines.among(variable.frames))
    }
    return Traced(
        graph=step.graph,
        members=step.members(),
        name=workload.name,
        mode=workload.mode,
        chosen=f"{workload.chosen}{_in_some_steps(step, stack_of)}",
        batch_size=workload.batch_size,
        takes_batch_size=workload.takes_batch_size,
        captured=workload.captured,
        is_made_up=is_made_up,
        tensorflow_version=tf.__version__,
        traced_as=step.traced_as(),
        requested_device_of=requested,
        scope_of=scopes(requested, stack_of | created_at),
        stack_of=stack_of,
        dropped_scopes=dropped_scopes(_log.built(), step.graph, requested, lines),
        created={name: place for name, (place, _) in created.items()},
        created_at=created_at,
        left_out=_left_out(step),
        python_call=in_python and _python_in_words(*in_python, step, operations, lines),
    )


def _in_some_steps(step: TracedStep, stack_of: Mapping[str, tuple[SourceLine, ...]]) -> str:
    """Say which updates stand under a condition, which the step that was taken need not meet."""
    lines = dict.fromkeys(
        stack_of[name][0]
        for name, composite in step.composites.items()
        if composite.may_update and name in stack_of
    )
    places = ", ".join(map(model_source.shown_line, lines))
    return f"; in some steps alone: the update at {places}" if places else ""


def _python_in_words(
    kind: str, name: str, step: TracedStep, operations: Mapping[str, Any], lines: UserLines
) -> str:
    """Return an op that calls Python with its line, short enough for a sentence.

    Within a loop it is the line of that.
    """
    around = [loop for loop, found in step.composites.items() if name in found.members]
    stacks = source_stacks(operations, (name, *around), lines)
    stack = next((stacks[each] for each in (name, *around) if each in stacks), None)
    if stack is None:
        return f"`{kind}` ({name})"
    return f"`{kind}` at {stack[0].name}"


def _left_out(step: TracedStep) -> LeftOut:
    """Return what the user's program has and the traced step has not."""
    loaded = step.loaded
    return LeftOut(
        jit_compile=loaded.is_for_xla or flat_step.is_for_xla(step.function.graph),
        run_eagerly=loaded.is_eager,
        steps_per_call=getattr(loaded.model, "steps_per_execution", 1),
        method=_uncalled_method(loaded),
        summaries=step.flat.summaries,
        devices=loaded.has_devices,
        settings=_settings(),
    )


def _uncalled_method(loaded: LoadedStep) -> str | None:
    """Return the method of a Keras model of the user's own that its step is not run by."""
    model = type(loaded.model)
    if not issubclass(model, keras.Model):
        return None
    around: tuple[str, ...] = ("make_train_function",)
    if loaded.mode == "infer":
        around = ("make_predict_function", "predict_step")
    own = (name for name in around if getattr(model, name) is not getattr(keras.Model, name))
    return next(own, None)


def _settings() -> tuple[str, ...]:
    """Return what the user has set in this process, and does not hold where candidates run."""
    optimizer, threads = tf.config.optimizer, tf.config.threading
    found = {
        AUTO_JIT: optimizer.get_jit(),
        "tf.config.threading": (
            threads.get_intra_op_parallelism_threads() or threads.get_inter_op_parallelism_threads()
        ),
        "tf.config.experimental.enable_op_determinism": is_op_determinism_enabled(),
    }
    options = optimizer.get_experimental_options()
    return (
        *(call for call, setting in found.items() if setting),
        *(name for name, is_on in options.items() if is_on or not name.startswith("disable_")),
    )


def traced_step() -> TracedStep:
    """Return the traced workload of this process."""
    assert _step is not None, "trace_workload comes first"
    return _step


def loaded_workload() -> LoadedStep:
    """Return the workload of this process."""
    assert _workload is not None, "load_workload comes first"
    return _workload


def seed_everything() -> None:
    """Pin every source of randomness that a step can draw from."""
    random.seed(SEED)
    np.random.seed(SEED)
    tf.random.set_seed(SEED)


def trace_for(path: Path, workload: LoadedStep) -> Any:
    """Trace the workload's step; ``path`` is the user's file.

    Raises:
        ModelError: it cannot be traced.
    """
    try:
        return traced_function(workload)
    except ModelError as error:
        raise ModelError(f"{path}: {error.message}", hint=error.hint) from None
    except Exception as error:
        raise ModelError(
            f"{path}: {workload.name} cannot be traced: {model_source.describe(error, path)}",
            hint=model_source.hint_for(error),
        ) from None


def traced_function(workload: LoadedStep) -> Any:
    """Trace the workload's step at the shapes of its specs."""
    names = iter(workload.input_names)
    specs = tf.nest.map_structure(
        lambda spec: tf.TensorSpec(spec.shape, spec.dtype, name=bundle.identifier(next(names))),
        workload.specs,
    )
    if workload.trace is not None:
        return workload.trace(specs)

    def step(batch: Any) -> Any:
        from keras.src.backend.common import global_state
        from keras.src.backend.common.name_scope import current_path

        def layer(_: Any) -> Any:
            path = current_path()
            if not path:
                return None
            innermost = global_state.get_global_attribute("name_scope_stack")[-1].caller
            # A recurrent layer holds its cell, but computes as one.
            if getattr(innermost, "_layers", None) and not isinstance(
                innermost, tf.keras.layers.RNN
            ):
                path += CONTAINER_MARK
            return attr_value_pb2.AttrValue(s=path.encode())

        with ops.get_default_graph()._attr_scope({LAYER_ATTRIBUTE: layer}):
            return workload.step(batch)

    # A tf.function step of the user's own has its control flow converted like theirs would be.
    is_python = workload.model is None and not workload.runs_op_by_op
    return tf.function(step, autograph=is_python).get_concrete_function(specs)


@contextmanager
def paused_collection() -> Iterator[None]:
    """Keep Python from looking for garbage among a graph's many objects, now and later on."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_on:
            gc.enable()


def _arrays(batch: Any) -> tuple[Any, ...]:
    return tuple(bundle.array(tensor) for tensor in tf.nest.flatten(batch))


def text_bytes(inputs: tuple[str, ...], batch: Any) -> dict[str, int]:
    """Return the characters in text inputs: their shapes alone do not tell."""
    tensors = zip(inputs, tf.nest.flatten(batch), strict=True)
    return {
        name: sum(map(len, bundle.array(tensor).ravel()))
        for name, tensor in tensors
        if tensor.dtype == tf.string
    }


def labels(graph: Any, model: Any | None) -> dict[int, str]:
    """Return the names that variables have for their owner, by the `id` of their handle."""
    return {id(variable.handle): name for variable, name in owned_variables(graph, model)}


def owned_variables(graph: Any, model: Any | None) -> Iterator[tuple[Any, str]]:
    """Yield the `tf.Variable`s that a graph and its Keras model know, with their owner's name.

    What is yielded later for the same variable is the better name.
    """
    for variable in graph.variables:
        yield variable, variable.name.split(":")[0]
    for owner in (model, getattr(model, "optimizer", None)):
        for variable in getattr(owner, "variables", ()):
            if getattr(variable.value, "handle", None) is not None:
                yield variable.value, variable.path
