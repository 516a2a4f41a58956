"""Bounds for tests: what is claimed of a placed step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from placement_advisor.solvers import bound_check
from placement_advisor.solvers.lower_bounds import bound_step

if TYPE_CHECKING:
    from collections.abc import Mapping

    from placed_steps import PlacedStep

    from placement_advisor.cost.table import CostTable
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.machine.devices import Cluster
    from placement_advisor.solvers.bound_arguments import LowerBound


@dataclass(frozen=True, kw_only=True)
class Certified:
    """A bound, and what it rests on but for the graph."""

    cluster: Cluster
    costs: Mapping[str, CostTable]
    bound: LowerBound


def certified(step: PlacedStep) -> Certified:
    costs = step.all_costs()
    return Certified(
        cluster=step.cluster,
        costs=costs,
        bound=bound_step(step.graph, costs, step.cluster, step.simulator()),
    )


def verify(told: Certified, graph: OpGraph) -> None:
    bound_check.verify(told.bound, graph, told.costs, told.cluster)
