"""Folds TF1 loops into one op each, and counts the trips of loops.

A TF1 loop is a group of Enter, Merge, Switch, NextIteration and Exit ops.
"""

from __future__ import annotations

import operator
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from placement_advisor.tf.trace.constant_values import constant_values
from placement_advisor.tf.trace.nodes import Node, in_order, unused

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


_COMPARISONS: Mapping[str, Callable[[int, int], bool]] = {
    "Less": operator.lt,
    "LessEqual": operator.le,
    "Greater": operator.gt,
    "GreaterEqual": operator.ge,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Induction:
    """A counter that starts somewhere and moves by the same step in each trip; 0 if it stays."""

    start: int
    step: int


def trips_of(condition: Node, value: Callable[[Node, int], Induction | None]) -> int | None:
    """Return how often a loop's body runs while the condition holds; None if that is not known.

    ``value`` tells what is known of a tensor in the condition. Understood are comparisons of a
    counter with a number, and their conjunctions and disjunctions: autograph tests the end of a
    range and the sign of its step. A part that is not known could end the loop at any time.
    """
    first = _first_failure(condition, value)
    return None if first is None or first == _NEVER else first


# More trips than any loop makes: a condition that always holds.
_NEVER = 1 << 62


def _first_failure(node: Node, value: Callable[[Node, int], Induction | None]) -> int | None:
    """Return the first trip before which the condition fails."""
    if node.kind == "Identity":
        return _first_failure(node.inputs[0][0], value)
    if node.kind in ("LogicalAnd", "LogicalOr"):
        parts = [_first_failure(producer, value) for producer, _ in node.inputs]
        known = [part for part in parts if part is not None]
        if node.kind == "LogicalAnd":
            # What fails at once needs no other part; what fails later does.
            return min(known) if len(known) == len(parts) or 0 in known else None
        if _NEVER in known:
            return _NEVER
        return max(known) if len(known) == len(parts) and 0 in known else None
    if node.kind not in _COMPARISONS:
        return None
    one, other = (value(producer, port) for producer, port in node.inputs)
    if one is None or other is None:
        return None
    return _first_trip_without(node.kind, one.start - other.start, one.step - other.step)


def _first_trip_without(kind: str, start: int, step: int) -> int | None:
    """Return the first trip at which ``start + trip · step`` does not compare so with 0."""
    if not _COMPARISONS[kind](start, 0):
        return 0
    towards = step if kind.startswith("Less") else -step
    if towards <= 0:
        return _NEVER
    distance = abs(start) + (1 if kind.endswith("Equal") else 0)
    return -(-distance // towards)


_ENTER = frozenset({"Enter", "RefEnter"})
_EXIT = frozenset({"Exit", "RefExit"})
_CONTEXT_SUFFIX = "/while_context"


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """What a folded loop stands for in the graph that runs.

    ``members`` are all its ops; ``outputs`` the op and port of each tensor that leaves it.
    """

    members: tuple[str, ...]
    outputs: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Folded:
    """Nodes without cycles, producers first, with each outermost loop as one of them.

    ``bodies`` are the nodes within each loop, ``trips`` how often it runs, where that is known.
    """

    nodes: list[Node]
    loops: dict[str, Loop]
    bodies: dict[str, list[Node]]
    trips: dict[str, int]


def frames(nodes: Sequence[Node]) -> dict[int, tuple[str, ...]]:
    """Return the loops that each node lies in, outermost first, by the node's `id`."""
    if not any(node.kind in _ENTER for node in nodes):
        return {}
    readers: dict[int, list[Node]] = {}
    for node in nodes:
        for before in node.before():
            readers.setdefault(id(before), []).append(node)
    found: dict[int, tuple[str, ...]] = {}
    leaves: dict[int, tuple[str, ...]] = {}
    # What has no inputs stands outside all loops; every other op where its inputs do.
    waiting: list[tuple[Node, tuple[str, ...]]] = [
        (node, ()) for node in nodes if not node.inputs and not node.controls
    ]
    waiting.reverse()
    while waiting:
        node, around = waiting.pop()
        if node.kind in _ENTER:
            around = (*around, str(node.attribute("frame_name")))
        if id(node) in found and len(found[id(node)]) >= len(around):
            continue
        found[id(node)] = around
        leaves[id(node)] = around[:-1] if node.kind in _EXIT else around
        waiting += [(reader, leaves[id(node)]) for reader in readers.get(id(node), ())]
    return {key: around for key, around in found.items() if around}


def folded(nodes: Sequence[Node]) -> Folded:
    """Return the nodes with their loops folded. The nodes given stay as they are."""
    frame_of = frames(nodes)
    if not frame_of:
        return Folded(nodes=in_order(list(nodes)), loops={}, bodies={}, trips={})
    bodies: dict[str, list[Node]] = {}
    for node in nodes:
        if id(node) in frame_of:
            bodies.setdefault(frame_of[id(node)][0], []).append(node)
    taken = {node.name for node in nodes}
    stand_in = {id(n): Node(n.name, n.kind, n.source) for n in nodes if id(n) not in frame_of}
    named: dict[str, list[Node]] = {}
    for frame, body in bodies.items():
        loop = Node(unused(frame.removesuffix(_CONTEXT_SUFFIX), taken), "While")
        stand_in.update((id(node), loop) for node in body)
        named[loop.name] = body
    port_of, outputs_of = _ports(nodes, frame_of, stand_in)
    for node in nodes:
        into = stand_in[id(node)]
        into.inputs += [
            port_of.get((id(p), port), (stand_in[id(p)], port))
            for p, port in node.inputs
            if stand_in[id(p)] is not into
        ]
        into.controls += [stand_in[id(b)] for b in node.controls if stand_in[id(b)] is not into]
        if id(node) not in frame_of:
            into.outputs = node.outputs
    together = list({id(node): node for node in (stand_in[id(n)] for n in nodes)}.values())
    for node in together:
        node.controls = list({id(before): before for before in node.controls}.values())
        if node.name in named:
            node.inputs = list({(id(p), port): (p, port) for p, port in node.inputs}.values())
    loops = {
        name: Loop(members=tuple(node.name for node in body), outputs=tuple(outputs_of[name]))
        for name, body in named.items()
    }
    values = constant_values(nodes)
    trips = {name: _trips(body, values) for name, body in named.items()}
    return Folded(
        nodes=in_order(together),
        loops=loops,
        bodies=named,
        trips={name: count for name, count in trips.items() if count is not None},
    )


def _ports(
    nodes: Sequence[Node], frame_of: Mapping[int, object], stand_in: Mapping[int, Node]
) -> tuple[dict[tuple[int, int], tuple[Node, int]], dict[str, list[tuple[str, int]]]]:
    """Number the tensors that leave loops; give the folded loops their outputs.

    Also returns which tensors of the graph these are, by loop.
    """
    found: dict[tuple[int, int], tuple[Node, int]] = {}
    outputs_of: defaultdict[str, list[tuple[str, int]]] = defaultdict(list)
    for node in nodes:
        for producer, port in node.inputs:
            loop = stand_in[id(producer)]
            is_leaving = id(producer) in frame_of and loop is not stand_in[id(node)]
            if is_leaving and (id(producer), port) not in found:
                found[id(producer), port] = (loop, len(loop.outputs))
                loop.outputs = (*loop.outputs, producer.outputs[port])
                outputs_of[loop.name].append((producer.name, port))
    return found, outputs_of


def _trips(body: Sequence[Node], values: Mapping[tuple[str, int], int]) -> int | None:
    """Return how often the loop runs, None if that is not known."""
    conditions = [node.inputs[0][0] for node in body if node.kind == "LoopCond"]
    if len(conditions) != 1:  # The loops within have their own.
        return None

    def value(node: Node, port: int) -> Induction | None:
        known = values.get((_entered(node).name, port))
        if known is not None:
            return Induction(start=known, step=0)
        start, step = _start(node, values), _step(node, values)
        return None if start is None or step is None else Induction(start=start, step=step)

    return trips_of(conditions[0], value)


def _entered(node: Node) -> Node:
    """Return what a loop was handed, where a node only passes it in."""
    while node.kind in _ENTER or node.kind == "Identity":
        node = node.inputs[0][0]
    return node


def _start(counter: Node, values: Mapping[tuple[str, int], int]) -> int | None:
    if counter.kind != "Merge":
        return None
    enter = next((p for p, _ in counter.inputs if p.kind in _ENTER), None)
    return None if enter is None else values.get((_entered(enter).name, 0))


def _step(counter: Node, values: Mapping[tuple[str, int], int]) -> int | None:
    """Return what is added to the counter in each trip: Merge ← NextIteration ← Add(…, step)."""
    again = next((p for p, _ in counter.inputs if p.kind == "NextIteration"), None)
    add = again.inputs[0][0] if again else None
    if add is None or add.kind not in ("Add", "AddV2"):
        return None
    for (one, _), (other, port) in (add.inputs, reversed(add.inputs)):
        switch = _entered(one)
        if switch.kind == "Switch" and switch.inputs[0][0] is counter:
            return values.get((other.name, port))
    return None
