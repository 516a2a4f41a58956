"""The forward pass seen by layer: who feeds whom, what each layer costs, who reads a variable.

A *layer* here is one call of a layer: a layer that is called twice appears twice. An op outside
any layer belongs to the layer that feeds it, if there is exactly one; an op that joins several,
or starts from an input, is a layer of its own, named after the op.

Only tensors make a layer depend on another. What does not: control edges, reading one variable
or table, reading one input, and what is computed outside layers from variables and constants
alone. Loops between layers (a layer that wraps another) are kept as they are.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from placement_advisor.graph import Role

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from placement_advisor.cost.table import CostTable
    from placement_advisor.graph import Edge, Op, OpGraph


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """To which layer each forward op belongs.

    ``layer_of`` lacks forward ops that serve no layer. ``free`` holds the forward ops that carry
    no dependency: reads of variables, and what is computed outside layers from variables and
    constants alone. ``readers`` names the layers that read each variable or table, first reader
    first.
    """

    layer_of: Mapping[str, str]
    free: frozenset[str]
    readers: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerGraph:
    """The forward pass by layer.

    ``layers`` are in the order of their last op. ``edges`` holds the bytes that one layer sends
    to another and ``output_bytes`` the bytes that leave a layer, each tensor once; None where
    the size of any is unknown. ``cost_ns`` adds the known costs of a layer's forward, backward
    and update ops: a lower bound where an op has no known cost.
    """

    membership: Membership
    layers: tuple[str, ...]
    edges: Mapping[tuple[str, str], int | None]
    output_bytes: Mapping[str, int | None]
    cost_ns: Mapping[str, int]

    def feeders(self) -> dict[str, tuple[str, ...]]:
        """Return the layers that feed each layer, in layer order."""
        place = {layer: i for i, layer in enumerate(self.layers)}
        found: dict[str, list[str]] = {layer: [] for layer in self.layers}
        for source, target in self.edges:
            found[target].append(source)
        return {layer: tuple(sorted(some, key=place.__getitem__)) for layer, some in found.items()}


def variable_of(op: Op) -> str | None:
    """Return the variable or table that the op holds, reads or updates; None if there is none."""
    return op.variable or (op.name if op.role is Role.VARIABLE else None)


def data_inputs(graph: OpGraph, name: str) -> Iterator[Edge]:
    """Yield the tensors that the op reads."""
    return (edge for edge in graph.inputs_of(name) if not edge.is_control)


def data_outputs(graph: OpGraph, name: str) -> Iterator[Edge]:
    """Yield the tensors of the op as its consumers read them."""
    return (edge for edge in graph.outputs_of(name) if not edge.is_control)


def membership(graph: OpGraph) -> Membership:
    """Return to which layer each forward op belongs."""
    free = _free_ops(graph)
    layer_of: dict[str, str] = {}
    forward = [op for op in graph.ops if op.role is Role.FORWARD]
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
            served = (layer_of.get(edge.consumer) for edge in data_outputs(graph, op.name))
            layer = next(filter(None, served), None)
            if layer is not None:
                layer_of[op.name] = layer
    return Membership(
        layer_of=layer_of, free=free, readers=_readers(graph, forward, layer_of, free)
    )


def layer_graph(graph: OpGraph, costs: CostTable) -> LayerGraph:
    """Return the forward pass of the graph by layer."""
    member = membership(graph)
    # By last op: variables and constants can be read long before their layer's turn.
    ending = [member.layer_of[op.name] for op in graph.ops if op.name in member.layer_of]
    layers = tuple(dict.fromkeys(reversed(ending)))[::-1]
    sent: dict[tuple[str, str], dict[tuple[str, int], int | None]] = defaultdict(dict)
    left: dict[str, dict[tuple[str, int], int | None]] = {layer: {} for layer in layers}
    for edge in graph.edges:
        source, target = member.layer_of.get(edge.producer), member.layer_of.get(edge.consumer)
        if edge.is_control or edge.producer in member.free or source is None or target is None:
            continue
        if source != target:
            sent[source, target][edge.producer, edge.port] = edge.size_bytes
            left[source][edge.producer, edge.port] = edge.size_bytes
    cost_ns = dict.fromkeys(layers, 0)
    for op in graph.ops:
        layer = member.layer_of.get(op.name, op.layer)
        cost = costs.costs.get(op.name)
        if layer in cost_ns and cost is not None:
            cost_ns[layer] += cost.time_ns
    return LayerGraph(
        membership=member,
        layers=layers,
        edges={ends: total_bytes(sizes.values()) for ends, sizes in sent.items()},
        output_bytes={layer: total_bytes(sizes.values()) for layer, sizes in left.items()},
        cost_ns=cost_ns,
    )


def total_bytes(sizes: Iterable[int | None]) -> int | None:
    """Return the sum, None if any size is unknown."""
    total = 0
    for size in sizes:
        if size is None:
            return None
        total += size
    return total


def _free_ops(graph: OpGraph) -> frozenset[str]:
    free: set[str] = set()
    for op in graph.ops:
        if op.role is not Role.FORWARD or (op.layer is not None and op.variable is None):
            continue
        if all(
            edge.producer in free or graph.op(edge.producer).role in (Role.VARIABLE, Role.CONSTANT)
            for edge in data_inputs(graph, op.name)
        ):
            free.add(op.name)
    return frozenset(free)


def _readers(
    graph: OpGraph, forward: list[Op], layer_of: Mapping[str, str], free: frozenset[str]
) -> dict[str, tuple[str, ...]]:
    """Return the layers of the ops that touch each variable, and of those that use what is read."""
    found: dict[str, dict[str, None]] = defaultdict(dict)
    for op in forward:
        if op.variable is None:
            continue
        users = [op.name]
        if op.name in free:
            users += [edge.consumer for edge in data_outputs(graph, op.name)]
        for user in users:
            if user in layer_of:
                found[op.variable][layer_of[user]] = None
    return {variable: tuple(layers) for variable, layers in found.items()}
