"""How far a bound goes if costs are as wrong as they may be.

A bound holds for the costs that it was computed from. What a prediction of a ratio allows for, a
proof has to allow for as well: the bound is computed anew where copies and launches are as wrong as
they may be, and what a split's ops may take less than those of one device comes off it. Ops that
are all on one device which is like the first take what they take there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.solvers.bounds.bound import bound_step

if TYPE_CHECKING:
    from collections.abc import Mapping

    from placement_advisor.cost.table import CostTable
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.simulator.sensitivity import Sensitivity


def least_ratio_if_wrong(
    graph: OpGraph, costs: Mapping[str, CostTable], sensitivity: Sensitivity
) -> float:
    """Return the least that any placement's step can be over that on the first device.

    ``sensitivity`` has the first device alone as its baseline.
    """
    ops = sensitivity.doubt.ops
    ratios = []
    for simulator, baseline_ns in sensitivity.if_wrong():
        cluster = simulator.cluster
        first, *others = cluster.places()
        lower = bound_step(graph, costs, cluster, simulator)
        like_first = {first.name} | {
            place.name
            for place in others
            if costs[place.name] == costs[first.name]
            and (place.kind, place.host) == (first.kind, first.host)
        }
        least_ns = min(
            lower.split_ns / ops,
            *(
                time_ns if place in like_first else time_ns / ops
                for place, time_ns in lower.alone_ns.items()
            ),
        )
        ratios.append(least_ns / baseline_ns)
    return min(ratios)
