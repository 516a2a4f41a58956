"""The work of loops and conditionals: that of their bodies.

A loop takes the work of its body and its condition, times its trips; a conditional that of its
most expensive branch, since nobody knows which one runs. Work is unknown where the trips are, or
where any op within is.

What a loop changes the shape of from trip to trip has no shape within it: nobody knows for which
trip its work would be counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from placement_advisor.graph.op import BRANCH_KINDS, CALL_KINDS, LOOP_KINDS
from placement_advisor.graph.op_work.signature import NO_WORK, Work, WorkBasis
from placement_advisor.graph.op_work.work import work_of
from placement_advisor.tf.answers import UPDATES
from placement_advisor.tf.trace import inside as insides
from placement_advisor.tf.trace.body_graphs import imported_body, traced_body
from placement_advisor.tf.trace.constant_values import constant_values
from placement_advisor.tf.trace.list_contents import after_trips, hold, note_list
from placement_advisor.tf.trace.signatures import signature_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from placement_advisor.graph.op import Inside
    from placement_advisor.graph.op_work.signature import TensorSpec
    from placement_advisor.tf.trace.body_graphs import Body
    from placement_advisor.tf.trace.list_contents import ListContent, Lists
    from placement_advisor.tf.trace.nodes import Node

COMPOSITE_KINDS = LOOP_KINDS | BRANCH_KINDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Composite:
    """What one run of a loop or conditional takes; ``trips`` of its body, for a loop, if known.

    ``members`` names the ops that run within, also within what is within; ``inside`` is what they
    come to on a GPU, None if that is not known. A conditional ``may_update`` variables.
    """

    work: Work
    trips: int | None
    members: frozenset[str] = frozenset()
    inside: Inside | None = None
    may_update: bool = False


class _Content(NamedTuple):
    """What one run of a body takes, the names of its ops, and what these come to on a GPU.

    It ``updates`` variables, at least in some runs.
    """

    work: Work
    members: frozenset[str]
    inside: Inside | None
    updates: bool


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
            trips=None,
            members=_members(contents),
            inside=insides.largest([content.inside for content in contents]),
            may_update=any(content.updates for content in contents),
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
            inside=insides.times(insides.together([c.inside for c in contents]), trips),
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
        return Composite(
            work=times(content.work, trips),
            trips=trips,
            members=frozenset(node.name for node in nodes),
            inside=insides.times(content.inside, trips),
        )

    def _content(self, body: Body | None) -> _Content:
        if body is None:
            return _Content(_UNKNOWN, frozenset(), None, updates=False)
        return self._together(body.nodes, body.returned, body.lists)

    def _together(
        self, nodes: Sequence[Node], returned: Iterable[tuple[Node, int]], lists: Lists
    ) -> _Content:
        values = constant_values(nodes)
        works = []
        members = {node.name for node in nodes}
        updates = any(node.kind.startswith(UPDATES) for node in nodes)
        opened: dict[str, Inside | None] = {}
        for node in nodes:
            note_list(node, lists, values)
            if node.kind in COMPOSITE_KINDS:
                composite = self.composite(node, values, lists)
                works.append(composite.work)
                members |= composite.members
                updates = updates or composite.may_update
                opened[node.name] = composite.inside
            elif node.kind in CALL_KINDS or node.kind in self._functions:
                # TensorFlow 1 calls a function by its name.
                called = node.attribute("f") if node.kind in CALL_KINDS else node.kind
                content = self._content(self.body(called, *handed(node.inputs, lists)))
                works.append(content.work)
                updates = updates or content.updates
                opened[node.name] = content.inside
            else:
                works.append(work_of(signature_of(node)))
        own = insides.inside_of(nodes, returned, opened)
        inside = insides.together([own, *opened.values()])
        return _Content(_sum(works), frozenset(members), inside, updates)


def _members(contents: Iterable[_Content]) -> frozenset[str]:
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
        works, key=lambda work: (work.flops or 0, work.bytes_accessed or 0), default=NO_WORK
    )
    return Work(
        flops=None if any(work.flops is None for work in works) else largest.flops,
        bytes_accessed=(
            None if any(work.bytes_accessed is None for work in works) else largest.bytes_accessed
        ),
        basis=WorkBasis.FORMULA,
    )


def _names(attribute: Any) -> list[str]:
    if attribute is None:
        return []
    return attribute if isinstance(attribute, list) else [attribute]
