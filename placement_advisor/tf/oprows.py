"""Bundle -> op graph: sizes, roles, layers and kernels of every op."""

from __future__ import annotations

from collections import defaultdict
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tensorflow.python.framework import kernels, ops

from placement_advisor.graph import CONTROL_PORT, Edge, Op, OpGraph
from placement_advisor.tf.op_layers import op_layers
from placement_advisor.tf.roles import roles, variables

if TYPE_CHECKING:
    from placement_advisor.tf.bundle import Bundle


def op_graph(bundle: Bundle) -> OpGraph:
    """Return the op graph of a bundle."""
    graph = tf.Graph()
    with graph.as_default():
        tf.graph_util.import_graph_def(bundle.graph_def, name="")
    operations = _in_order(graph.get_operations())
    text_bytes = _text_bytes(bundle)
    sizes = {
        op.name: tuple(
            text_bytes.get(op.name) if t.dtype == tf.string else _tensor_bytes(t)
            for t in op.outputs
        )
        for op in operations
    }
    role_of = roles(operations, bundle.inputs)
    variable_of = variables(operations)
    layer_of = op_layers(operations, role_of, variable_of)
    found = [
        Op(
            name=op.name,
            kind=op.type,
            role=role_of[op.name],
            layer=layer_of.get(op.name),
            variable=variable_of.get(op.name),
            flops=_flops(graph, op),
            output_bytes=sizes[op.name],
            parameter_bytes=_parameter_bytes(op.name, bundle),
            device_kinds=_device_kinds(op.type),
        )
        for op in operations
    ]
    edges = {
        Edge(
            producer=t.op.name,
            consumer=op.name,
            port=t.value_index,
            size_bytes=sizes[t.op.name][t.value_index],
        )
        for op in operations
        for t in op.inputs
    }
    control = {
        Edge(producer=before.name, consumer=op.name, port=CONTROL_PORT, size_bytes=0)
        for op in operations
        for before in op.control_inputs
    }
    return OpGraph(found, edges | control)


def _in_order(operations: list[Any]) -> list[Any]:
    """Return operations with producers first, otherwise as given."""
    readers: dict[str, set[int]] = defaultdict(set)
    waiting: dict[int, int] = {}
    for i, op in enumerate(operations):
        before = {t.op.name for t in op.inputs} | {c.name for c in op.control_inputs}
        waiting[i] = len(before)
        for name in before:
            readers[name].add(i)
    ready = [i for i, count in waiting.items() if not count]
    ordered = []
    while ready:
        op = operations[heappop(ready)]
        ordered.append(op)
        for i in readers[op.name]:
            waiting[i] -= 1
            if not waiting[i]:
                heappush(ready, i)
    return ordered


def _tensor_bytes(tensor: Any) -> int | None:
    if tensor.dtype == tf.resource:
        return 0
    count = tensor.shape.num_elements()
    return None if count is None or tensor.dtype == tf.variant else count * tensor.dtype.size


def _text_bytes(bundle: Bundle) -> dict[str, int]:
    """Sizes of text inputs, from the first example batch: their shapes alone do not tell."""
    return {
        name: _array_bytes(array)
        for name, array in zip(bundle.inputs, bundle.batches[0], strict=True)
        if array.dtype == object
    }


def _parameter_bytes(name: str, bundle: Bundle) -> int:
    value = bundle.variables.get(name)
    return 0 if value is None else _array_bytes(value)


def _array_bytes(array: Any) -> int:
    """Return the size of an array; texts count their characters."""
    return sum(map(len, array.ravel())) if array.dtype == object else int(array.nbytes)


def _flops(graph: Any, op: Any) -> int | None:
    try:
        value = ops.get_stats_for_node_def(graph, op.node_def, "flops").value
    except (ValueError, AssertionError, TypeError):  # A shape that the formula needs is unknown.
        return None
    return None if value is None else int(value)


_kinds: dict[str, frozenset[str]] = {}


def _device_kinds(kind: str) -> frozenset[str]:
    if kind not in _kinds:
        registered = kernels.get_registered_kernels_for_op(kind).kernel
        found = {kernel.device_type for kernel in registered}
        if "DEFAULT" in found:
            found |= {"CPU", "GPU"}
        _kinds[kind] = frozenset(found & {"CPU", "GPU"}) or frozenset({"CPU"})
    return _kinds[kind]
