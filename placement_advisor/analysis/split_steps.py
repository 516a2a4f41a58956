"""Candidates that split the batch: steps of other graphs than the one that was traced."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from placement_advisor.candidates import towers
from placement_advisor.candidates.batch_split.mirrored_graph import FAMILY as MIRRORED
from placement_advisor.candidates.batch_split.split_graph import FAMILY as BATCH
from placement_advisor.candidates.batch_split.split_graph import (
    ON_HOST,
    SPREAD,
    graph_of,
    placed_on_devices,
)
from placement_advisor.candidates.by_layer import NotApplicable
from placement_advisor.errors import BatchSplitError
from placement_advisor.simulator.simulator import Simulator

if TYPE_CHECKING:
    from collections.abc import Sequence

    from placement_advisor.analysis.price import PricedSplit
    from placement_advisor.analysis.prices_elsewhere import Prices
    from placement_advisor.candidates.batch_split.split_graph import SplitGraph
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.graph.placement import Placement
    from placement_advisor.machine.devices import Cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitStep:
    """A placement of a step whose batch is split, ready to be simulated.

    ``samples`` are those of each replica, ``own`` the ops of the unsplit step that compute
    something of a replica's own. ``weak_step_ns`` is its simulated step with the whole batch for
    every replica. ``within`` is the placement of the unsplit step that it repeats on each pair of
    devices, None if it is by device.
    """

    placement: Placement
    samples: tuple[int, ...]
    own: tuple[str, ...]
    simulator: Simulator
    weak_step_ns: int
    within: Placement | None


def split_steps(
    graph: OpGraph,
    prices: Prices,
    families: Sequence[str],
    split: PricedSplit | BatchSplitError,
) -> dict[str, SplitStep | NotApplicable]:
    """Return the candidate of each family that a split of the batch is of."""
    if isinstance(split, BatchSplitError):
        return {name: NotApplicable(family=name, reason=split.message) for name in families}
    return {name: _split_step(graph, prices, name, split) for name in families}


def _split_step(
    graph: OpGraph, prices: Prices, family: str, split: PricedSplit
) -> SplitStep | NotApplicable:
    traced, cluster, graph_key = split.traced, prices.cluster, graph_of(family)
    if graph_key not in traced.graphs:
        uneven = (
            "MirroredStrategy gives all devices the same number of samples, not "
            f"{_sum(traced.samples)}"
        )
        return NotApplicable(family=family, reason=uneven)
    within: Placement | NotApplicable | None = None
    if family == towers.BATCH_TOWERS:
        within = towers.within_a_pair(graph, prices.costs, cluster)
    if isinstance(within, NotApplicable):
        return within
    if family == MIRRORED and split.collectives is not None:
        cluster = split.collectives.on(cluster)
    step, weak = traced.graphs[graph_key], traced.weak[graph_key]
    placed = _placed(step, family, traced.samples, cluster, within)
    weakly = _placed(weak, family, traced.samples, cluster, within)
    if isinstance(placed, NotApplicable):
        return placed
    assert not isinstance(weakly, NotApplicable)
    alike = Simulator(weak.graph, split.weak_costs[graph_key], cluster)
    return SplitStep(
        placement=placed,
        samples=traced.samples,
        own=traced.own,
        simulator=Simulator(
            step.graph, split.costs[graph_key], cluster, collective_of=step.collective_of
        ),
        weak_step_ns=alike.step_ns(weakly),
        within=within,
    )


def _placed(
    step: SplitGraph,
    family: str,
    samples: tuple[int, ...],
    cluster: Cluster,
    within: Placement | None,
) -> Placement | NotApplicable:
    """Return the placement of a step whose batch is split."""
    devices, host = cluster.device_names()[: len(samples)], cluster.devices[0].host
    if within is not None:
        return towers.on_pairs(step, within, cluster.device_names(), samples)
    rationales = {
        BATCH: f"one update of the variables on {devices[0]}",
        ON_HOST: f"one update of the variables on {host}",
        SPREAD: f"one update of each variable, spread by size over {', '.join(devices)}",
        MIRRORED: "variables and updates on every device",
    }
    rationale = f"{_sum(samples)} samples side by side, {rationales[family]}"
    return placed_on_devices(family, step, devices, host, rationale)


def _sum(samples: tuple[int, ...]) -> str:
    return " + ".join(map(str, samples))
