"""The body of a loop, a branch or a called function as nodes, with the shapes that it is handed.

A body's shapes are those that it was traced with. Where the trace left one open (the functions of a
SavedModel take any batch), they follow from what the body is handed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tensorflow.python.framework import function_def_to_graph

from placement_advisor.tf.trace.constant_values import constant_values
from placement_advisor.tf.trace.list_contents import list_made
from placement_advisor.tf.trace.nodes import needed
from placement_advisor.tf.trace.read_graph import read, write_spec
from placement_advisor.tf.trace.trips import Induction, trips_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from placement_advisor.graph.op_work.signature import TensorSpec
    from placement_advisor.tf.trace.list_contents import ListContent
    from placement_advisor.tf.trace.nodes import Node


class Body:
    """A function's nodes that run, the names of its arguments and the tensors that it returns.

    TensorFlow runs what a returned tensor or an effect needs; a gradient's body computes more.
    ``lists`` says what its lists hold: those that it is given, until its work is known.
    """

    def __init__(
        self,
        nodes: list[Node],
        arguments: Sequence[str],
        returned: Sequence[tuple[str, int]],
        effects: Iterable[str],
        held: Sequence[ListContent | None],
    ) -> None:
        by_name = {node.name: node for node in nodes}
        self.nodes = needed(nodes, {*effects, *[name for name, _ in returned]})
        self.lists = {
            (name, 0): content
            for name, content in zip(arguments, held, strict=True)
            if content is not None
        }
        self._arguments = {name: i for i, name in enumerate(arguments)}
        self._returned = [(by_name[name], port) for name, port in returned]

    @property
    def returned(self) -> Sequence[tuple[Node, int]]:
        """The tensors that it returns, by their producers."""
        return self._returned

    def returned_spec(self, i: int) -> TensorSpec:
        """Return the spec of a returned tensor."""
        node, port = self._returned[i]
        return node.outputs[port]

    def returned_list(self, i: int) -> ListContent | None:
        """Return what a returned list holds, as far as it is known by now."""
        node, port = self._returned[i]
        return self.lists.get((node.name, port))

    def steps(self, starts: Mapping[int, int]) -> dict[int, int]:
        """Return by how much the body changes each argument that it changes by a constant.

        ``starts`` gives the first values of arguments, where they are known.
        """
        ends = [_passed(node) for node, _ in self._returned]
        found = {i: 0 for i, end in enumerate(ends) if self._arguments.get(end.name) == i}
        values = constant_values(self.nodes, self._fixed(starts, found))
        for i, end in enumerate(ends):
            if end.kind not in ("Add", "AddV2"):
                continue
            for (one, _), (other, port) in (end.inputs, end.inputs[::-1]):
                step = values.get((_passed(other).name, port))
                if self._arguments.get(_passed(one).name) == i and step is not None:
                    found[i] = step
        return found

    def _fixed(
        self, starts: Mapping[int, int], steps: Mapping[int, int]
    ) -> dict[tuple[str, int], int]:
        """Return the values of the arguments that stay as they are."""
        return {
            (name, 0): starts[i]
            for name, i in self._arguments.items()
            if i in starts and steps.get(i) == 0
        }

    def trips(self, starts: Mapping[int, int], steps: Mapping[int, int]) -> int | None:
        """Return how often a loop runs that goes on while this body, its condition, holds.

        ``starts`` and ``steps`` tell how the arguments begin and change.
        """
        constants = constant_values(self.nodes, self._fixed(starts, steps))

        def value(node: Node, port: int) -> Induction | None:
            node = _passed(node)
            i = self._arguments.get(node.name, -1)
            if i in starts and i in steps:
                return Induction(start=starts[i], step=steps[i])
            constant = constants.get((node.name, port))
            return None if constant is None else Induction(start=constant, step=0)

        return trips_of(self._returned[0][0], value)


def traced_body(
    graph: Any, given: Sequence[TensorSpec], held: Sequence[ListContent | None]
) -> Body | None:
    """Return the body as it was traced, None if the trace left a shape open."""
    nodes = read(graph.get_operations())
    arguments = [tensor.op.name for tensor in graph.inputs]
    _hand_over(nodes, arguments, given)
    is_open = any(
        tensor.shape is None and not tensor.is_handle
        for node in nodes
        if node.kind != "Placeholder"
        for tensor in node.outputs
    )
    returned = [(tensor.op.name, tensor.value_index) for tensor in graph.outputs]
    effects = [op.name for op in graph.control_outputs]
    return None if is_open else Body(nodes, arguments, returned, effects, held)


def imported_body(
    functions: Mapping[str, Any],
    name: str,
    given: Sequence[TensorSpec],
    held: Sequence[ListContent | None],
) -> Body:
    """Return the body with the shapes that follow from what it is given."""
    function = functions[name]
    arguments = [argument.name for argument in function.signature.input_arg]
    graph = tf.Graph()
    with graph.as_default():
        library = tf.compat.v1.GraphDef()
        library.versions.producer = tf.version.GRAPH_DEF_VERSION
        library.library.function.extend(functions.values())
        tf.graph_util.import_graph_def(library, name="")  # TensorFlow 1 calls by name.
        graph_def, flat_names = function_def_to_graph.function_def_to_graph_def(function)
        handed = dict(zip(arguments, zip(given, held, strict=True), strict=True))
        for node in list(graph_def.node):
            if node.name in handed:
                _hand(graph_def, node, *handed[node.name])
        tf.graph_util.import_graph_def(graph_def, name="")
    nodes = read(graph.get_operations())
    _hand_over(nodes, arguments, given)
    ends = [flat_names[function.ret[output.name]] for output in function.signature.output_arg]
    returned = [(end.partition(":")[0], int(end.partition(":")[2] or 0)) for end in ends]
    return Body(nodes, arguments, returned, function.control_ret.values(), held)


def _hand(graph_def: Any, argument: Any, spec: TensorSpec, held: ListContent | None) -> None:
    """Put what is known of an argument in its place, so that shapes follow from it."""
    if held is not None and held.element is not None:
        list_made(graph_def, argument, held)
    elif spec.shape is not None and spec.dtype != "variant":
        if spec.is_handle:
            argument.op = "VarHandleOp"
        argument.attr.clear()  # Of shapes that it was traced with, too.
        write_spec(argument, spec.shape, spec.dtype)


def _hand_over(
    nodes: Iterable[Node], arguments: Sequence[str], given: Sequence[TensorSpec]
) -> None:
    """Let handles stand for what the variables outside hold."""
    handles = {name: spec for name, spec in zip(arguments, given, strict=True) if spec.is_handle}
    for node in nodes:
        if node.name in handles:
            node.outputs = (handles[node.name],)


def _passed(node: Node) -> Node:
    while node.kind == "Identity":
        node = node.inputs[0][0]
    return node
