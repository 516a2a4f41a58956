"""The best placement of an op graph for one step, with what no placement can beat.

All families of candidates are where the search starts; `solvers.step.latency` says how it goes, and
`bounds` what the bound rests on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from placement_advisor.candidates.families import FAMILIES, placements_of, propose
from placement_advisor.candidates.searched import layers_of
from placement_advisor.errors import PlacementError
from placement_advisor.graph.placement import Placement, placed_ops
from placement_advisor.simulator.simulator import Simulator
from placement_advisor.solvers.bounds.bound import bound_step
from placement_advisor.solvers.effort import Stop
from placement_advisor.solvers.step.latency import least_step
from placement_advisor.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from placement_advisor.cost.table import CostTable
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.machine.devices import Cluster
    from placement_advisor.solvers.effort import Effort


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
    bound_ns = bound_step(graph, costs, cluster, simulator).step_ns
    is_proven = found.stopped_by is Stop.PROOF or found.step_ns <= bound_ns
    return SearchResult(
        placement=Placement(
            label="searched",
            family="searched",
            device_of=found.placement.device_of,
            rationale="searched",
        ),
        step_ns=found.step_ns,
        lower_bound_ns=found.step_ns if is_proven else bound_ns,
        is_proven=is_proven,
        stopped_by=Stop.PROOF if is_proven else found.stopped_by,
        units=found.units,
    )


def _check_kernels(graph: OpGraph, cluster: Cluster) -> None:
    kinds = {place.kind for place in (*cluster.devices, *cluster.hosts)}
    for op in placed_ops(graph):
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
        for op in placed_ops(graph)
        if op.variable is not None and op.variable in by_variable
    }


def _pin(placement: Placement, home_of: Mapping[str, str]) -> Placement:
    return replace(placement, device_of={**placement.device_of, **home_of})
