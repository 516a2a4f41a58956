"""What a graph is apart from its names: equal fingerprints for graphs that compute alike.

Every op is hashed with all that it computes from and all that computes from it, each way along the
edges once. Names, the order of ops and edges, and which input of its reader a tensor is do not
count; neither do control edges, which carry nothing, nor how often a constant is written down.

Left out: telling apart graphs in which different ops see the same ancestors and descendants, such
as two users of one op from users of two equal ones (their numbers differ, if the fingerprints do
not); values of constants.

Source: Merkle, A Digital Signature Based on a Conventional Encryption Function, CRYPTO '87, for
hashes of hashes; Weisfeiler, Lehman, 1968, for graphs told apart by what ops see around them.
"""

from __future__ import annotations

from collections import defaultdict
from hashlib import blake2b
from typing import TYPE_CHECKING

from placement_advisor.op import Role

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from placement_advisor.graph import OpGraph
    from placement_advisor.op import Edge, Op

_DIGEST_BYTES = 8


def fingerprint(graph: OpGraph, device_of: Mapping[str, str] | None = None) -> str:
    """Return the fingerprint of a graph, or of a placed one; devices do not count by name either.

    Of a placed graph it depends on which edges cross devices and which ops share one.
    """
    plain = _seen(graph, dict.fromkeys((op.name for op in graph.ops), ""))
    if device_of is None:
        return _digest(sorted(plain.values()))
    there: defaultdict[str, list[str]] = defaultdict(list)
    for name, seen in plain.items():
        there[device_of[name]].append(seen)
    called = {device: _digest(sorted(seen)) for device, seen in there.items()}
    placed = {name: called[device] for name, device in device_of.items()}
    return _digest(sorted(_seen(graph, placed, device_of).values()))


def layer_fingerprints(graph: OpGraph) -> dict[str | None, str]:
    """Return for each layer what its ops are, whatever is around them."""
    ops: defaultdict[str | None, list[str]] = defaultdict(list)
    for op in graph.ops:
        if op.role is not Role.CONSTANT:
            ops[op.layer].append(_own(op))
    return {layer: _digest(sorted(found)) for layer, found in ops.items()}


def _seen(
    graph: OpGraph, label: Mapping[str, str], device_of: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return for each op but constants a hash of itself, its ancestors and its descendants."""

    def crosses(edge: Edge) -> bool:
        ends = (edge.producer, edge.consumer)
        return device_of is not None and len({device_of.get(end) for end in ends} - {None}) > 1

    def around(edges: Iterable[Edge], hashes: Mapping[str, str], far: str) -> Sequence[object]:
        return sorted(
            (edge.port, edge.size_bytes or -1, crosses(edge), hashes[getattr(edge, far)])
            for edge in edges
            if not edge.is_control
        )

    own = {op.name: _digest([_own(op), label.get(op.name, "")]) for op in graph.ops}
    before: dict[str, str] = {}
    for op in graph.ops:
        inputs = around(graph.inputs_of(op.name), before, "producer")
        before[op.name] = _digest([own[op.name], inputs])
    after: dict[str, str] = {}
    for op in reversed(graph.ops):
        outputs = around(graph.outputs_of(op.name), after, "consumer")
        after[op.name] = _digest([own[op.name], outputs])
    return {
        op.name: _digest([before[op.name], after[op.name]])
        for op in graph.ops
        if op.role is not Role.CONSTANT
    }


def _own(op: Op) -> str:
    """Return what an op is by itself."""
    return repr(
        (
            op.kind,
            op.role.value,
            op.output_bytes,
            op.parameter_bytes,
            op.flops,
            op.bytes_accessed,
            op.trips,
            sorted(op.device_kinds),
            op.host_outputs,
        )
    )


def _digest(values: Sequence[object]) -> str:
    return blake2b(repr(values).encode(), digest_size=_DIGEST_BYTES).hexdigest()
