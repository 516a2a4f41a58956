"""Flat step -> op graph: sizes, roles, layers, work and kernels of every op."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from placement_advisor.graph.op import CONTROL_PORT, Edge, Op
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.graph.op_work.kernels import kernel_of
from placement_advisor.graph.op_work.work import work_of
from placement_advisor.tf.trace import open_shapes
from placement_advisor.tf.trace.bodies import COMPOSITE_KINDS, Bodies
from placement_advisor.tf.trace.constant_values import constant_values
from placement_advisor.tf.trace.device_kinds import (
    DEVICE_KINDS,
    KernelPlacement,
    function_device_kinds,
    kernel_placement,
)
from placement_advisor.tf.trace.list_contents import note_list
from placement_advisor.tf.trace.nodes import data_readers
from placement_advisor.tf.trace.op_layers import op_layers
from placement_advisor.tf.trace.roles import roles, variables
from placement_advisor.tf.trace.signatures import signature_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from placement_advisor.graph.op import Inside
    from placement_advisor.graph.op_work.signature import TensorSpec
    from placement_advisor.tf.trace.bodies import Composite
    from placement_advisor.tf.trace.flat_step import FlatStep
    from placement_advisor.tf.trace.list_contents import Lists
    from placement_advisor.tf.trace.nodes import Node

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
        signature = signature_of(node)
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
    stopping = open_shapes.stopping(step.nodes)
    while True:
        if stopping:
            open_shapes.settle(step.nodes)
        found, lists = _composites(step)
        if not stopping:
            return found
        open_shapes.infer(step, lists)
        before, stopping = stopping, open_shapes.stopping(step.nodes)
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
        self._functions = function_device_kinds(step.functions.values())
        self._alike: dict[tuple[Any, ...], KernelPlacement] = {}

    def of(self, node: Node, inside: Inside | None = None) -> KernelPlacement:
        """Return where the op can run.

        A loop or conditional of which it is known what is ``inside`` may stand on a GPU whatever
        that is: TensorFlow places its ops singly. Others, and on a CPU all, where all of their ops
        can run.
        """
        if node.name in self._bodies:
            kinds = [self.of(member).device_kinds for member in self._bodies[node.name]]
            return _opened(
                KernelPlacement(device_kinds=frozenset.intersection(*kinds)),
                KernelPlacement(device_kinds=DEVICE_KINDS),
                inside,
            )
        if node.kind in COMPOSITE_KINDS:
            definition = _definition(node)
            whole = kernel_placement(definition, self._functions)
            return _opened(whole, kernel_placement(definition), inside)
        given = [producer.outputs[port].dtype for producer, port in node.inputs]
        key = (node.kind, *given, None, *[tensor.dtype for tensor in node.outputs])
        if key not in self._alike:
            self._alike[key] = kernel_placement(_definition(node), self._functions)
        return self._alike[key]


def _opened(
    whole: KernelPlacement, alone: KernelPlacement, inside: Inside | None
) -> KernelPlacement:
    """Return where a composite op can run, given that with what it holds and that without."""
    if inside is None or "GPU" not in alone.device_kinds:
        return whole
    return replace(alone, device_kinds=whole.device_kinds | {"GPU"})
