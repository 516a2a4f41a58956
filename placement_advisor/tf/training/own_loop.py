"""Records some steps of a training loop that the user wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from placement_advisor.errors import ModelError
from placement_advisor.tf.load.static_specs import spec_of
from placement_advisor.tf.training.recorder import Recorder
from placement_advisor.tf.training.step_graph import step_graph
from placement_advisor.tf.training.summary import finish

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import TracebackType

    from placement_advisor.tf.training.step_graph import StepGraph


class StepsRecorded:
    """Runs steps and records some; see `placement_advisor.record_steps`."""

    def __init__(self, log_dir: str | Path, steps: tuple[int, int]) -> None:
        """Record into a log folder."""
        self._recorder = Recorder(log_dir, steps)
        self._called: tuple[Callable[..., Any], tuple[Any, ...], bool] | None = None

    def __enter__(self) -> StepsRecorded:
        return self

    def __call__(self, step: Callable[..., Any], *inputs: Any, **named: Any) -> Any:
        """Run one step on its inputs and return what it returns."""
        if self._recorder.begin() and self._called is None:
            self._called = step, tf.nest.map_structure(_spec, inputs), bool(named)
        try:
            return step(*inputs, **named)
        finally:
            self._recorder.end()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._recorder.stop()
        if error is None:
            print(*finish(self._recorder, self._graph), sep="\n", flush=True)

    def _graph(self) -> StepGraph:
        assert self._called is not None, "a step was recorded"
        step, inputs, has_named = self._called
        if has_named or not all(
            isinstance(spec, tf.TensorSpec) for spec in tf.nest.flatten(inputs)
        ):
            raise ModelError(
                "a graph is drawn of steps that are called with tensors, by position",
                hint="call it so: record(train_step, x, y)",
            )
        return step_graph(step, inputs)


def _spec(value: Any) -> Any:
    """Return the spec of a tensor, or of what becomes one; anything else as it is."""
    try:
        return spec_of(tf.convert_to_tensor(value))
    except (TypeError, ValueError):
        return value
