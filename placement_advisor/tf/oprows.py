"""Bundle -> op graph: sizes, roles, layers and kernels of every op.

Roles follow from structure. Backward ops are those that TensorFlow names after the forward op
they serve; what comes after them, and what feeds only that, updates state. An update op belongs to
the variable that it leads to: its own reader's layer, so optimizer slots stand with their variable.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tensorflow.python.framework import kernels, ops

from placement_advisor.graph import CONTROL_PORT, Edge, Op, OpGraph, Role

if TYPE_CHECKING:
    from collections.abc import Iterable

    from placement_advisor.tf.bundle import Bundle

LAYER_ATTRIBUTE = "_placement_advisor_layer"
_HANDLE_KINDS = frozenset({"VarHandleOp", "HashTableV2"})
_BACKWARD = re.compile(r"^(?:.*/)?(?:gradient_tape|gradients(?:_\d+)?)/")
_GRADIENT_SUFFIX = re.compile(r"_grad(?=/|$)")
_CALL_NUMBER = re.compile(r"_\d+$")


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
    roles = _roles(operations, bundle)
    variables = _variables(operations)
    layers = _layers(operations, roles, variables)
    found = [
        Op(
            name=op.name,
            kind=op.type,
            role=roles[op.name],
            layer=layers.get(op.name),
            variable=variables.get(op.name),
            flops=_flops(graph, op),
            output_bytes=sizes[op.name],
            parameter_bytes=_parameter_bytes(op),
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
    """Return operations with producers first; imported graphs come in any order."""
    waiting = {op: len(op.inputs) + len(op.control_inputs) for op in operations}
    ready = [op for op in operations if not waiting[op]]
    for op in ready:  # The list grows while it is read.
        followers = [c for t in op.outputs for c in t.consumers()]
        followers += op._control_outputs
        for follower in followers:
            # A consumer that reads a tensor twice is listed twice for it, or once: count inputs.
            waiting[follower] -= 1
            if not waiting[follower]:
                ready.append(follower)
    return ready


def _tensor_bytes(tensor: Any) -> int | None:
    if tensor.dtype == tf.resource:
        return 0
    count = tensor.shape.num_elements()
    return None if count is None or tensor.dtype == tf.variant else count * tensor.dtype.size


def _text_bytes(bundle: Bundle) -> dict[str, int]:
    """Sizes of text inputs, from the first example batch: their shapes alone do not tell."""
    return {
        name: sum(len(text) for text in array.ravel())
        for name, array in zip(bundle.inputs, bundle.batches[0], strict=True)
        if array.dtype == object
    }


def _parameter_bytes(op: Any) -> int:
    if op.type != "VarHandleOp":
        return 0
    shape, dtype = tf.TensorShape(op.get_attr("shape")), op.get_attr("dtype")
    return int((shape.num_elements() or 0) * dtype.size)


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


def _variables(operations: Iterable[Any]) -> dict[str, str]:
    """Map each handle and each op that takes one to the handle's name."""
    held: dict[str, str] = {}
    for op in operations:
        if op.type in _HANDLE_KINDS:
            held[op.name] = op.name
        else:
            handle = next((t.op for t in op.inputs if t.op.type in _HANDLE_KINDS), None)
            if handle is not None:
                held[op.name] = handle.name
    return held


def _roles(operations: list[Any], bundle: Bundle) -> dict[str, Role]:
    roles: dict[str, Role] = {}
    after_backward: set[str] = set()
    for op in operations:
        # State passes on through control edges: a slot is read again after it was written.
        inputs = [t.op.name for t in op.inputs] + [c.name for c in op.control_inputs]
        if op.name in bundle.inputs:
            roles[op.name] = Role.INPUT
        elif op.type == "Const":
            roles[op.name] = Role.CONSTANT
        elif op.type in _HANDLE_KINDS:
            roles[op.name] = Role.VARIABLE
        elif _BACKWARD.match(op.name):
            roles[op.name] = Role.BACKWARD
        elif any(roles[i] is Role.BACKWARD or i in after_backward for i in inputs):
            roles[op.name] = Role.UPDATE
            after_backward.add(op.name)
        else:
            roles[op.name] = Role.FORWARD
    # What feeds updates alone (learning rate, step counter, slot reads) belongs to them.
    for op in reversed(operations):
        if roles[op.name] is not Role.FORWARD:
            continue
        readers = [roles[c.name] for t in op.outputs for c in t.consumers()]
        if readers and all(role is Role.UPDATE for role in readers):
            roles[op.name] = Role.UPDATE
    # A slot that only updates read is written by updates, also where its new value needs no
    # gradient (the step counter).
    readers_of: dict[str, set[Role]] = {}
    for op in operations:
        for t in op.inputs:
            if t.op.type in _HANDLE_KINDS and not op.type.startswith("Assign"):
                readers_of.setdefault(t.op.name, set()).add(roles[op.name])
    for op in operations:
        if op.type.startswith("Assign") and op.inputs:
            readers = list(readers_of.get(op.inputs[0].op.name, ()))
            if readers and all(role is Role.UPDATE for role in readers):
                roles[op.name] = Role.UPDATE
    return roles


def _layers(
    operations: list[Any], roles: dict[str, Role], variables: dict[str, str]
) -> dict[str, str]:
    scopes = _forward_scopes(operations, roles)
    layers: dict[str, str] = {}
    for op in operations:
        scope = _forward_scope(op.name, roles[op.name])
        layer = _longest_prefix(scope, scopes) if scope is not None else None
        if layer is not None:
            layers[op.name] = layer
    _layers_of_reads(operations, roles, layers)
    _layers_of_state(operations, roles, variables, layers)
    _layers_of_backward(operations, roles, layers)
    return layers


def _forward_scopes(operations: list[Any], roles: dict[str, Role]) -> dict[str, str]:
    """Map the name scope of each call of a layer to the layer, numbered from the second call on."""
    forward = [op for op in operations if roles[op.name] is Role.FORWARD]
    tags = {op.name: _tag(op) for op in forward}
    scopes: dict[str, str] = {}
    if not any(tags.values()):
        for op in forward:
            if op.type not in ("ReadVariableOp", "NoOp"):
                scope = op.name.rpartition("/")[0] or op.name
                scopes.setdefault(scope, scope)
        return scopes
    calls: dict[str, int] = {}
    for op in forward:
        tag = tags[op.name]
        scope = _call_scope(op.name, tag) if tag else None
        if tag and scope and scope not in scopes:
            calls[tag] = calls.get(tag, 0) + 1
            scopes[scope] = tag if calls[tag] == 1 else f"{tag}@{calls[tag]}"
    return scopes


def _tag(op: Any) -> str | None:
    try:
        return str(op.get_attr(LAYER_ATTRIBUTE).decode())
    except ValueError:
        return None


def _call_scope(name: str, tag: str) -> str:
    """Return the part of an op's name that stands for this call of its layer."""
    parts, last = name.split("/"), tag.rpartition("/")[2]
    for i in range(tag.count("/"), len(parts) - 1):
        if parts[i] == last or _CALL_NUMBER.sub("", parts[i]) == last:
            return "/".join(parts[: i + 1])
    return name.rpartition("/")[0] or name


def _forward_scope(name: str, role: Role) -> str | None:
    """Return the scope of the forward op that an op is, or serves; None for updates."""
    if role is Role.BACKWARD:
        match = _BACKWARD.match(name)
        assert match
        return _GRADIENT_SUFFIX.sub("", name[match.end() :])
    return name if role in (Role.FORWARD, Role.CONSTANT) else None


def _longest_prefix(name: str, scopes: dict[str, str]) -> str | None:
    while name:
        if name in scopes:
            return scopes[name]
        name = name.rpartition("/")[0]
    return None


def _layers_of_reads(operations: list[Any], roles: dict[str, Role], layers: dict[str, str]) -> None:
    """A variable is read for the layer that uses it, whatever scope the read is named in."""
    for op in operations:
        if op.type != "ReadVariableOp" or roles[op.name] is not Role.FORWARD:
            continue
        readers = (layers.get(c.name) for c in op.outputs[0].consumers())
        layer = next((found for found in readers if found is not None), None)
        if layer is not None:
            layers[op.name] = layer


def _layers_of_state(
    operations: list[Any],
    roles: dict[str, Role],
    variables: dict[str, str],
    layers: dict[str, str],
) -> None:
    """Give variables the layer that reads them, update ops that of the variable they lead to."""
    for op in operations:
        owner = variables.get(op.name)
        if owner and owner not in layers and roles[op.name] is Role.FORWARD and op.name in layers:
            layers[owner] = layers[op.name]
    reach: dict[str, frozenset[str]] = {}
    # Twice: a slot's layer shows only when the ops that read it are known.
    for _ in range(2):
        slots: dict[str, set[str]] = {}
        for op in reversed(operations):
            if roles[op.name] is not Role.UPDATE:
                continue
            found = {
                layer for t in op.outputs for c in t.consumers() for layer in reach.get(c.name, ())
            }
            handle = variables.get(op.name)
            if handle in layers:
                found.add(layers[handle])
            reach[op.name] = frozenset(found)
            if handle is not None and handle not in layers:
                slots.setdefault(handle, set()).update(found)
        for slot, leads_to in slots.items():
            if len(leads_to) == 1:
                layers[slot] = next(iter(leads_to))
    for name, reached in reach.items():
        handle = variables.get(name)
        if handle in layers:
            layers[name] = layers[handle]
        elif len(reached) == 1:
            layers[name] = next(iter(reached))


def _layers_of_backward(
    operations: list[Any], roles: dict[str, Role], layers: dict[str, str]
) -> None:
    """Sums of gradients carry no forward name: they stand with the gradient that they wait for."""
    for op in operations:
        if roles[op.name] is Role.BACKWARD and op.name not in layers:
            producers = (layers.get(t.op.name) for t in op.inputs)
            layer = next((found for found in producers if found is not None), None)
            if layer is not None:
                layers[op.name] = layer
