"""Sums the work of loops, conditionals and called functions from their bodies.

A loop takes the work of its body and condition times its trips; a conditional takes that of
its most expensive branch. On a GPU TensorFlow places the ops of a body one by one, and what
crosses between host and card is counted too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tensorflow.python.framework import function_def_to_graph

from placement_advisor.graph.op import (
    BRANCH_KINDS,
    CALL_KINDS,
    COUNTING_KINDS,
    LOOP_KINDS,
    UPDATE_KINDS,
    Inside,
    Total,
    WorkBasis,
)
from placement_advisor.graph.op_work.signature import NO_WORK, TensorSpec, Work
from placement_advisor.graph.op_work.work import work_of
from placement_advisor.tf.trace.constant_values import (
    after_trips,
    constant_values,
    hold,
    list_made,
    note_list,
)
from placement_advisor.tf.trace.device_kinds import kernel_placement
from placement_advisor.tf.trace.loops import Induction, trips_of
from placement_advisor.tf.trace.nodes import Node, needed, op_signature, read, write_spec

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from placement_advisor.tf.trace.constant_values import ListContent, Lists


NOTHING_INSIDE = Inside(ops=0, copies=0, copied_bytes=0)
_COUNT_BYTES = 4
_STANDING_KINDS = frozenset({"Const", "NoOp"})
_ARGUMENT_KINDS = frozenset({"Placeholder", "_Arg"})


def inside_of(
    nodes: Collection[Node], returned: Iterable[tuple[Node, int]], opened: Collection[str]
) -> Inside:
    """Return what one run of these nodes takes.

    ``returned`` are the tensors that leave them, ``opened`` the names of loops, conditionals and
    calls among them, which are counted by themselves.
    """
    computing = [
        node
        for node in nodes
        if node.kind not in _STANDING_KINDS | _ARGUMENT_KINDS and node.name not in opened
    ]
    host_ports: dict[str, tuple[int, ...]] = {}
    on_host = set()
    for node in computing:
        if node.source is not None:
            runs_on = kernel_placement(node.source.definition())
            host_ports[node.name] = runs_on.host_outputs
            if "GPU" not in runs_on.device_kinds:
                on_host.add(node.name)

    def crosses(producer: Node, port: int, *, to_host: bool) -> bool:
        spec = producer.outputs[port]
        if producer.kind in _STANDING_KINDS or spec.is_handle or spec.dtype == "string":
            return False
        if producer.name in on_host:
            return not to_host
        return to_host and port not in host_ports.get(producer.name, ())

    read = [(tensor, node.name in on_host) for node in computing for tensor in node.inputs]
    read += [(tensor, False) for tensor in returned]
    crossing = {
        (producer.name, port): producer.outputs[port].size_bytes
        for (producer, port), to_host in read
        if crosses(producer, port, to_host=to_host)
    }
    counts = [
        _COUNT_BYTES
        for node in computing
        if node.kind in COUNTING_KINDS and node.name not in on_host
    ]
    copied_bytes = Total.of([*crossing.values(), *counts]).exact
    return Inside(len(computing), len(crossing) + len(counts), copied_bytes)


def inside_of_parts(parts: Sequence[Inside | None]) -> Inside | None:
    """Return what all parts take together, None if that of any is not known."""
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    return Inside(
        ops=sum(part.ops for part in known),
        copies=sum(part.copies for part in known),
        copied_bytes=Total.of(part.copied_bytes for part in known).exact,
    )


def inside_of_trips(inside: Inside | None, trips: int | None) -> Inside | None:
    """Return what so many runs take, None if their number is not known."""
    if inside is None or trips is None:
        return None
    return Inside(inside.ops * trips, inside.copies * trips, _times(inside.copied_bytes, trips))


def largest_inside(branches: Sequence[Inside | None]) -> Inside | None:
    """Return the branch with most copies, and most ops among such; None if any is not known."""
    known = [branch for branch in branches if branch is not None]
    if len(known) < len(branches):
        return None
    return max(known, key=lambda branch: (branch.copies, branch.ops), default=NOTHING_INSIDE)


class Body:
    """A function's nodes that run, the names of its arguments and the tensors that it returns.

    ``returned`` are these tensors, by their producers.
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
        self.returned = [(by_name[name], port) for name, port in returned]

    def returned_spec(self, i: int) -> TensorSpec:
        """Return the spec of a returned tensor."""
        node, port = self.returned[i]
        return node.outputs[port]

    def returned_list(self, i: int) -> ListContent | None:
        """Return what a returned list holds, as far as it is known by now."""
        node, port = self.returned[i]
        return self.lists.get((node.name, port))

    def steps(self, starts: Mapping[int, int]) -> dict[int, int]:
        """Return by how much the body changes each argument that it changes by a constant.

        ``starts`` gives the first values of arguments, where they are known.
        """
        ends = [_passed(node) for node, _ in self.returned]
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

        return trips_of(self.returned[0][0], value)


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


COMPOSITE_KINDS = LOOP_KINDS | BRANCH_KINDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Composite:
    """What one run of a loop, conditional or body takes; ``trips`` of a loop, where known.

    ``members`` names the ops that run within, also within what is within; ``inside`` is what they
    come to on a GPU, None if that is not known. It ``may_update`` variables, in some runs at least.
    """

    work: Work
    trips: int | None = None
    members: frozenset[str] = frozenset()
    inside: Inside | None = None
    may_update: bool = False


class Bodies:
    """Reads the functions of a graph as often as they are needed, each once per set of shapes."""

    def __init__(self, functions: Mapping[str, Any], traced: Mapping[str, Any]) -> None:
        """Read from FunctionDefs by name, and what was traced as each of them, where it was."""
        self._functions, self._traced = functions, traced
        self._read: dict[tuple[Any, ...], Body | None] = {}

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
        given = handed(node.inputs[1:], lists)
        bodies = [self.body(name, *given) for name in branches]
        contents = [self._content(body) for body in bodies]
        for port in range(len(node.outputs)):
            ends = {None if body is None else body.returned_spec(port) for body in bodies}
            held = {None if body is None else body.returned_list(port) for body in bodies}
            if len(ends) == 1:
                _settle(node, port, ends.pop())
            if len(held) == 1 and (content := held.pop()) is not None:
                hold(node, port, content, lists)
        return Composite(
            work=_largest([content.work for content in contents]),
            members=_members(contents),
            inside=largest_inside([content.inside for content in contents]),
            may_update=any(content.may_update for content in contents),
        )

    def _loop(self, node: Node, values: dict[tuple[str, int], int], lists: Lists) -> Composite:
        given, held = handed(node.inputs, lists)
        body = self.body(node.attribute("body"), given, held)
        while body is not None and (varying := _varying(body, given)):
            given = [
                spec._replace(shape=None) if i in varying else spec for i, spec in enumerate(given)
            ]
            body = self.body(node.attribute("body"), given, held)
        condition = self.body(node.attribute("cond"), given, held)
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
        contents = [self._content(condition), self._content(body)]
        if body is not None:
            _note_ends(node, body, trips, lists)
            for port, spec in enumerate(given):
                _settle(node, port, spec)
        once = _sum([content.work for content in contents])
        return Composite(
            work=times(once, trips),
            trips=trips,
            members=_members(contents),
            inside=inside_of_trips(inside_of_parts([c.inside for c in contents]), trips),
        )

    def body(
        self, name: str, given: Sequence[TensorSpec], held: Sequence[ListContent | None]
    ) -> Body | None:
        """Return a function as it is handed these tensors, and lists that hold this."""
        if name not in self._functions and name not in self._traced:
            return None
        key = (name, tuple(given), tuple(held))
        if key not in self._read:
            # What TensorFlow 1 has traced (a Defun) keeps no graph.
            graph = getattr(self._traced.get(name), "graph", None)
            body = None if graph is None else traced_body(graph, given, held)
            if graph is not None and body is not None:
                # Inlining drops functions that only such a body calls.
                self._traced = {**graph._functions, **self._traced}
            elif name in self._functions:
                body = imported_body(self._functions, name, given, held)
            self._read[key] = body
        return self._read[key]

    def folded_loop(self, nodes: Sequence[Node], trips: int | None) -> Composite:
        """Return what a loop of TensorFlow 1 takes, which runs these nodes in each trip."""
        content = self._together(nodes, (), {})
        return replace(
            content,
            work=times(content.work, trips),
            trips=trips,
            inside=inside_of_trips(content.inside, trips),
            may_update=False,
        )

    def _content(self, body: Body | None) -> Composite:
        if body is None:
            return Composite(work=_UNKNOWN)
        return self._together(body.nodes, body.returned, body.lists)

    def _together(
        self, nodes: Sequence[Node], returned: Iterable[tuple[Node, int]], lists: Lists
    ) -> Composite:
        values = constant_values(nodes)
        works = []
        members = {node.name for node in nodes}
        updates = any(node.kind.startswith(UPDATE_KINDS) for node in nodes)
        opened: dict[str, Inside | None] = {}
        for node in nodes:
            note_list(node, lists, values)
            if node.kind in COMPOSITE_KINDS:
                content = self.composite(node, values, lists)
                members |= content.members
            elif node.kind in CALL_KINDS or node.kind in self._functions:
                # TensorFlow 1 calls a function by its name.
                called = node.attribute("f") if node.kind in CALL_KINDS else node.kind
                content = self._content(self.body(called, *handed(node.inputs, lists)))
            else:
                works.append(work_of(op_signature(node)))
                continue
            works.append(content.work)
            updates = updates or content.may_update
            opened[node.name] = content.inside
        own = inside_of(nodes, returned, opened)
        return Composite(
            work=_sum(works),
            members=frozenset(members),
            inside=inside_of_parts([own, *opened.values()]),
            may_update=updates,
        )


def _members(contents: Iterable[Composite]) -> frozenset[str]:
    return frozenset().union(*[content.members for content in contents])


def handed(
    inputs: Iterable[tuple[Node, int]], lists: Lists
) -> tuple[list[TensorSpec], list[ListContent | None]]:
    """Return the tensors that a body is handed, and what those of them hold that are lists."""
    inputs = list(inputs)
    given = [producer.outputs[port] for producer, port in inputs]
    return given, [lists.get((producer.name, port)) for producer, port in inputs]


def _note_ends(loop: Node, body: Body, trips: int | None, lists: Lists) -> None:
    """Add to ``lists`` what the lists of a loop hold at its end, and what they must begin with."""
    for port, (producer, source) in enumerate(loop.inputs):
        first, last = lists.get((producer.name, source)), body.returned_list(port)
        if first is None or last is None:
            continue
        hold(loop, port, after_trips(first, last, trips), lists)
        if first.element is None:
            hold(producer, source, first._replace(element=last.element), lists)


def _varying(body: Body, given: Iterable[TensorSpec]) -> set[int]:
    """Return the arguments that a trip gives another shape."""
    return {
        i
        for i, spec in enumerate(given)
        if spec.shape is not None
        and not (spec.is_handle or spec.dtype == "variant")
        and body.returned_spec(i).shape != spec.shape
    }


def _settle(node: Node, port: int, spec: TensorSpec | None) -> None:
    """Give an output a shape that was open."""
    if spec is not None and node.outputs[port].shape is None:
        node.outputs = (*node.outputs[:port], spec, *node.outputs[port + 1 :])


_UNKNOWN = Work(flops=None, bytes_accessed=None, basis=WorkBasis.FORMULA)


def times(work: Work, trips: int | None) -> Work:
    """Return the work of so many runs, unknown if their number is."""
    flops, bytes_accessed = (_times(part, trips) for part in (work.flops, work.bytes_accessed))
    return replace(work, flops=flops, bytes_accessed=bytes_accessed)


def _times(amount: int | None, trips: int | None) -> int | None:
    return None if amount is None or trips is None else amount * trips


def _sum(works: Sequence[Work]) -> Work:
    return replace(
        NO_WORK,
        flops=Total.of(work.flops for work in works).exact,
        bytes_accessed=Total.of(work.bytes_accessed for work in works).exact,
    )


def _largest(works: Sequence[Work]) -> Work:
    """Return the work of the most expensive branch; what is unknown of any branch may be more."""
    largest = max(
        works, key=lambda work: (work.flops or 0, work.bytes_accessed or 0), default=NO_WORK
    )
    if any(work.flops is None for work in works):
        largest = replace(largest, flops=None)
    if any(work.bytes_accessed is None for work in works):
        largest = replace(largest, bytes_accessed=None)
    return largest


def _names(attribute: Any) -> list[str]:
    if attribute is None:
        return []
    return attribute if isinstance(attribute, list) else [attribute]
