"""Which variables of a mirrored step are updated without what the other replicas computed.

Told from the graph of the step: a tensor comes from the samples of some replicas until it comes
from those of all, through a collective or by adding up within a process; then it is the same on
all devices. A variable whose update comes from the samples of some replicas has another value on
each device from then on. Sizes of tensors are the same on all devices, and come from no samples.

Left out: exchanges within loops and conditionals, and draws of random numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.graph.op import BRANCH_KINDS, CALL_KINDS, LOOP_KINDS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from placement_advisor.tf.trace.nodes import Node

_COLLECTIVE = ("Collective", "NcclAllReduce")
# What is exchanged within these is not seen: nothing is said of what comes of them.
_OPAQUE = BRANCH_KINDS | CALL_KINDS | LOOP_KINDS
_SIZES = frozenset({"Shape", "ShapeN", "Size", "Rank", "ZerosLike", "OnesLike"})
# Ops that take a handle and leave what it stands for as it is.
_READS = ("ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VariableShape", "VarIsInit")


def unexchanged(
    nodes: Sequence[Node],
    samples: Mapping[str, int],
    variables: Mapping[str, str],
    replicas: int,
) -> tuple[str, ...]:
    """Return the variables that are updated from the samples of some replicas alone.

    ``nodes`` have producers first. ``samples`` has the replica of each input that holds samples,
    ``variables`` the variable of each handle: a replica's own copy of it.
    """
    everyone = frozenset(range(replicas))
    nobody: frozenset[int] = frozenset()
    held: dict[str, frozenset[int]] = {}
    while True:
        before = dict(held)
        sources: dict[str, frozenset[int]] = {}
        for node in nodes:
            found = nobody.union(*(sources[_made_by(*each)] for each in node.inputs))
            handles = [p.name for p, _ in node.inputs if p.name in variables]
            if node.name in samples:
                found = frozenset({samples[node.name]})
            elif node.kind in _SIZES | _OPAQUE or node.kind.startswith(_COLLECTIVE):
                found = nobody
            elif handles and node.kind.startswith(_READS):
                found = found.union(*(held.get(handle, nobody) for handle in handles))
            elif handles and found < everyone:
                for handle in handles:
                    held[handle] = held.get(handle, nobody) | found
            sources[node.name] = nobody if found == everyone else found
        if held == before:
            break
    return tuple(dict.fromkeys(variables[handle] for handle, found in held.items() if found))


def _made_by(producer: Node, port: int) -> str:
    """Return the op that makes a tensor; a custom gradient's `IdentityN` hands many on."""
    while producer.kind == "IdentityN":
        producer, port = producer.inputs[port]
    return producer.name
