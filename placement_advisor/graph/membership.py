"""To which layer each op of the forward pass belongs, and who reads a variable.

A *layer* here is one call of a layer: a layer that is called twice appears twice. An op outside
any layer belongs to the layer that feeds it, if there is exactly one; an op that joins several,
or starts from an input, is a layer of its own, named after the op. What is computed from inputs
outside layers and handed to several of them, as a batch that is cut into slices, is as much an
input as what it was made of: it belongs to none of them, and ties none to another.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from placement_advisor.graph.op_graph import Role
from placement_advisor.graph.roles import STANDING_ROLES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from placement_advisor.graph.op_graph import Edge, Op, OpGraph


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """To which layer each forward op belongs.

    ``layer_of`` lacks forward ops that serve no layer, or several. ``free`` holds the forward ops
    that carry no dependency: reads of variables, and what is computed outside layers from variables
    and constants alone, or from inputs for several layers. ``readers`` names the layers that read
    each variable or table, first reader first.
    """

    layer_of: Mapping[str, str]
    free: frozenset[str]
    readers: Mapping[str, tuple[str, ...]]


def data_inputs(graph: OpGraph, name: str) -> Iterator[Edge]:
    """Yield the tensors that the op reads."""
    return (edge for edge in graph.inputs_of(name) if not edge.is_control)


def data_outputs(graph: OpGraph, name: str) -> Iterator[Edge]:
    """Yield the tensors of the op as its consumers read them."""
    return (edge for edge in graph.outputs_of(name) if not edge.is_control)


def membership(graph: OpGraph) -> Membership:
    """Return to which layer each forward op belongs."""
    forward = [op for op in graph.ops if op.role is Role.FORWARD]
    free = _free_ops(graph)
    free |= _handed_out(graph, forward, free)
    layer_of: dict[str, str] = {}
    for op in forward:
        if op.layer is not None:
            layer_of[op.name] = op.layer
        elif op.name not in free:
            feeders = {
                layer_of[edge.producer]
                for edge in data_inputs(graph, op.name)
                if edge.producer in layer_of and edge.producer not in free
            }
            layer_of[op.name] = feeders.pop() if len(feeders) == 1 else op.name
    for op in reversed(forward):
        if op.name not in layer_of:
            consumers = (edge.consumer for edge in data_outputs(graph, op.name))
            served = {layer_of[consumer] for consumer in consumers if consumer in layer_of}
            if len(served) == 1:
                layer_of[op.name] = served.pop()
    return Membership(
        layer_of=layer_of, free=free, readers=_readers(graph, forward, layer_of, free)
    )


def _free_ops(graph: OpGraph) -> frozenset[str]:
    free: set[str] = set()
    for op in graph.ops:
        if op.role is not Role.FORWARD or (op.layer is not None and op.variable is None):
            continue
        if all(
            edge.producer in free or graph.op(edge.producer).role in STANDING_ROLES
            for edge in data_inputs(graph, op.name)
        ):
            free.add(op.name)
    return frozenset(free)


def _handed_out(graph: OpGraph, forward: list[Op], free: frozenset[str]) -> frozenset[str]:
    """Return the ops that compute something of inputs, outside layers, for several layers."""
    given: list[str] = []
    known = {op.name for op in graph.ops if op.role in (*STANDING_ROLES, Role.INPUT)} | free
    for op in forward:
        producers = (edge.producer for edge in data_inputs(graph, op.name))
        if op.layer is None and op.variable is None and known.issuperset(producers):
            given.append(op.name)
            known.add(op.name)
    served: dict[str, set[str]] = {}
    for name in reversed(given):
        served[name] = set()
        for edge in data_outputs(graph, name):
            consumer = graph.op(edge.consumer)
            layers = {consumer.layer} if consumer.layer else served.get(consumer.name, set())
            served[name] |= layers if consumer.role is Role.FORWARD else set()
    return frozenset(name for name, layers in served.items() if len(layers) > 1)


def _readers(
    graph: OpGraph, forward: list[Op], layer_of: Mapping[str, str], free: frozenset[str]
) -> dict[str, tuple[str, ...]]:
    """Return the layers of the ops that touch each variable, and of those that use what is read."""
    found: dict[str, dict[str, None]] = defaultdict(dict)
    for op in forward:
        if op.variable is None:
            continue
        users = [op.name]
        for user in users:
            if user in free and (user == op.name or user not in layer_of):
                users += [edge.consumer for edge in data_outputs(graph, user)]
            if user in layer_of:
                found[op.variable][layer_of[user]] = None
    return {variable: tuple(layers) for variable, layers in found.items()}
