"""Towers within replicas: the batch is split among pairs of devices, the model within each pair.

Every pair computes the step on its share of the samples, laid out as `towers` lays it out on two
devices. Variables, and what is made of all replicas' gradients, are on the first pair.

Left out: groups of more than two devices; a device that is left over has nothing to do.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from placement_advisor.candidates import towers
from placement_advisor.candidates.not_applicable import NotApplicable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from placement_advisor.candidates.batch_split.split_graph import SplitGraph
    from placement_advisor.cost.table import CostTable
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.graph.placement import Placement
    from placement_advisor.machine.devices import Cluster

FAMILY = "batch-towers"
GROUP = 2
MIN_DEVICES = 2 * GROUP


def within_a_pair(
    graph: OpGraph, costs: Mapping[str, CostTable], cluster: Cluster
) -> Placement | NotApplicable:
    """Return the placement of the unsplit step on the first pair of devices.

    Not applicable with fewer than four devices, or where there are no towers.
    """
    names = cluster.device_names()
    if len(names) < MIN_DEVICES:
        reason = f"two pairs of devices are {MIN_DEVICES}, and there are {len(names)}"
        return NotApplicable(family=FAMILY, reason=reason)
    found = towers.propose(graph, costs, cluster.with_devices(names[:GROUP]))
    if isinstance(found, NotApplicable):
        return NotApplicable(family=FAMILY, reason=found.reason)
    return replace(found, label=FAMILY, family=FAMILY)


def by_pair(amounts: Sequence[float]) -> list[float]:
    """Return what the devices of each pair make together; a last one without a partner is left."""
    return [one + other for one, other in zip(amounts[::GROUP], amounts[1::GROUP], strict=False)]


def on_pairs(
    split: SplitGraph, within: Placement, devices: Sequence[str], samples: Sequence[int]
) -> Placement:
    """Return the placement of each replica on a pair, as the unsplit step is placed on the first.

    ``samples`` are those of each replica.
    """
    first, second = devices[:GROUP]
    pairs = [devices[GROUP * i : GROUP * (i + 1)] for i in range(len(samples))]
    shares = " + ".join(map(str, samples))
    return split.laid_out(
        within,
        [dict(zip((first, second), pair, strict=True)) for pair in pairs],
        label=FAMILY,
        rationale=f"{shares} samples side by side on pairs of devices, each: {within.rationale}",
    )
