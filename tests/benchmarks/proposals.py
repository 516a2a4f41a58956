"""Splits of a model that its benchmarks run: those that families propose, and more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from more_cuts import MORE_CUTS

from placement_advisor.analysis.target_costs import MEASURED_UNCERTAINTY
from placement_advisor.candidates import families, searched
from placement_advisor.candidates.by_layer import NotApplicable
from placement_advisor.solvers.step_search import FAMILY as SEARCHED

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.graph.placement import Placement
    from placement_advisor.simulator.simulator import Simulator
    from placement_advisor.solvers.effort import Effort
    from placement_advisor.testbed.cost_measurement import CostMeasurement

EVERY_FAMILY = tuple(families.FAMILIES)


def proposals(
    graph: OpGraph,
    costing: CostMeasurement,
    simulator: Simulator,
    names: Sequence[str],
    effort: Effort | None = None,
) -> Iterator[Placement]:
    """Yield each placement once that uses more than one device.

    They are those of the families named, what a search finds with an effort, and two more cuts.
    """
    cluster = costing.cluster
    costs = costing.costs.everywhere(cluster)
    found = families.propose(tuple(names), graph, costs, cluster)
    if effort is not None:
        dearer = MEASURED_UNCERTAINTY.copies
        found[SEARCHED] = searched.propose_searched(found, costs, simulator, effort, dearer=dearer)
    devices = cluster.device_names()
    found |= {label: cut(graph, costing.costs, devices) for label, cut in MORE_CUTS.items()}
    seen = []
    for proposal in found.values():
        if isinstance(proposal, NotApplicable) or proposal.device_of in seen:
            continue
        if len(set(proposal.device_of.values())) > 1:
            seen.append(proposal.device_of)
            yield proposal
