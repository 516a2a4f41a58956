"""A script that runs once more, under a strategy, up to the call of the step that was captured.

It stands still in the first such call, before that has begun: neither has Keras asked for data,
which it cannot do in one of several workers, nor has an optimizer made its slots outside of a
replica. The batch is the one that was captured.
"""

from __future__ import annotations

import functools
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf

from placement_advisor.tf.load.capture import FUNCTION, Capture, Step, called, function_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from placement_advisor.tf.answers import CapturedCall, SourceLine

_METHODS = ("fit", "train_on_batch")
REPEATED = frozenset(f"model.{name}" for name in _METHODS)


class Rerun(Capture):
    """What is seen of a program whose call is known."""

    def __init__(
        self,
        is_users: Callable[[str], bool],
        stop: Callable[[Capture], None],
        call: CapturedCall,
        batch: Sequence[Any],
    ) -> None:
        """Wait for a call; ``batch`` has the tensors that a model was given then, flat."""
        super().__init__(is_users, stop)
        self._call, self._batch = call, batch

    def _hook_steps(self, put: Callable[[Any, str, Any], None]) -> None:
        for name in _METHODS:
            put(keras.Model, name, self._method_hook(getattr(keras.Model, name)))
        put(FUNCTION, "__call__", self._function_hook(FUNCTION.__call__))

    def _method_hook(self, original: Any) -> Any:
        @functools.wraps(original)
        def method(model: Any, *args: Any, **kwargs: Any) -> Any:
            if (where := self._is_there(f"model.{original.__name__}")) is not None:
                given = self._given()
                _build(model, given)
                self._stand_in(model, model.train_step, given, where)
            return original(model, *args, **kwargs)

        return method

    def _function_hook(self, original: Any) -> Any:
        rerun = self

        def call(function: Any, *args: Any, **kwargs: Any) -> Any:
            name = function_name(function)
            if tf.executing_eagerly() and (where := rerun._is_there(name)) is not None:
                rerun._stand_in(function, called(function.python_function), (args, kwargs), where)
            return original(function, *args, **kwargs)

        return call

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
        step = Step(call=self._call.call, target=target, run=run, trains=True, where=where)
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
