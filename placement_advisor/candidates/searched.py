"""The best placement that a search finds, starting from what all families propose.

See `solvers.latency` for how it looks, and what it takes for a placement that fits.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from placement_advisor.candidates.by_layer import place_by_layer
from placement_advisor.candidates.not_applicable import NotApplicable
from placement_advisor.candidates.rationale_phrases import counted
from placement_advisor.graph.layer_view import layer_view
from placement_advisor.graph.placement import Placement
from placement_advisor.simulator.engine import Simulator
from placement_advisor.solvers.step.latency import FAMILY, least_step

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from placement_advisor.cost.table import CostTable
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.machine.devices import Cluster
    from placement_advisor.solvers.effort import Effort

CAUTIOUS = f"{FAMILY}-cautious"


def propose(
    graph: OpGraph,
    cluster: Cluster,
    simulator: Simulator,
    starts: Sequence[Placement],
    layer_of: Mapping[str, str],
    effort: Effort,
) -> Placement | NotApplicable:
    """Return the best placement found; not applicable if that is one of the starts.

    ``simulator`` is one of this graph on this cluster, ``layer_of`` what `layers_of` says of it.
    """
    found = least_step(graph, cluster, simulator, starts, layer_of, effort)
    looked = f"{counted(found.tried, 'placement')} simulated"
    twin = next((s for s in starts if s.device_of == found.placement.device_of), None)
    if twin is not None:
        reason = f"of {looked} none was better than {twin.label}"
        return NotApplicable(family=FAMILY, reason=reason)
    began = f"which began with {counted(len(starts), 'other candidate')}"
    return replace(found.placement, rationale=f"the shortest step of {looked}, {began}")


def propose_both(
    graph: OpGraph,
    cluster: Cluster,
    simulator: Simulator,
    starts: Sequence[Placement],
    layer_of: Mapping[str, str],
    effort: Effort,
    dearer: float,
) -> tuple[Placement | NotApplicable, Placement | NotApplicable]:
    """Return what `propose` finds as copies are, and a cautious answer, where they are dearer.

    A search makes the most of all costs, and so of what is wrong with them: what it finds where
    copies cost ``dearer`` times as much is more likely to be as good as it looks.
    """
    best = propose(graph, cluster, simulator, starts, layer_of, effort)
    starts = (*starts, best) if isinstance(best, Placement) else starts
    dear = cluster.scaled(copies=dearer, launches=1)
    cautious = propose(graph, dear, simulator.on(dear), starts, layer_of, effort)
    where = f"where copies cost {dearer:g} times as much, "
    if isinstance(cautious, NotApplicable):
        return best, replace(cautious, reason=where + cautious.reason)
    cautious = replace(cautious, label=CAUTIOUS, rationale=where + cautious.rationale)
    if simulator.step_ns(cautious) < min(map(simulator.step_ns, starts)):
        # The first search had not found it.
        reason = f"the same placement as {FAMILY}"
        return replace(cautious, label=FAMILY), NotApplicable(family=FAMILY, reason=reason)
    return best, cautious


def propose_smallest(
    graph: OpGraph,
    costs: Mapping[str, CostTable],
    cluster: Cluster,
    starts_on: Callable[[Cluster], Sequence[Placement]],
    layer_of: Mapping[str, str],
    effort: Effort,
) -> Placement | NotApplicable:
    """Return the best placement that fits on as few devices as possible, taken in order.

    For a step that one device does not hold. ``starts_on`` gives the other candidates for some of
    the devices. Not applicable if none was found that fits.
    """
    names, tried = cluster.device_names(), 0
    for count in range(2, len(names) + 1):
        part = cluster.with_devices(names[:count])
        simulator = Simulator(graph, costs, part)
        found = least_step(graph, part, simulator, starts_on(part), layer_of, effort)
        tried += found.tried
        if not found.excess_bytes:
            looked = f"{counted(tried, 'placement')} simulated"
            return replace(
                found.placement,
                rationale=f"on {count} of {len(names)} devices, the fewest for which one of "
                f"{looked} fits",
            )
    reason = f"none of {counted(tried, 'placement')} simulated fits into the memory of the devices"
    return NotApplicable(family=FAMILY, reason=reason)


def layers_of(graph: OpGraph) -> dict[str, str]:
    """Return the layer that each op goes with, as in placements by layer."""
    view = layer_view(graph)
    layers = view.forward_layers()
    own = {layer: layer for layer in layers}
    return place_by_layer(graph, own, {}, "", member=view.membership)
