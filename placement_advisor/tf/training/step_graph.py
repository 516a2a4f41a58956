"""The op graph of a step of a training that goes on, as `advisor trace` would write it.

The step is traced anew, apart from the training: in a thread of its own, where no strategy of
`tf.distribute` is in force. A model that was made under one is made once more without, from its
configuration, with weights of its own.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

import tensorflow as tf

from placement_advisor.errors import ModelError
from placement_advisor.tf.own_step.place import live_model_step, live_step

if TYPE_CHECKING:
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.tf.trace.tracer import TracedStep


class StepGraph(NamedTuple):
    """The graph of a step, and the samples in its batch, None where its inputs hold none."""

    graph: OpGraph
    batch_size: int | None


def step_graph(step: Any, inputs: tuple[Any, ...]) -> StepGraph:
    """Return the graph of a function or a Keras model for inputs of these specs.

    Raises:
        ModelError: it cannot be traced, or a model not be made without its strategy.
    """
    with ThreadPoolExecutor(1) as outside:
        return graph_of(outside.submit(_traced, step, inputs).result())


def graph_of(traced: TracedStep) -> StepGraph:
    """Return the graph of a step that was traced."""
    return StepGraph(traced.graph, traced.loaded.batch_size)


def _traced(step: Any, inputs: tuple[Any, ...]) -> TracedStep:
    if not hasattr(step, "jit_compile"):
        return live_step(step, inputs)
    if getattr(step, "_distribute_strategy", None) not in (None, tf.distribute.get_strategy()):
        step = _without_strategy(step)
    return live_model_step(step, inputs)


def _without_strategy(model: Any) -> Any:
    try:
        again = type(model).from_config(model.get_config())
        again.compile_from_config(model.get_compile_config())
    except Exception as error:
        reason = next(iter(str(error).splitlines()), "") or type(error).__name__
        raise ModelError(
            f"{model.name} was made under a strategy, and cannot be made without: {reason}",
            hint="trace it from a file that makes it without: advisor trace model.py",
        ) from None
    return again
