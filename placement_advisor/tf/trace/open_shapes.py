"""Shapes that an import leaves open, though they follow from the graph.

A graph that was imported (a SavedModel, a frozen graph, anything that had to be inlined) has the
shapes that TensorFlow infers op by op. It stops at loops and conditionals, whose shapes were
written down for any batch, at lookups, and at the loops and TensorArrays of TensorFlow 1. Once
these are settled here or in `bodies`, the rest is inferred anew.

Left out: a variable of a loop that changes its shape from trip to trip stays open.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from placement_advisor.errors import ModelError
from placement_advisor.tf.trace.bodies import COMPOSITE_KINDS
from placement_advisor.tf.trace.list_contents import list_made
from placement_advisor.tf.trace.read_graph import spec as spec_of
from placement_advisor.tf.trace.read_graph import write_constant, write_spec

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from placement_advisor.graph.op_work.signature import TensorSpec
    from placement_advisor.tf.trace.flat_step import FlatStep
    from placement_advisor.tf.trace.list_contents import Lists
    from placement_advisor.tf.trace.nodes import Node

_LOOKUP = "LookupTableFindV2"
_LOOKUP_KEYS = 1
_ENTER, _MERGE, _NEXT = "Enter", "Merge", "NextIteration"
# TensorArrays of TensorFlow 1: what is read has the shape of what was put in, at these inputs.
_READ, _GATHER = "TensorArrayReadV3", "TensorArrayGatherV3"
_WRITE, _SCATTER = "TensorArrayWriteV3", "TensorArrayScatterV3"
_PUT_INPUT = 2
# Gradients of what is not reached are zeros of this shape.
_VARIABLE_SHAPE = "VariableShape"
# Ops that are settled here or in `bodies`; what follows from them is inferred from their outputs.
_SETTLED = COMPOSITE_KINDS | {_LOOKUP, _READ, _GATHER}
_STOPPING = _SETTLED | {_ENTER, _VARIABLE_SHAPE}

Specs = dict[str, tuple["TensorSpec", ...]]


def stopping(nodes: Iterable[Node]) -> set[str]:
    """Return the ops with an open output at which TensorFlow stops to infer shapes."""
    return {
        node.name
        for node in nodes
        if node.kind in _STOPPING and any(_is_open(spec) for spec in node.outputs)
    }


def settle(nodes: Iterable[Node]) -> None:
    """Give a shape to lookups, to the shapes of variables, and to items of TensorArrays."""
    elements: dict[str, tuple[int, ...] | None] = {}
    nodes = list(nodes)
    for node in nodes:
        if node.kind in (_WRITE, _SCATTER):
            producer, port = node.inputs[_PUT_INPUT]
            shape = producer.outputs[port].shape
            element = shape[1:] if shape and node.kind == _SCATTER else shape
            array = _array(node)
            elements[array] = element if elements.get(array, element) == element else None
    for node in nodes:
        if node.kind == _LOOKUP and _is_open(node.outputs[0]):
            producer, port = node.inputs[_LOOKUP_KEYS]
            _give(node, producer.outputs[port].shape)
        elif node.kind == _VARIABLE_SHAPE and (shape := _variable_shape(node)) is not None:
            _give(node, (len(shape),))
        elif node.kind in (_READ, _GATHER) and (element := elements.get(_array(node))) is not None:
            indices, port = node.inputs[1]
            read = indices.outputs[port].shape if node.kind == _GATHER else ()
            _give(node, None if read is None else (*read, *element))


def _array(node: Node) -> str:
    """Return the op that made the TensorArray which an op takes first."""
    array = node.inputs[0][0]
    while array.inputs and array.kind in (_ENTER, "Identity"):
        array = array.inputs[0][0]
    return array.name


def _variable_shape(node: Node) -> tuple[int, ...] | None:
    producer, port = node.inputs[0]
    return producer.outputs[port].shape


def _give(node: Node, shape: tuple[int, ...] | None) -> None:
    if _is_open(node.outputs[0]):
        node.outputs = (node.outputs[0]._replace(shape=shape), *node.outputs[1:])


def infer(step: FlatStep, lists: Lists) -> None:
    """Infer open shapes anew from what is settled by now; ``lists`` says what lists hold.

    Raises:
        ModelError: the step has shapes of another batch than its own in it.
    """
    given = step.graph_def()
    varying: set[str] = set()
    while True:
        found = _inferred(step, given, lists, varying)
        more = {node.name for node in step.nodes if _is_varying(node, found)} - varying
        if not more:
            break
        varying |= more
    for node in step.nodes:
        node.outputs = _settled(node.outputs, found.get(node.name, ()))
    specs = {node.name: node.outputs for node in step.nodes}
    for node in step.ops:
        if node.name in step.loops:
            ends = step.loops[node.name].outputs
            node.outputs = _settled(node.outputs, [specs[name][port] for name, port in ends])
        else:
            node.outputs = _settled(node.outputs, specs[node.name])


def _is_open(spec: TensorSpec) -> bool:
    return spec.shape is None and not spec.is_handle


def _settled(
    outputs: tuple[TensorSpec, ...], found: Iterable[TensorSpec]
) -> tuple[TensorSpec, ...]:
    pairs = zip_longest(outputs, found)
    return tuple(new if new and _is_open(old) else old for old, new in pairs)


def _is_loop_start(node: Node) -> bool:
    """Whether a value enters a loop of TensorFlow 1 here, and comes back after each trip."""
    return node.kind == _MERGE and any(p.kind == _NEXT for p, _ in node.inputs)


def _is_varying(node: Node, found: Mapping[str, tuple[TensorSpec, ...]]) -> bool:
    """Whether a loop's value comes back in another shape than it was taken to have."""
    if not _is_loop_start(node) or node.name not in found:
        return False
    back = next(p for p, _ in node.inputs if p.kind == _NEXT)
    return found[node.name][0].shape != found[back.name][0].shape


def _inferred(step: FlatStep, given: Any, lists: Lists, varying: Collection[str]) -> Specs:
    """Return the shapes that follow if the loops' values but the ``varying`` keep theirs."""
    nodes = {node.name: node for node in step.nodes}
    written = tf.compat.v1.GraphDef(versions=given.versions)
    settled: dict[str, str] = {}
    for proto in given.node:
        node = nodes[proto.name]
        if node.kind in _SETTLED or node.name in varying:
            for port, spec in enumerate(node.outputs):
                stand_in = written.node.add(name=f"{node.name}/settled_{port}")
                settled[f"{node.name}:{port}"] = stand_in.name
                content = lists.get((node.name, port))
                if content is not None and content.element is not None:
                    list_made(written, stand_in, content)
                else:
                    stand_in.op = "Placeholder"
                    is_open = node.name in varying or spec.dtype == "variant"
                    write_spec(stand_in, None if is_open else spec.shape, spec.dtype)
        elif node.kind == _VARIABLE_SHAPE and (shape := _variable_shape(node)) is not None:
            write_constant(written.node.add(name=node.name), shape, proto.attr["out_type"].type)
        else:
            _without_frame(written.node.add(), proto, node)
    for proto in written.node:
        inputs = [name for name in proto.input if not name.startswith("^")]
        del proto.input[:]
        for name in inputs:
            proto.input.append(settled.get(name if ":" in name else f"{name}:0", name))
    graph = tf.Graph()
    try:
        with graph.as_default():
            tf.graph_util.import_graph_def(written, name="")
    except ValueError as error:
        raise ModelError(f"its shapes do not fit one another: {error}") from None
    return {op.name: tuple(map(spec_of, op.outputs)) for op in graph.get_operations()}


def _without_frame(written: Any, proto: Any, node: Node) -> None:
    """Copy an op; where a value enters a loop of TensorFlow 1 it passes as it is."""
    written.CopyFrom(proto)
    if node.kind == _ENTER or _is_loop_start(node):
        written.op = "Identity"
        for attribute in set(written.attr) - {"T"}:
            del written.attr[attribute]
        entering = next(i for i, (p, _) in enumerate(node.inputs) if p.kind != _NEXT)
        source = proto.input[entering]
        del written.input[:]
        written.input.append(source)
