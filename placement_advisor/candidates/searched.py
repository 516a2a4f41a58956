"""The best placement that a search finds, starting from what all families propose.

`search_step` searches one op graph for one step and reports a lower bound beside its result.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from placement_advisor.candidates.by_layer import NotApplicable, place_by_layer
from placement_advisor.candidates.families import (
    FAMILIES,
    WORST_CASE_FAMILIES,
    placements_of,
    propose,
)
from placement_advisor.errors import PlacementError
from placement_advisor.graph.layer_view import layer_view
from placement_advisor.graph.placement import Placement
from placement_advisor.simulator.schedule import shortages
from placement_advisor.simulator.simulator import Simulator
from placement_advisor.solvers.effort import Effort, Stop
from placement_advisor.solvers.lower_bounds import bound_step
from placement_advisor.solvers.step_search import FAMILY, least_step
from placement_advisor.units import counted, format_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from placement_advisor.cost.table import CostTable
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.machine.devices import Cluster


def propose_searched(
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
        found = NotApplicable(FAMILY, reason, unbeaten=alone)
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
    simulator: Simulator, starts: Sequence[Placement], layer_of: Mapping[str, str], effort: Effort
) -> Placement | NotApplicable:
    """Return the best placement found; not applicable if that is one of the starts.

    A start that is bad on purpose is told as found: it is no answer by its own name.
    """
    found = least_step(simulator, starts, layer_of, effort)
    looked = f"{counted(found.tried, 'placement')} simulated"
    unbeaten = next((s for s in starts if s.device_of == found.placement.device_of), None)
    if unbeaten is not None and unbeaten.family not in WORST_CASE_FAMILIES:
        reason = f"of {looked} none was better than {unbeaten.label}"
        return NotApplicable(FAMILY, reason, unbeaten=unbeaten)
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
        starts = placements_of(propose(families, graph, costs, part))
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
    return NotApplicable(FAMILY, reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """The best placement that was found, and what is known of any.

    ``step_ns`` is its simulated step. No placement that keeps to what was pinned has less than
    ``lower_bound_ns``, and ``is_proven`` says that this one has no more. ``units`` is the effort
    that was spent.
    """

    placement: Placement
    step_ns: int
    lower_bound_ns: int
    is_proven: bool
    stopped_by: Stop
    units: float


def search_step(
    graph: OpGraph,
    costs: Mapping[str, CostTable],
    cluster: Cluster,
    effort: Effort,
    pinned: Mapping[str, str] | None = None,
) -> SearchResult:
    """Return the placement with the shortest step that was found; equal arguments, equal answers.

    ``pinned`` has ops that have to be on a device or host; the bound is that of placements that
    keep to it. It is met by proof if none of these takes less: a bound on any placement says so, or
    all that keep to it were tried.

    Raises:
        PlacementError: ops that have to stay together are pinned apart, one is pinned to what there
            is not, an op has no device that could run it, or nothing that fits was found.
        ValueError: an op has no cost; only constants, variables and inputs may lack one.
    """
    pinned = pinned or {}
    _check_kernels(graph, cluster)
    home_of = _homes(graph, cluster, pinned)
    simulator = Simulator(graph, costs, cluster)
    proposals = placements_of(propose(tuple(FAMILIES), graph, costs, cluster))
    starts = [_pin(placement, home_of) for placement in proposals.values()]
    fixed = frozenset(home_of)
    found = least_step(simulator, starts, layers_of(simulator.graph), effort, fixed)
    if found.excess_bytes:
        raise PlacementError(
            "no placement was found that fits into the memory of the devices: the best lacks "
            f"{format_bytes(found.excess_bytes)}",
            hint="give them more memory, take more of them, or search longer",
        )
    bound_ns = bound_step(simulator).step_ns
    is_proven = found.stopped_by is Stop.PROOF or found.step_ns <= bound_ns
    return SearchResult(
        placement=found.placement,
        step_ns=found.step_ns,
        lower_bound_ns=found.step_ns if is_proven else bound_ns,
        is_proven=is_proven,
        stopped_by=Stop.PROOF if is_proven else found.stopped_by,
        units=found.units,
    )


def _check_kernels(graph: OpGraph, cluster: Cluster) -> None:
    kinds = {place.kind for place in (*cluster.devices, *cluster.hosts)}
    for op in graph.placed_ops:
        if not op.device_kinds & kinds:
            has = ", ".join(sorted(op.device_kinds)) or "nothing"
            raise PlacementError(
                f"op {op.name!r} ({op.kind}) has kernels for {has}; there are only devices of "
                f"kind {', '.join(sorted(kinds))}",
                hint="add a device or host that can run it",
            )


def _homes(graph: OpGraph, cluster: Cluster, pinned: Mapping[str, str]) -> dict[str, str]:
    """Return the device of every pinned op, and of those that have to be with one."""
    names = cluster.place_names()
    by_variable: dict[str, str] = {}
    for op, device in pinned.items():
        if op not in graph:
            raise PlacementError(f"op {op!r} is pinned to {device!r}, but is not in the graph")
        if device not in names:
            raise PlacementError(f"op {op!r} is pinned to {device!r}; there are {', '.join(names)}")
        variable = graph.op(op).variable
        if variable is None:
            continue
        other = by_variable.setdefault(variable, op)
        if pinned[other] != device:
            raise PlacementError(
                f"op {other!r} is pinned to {pinned[other]!r} and op {op!r} to {device!r}, "
                f"but both have to be with variable {variable!r}",
                hint="pin them to one device, or only one of them",
            )
    return dict(pinned) | {
        op.name: pinned[by_variable[op.variable]]
        for op in graph.placed_ops
        if op.variable is not None and op.variable in by_variable
    }


def _pin(placement: Placement, home_of: Mapping[str, str]) -> Placement:
    return replace(placement, device_of={**placement.device_of, **home_of})
