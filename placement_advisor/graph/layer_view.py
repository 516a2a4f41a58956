"""The op graph by layer: what each layer holds, and what layers send to one another.

`membership` assigns the ops of the forward pass to layers and finds the readers of variables.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from placement_advisor.graph.op import COMPUTING_ROLES, STANDING_ROLES, Op, Role, Total

if TYPE_CHECKING:
    from collections.abc import Mapping

    from placement_advisor.graph.op_graph import OpGraph


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
                layer_of[producer]
                for producer in graph.producers(op.name)
                if producer in layer_of and producer not in free
            }
            layer_of[op.name] = feeders.pop() if len(feeders) == 1 else op.name
    for op in reversed(forward):
        if op.name not in layer_of:
            consumers = graph.consumers(op.name)
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
            producer in free or graph.op(producer).role in STANDING_ROLES
            for producer in graph.producers(op.name)
        ):
            free.add(op.name)
    return frozenset(free)


def _handed_out(graph: OpGraph, forward: list[Op], free: frozenset[str]) -> frozenset[str]:
    """Return the ops that compute something of inputs, outside layers, for several layers."""
    given: list[str] = []
    known = {op.name for op in graph.ops if op.role in (*STANDING_ROLES, Role.INPUT)} | free
    for op in forward:
        is_apart = op.layer is None and op.variable is None
        if is_apart and known.issuperset(graph.producers(op.name)):
            given.append(op.name)
            known.add(op.name)
    served: dict[str, set[str]] = {}
    for name in reversed(given):
        served[name] = set()
        for consumer in map(graph.op, graph.consumers(name)):
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
                users += graph.consumers(user)
            if user in layer_of:
                found[op.variable][layer_of[user]] = None
    return {variable: tuple(layers) for variable, layers in found.items()}


_Tensors: TypeAlias = "dict[tuple[str, int], int | None]"


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSummary:
    """What one layer holds.

    ``flops`` have a part for each op that computes, backward and update ops included.
    ``output_bytes`` are those of the forward tensors that other layers read, each once; None
    where the size of any is unknown.
    """

    name: str
    ops_by_role: Mapping[Role, int]
    flops: Total
    output_bytes: int | None

    @property
    def ops(self) -> int:
        """Number of ops."""
        return sum(self.ops_by_role.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerView:
    """The graph by layer.

    Layers of forward ops come first, in the order of their last op; then those without any, in
    the order of their first. ``edges`` has for each source and target the bytes of the forward
    tensors that forward ops of the target read, each once; None where the size of any is unknown.
    ``membership`` is that of the forward ops, at the depth of the view.
    """

    layers: tuple[LayerSummary, ...]
    edges: Mapping[tuple[str, str], int | None]
    membership: Membership

    def forward_layers(self) -> tuple[str, ...]:
        """Return the names of the layers that have forward ops, in order."""
        return tuple(layer.name for layer in self.layers if layer.ops_by_role.get(Role.FORWARD, 0))

    def feeders(self) -> dict[str, tuple[str, ...]]:
        """Return the layers that send each forward layer a forward tensor, in layer order."""
        layers = self.forward_layers()
        place = {layer: i for i, layer in enumerate(layers)}
        found: dict[str, list[str]] = {layer: [] for layer in layers}
        for source, target in self.edges:
            found[target].append(source)
        return {layer: tuple(sorted(some, key=place.__getitem__)) for layer, some in found.items()}


def layer_view(graph: OpGraph, depth: int | None = None) -> LayerView:
    """Return the graph by layer; with a depth, by the first components of the layers' paths."""
    member = _at_depth(membership(graph), depth)
    layer_of = {
        op.name: layer
        for op in graph.ops
        if (layer := member.layer_of.get(op.name, _shortened(op.layer, depth))) is not None
    }
    names = _ordered(graph, layer_of)
    edges, leaving = _tensors(graph, layer_of, member)
    ops_of: dict[str | None, list[Op]] = defaultdict(list)
    for op in graph.ops:
        ops_of[layer_of.get(op.name)].append(op)
    return LayerView(
        layers=tuple(_summary(name, ops_of[name], leaving[name]) for name in names),
        edges=edges,
        membership=member,
    )


def depth_for(graph: OpGraph, max_layers: int) -> int | None:
    """Return the largest depth at which a view has at most so many layers.

    None if the view needs no depth for that. 1 if no depth suffices: it gives the fewest.
    """
    member = membership(graph)
    found = {member.layer_of.get(op.name, op.layer) for op in graph.ops}
    layers = {layer for layer in found if layer is not None}
    if len(layers) <= max_layers:
        return None
    deepest = max(layer.count("/") for layer in layers) + 1
    for depth in range(deepest, 1, -1):
        if len({_shortened(layer, depth) for layer in layers}) <= max_layers:
            return depth
    return 1


def _shortened(layer: str | None, depth: int | None) -> str | None:
    """Return the first components of the path, and no number of a call if any were cut off."""
    if layer is None or depth is None or layer.count("/") < depth:
        return layer
    return "/".join(layer.split("/", depth)[:depth])


def _at_depth(member: Membership, depth: int | None) -> Membership:
    if depth is None:
        return member
    short = {layer: _shortened(layer, depth) or "" for layer in set(member.layer_of.values())}
    return Membership(
        layer_of={op: short[layer] for op, layer in member.layer_of.items()},
        free=member.free,
        readers={
            variable: tuple(dict.fromkeys(short[layer] for layer in layers))
            for variable, layers in member.readers.items()
        },
    )


def _ordered(graph: OpGraph, layer_of: Mapping[str, str]) -> list[str]:
    # By last op: variables and constants can be read long before their layer's turn.
    forward = [
        layer_of[op.name] for op in graph.ops if op.role is Role.FORWARD and op.name in layer_of
    ]
    ordered = dict.fromkeys(list(dict.fromkeys(reversed(forward)))[::-1])
    return list(
        ordered | dict.fromkeys(layer_of[op.name] for op in graph.ops if op.name in layer_of)
    )


def _tensors(
    graph: OpGraph, layer_of: Mapping[str, str], member: Membership
) -> tuple[dict[tuple[str, str], int | None], dict[str, _Tensors]]:
    """Return what layers send to one another, and the forward tensors that leave each."""
    sent: dict[tuple[str, str], _Tensors] = defaultdict(dict)
    leaving: dict[str, _Tensors] = defaultdict(dict)
    for edge in graph.edges:
        source, target = layer_of.get(edge.producer), layer_of.get(edge.consumer)
        if source is None or target is None or source == target:
            continue
        if edge.is_control or edge.producer in member.free:
            continue
        if graph.op(edge.producer).role is graph.op(edge.consumer).role is Role.FORWARD:
            sent[source, target][edge.tensor] = leaving[source][edge.tensor] = edge.size_bytes
    return {ends: Total.of(tensors.values()).exact for ends, tensors in sent.items()}, leaving


def _summary(name: str, ops: list[Op], leaving: _Tensors) -> LayerSummary:
    return LayerSummary(
        name=name,
        ops_by_role=dict(Counter(op.role for op in ops)),
        flops=Total.of(op.flops for op in ops if op.role in COMPUTING_ROLES),
        output_bytes=Total.of(leaving.values()).exact,
    )
