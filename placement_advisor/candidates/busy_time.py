"""What each op keeps each device busy for.

That is its time there and the launch overhead, or the longer of both where a device launches ahead.
An op without a known cost
counts nothing, and neither does one that runs on the device's host wherever it is placed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.graph.host_ops import host_bound

if TYPE_CHECKING:
    from collections.abc import Mapping

    from placement_advisor.cost.table import CostTable
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.machine.devices import Cluster, Device


def alike(one: Device, other: Device) -> bool:
    """Return whether devices compute alike, wherever they stand."""
    return one.bare() == other.bare()


def busy_ns(
    graph: OpGraph, costs: Mapping[str, CostTable], cluster: Cluster
) -> dict[str, Mapping[str, int]]:
    """Return by device what each op that runs there takes.

    Devices for which ops take the same share one mapping.
    """
    found: dict[str, Mapping[str, int]] = {}
    shared: dict[tuple[int, int, bool, str | None], dict[str, int]] = {}
    for device in cluster.devices:
        table = costs[device.name]
        kind = device.kind if device.host is not None else None
        key = id(table), device.busy_ns(0), device.launches_ahead, kind
        if key not in shared:
            elsewhere = host_bound(graph, kind) if kind is not None else frozenset()
            shared[key] = {
                op.name: device.busy_ns(cost.time_ns)
                for op in graph.ops
                if (cost := table.costs.get(op.name)) is not None and op.name not in elsewhere
            }
        found[device.name] = shared[key]
    return found
