"""One simulated step and what it is made of: what `advisor simulate` tells.

Left out: other placements to compare it with.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from placement_advisor.cost.table import CostBasis
from placement_advisor.simulator.critical_path import critical_path
from placement_advisor.simulator.events import carried
from placement_advisor.simulator.exposure import hidden_ns
from placement_advisor.simulator.idle import device_times
from placement_advisor.simulator.simulator import Simulator

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from placement_advisor.cost.table import CostTable
    from placement_advisor.graph.op import Total
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.graph.placement import Placement
    from placement_advisor.machine.devices import Cluster
    from placement_advisor.simulator.critical_path import PathStep
    from placement_advisor.simulator.events import OpRun, Transfer
    from placement_advisor.simulator.idle import DeviceTime
    from placement_advisor.simulator.schedule import Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where the parts of a simulation come from, in the user's words.

    ``machine`` names what was simulated; ``renamed`` gives its name for each device that the
    placement file knows by another one.
    """

    graph_file: str
    placement_file: str
    machine: str
    renamed: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Direction:
    """The copies of a step from one device to another; a control signal carries no bytes."""

    source: str
    target: str
    copies: int
    size: Total


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """A schedule and what follows from it.

    ``basis_shares`` is the share of the ops' time by where their costs come from. ``hidden_ns`` is
    that of the device whose exposed time is the step's.
    """

    origin: Origin
    graph: OpGraph
    placement: Placement
    cluster: Cluster
    schedule: Schedule
    basis_shares: Mapping[CostBasis, float]
    device_times: tuple[DeviceTime, ...]
    directions: tuple[Direction, ...]
    hidden_ns: int
    path: tuple[PathStep, ...]


def simulation(
    graph: OpGraph,
    placement: Placement,
    costs: Mapping[str, CostTable],
    cluster: Cluster,
    origin: Origin,
) -> Simulation:
    """Simulate one step; ``costs`` are those of every device and host, by name.

    Raises:
        PlacementError: the placement does not fit the graph and the devices, or a tensor crosses
            between devices without a link.
        ValueError: an op has no cost; only constants, variables and inputs may lack one.
    """
    schedule = Simulator(graph, costs, cluster).schedule(placement)
    return Simulation(
        origin=origin,
        graph=graph,
        placement=placement,
        cluster=cluster,
        schedule=schedule,
        basis_shares=_basis_shares(schedule.runs, costs),
        device_times=device_times(schedule),
        directions=_directions(schedule.transfers),
        hidden_ns=_hidden_ns(schedule),
        path=critical_path(graph, schedule, cluster),
    )


def _hidden_ns(schedule: Schedule) -> int:
    waiting = schedule.waits_longest
    return hidden_ns(schedule.runs, schedule.copies, waiting) if waiting else 0


def _basis_shares(runs: Sequence[OpRun], costs: Mapping[str, CostTable]) -> dict[CostBasis, float]:
    total_ns: Counter[CostBasis] = Counter()
    for run in runs:
        cost = costs[run.device].costs.get(run.op)
        if cost is not None:
            total_ns[cost.basis] += cost.time_ns
    whole_ns = sum(total_ns.values()) or 1
    return {basis: total_ns[basis] / whole_ns for basis in CostBasis}


def _directions(transfers: Sequence[Transfer]) -> tuple[Direction, ...]:
    """Return the copies by direction, that of most bytes first."""
    groups: dict[tuple[str, str], list[Transfer]] = {}
    for copy in transfers:
        groups.setdefault((copy.source, copy.target), []).append(copy)
    found = [
        Direction(source=source, target=target, copies=len(copies), size=carried(copies))
        for (source, target), copies in groups.items()
    ]
    return tuple(sorted(found, key=lambda each: (-each.size.known, each.source, each.target)))
