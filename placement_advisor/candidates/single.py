"""Everything on one device: on the first, what every split is compared with; then on others.

Others are the first device of each further kind, and the first host of each: where a GPU waits for
its launches, its host alone can be faster; of two uneven GPUs the first need not be the better one.
Devices are of one kind here if all their figures are equal. A host or CPU that has no kernel for
some op is left out.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from placement_advisor.candidates.busy_time import alike
from placement_advisor.defaults import BASELINE
from placement_advisor.graph.placement import Placement, placed_ops
from placement_advisor.units import format_ns

if TYPE_CHECKING:
    from collections.abc import Mapping

    from placement_advisor.cost.table import CostTable
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.machine.devices import Cluster, Device

FAMILY = BASELINE


def propose(graph: OpGraph, costs: Mapping[str, CostTable], cluster: Cluster) -> Placement:
    """Return the placement of all ops on the first device."""
    del costs  # The same for any cost.
    return on_device(graph, cluster.devices[0].name)


def on_device(graph: OpGraph, device: str) -> Placement:
    """Return the placement of all ops on a device."""
    return Placement(
        label=FAMILY,
        family=FAMILY,
        device_of={op.name: device for op in placed_ops(graph)},
        rationale=f"everything on {device}",
    )


def on_other_kinds(
    graph: OpGraph, costs: Mapping[str, CostTable], cluster: Cluster
) -> tuple[Placement, ...]:
    """Return the placement of all ops on the first device or host of each further kind.

    They are labelled after the kind (``single-cpu``), or after the device where one before it has
    that label (``single-gpu-1``).
    """
    kinds = [cluster.devices[0]]
    labels = {FAMILY, _label(kinds[0].kind)}
    found = []
    for place in cluster.places():
        if any(alike(place, known) for known in kinds) or not _runs_all(graph, place):
            continue
        kinds.append(place)
        label = _label(place.kind)
        if label in labels:
            label = _label(place.name)
        labels.add(label)
        alone = on_device(graph, place.name)
        table = costs[place.name]
        total_ns = sum(place.busy_ns(cost.time_ns) for cost in table.costs.values())
        rationale = f"{alone.rationale}, where its ops take {format_ns(total_ns)} in all"
        found.append(replace(alone, label=label, rationale=rationale))
    return tuple(found)


def _runs_all(graph: OpGraph, place: Device) -> bool:
    """Return whether the device has a kernel for every op, or a host for those it lacks."""
    return place.kind != "CPU" or all(place.kind in op.device_kinds for op in placed_ops(graph))


def _label(name: str) -> str:
    return f"{FAMILY}-{name.lower().replace(':', '-')}"
