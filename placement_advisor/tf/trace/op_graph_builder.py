"""Builds the op graph of a flat step: sizes, roles, layers, work and kernels of every op.

Shapes that an import leaves open are settled first where they follow from the graph.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from placement_advisor.errors import ModelError
from placement_advisor.graph.op import CONTROL_PORT, Edge, Inside, Op
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.graph.op_work.gpu_kernels import kernel_of
from placement_advisor.graph.op_work.work import work_of
from placement_advisor.tf.trace import device_kinds
from placement_advisor.tf.trace.bodies import COMPOSITE_KINDS, Bodies, Composite
from placement_advisor.tf.trace.constant_values import Lists, constant_values, list_made, note_list
from placement_advisor.tf.trace.nodes import data_readers, op_signature, write_constant, write_spec
from placement_advisor.tf.trace.nodes import spec as spec_of
from placement_advisor.tf.trace.op_layers import op_layers
from placement_advisor.tf.trace.roles import roles, variables

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from placement_advisor.graph.op_work.signature import TensorSpec
    from placement_advisor.tf.trace.flat_step import FlatStep
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


def stopping_shapes(nodes: Iterable[Node]) -> set[str]:
    """Return the ops with an open output at which TensorFlow stops to infer shapes."""
    return {
        node.name
        for node in nodes
        if node.kind in _STOPPING and any(_is_open(spec) for spec in node.outputs)
    }


def settle_shapes(nodes: Iterable[Node]) -> None:
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


def infer_shapes(step: FlatStep, lists: Lists) -> None:
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


_TEXT = "string"
_WRITES_ROWS = ("ResourceScatter", "ResourceSparseApply")


def op_graph(
    step: FlatStep,
    composites: Mapping[str, Composite],
    text_bytes: Mapping[str, int],
    *,
    is_tf32_allowed: bool,
) -> OpGraph:
    """Return the op graph of a step with its loops and conditionals.

    ``text_bytes`` gives the sizes of text inputs: shapes alone do not tell how long texts are.
    Whether products and convolutions may round to TF32 was set before the step was traced.
    """
    nodes = step.ops
    readers = data_readers(nodes)
    role_of = roles(nodes, readers, step.inputs)
    variable_of = variables(nodes)
    layer_of = op_layers(nodes, readers, role_of, variable_of)
    sizes = {
        node.name: tuple([_bytes(tensor, text_bytes.get(node.name)) for tensor in node.outputs])
        for node in nodes
    }
    kernels = _Kernels(step)
    copying = _copying_reads(nodes, variable_of)
    found = []
    for node in nodes:
        composite = composites.get(node.name)
        signature = op_signature(node)
        work = composite.work if composite else work_of(signature)
        if node.name in copying:
            work = replace(work, bytes_accessed=copying[node.name])
        is_known = work.flops is not None or work.bytes_accessed is not None
        inside = composite.inside if composite else None
        runs_on = kernels.of(node, inside)
        variable = step.state.variables.get(node.name)
        found.append(
            Op(
                name=node.name,
                kind=node.kind,
                role=role_of[node.name],
                layer=layer_of.get(node.name),
                variable=variable_of.get(node.name),
                flops=work.flops,
                bytes_accessed=work.bytes_accessed,
                work_basis=work.basis if is_known else None,
                trips=composite.trips if composite else None,
                output_bytes=sizes[node.name],
                parameter_bytes=(variable.spec.size_bytes or 0) if variable else 0,
                device_kinds=runs_on.device_kinds,
                host_outputs=runs_on.host_outputs,
                kernel=kernel_of(signature, is_tf32_allowed=is_tf32_allowed),
                inside=inside,
            )
        )
    return OpGraph(found, _edges(nodes, sizes))


def _copying_reads(nodes: list[Node], variable_of: Mapping[str, str]) -> dict[str, int | None]:
    """Return the reads of variables that copy the whole variable, with the bytes that they access.

    A variable that is written row by row is copied whenever it is read as a whole, so that rows do
    not change under whoever reads. (TensorFlow calls it copy-on-read mode.)
    """
    by_row = {
        variable_of[node.name]
        for node in nodes
        if node.kind.startswith(_WRITES_ROWS) and node.name in variable_of
    }
    return {
        node.name: None if size is None else 2 * size
        for node in nodes
        if node.kind == "ReadVariableOp" and variable_of.get(node.name) in by_row
        for size in [node.outputs[0].size_bytes]
    }


def _edges(nodes: list[Node], sizes: Mapping[str, tuple[int | None, ...]]) -> list[Edge]:
    edges = []
    for node in nodes:
        name = node.name
        for producer, port in dict.fromkeys(node.inputs):
            source = producer.name
            edges.append(Edge(source, name, port, sizes[source][port]))
        edges += [Edge(before.name, name, CONTROL_PORT, 0) for before in node.controls]
    return edges


def _bytes(tensor: TensorSpec, text_bytes: int | None) -> int | None:
    if tensor.is_handle:
        return 0
    return text_bytes if tensor.dtype == _TEXT else tensor.size_bytes


def composites_of(step: FlatStep) -> dict[str, Composite]:
    """Return what the loops and conditionals of a step do, by name.

    On the way, shapes that were open and lists get their size.
    """
    stopping = stopping_shapes(step.nodes)
    while True:
        if stopping:
            settle_shapes(step.nodes)
        found, lists = _composites(step)
        if not stopping:
            return found
        infer_shapes(step, lists)
        before, stopping = stopping, stopping_shapes(step.nodes)
        if stopping == before:
            return found


def _composites(step: FlatStep) -> tuple[dict[str, Composite], Lists]:
    """Return what loops and conditionals do, and what lists hold.

    They come in order, since a gradient's loop runs as often as the loop that it belongs to, and
    reads the lists that this one filled.
    """
    lists: Lists = {}
    if not any(node.kind in COMPOSITE_KINDS for node in step.ops):
        return {}, lists
    bodies = Bodies(step.functions, step.traced)
    values = constant_values(step.ops)
    found = {}
    for node in step.ops:
        note_list(node, lists, values)
        if node.name in step.loop_bodies:
            body = step.loop_bodies[node.name]
            found[node.name] = bodies.folded_loop(body, step.trips.get(node.name))
        elif node.kind in COMPOSITE_KINDS:
            found[node.name] = bodies.composite(node, values, lists)
    return found, lists


def _definition(node: Node) -> Any:
    assert node.source is not None, f"{node} stands for others"
    return node.source.definition()


class _Kernels:
    """Where ops can run; asked once per kind and types, since most ops are alike."""

    def __init__(self, step: FlatStep) -> None:
        self._bodies = step.loop_bodies
        self._functions = device_kinds.function_device_kinds(step.functions.values())
        self._alike: dict[tuple[Any, ...], device_kinds.KernelPlacement] = {}

    def of(self, node: Node, inside: Inside | None = None) -> device_kinds.KernelPlacement:
        """Return where the op can run.

        A loop or conditional of which it is known what is ``inside`` may stand on a GPU whatever
        that is: TensorFlow places its ops singly. Others, and on a CPU all, where all of their ops
        can run.
        """
        if node.name in self._bodies:
            kinds = [self.of(member).device_kinds for member in self._bodies[node.name]]
            return _opened(
                device_kinds.KernelPlacement(device_kinds=frozenset.intersection(*kinds)),
                device_kinds.KernelPlacement(device_kinds=device_kinds.DEVICE_KINDS),
                inside,
            )
        if node.kind in COMPOSITE_KINDS:
            definition = _definition(node)
            whole = device_kinds.kernel_placement(definition, self._functions)
            return _opened(whole, device_kinds.kernel_placement(definition), inside)
        given = [producer.outputs[port].dtype for producer, port in node.inputs]
        key = (node.kind, *given, None, *[tensor.dtype for tensor in node.outputs])
        if key not in self._alike:
            self._alike[key] = device_kinds.kernel_placement(_definition(node), self._functions)
        return self._alike[key]


def _opened(
    whole: device_kinds.KernelPlacement, alone: device_kinds.KernelPlacement, inside: Inside | None
) -> device_kinds.KernelPlacement:
    """Return where a composite op can run, given that with what it holds and that without."""
    if inside is None or "GPU" not in alone.device_kinds:
        return whole
    return replace(alone, device_kinds=whole.device_kinds | {"GPU"})
