"""Graphs with TF1's control flow, which a `tf.function` cannot hold inline: imported whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tensorflow.python.framework import ops

if TYPE_CHECKING:
    from collections.abc import Callable

_V1_CONTROL_FLOW = frozenset({"Enter", "RefEnter", "Switch", "RefSwitch", "Merge", "RefMerge"})


def has_v1_control_flow(graph: Any) -> bool:
    """Say whether a graph has loops or conditionals made of TF1's ops, outside its functions."""
    return any(op.type in _V1_CONTROL_FLOW for op in graph.get_operations())


def tracer_of(function: Any) -> Callable[[Any], Any]:
    """Return what traces a concrete function at other specs, its graph imported as it is."""
    graph = function.graph
    graph_def = graph.as_graph_def()

    def call(*given: Any) -> Any:
        inner = ops.get_default_graph()
        captured = [inner.capture(outer) for outer in function.captured_inputs]
        feeds = {
            placeholder.name: value
            for placeholder, value in zip(function.inputs, [*given, *captured], strict=True)
        }
        wanted = [tensor.name for tensor in function.outputs]
        outputs = tf.graph_util.import_graph_def(
            graph_def, input_map=feeds, return_elements=wanted, name=""
        )
        return tf.nest.pack_sequence_as(function.structured_outputs, outputs)

    return lambda specs: tf.compat.v1.wrap_function(call, tf.nest.flatten(specs))
