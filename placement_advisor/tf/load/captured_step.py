"""Turns what was captured of a program into a step that can be traced on the batches it got.

A script can also run once more, under a strategy, up to the call of the captured step.
"""

from __future__ import annotations

import functools
import inspect
from collections import Counter, deque
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import keras
import numpy as np
import tensorflow as tf

from placement_advisor.errors import ModelError
from placement_advisor.tf.answers import CapturedCall, SourceLine
from placement_advisor.tf.load import capture as captures
from placement_advisor.tf.load import model_source, session_step
from placement_advisor.tf.load.eager_step import EagerLoop, Replay
from placement_advisor.tf.load.example_batches import spec_of
from placement_advisor.tf.load.loaded_step import LoadedStep, leading_size, numbered
from placement_advisor.units import format_share

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


_METHODS = ("fit", "train_on_batch")
REPEATED = frozenset(f"model.{name}" for name in _METHODS)


class Rerun(captures.Capture):
    """What is seen of a program whose call is known."""

    def __init__(
        self,
        is_users: Callable[[str], bool],
        stop: Callable[[captures.Capture], None],
        call: CapturedCall,
        batch: Sequence[Any],
    ) -> None:
        """Wait for a call; ``batch`` has the tensors that a model was given then, flat."""
        super().__init__(is_users, stop)
        self._call, self._batch = call, batch

    def _hook_steps(self) -> None:
        for name in _METHODS:
            self._hook(keras.Model, name, functools.partial(self._method, f"model.{name}"))
        self._hook(captures.FUNCTION, "__call__", self._function_call)

    def _method(self, call: str, original: Any, model: Any, /, *args: Any, **kwargs: Any) -> Any:
        if (where := self._is_there(call)) is not None:
            given = self._given()
            _build(model, given)
            self._stand_in(model, model.train_step, given, where)
        return original(model, *args, **kwargs)

    def _function_call(self, original: Any, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        name = captures.function_name(function)
        if tf.executing_eagerly() and (where := self._is_there(name)) is not None:
            run = captures.called(function.python_function)
            self._stand_in(function, run, (args, kwargs), where)
        return original(function, *args, **kwargs)

    def _is_there(self, call: str) -> SourceLine | None:
        """Return the line of a call if it is the one that was captured."""
        if self._is_elsewhere() or call != self._call.call:
            return None
        wanted, where = self._call.where, self._called_from()[1]
        if wanted is None or where is None:
            return None
        # On another host the file lies elsewhere.
        same = wanted.line == where.line and Path(wanted.file).name == Path(where.file).name
        return where if same else None

    def _given(self) -> Any:
        """Return the batch as a model is given it."""
        left = iter(self._batch)
        return tf.nest.map_structure(
            lambda is_tensor: tf.constant(next(left)) if is_tensor else None, self._call.structure
        )

    def _stand_in(self, target: Any, run: Any, given: Any, where: SourceLine) -> None:
        step = captures.Step(call=self._call.call, target=target, run=run, trains=True, where=where)
        step.batches.append(given)
        step.calls = 1
        self.steps[id(target)] = step
        self._stand_still()


def _build(model: Any, given: Any) -> None:
    """Make the variables as `fit` does before it begins, in the order in which a step makes them.

    A step that makes its own fails in replicas of one process.
    """
    with suppress(Exception):  # What cannot be called so makes them in its step.
        features = keras.utils.unpack_x_y_sample_weight(given)[0]
        model(tf.nest.map_structure(lambda x: keras.KerasTensor(x.shape, x.dtype.name), features))
        model.optimizer.build(model.trainable_variables)
        model._symbolic_build(data_batch=given)


T = TypeVar("T")

# Those of English with an ending of their own; 11th to 13th have none.
_ENDINGS = {1: "st", 2: "nd", 3: "rd"}
_TEENS = range(11, 14)
# What a function is traced anew for, if it is given another one.
_CONSTANTS = (bool, int, float, str)


def captured(capture: captures.Capture, source: model_source.ModelSource) -> LoadedStep:
    """Return the step that is analysed of those that were seen.

    Raises:
        ModelError: none is called as was asked for, none is of the mode that was asked for, or it
            takes no other batch than it was given.
    """
    step = capture.chosen()
    if step is None:
        names = sorted({name for each in capture.steps.values() for name in each.names})
        raise ModelError(
            f"{source.path}: no step is called {source.step!r}; it has run {', '.join(names)}"
        )
    loaded = _in_mode(_loaded(_cycle(capture, step) or step), source)
    size = source.batch_size
    if size is not None and size != loaded.batch_size:
        if not loaded.takes_batch_size:
            raise ModelError(
                f"{source.path}: {loaded.name} takes no other batch than the script gave it",
                hint="leave --batch-size out, or have the script make another batch",
            )
        loaded = loaded.of_size(size)
    return replace(
        loaded, chosen=_chosen(capture, step, loaded), captured=_call(capture, step, loaded)
    )


def _call(capture: captures.Capture, step: captures.Step, loaded: LoadedStep) -> CapturedCall:
    """Return the call, and whether another run of the script finds that step by it."""
    call = CapturedCall(step.call, step.where, is_replica=bool(capture.strategies))
    if isinstance(step.target, captures.SessionRun):
        return call
    given = step.batches[-1]
    leaves = tf.nest.flatten(given)
    structure = tf.nest.map_structure(lambda leaf: _is_tensor(_plain(leaf)), given)
    repeat = (
        loaded.mode == "train"
        and step.where is not None
        and loaded.takes_batch_size
        and loaded.name == step.name  # It is no cycle of several calls.
        and not any(isinstance(leaf, captures.Again) for leaf in leaves)
    )
    if loaded.model is None:
        structure = None  # A function is called with its own arguments.
    elif step.call not in REPEATED or not _is_plain(structure):
        repeat = False
    return call._replace(structure=structure, repeat=True) if repeat else call


def _is_plain(structure: Any) -> bool:
    """Whether a structure is of Python's own classes, which every process knows."""
    if isinstance(structure, bool):
        return True
    if type(structure) not in (tuple, list, dict):
        return False
    parts = structure.values() if isinstance(structure, dict) else structure
    return all(map(_is_plain, parts))


def _chosen(capture: captures.Capture, step: captures.Step, loaded: LoadedStep) -> str:
    """Say what was captured, where, and what else was seen."""
    what = [] if loaded.model is None else [type(loaded.model).__name__, loaded.name]
    if loaded.batch_size is not None:
        what.append(f"batch {loaded.batch_size}")
    call = step.call if loaded.model is not None else loaded.name
    of = f" ({', '.join(dict.fromkeys(what))})" if what else ""
    said = f"captured {call}{of}{_at(step.where)}, at its {_ordinal(step.calls)} step"
    if loaded.runs_op_by_op:
        said += "; analysed as one tf.function"
    for name, where in dict(capture.strategies).items():
        said += f"; one replica of your {name}{_at(where)}"
    others = [
        each
        for each in capture.steps.values()
        if each.trains and each is not step and not each.is_one_batch
    ]
    if others and loaded.name == step.name:
        all_steps = (step, *others)
        total_s = sum(each.total_s for each in all_steps) or 1.0
        shares = ", ".join(
            f"{_told_apart(each, all_steps)} {each.calls} times, "
            f"{format_share(each.total_s / total_s)}"
            for each in all_steps
        )
        said += f"; the dearest of its steps ({shares} of the time): --step names another"
    return said


def _told_apart(step: captures.Step, steps: Sequence[captures.Step]) -> str:
    """Return a name by which a step can be asked for, and none of the other steps."""
    known = [name for each in steps if each is not step for name in each.names]
    return next((name for name in (step.name, *step.names) if name not in known), step.name)


def _at(where: SourceLine | None) -> str:
    return "" if where is None else f" at {model_source.shown_line(where)}"


def _ordinal(number: int) -> str:
    ending = "th" if number % 100 in _TEENS else _ENDINGS.get(number % 10, "th")
    return f"{number}{ending}"


def _cycle(capture: captures.Capture, step: captures.Step) -> captures.Step | None:
    """Return all calls up to an update as one step, where gradients are added up before it.

    None if the step updates by its own gradients.
    """
    if step.touches is None:
        return None
    seen = [each for each in capture.order if each.touches is not None and each.trains]
    update = next((each for each in seen if _adds_up_for(step, each)), None)
    ends = [i for i, each in enumerate(seen) if each is update]
    if update is None or len(ends) == 1:
        return None
    calls = seen[ends[-2] + 1 : ends[-1] + 1]
    counts: Counter[str] = Counter()
    given = []
    for each in calls:
        given.append(each.batches[counts[each.call] % len(each.batches)])
        counts[each.call] += 1

    def run(parts: Any) -> Any:
        return [each.run(part) for each, part in zip(calls, parts, strict=True)][-1]

    named = (f"{name} {count} times" if count > 1 else name for name, count in counts.items())
    return replace(step, call=", ".join(named), run=run, batches=deque([tuple(given)]))


def _adds_up_for(step: captures.Step, update: captures.Step) -> bool:
    """Whether a step leaves in variables what another one updates with, or is such an update."""
    own, other = step.touches, update.touches
    if own is None or other is None or not other.updates:
        return False
    if step is update:
        return not own.differentiates
    return not own.updates and not own.assigns.isdisjoint(other.reads)


def _in_mode(loaded: LoadedStep, source: model_source.ModelSource) -> LoadedStep:
    """Return the step in the mode that was asked for: a model that trains can infer as well."""
    if source.mode in (None, loaded.mode):
        return loaded
    if loaded.model is None or source.mode == "train":
        raise ModelError(
            f"{source.path}: {loaded.name} does not {source.mode}", hint="leave --mode out"
        )
    model, step = loaded.model, loaded.step
    assert isinstance(step, _Around)
    inner = step.batch

    def infer(tensors: Sequence[Any]) -> Any:
        given = inner.around(tensors)
        return model(given[0] if isinstance(given, tuple) else given, training=False)

    return replace(loaded, mode="infer", step=infer)


def _loaded(step: captures.Step) -> LoadedStep:
    """Return the step as it was captured."""
    if isinstance(step.target, captures.SessionRun):
        return _of_session(step, step.target)
    if isinstance(step.target, EagerLoop):
        return _of_loop(step, step.target)
    model = step.target if isinstance(step.target, keras.Model) else None
    batches = [_Batch(batch) for batch in step.batches]
    usual = _usual([batch.shapes for batch in batches])
    alike = [batch for batch in batches if batch.shapes == usual]
    last = alike[-1]
    return LoadedStep(
        name=step.call if model is None else model.name,
        mode="train" if step.trains else "infer",
        step=_Around(step.run, last),
        specs=tuple(map(spec_of, last.tensors)),
        batches=tuple(batch.tensors for batch in alike),
        batch_size=last.size,
        input_names=tuple(_names(step, last, model)),
        model=model,
        dataset=step.dataset,
        takes_batch_size=last.is_dense and last.size is not None,
    )


def _usual(kinds: list[T]) -> T:
    """Return what most batches are: the last one may be a small one."""
    return max(reversed(kinds), key=kinds.count)


def _of_session(step: captures.Step, target: captures.SessionRun) -> LoadedStep:
    assert target.variables is not None, "they were read"
    inputs = target.step.inputs
    batches = [target.step.batch(*each) for each in step.batches]
    run, trace = session_step.runner_of(target.step, target.variables)
    specs = _usual([tuple(map(spec_of, batch)) for batch in batches])
    size = leading_size(specs)
    return LoadedStep(
        name=step.call,
        mode="train" if step.trains else "infer",
        step=run,
        trace=trace,
        specs=specs,
        batches=tuple(batch for batch in batches if tuple(map(spec_of, batch)) == specs),
        batch_size=size,
        input_names=tuple(tensor.op.name for tensor in inputs),
        owner=target,
        origin={op.name: op for op in target.step.graph.get_operations()},
        takes_batch_size=size is not None,
    )


def _of_loop(step: captures.Step, loop: EagerLoop) -> LoadedStep:
    replay = Replay(loop)
    return LoadedStep(
        name=step.call,
        mode="train",
        step=replay,
        specs=tuple(map(spec_of, replay.batch)),
        batches=(replay.batch,),
        batch_size=replay.size,
        input_names=tuple(numbered("input", len(replay.batch))),
        origin=replay.origin,
        takes_batch_size=False,
        runs_op_by_op=True,
    )


class _Batch:
    """What a step was given: its tensors, flat, and what stands around them."""

    def __init__(self, given: Any) -> None:
        self._given = given
        self.flat = list(map(_unpacked, tf.nest.flatten(given)))
        self._leaves = tf.nest.flatten(self.flat, expand_composites=True)
        tensors = [each for each in self._leaves if _is_tensor(each)]
        self.tensors = tuple(map(tf.convert_to_tensor, tensors))
        self.shapes = [(tensor.dtype, tensor.shape.as_list()) for tensor in self.tensors]

    @property
    def is_dense(self) -> bool:
        """Whether none of it is ragged or sparse."""
        return not any(
            isinstance(each, tf.RaggedTensor | tf.SparseTensor)
            for each in tf.nest.flatten(self.flat)
        )

    @property
    def size(self) -> int | None:
        """How many samples it has: the first size of what first has one."""
        for each in tf.nest.flatten(self.flat):
            shape = getattr(each, "shape", None)
            if isinstance(shape, tuple | tf.TensorShape) and len(shape) and shape[0] is not None:
                return int(shape[0])
        return None

    def alike(self, given: Any) -> tuple[Any, ...] | None:
        """Return the tensors of another batch, None if more than their values is different."""
        try:
            tf.nest.assert_same_structure(self._given, given)
        except (TypeError, ValueError):
            return None
        other = _Batch(given)
        is_alike = len(other._leaves) == len(self._leaves) and all(
            map(_is_alike, other._leaves, self._leaves)
        )
        return other.tensors if is_alike and other.shapes == self.shapes else None

    def around(self, tensors: Sequence[Any]) -> Any:
        """Return what was given, with other tensors in place of its own."""
        left = iter(tensors)
        leaves = [next(left) if _is_tensor(each) else each for each in self._leaves]
        whole = tf.nest.pack_sequence_as(self.flat, leaves, expand_composites=True)
        flat = [
            captures.Again(each) if isinstance(was, captures.Again) else each
            for was, each in zip(tf.nest.flatten(self._given), whole, strict=True)
        ]
        return tf.nest.pack_sequence_as(self._given, flat)


class _Around:
    """A step that takes the tensors of a batch, flat."""

    def __init__(self, run: Any, batch: _Batch) -> None:
        self._run, self.batch = run, batch

    def __call__(self, tensors: Sequence[Any]) -> Any:
        return self._run(self.batch.around(tensors))


def _unpacked(value: Any) -> Any:
    """Return the batch of an iterator, and of all else the value."""
    return value.batch if isinstance(value, captures.Again) else _plain(value)


def _plain(value: Any) -> Any:
    """Return None for what Keras hands over in place of it: a dataset cannot hold it."""
    return None if isinstance(value, tf.experimental.Optional) else value


def _is_tensor(value: Any) -> bool:
    """Whether a value is one that a step computes with."""
    return isinstance(value, tf.Tensor | np.ndarray | np.generic)


def _is_alike(value: Any, own: Any) -> bool:
    """Whether what a step was traced with stands for a value: as another tensor, or as itself."""
    if _is_tensor(own):
        return _is_tensor(value)
    return value is own or bool(type(value) in _CONSTANTS and value == own)


def _names(step: captures.Step, batch: _Batch, model: Any) -> Iterator[str]:
    """Yield a name for each tensor: of a model's input, of an argument, or of the batch's part."""
    count = len(batch.tensors)
    if model is not None:
        inputs = [tensor.name for tensor in getattr(model, "inputs", None) or ()]
        inputs = inputs if len(inputs) < count else inputs[:count]
        yield from inputs
        yield from numbered("target" if inputs else "input", count - len(inputs))
        return
    names: list[str] = []
    with suppress(TypeError, ValueError):  # Written in C, or several calls in one step.
        args, kwargs = step.batches[-1]
        function = getattr(step.target, "python_function", step.target)
        bound = inspect.signature(function).bind(*args, **kwargs)
        for name, value in bound.arguments.items():
            parts = tf.nest.flatten(value, expand_composites=True)
            names += numbered(name, sum(map(_is_tensor, parts)))
    yield from names if len(names) == count else numbered("input", count)
