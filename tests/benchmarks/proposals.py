"""Splits of a model that its benchmarks run: those that families propose, and more."""

from placement_advisor.analysis.target_costs import MEASURED_UNCERTAINTY
from placement_advisor.candidates import families, searched
from placement_advisor.candidates.by_layer import NotApplicable, place_by_layer
from placement_advisor.graph.layer_structure import depth_first
from placement_advisor.graph.layer_view import layer_view
from placement_advisor.graph.placement import Placement

_MIN_LAYERS = 3


def _cut(label, places):
    """Return a proposer that changes the device where these shares of the work are done."""

    def propose(graph, costs, devices):
        view = layer_view(graph)
        layers = depth_first(view)
        if len(layers) < _MIN_LAYERS:
            return NotApplicable(family=label, reason="too few layers")
        work_ns = dict.fromkeys(layers, 0)
        for op in graph.ops:
            layer = view.membership.layer_of.get(op.name) or op.layer
            if layer in work_ns and op.name in costs.costs:
                work_ns[layer] += costs.time_ns(op.name)
        whole_ns = sum(work_ns.values()) or 1
        device_of, done_ns = {}, 0
        for layer in layers:
            middle = (done_ns + work_ns[layer] / 2) / whole_ns
            done_ns += work_ns[layer]
            device_of[layer] = devices[sum(middle > place for place in places) % len(devices)]
        placed = place_by_layer(graph, device_of, {}, devices[0], member=view.membership)
        return Placement(label=label, family=label, device_of=placed, rationale="")

    return propose


# Cuts by layer that no family proposes, to have more to predict.
_MORE_CUTS = {"halves": _cut("halves", [1 / 2]), "sandwich": _cut("sandwich", [1 / 3, 2 / 3])}


def proposed(names, graph, costing):
    """Return what families propose, and two more cuts, by name."""
    cluster = costing.cluster
    found = families.propose(names, graph, costing.costs.everywhere(cluster), cluster)
    devices = cluster.device_names()
    return found | {name: cut(graph, costing.costs, devices) for name, cut in _MORE_CUTS.items()}


def proposals(graph, costing, simulator, effort):
    """Yield each placement once that uses more than one device.

    They are those of all families, what a search finds, and two more cuts.
    """
    found = proposed(tuple(families.FAMILIES), graph, costing)
    costs = costing.costs.everywhere(costing.cluster)
    of_families = {name: each for name, each in found.items() if name not in _MORE_CUTS}
    dearer = MEASURED_UNCERTAINTY.copies
    best = searched.propose_searched(of_families, costs, simulator, effort, dearer=dearer)
    seen = []
    cuts = [found[name] for name in _MORE_CUTS]
    for proposal in (*of_families.values(), best, *cuts):
        if isinstance(proposal, NotApplicable) or proposal.device_of in seen:
            continue
        if len(set(proposal.device_of.values())) > 1:
            seen.append(proposal.device_of)
            yield proposal
