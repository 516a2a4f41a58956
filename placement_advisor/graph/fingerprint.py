"""What a graph is apart from its names: equal fingerprints for graphs that compute alike.

Every op is hashed with all that it computes from and all that computes from it, each way
along the edges once. Names, the order of ops and edges, and which input of its reader a
tensor is do not count; neither do control edges, which carry nothing, nor how often a
constant is written down.

Left out: telling apart graphs in which different ops see the same ancestors and descendants, such
as two users of one op from users of two equal ones (their numbers differ, if the fingerprints do
not); values of constants.

Source: Merkle, A Digital Signature Based on a Conventional Encryption Function, CRYPTO '87, for
hashes of hashes; Weisfeiler, Lehman, 1968, for graphs told apart by what ops see around them.
"""

from __future__ import annotations

from collections import defaultdict
from hashlib import blake2b
from types import MappingProxyType
from typing import TYPE_CHECKING

from placement_advisor.graph.op import CONTROL_PORT, Edge, Op, Role

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from placement_advisor.graph.op_graph import OpGraph


_DIGEST_BYTES = 8


def fingerprints(
    graph: OpGraph, device_of: Mapping[str, str], sort_of: Mapping[str, str] = MappingProxyType({})
) -> tuple[str, str]:
    """Return the fingerprint of a graph and that of the placed one.

    ``sort_of`` tells devices apart that are not alike; those of the same sort may trade places.
    """
    own = {op.name: own_hash(op) for op in graph.ops}
    plain = _seen(graph, own, {})
    there: defaultdict[str, list[str]] = defaultdict(list)
    for name, device in device_of.items():
        if name in plain:
            there[device].append(plain[name])
    called = {
        device: digest([sort_of.get(device, ""), *sorted(seen)]) for device, seen in there.items()
    }
    placed = own | {
        name: digest([own[name], called[device]])
        for name, device in device_of.items()
        if name in plain
    }
    found = (plain, _seen(graph, placed, device_of) if device_of else plain)
    return digest(sorted(found[0].values())), digest(sorted(found[1].values()))


def layer_fingerprints(graph: OpGraph) -> dict[str | None, str]:
    """Return for each layer what its ops are, whatever is around them."""
    ops: defaultdict[str | None, list[str]] = defaultdict(list)
    for op in graph.ops:
        if op.role is not Role.CONSTANT:
            ops[op.layer or None].append(_own(op))
    return {layer: digest(sorted(found)) for layer, found in ops.items()}


def hashes_of_ops(graph: OpGraph) -> dict[str, str]:
    """Return for each op but constants a hash of itself, its ancestors and its descendants."""
    return _seen(graph, {op.name: own_hash(op) for op in graph.ops}, {})


def _seen(graph: OpGraph, own: Mapping[str, str], device_of: Mapping[str, str]) -> dict[str, str]:
    """Return the hash of each op but constants; of a placed graph, with where its edges cross."""

    def around(name: str, edges: Iterable[Edge], hashes: Mapping[str, str]) -> str:
        here = device_of.get(name)
        found = []
        for edge in edges:
            if edge.port != CONTROL_PORT:
                far = edge.producer if edge.consumer == name else edge.consumer
                # A constant has no device; it is there wherever it is read.
                there = device_of.get(far, here)
                size_bytes = -1 if edge.size_bytes is None else edge.size_bytes
                found.append((edge.port, size_bytes, here not in (there, None), hashes[far]))
        return digest([own[name], sorted(found)])

    before: dict[str, str] = {}
    for op in graph.ops:
        before[op.name] = around(op.name, graph.inputs_of(op.name), before)
    after: dict[str, str] = {}
    for op in reversed(graph.ops):
        after[op.name] = around(op.name, graph.outputs_of(op.name), after)
    return {
        op.name: digest([before[op.name], after[op.name]])
        for op in graph.ops
        if op.role is not Role.CONSTANT
    }


def own_hash(op: Op) -> str:
    """Return a hash of an op by itself."""
    return digest([_own(op)])


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


def digest(values: Sequence[object]) -> str:
    """Return a hash of values, by how they are written."""
    return blake2b(repr(values).encode(), digest_size=_DIGEST_BYTES).hexdigest()
