"""A flat graph with devices -> a function on live state.

Model: the graph is imported as it is into a function, whose inputs, variables and tables are those
of the user's process. The side effects on each device meet in one op there, and the step ends when
these have run: it waits for one signal from each device, not for one from each update.

Left out: TensorFlow's remapper has to be off where the function runs, or ops are fused across
devices.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.eager.polymorphic_function import concrete_function
from tensorflow.python.framework import func_graph, ops

from placement_advisor.tf.trace.function_names import suffix_functions

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence


def placed_function(
    placed: Any,
    inputs: Mapping[str, tf.TensorSpec],
    outputs: Sequence[str],
    targets: Iterable[str],
    handles: Mapping[str, Any],
) -> Callable[[Sequence[Any]], list[Any]]:
    """Return what runs a placed GraphDef on a list of inputs, and returns a list of outputs.

    ``handles`` are those of the variables and tables, by the name of the op that stands for them.
    ``placed`` is changed.
    """
    _register_functions(placed)
    device = {node.name: node.device for node in placed.node}
    trimmed, read = without_given(placed, {*inputs, *handles})
    effects: dict[str, list[str]] = {}
    for target in targets:
        effects.setdefault(device[target], []).append(target)

    def body(*given: Any) -> list[Any]:
        graph = ops.get_default_graph()
        feeds = dict(zip(inputs, given, strict=True))
        feeds |= {name: graph.capture(handle) for name, handle in handles.items()}
        tensors = tf.graph_util.import_graph_def(
            trimmed,
            input_map={f"{name}:0": tensor for name, tensor in feeds.items() if name in read},
            return_elements=[name for name in outputs if _op(name) not in feeds],
            name="",
        )
        computed = iter(tensors)
        for where, names in effects.items():
            done = [graph.get_operation_by_name(name) for name in names]
            with tf.device(where), tf.control_dependencies(done):
                graph.control_outputs.append(tf.no_op())
        return [feeds[_op(n)] if _op(n) in feeds else next(computed) for n in outputs]

    graph = func_graph.func_graph_from_py_func(
        "placed_step",
        body,
        args=(),
        kwargs={},
        signature=tuple(inputs.values()),
        add_control_dependencies=False,
    )
    function = concrete_function.ConcreteFunction.from_func_graph(graph, None, attrs={})
    return lambda given: function._call_flat(list(given), function.captured_inputs)


def without_given(placed: Any, given: Collection[str]) -> tuple[Any, set[str]]:
    """Return a placed GraphDef without the ops that are given, and which of these it reads."""
    trimmed = tf.compat.v1.GraphDef(versions=placed.versions, library=placed.library)
    # A called function waits for its arguments; what is given is there.
    needless = {f"^{name}" for name in given}
    read = set()
    for node in placed.node:
        if node.name in given:
            continue
        kept = trimmed.node.add()
        kept.CopyFrom(node)
        if not needless.isdisjoint(node.input):
            kept.input[:] = [reference for reference in node.input if reference not in needless]
        read |= {_op(reference) for reference in kept.input}.intersection(given)
    return trimmed, read


def _op(tensor: str) -> str:
    return tensor.partition(":")[0]


def _register_functions(placed: Any) -> None:
    """Give the bodies of loops and conditionals to TensorFlow, under names of their own.

    Under their old names it has the bodies as they were traced.
    """
    suffix_functions(placed, f"_placed_{ops.uid()}")
    for function in placed.library.function:
        context.context().add_function_def(function)
