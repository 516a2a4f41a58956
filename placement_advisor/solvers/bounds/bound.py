"""The best lower bound that there is an argument for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.solvers.bounds.all_placements import every_placement
from placement_advisor.solvers.bounds.arguments import Argument, LowerBound
from placement_advisor.solvers.bounds.cut import root_cut
from placement_advisor.solvers.bounds.longest_path import longest_path
from placement_advisor.solvers.bounds.shared_work import shared_work
from placement_advisor.solvers.bounds.step_numbers import Step

if TYPE_CHECKING:
    from collections.abc import Mapping

    from placement_advisor.cost.table import CostTable
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.machine.devices import Cluster
    from placement_advisor.simulator.simulator import Simulator


def bound_step(
    graph: OpGraph, costs: Mapping[str, CostTable], cluster: Cluster, simulator: Simulator
) -> LowerBound:
    """Return what a step takes at least under any placement of its ops.

    ``simulator`` is one of this graph with these costs on this cluster.
    """
    step = Step(graph, costs, cluster)
    found: tuple[Argument | None, ...] = (
        longest_path(step),
        shared_work(step),
        root_cut(step),
        every_placement(step, simulator),
    )
    arguments = sorted((a for a in found if a is not None), key=lambda each: -each.value_ns)
    return LowerBound(
        split_ns=step.overhead_ns + arguments[0].value_ns,
        alone_ns={device: step.alone_ns(device) for device in cluster.place_names()},
        arguments=tuple(arguments),
    )
