"""The work of loops and conditionals: that of their bodies.

A loop takes the work of its body and its condition, times its trips; a conditional that of its
most expensive branch, since nobody knows which one runs. Work is unknown where the trips are, or
where any op within is.

A body's shapes are those that it was traced with. Where the trace left one open (the functions of a
SavedModel take any batch), they follow from what the body is handed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tensorflow.python.framework import function_def_to_graph

from placement_advisor.op import BRANCH_KINDS, LOOP_KINDS
from placement_advisor.tf.constant_values import constant_values
from placement_advisor.tf.list_contents import after_trips, hold, list_made, note_list
from placement_advisor.tf.nodes import needed
from placement_advisor.tf.read_graph import read, write_spec
from placement_advisor.tf.signatures import signature_of
from placement_advisor.tf.trips import Induction, trips_of
from placement_advisor.work.registry import work_of
from placement_advisor.work.signature import TensorSpec, Work, WorkBasis

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from placement_advisor.tf.list_contents import ListContent, Lists
    from placement_advisor.tf.nodes import Node

_CALL_KINDS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
COMPOSITE_KINDS = LOOP_KINDS | BRANCH_KINDS
_NOTHING = Work(flops=0, bytes_accessed=0, basis=WorkBasis.FORMULA)


@dataclass(frozen=True, slots=True, kw_only=True)
class Composite:
    """What one run of a loop or conditional takes; ``trips`` of its body, for a loop, if known.

    ``members`` names the ops that run within, also within what is within.
    """

    work: Work
    trips: int | None
    members: frozenset[str] = frozenset()


class Bodies:
    """Reads the functions of a graph as often as they are needed, each once per set of shapes."""

    def __init__(self, functions: Mapping[str, Any], traced: Mapping[str, Any]) -> None:
        """Read from FunctionDefs by name, and what was traced as each of them, where it was."""
        self._functions, self._traced = functions, traced
        self._read: dict[tuple[Any, ...], _Body | None] = {}

    def composite(self, node: Node, values: dict[tuple[str, int], int], lists: Lists) -> Composite:
        """Return the work of a loop or conditional; what was open of its outputs is settled.

        A loop's counters are added to ``values``, what its lists hold to ``lists``.
        """
        if node.kind in LOOP_KINDS:
            return self._loop(node, values, lists)
        branches = [
            name
            for attribute in ("then_branch", "else_branch", "branches")
            for name in _names(node.attribute(attribute))
        ]
        bodies = [self._body(name, node.inputs[1:], lists) for name in branches]
        works = [self._work(body) for body in bodies]
        for port in range(len(node.outputs)):
            ends = {None if body is None else body.returned_spec(port) for body in bodies}
            held = {None if body is None else body.returned_list(port) for body in bodies}
            if len(ends) == 1:
                _settle(node, port, ends.pop())
            if len(held) == 1 and (content := held.pop()) is not None:
                hold(node, port, content, lists)
        return Composite(work=_largest(works), trips=None, members=self._members(bodies))

    def _loop(self, node: Node, values: dict[tuple[str, int], int], lists: Lists) -> Composite:
        condition = self._body(node.attribute("cond"), node.inputs, lists)
        body = self._body(node.attribute("body"), node.inputs, lists)
        starts = {
            i: values[producer.name, port]
            for i, (producer, port) in enumerate(node.inputs)
            if (producer.name, port) in values
        }
        steps = body.steps(starts) if body else {}
        trips = condition.trips(starts, steps) if condition else None
        if trips is not None:
            for i, start in starts.items():
                if i in steps:
                    values[node.name, i] = start + steps[i] * trips
        once = _sum([self._work(condition), self._work(body)])
        for port, (producer, source) in enumerate(node.inputs):
            if body is None:
                break
            first, last = lists.get((producer.name, source)), body.returned_list(port)
            if first is not None and last is not None:
                hold(node, port, after_trips(first, last, trips), lists)
            if first is not None and first.element is None and last is not None:
                hold(producer, source, first._replace(element=last.element), lists)
            # A shape that one trip leaves as it was stays as it was.
            spec = producer.outputs[source]
            if body.returned_spec(port).shape == spec.shape:
                _settle(node, port, spec)
        members = self._members([condition, body])
        return Composite(work=times(once, trips), trips=trips, members=members)

    def _members(self, bodies: Iterable[_Body | None]) -> frozenset[str]:
        nodes = [node for body in bodies if body is not None for node in body.nodes]
        within = [self.composite(n, {}, {}).members for n in nodes if n.kind in COMPOSITE_KINDS]
        return frozenset(node.name for node in nodes).union(*within)

    def _body(self, name: str, inputs: Iterable[tuple[Node, int]], lists: Lists) -> _Body | None:
        if name not in self._functions and name not in self._traced:
            return None
        inputs = list(inputs)
        given = [producer.outputs[port] for producer, port in inputs]
        held = [lists.get((producer.name, port)) for producer, port in inputs]
        key = (name, tuple(given), tuple(held))
        if key not in self._read:
            # What TensorFlow 1 has traced (a Defun) keeps no graph.
            graph = getattr(self._traced.get(name), "graph", None)
            body = None if graph is None else _traced_body(graph, given, held)
            if graph is not None and body is not None:
                # Inlining drops functions that only such a body calls.
                self._traced = {**graph._functions, **self._traced}
            elif name in self._functions:
                body = _imported_body(self._functions, name, given, held)
            self._read[key] = body
        return self._read[key]

    def _work(self, body: _Body | None) -> Work:
        return _UNKNOWN if body is None else self.work(body.nodes, body.lists)

    def work(self, nodes: Iterable[Node], lists: Lists) -> Work:
        """Return the work of all nodes together; what they put into lists is added to these."""
        nodes = list(nodes)
        values = constant_values(nodes)
        works = []
        for node in nodes:
            note_list(node, lists, values)
            if node.kind in COMPOSITE_KINDS:
                works.append(self.composite(node, values, lists).work)
            elif node.kind in _CALL_KINDS or node.kind in self._functions:
                # TensorFlow 1 calls a function by its name.
                called = node.attribute("f") if node.kind in _CALL_KINDS else node.kind
                works.append(self._work(self._body(called, node.inputs, lists)))
            else:
                works.append(work_of(signature_of(node)))
        return _sum(works)


class _Body:
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


def _traced_body(
    graph: Any, given: Sequence[TensorSpec], held: Sequence[ListContent | None]
) -> _Body | None:
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
    return None if is_open else _Body(nodes, arguments, returned, effects, held)


def _imported_body(
    functions: Mapping[str, Any],
    name: str,
    given: Sequence[TensorSpec],
    held: Sequence[ListContent | None],
) -> _Body:
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
    return _Body(nodes, arguments, returned, function.control_ret.values(), held)


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


def _settle(node: Node, port: int, spec: TensorSpec | None) -> None:
    """Give an output a shape that was open."""
    if spec is not None and node.outputs[port].shape is None:
        node.outputs = (*node.outputs[:port], spec, *node.outputs[port + 1 :])


_UNKNOWN = Work(flops=None, bytes_accessed=None, basis=WorkBasis.FORMULA)


def times(work: Work, trips: int | None) -> Work:
    """Return the work of so many runs, unknown if their number is."""
    if trips is None:
        return _UNKNOWN
    return Work(
        flops=None if work.flops is None else work.flops * trips,
        bytes_accessed=None if work.bytes_accessed is None else work.bytes_accessed * trips,
        basis=work.basis,
    )


def _sum(works: Sequence[Work]) -> Work:
    return Work(
        flops=_total([work.flops for work in works]),
        bytes_accessed=_total([work.bytes_accessed for work in works]),
        basis=WorkBasis.FORMULA,
    )


def _total(parts: Sequence[int | None]) -> int | None:
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None


def _largest(works: Sequence[Work]) -> Work:
    """Return the work of the most expensive branch; what is unknown of any branch may be more."""
    largest = max(
        works, key=lambda work: (work.flops or 0, work.bytes_accessed or 0), default=_NOTHING
    )
    return Work(
        flops=None if any(work.flops is None for work in works) else largest.flops,
        bytes_accessed=(
            None if any(work.bytes_accessed is None for work in works) else largest.bytes_accessed
        ),
        basis=WorkBasis.FORMULA,
    )


def _passed(node: Node) -> Node:
    while node.kind == "Identity":
        node = node.inputs[0][0]
    return node


def _names(attribute: Any) -> list[str]:
    if attribute is None:
        return []
    return attribute if isinstance(attribute, list) else [attribute]
