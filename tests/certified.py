"""Certificates for tests: what is claimed of a placed step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.cost.table import CostSource
from placement_advisor.solvers.bounds.bound import bound_step
from placement_advisor.solvers.certificate import Certificate

if TYPE_CHECKING:
    from placed_steps import PlacedStep


def certified(step: PlacedStep) -> Certificate:
    costs = step.all_costs()
    return Certificate(
        graph_fingerprint=step.graph.fingerprint,
        cluster=step.cluster,
        costs=costs,
        source=CostSource.MEASURED,
        bound=bound_step(step.graph, costs, step.cluster, step.simulator()),
    )
