"""The best placement that a search finds, starting from what all families propose.

See `solvers.step.latency` for how it looks, and what it takes for a placement that fits.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from placement_advisor.candidates.by_layer import place_by_layer
from placement_advisor.candidates.families import BAD_ON_PURPOSE, FAMILIES, placements_of
from placement_advisor.candidates.families import propose as propose_by_rule
from placement_advisor.candidates.not_applicable import NotApplicable
from placement_advisor.graph.layer_view import layer_view
from placement_advisor.graph.placement import Placement
from placement_advisor.simulator.peak import shortages
from placement_advisor.simulator.simulator import Simulator
from placement_advisor.solvers.step.latency import FAMILY, least_step
from placement_advisor.units import counted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from placement_advisor.cost.table import CostTable
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.solvers.effort import Effort


def propose(
    answers: Mapping[str, Placement | NotApplicable],
    costs: Mapping[str, CostTable],
    simulator: Simulator,
    effort: Effort,
    *,
    dearer: float = 1.0,
) -> Placement | NotApplicable:
    """Return the best placement that is found from what families have answered.

    ``simulator`` is one with these costs, the first answer the placement on a single device. Where
    that does not hold the step, the best on as few devices as hold it is looked for, taken in
    order. Not applicable if one of the answers that is not bad on purpose is the best, or none was
    found that fits.

    A search makes the most of all costs, and so of what is wrong with them: what it finds where
    copies cost ``dearer`` times as much, the most that they may in truth, is as good as it looks or
    better. But for anomalies: copies that arrive sooner can change the order of ops, or what they
    share, for the worse. What is no shorter than the first answer by the costs as they are is not
    proposed.

    Source: Graham, Bounds on multiprocessing timing anomalies (SIAM J. Appl. Math. 17, 1969).
    """
    dear = simulator.on(simulator.cluster.scaled(copies=dearer, launches=1))
    found = _fitting(answers, costs, dear, effort)
    if dearer == 1:
        return found
    alone = next(iter(placements_of(answers).values()))
    if isinstance(found, Placement) and _is_no_shorter(found, alone, simulator):
        reason = f"what was found is no shorter than {alone.label} elsewhere"
        found = NotApplicable(family=FAMILY, reason=reason, unbeaten=alone)
    where = f"where copies cost {dearer:g} times as much, "
    if isinstance(found, NotApplicable):
        return replace(found, reason=where + found.reason)
    return replace(found, rationale=where + found.rationale)


def _is_no_shorter(found: Placement, alone: Placement, simulator: Simulator) -> bool:
    """Return whether one device holds the step, and takes no longer."""
    whole = simulator.schedule(alone)
    fits = not shortages(whole.peak_memory, simulator.cluster.devices)
    return fits and simulator.step_ns(found) >= whole.step_ns


def _fitting(
    answers: Mapping[str, Placement | NotApplicable],
    costs: Mapping[str, CostTable],
    simulator: Simulator,
    effort: Effort,
) -> Placement | NotApplicable:
    starts = tuple(placements_of(answers).values())
    peaks = simulator.schedule(starts[0]).peak_memory
    if shortages(peaks, simulator.cluster.devices):
        families = [name for name in answers if name in FAMILIES]
        return _on_fewest_devices(families, costs, simulator, effort)
    return _best(simulator, starts, layers_of(simulator.graph), effort)


def layers_of(graph: OpGraph) -> dict[str, str]:
    """Return the layer that each op goes with, as in placements by layer."""
    view = layer_view(graph)
    layers = view.forward_layers()
    own = {layer: layer for layer in layers}
    return place_by_layer(graph, own, {}, "", member=view.membership)


def _best(
    simulator: Simulator,
    starts: Sequence[Placement],
    layer_of: Mapping[str, str],
    effort: Effort,
) -> Placement | NotApplicable:
    """Return the best placement found; not applicable if that is one of the starts.

    A start that is bad on purpose is told as found: it is no answer by its own name.
    """
    found = least_step(simulator, starts, layer_of, effort)
    looked = f"{counted(found.tried, 'placement')} simulated"
    unbeaten = next((s for s in starts if s.device_of == found.placement.device_of), None)
    if unbeaten is not None and unbeaten.family not in BAD_ON_PURPOSE:
        reason = f"of {looked} none was better than {unbeaten.label}"
        return NotApplicable(family=FAMILY, reason=reason, unbeaten=unbeaten)
    began = f"which began with {counted(len(starts), 'other candidate')}"
    return replace(
        found.placement,
        label=FAMILY,
        family=FAMILY,
        rationale=f"the shortest step of {looked}, {began}",
    )


def _on_fewest_devices(
    families: Sequence[str], costs: Mapping[str, CostTable], simulator: Simulator, effort: Effort
) -> Placement | NotApplicable:
    """Return the best placement that fits on as few devices as possible, taken in order.

    What the families propose for these is where the search starts.
    """
    graph, cluster = simulator.graph, simulator.cluster
    layer_of = layers_of(graph)
    names, tried = cluster.device_names(), 0
    for count in range(2, len(names) + 1):
        part = cluster.with_devices(names[:count])
        starts = placements_of(propose_by_rule(families, graph, costs, part))
        on_part = Simulator(graph, costs, part)
        found = least_step(on_part, tuple(starts.values()), layer_of, effort)
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
