"""A step that the devices of a host share, made the same step on many equal hosts.

Model: every host has variables of its own and does the same on other samples. What gradients its
replicas have merged is all-reduced with those of the other hosts, each as it is ready, before any
update; rows of looked-up tables are all-gathered. So one host stands for all of them.

Left out: that updates of looked-up rows apply those of all hosts, and cost as much more; that
gradients which one device or the CPU has merged leave a host over one of its several wires.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from placement_advisor.candidates.batch_split.joint import ALL_GATHER, ALL_REDUCE
from placement_advisor.candidates.batch_split.mirrored_graph import SUMMED, exchanged_gradients
from placement_advisor.graph.op_graph import Edge, Op, OpGraph, Role
from placement_advisor.graph.op_work.signature import WorkBasis

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from placement_advisor.candidates.batch_split.plan import Tensor
    from placement_advisor.candidates.batch_split.split_graph import SplitGraph
    from placement_advisor.candidates.batch_split.wiring import Wiring
    from placement_advisor.graph.placement import Placement


def across_hosts(
    split: SplitGraph, placement: Placement, wiring: Wiring, whole: OpGraph, place: str
) -> tuple[SplitGraph, Placement]:
    """Return a split step and its placement with exchanges of merged gradients on a ``place``."""
    graph = split.graph
    merged = {op.name: op for op in graph.ops}
    exchange = exchanges(merged, wiring, exchanged_gradients(whole, wiring))
    edges = []
    for edge in graph.edges:
        of_all = exchange.get((edge.producer, edge.port))
        edges.append(edge if of_all is None else edge._replace(producer=of_all.name, port=0))
    edges += [
        Edge(name, op.name, port, op.output_bytes[0]) for (name, port), op in exchange.items()
    ]
    added = {op.name: place for op in exchange.values()}
    return (
        replace(
            split,
            graph=OpGraph([*graph.ops, *exchange.values()], edges),
            replica_of={**split.replica_of, **dict.fromkeys(added)},
            is_of_hosts=True,
        ),
        replace(placement, device_of={**placement.device_of, **added}),
    )


def exchanges(
    merged: Mapping[str, Op], wiring: Wiring, waves: Sequence[Sequence[Tensor]]
) -> dict[Tensor, Op]:
    """Return the op that exchanges each merged gradient; ``merged`` has the ops that merge."""
    found: dict[Tensor, Op] = {}
    for wave in waves:
        for tensor in wave:
            name, port = of_host = wiring.tensor(tensor, None)
            if name in merged:
                is_summed = wiring.merges[tensor] in SUMMED
                found[of_host] = _exchange(merged[name], port, is_summed=is_summed)
    return found


def _exchange(merged: Op, port: int, *, is_summed: bool) -> Op:
    size_bytes = merged.output_bytes[port]
    return Op(
        name=f"between_hosts/{merged.name}_{port}",
        kind=ALL_REDUCE if is_summed else ALL_GATHER,
        role=Role.BACKWARD,
        bytes_accessed=None if size_bytes is None else 2 * size_bytes,
        work_basis=WorkBasis.SIZES,
        output_bytes=(size_bytes,),
        device_kinds=merged.device_kinds,
    )
