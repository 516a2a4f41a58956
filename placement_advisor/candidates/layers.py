"""The layer view with costs: what the families of candidates see of a graph.

Edges and layers are those of the forward pass; backward and update ops count in what a layer
costs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from placement_advisor.candidates.busy_time import busy_ns
from placement_advisor.graph.layer_view import LayerView, layer_view
from placement_advisor.graph.op_graph import Role

if TYPE_CHECKING:
    from collections.abc import Mapping

    from placement_advisor.cost.table import CostTable
    from placement_advisor.graph.membership import Membership
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.machine.devices import Cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerGraph:
    """The forward pass by layer.

    ``layers`` are in the order of their last op. ``edges`` holds the bytes that one layer sends
    to another and ``output_bytes`` the bytes that leave a layer, each tensor once; None where
    the size of any is unknown. ``busy_ns`` says for how long a layer's forward, backward and
    update ops keep each device busy: a lower bound where an op has no known cost. ``update_ns``
    is the part of update ops in that. ``computing`` are the layers with an op that takes time,
    launches apart.
    """

    view: LayerView
    layers: tuple[str, ...]
    edges: Mapping[tuple[str, str], int | None]
    output_bytes: Mapping[str, int | None]
    busy_ns: Mapping[str, Mapping[str, int]]
    update_ns: Mapping[str, Mapping[str, int]]
    computing: frozenset[str]

    @property
    def membership(self) -> Membership:
        """To which layer each forward op belongs."""
        return self.view.membership


def layer_graph(graph: OpGraph, costs: Mapping[str, CostTable], cluster: Cluster) -> LayerGraph:
    """Return the forward pass of the graph by layer."""
    view = layer_view(graph)
    layers = view.forward_layers()
    layer_of = {op.name: view.membership.layer_of.get(op.name, op.layer) for op in graph.ops}
    updates = {op.name for op in graph.ops if op.role is Role.UPDATE}
    # Devices that are alike share their sums.
    sums: dict[int, tuple[dict[str, int], dict[str, int]]] = {}
    busy = busy_ns(graph, costs, cluster)
    for work_ns in busy.values():
        if id(work_ns) in sums:
            continue
        total_ns, update_ns = dict.fromkeys(layers, 0), dict.fromkeys(layers, 0)
        sums[id(work_ns)] = total_ns, update_ns
        for op, time_ns in work_ns.items():
            layer = layer_of[op]
            if layer in total_ns:
                total_ns[layer] += time_ns
                update_ns[layer] += time_ns if op in updates else 0
    first = costs[cluster.devices[0].name].costs
    return LayerGraph(
        view=view,
        layers=layers,
        edges=view.edges,
        output_bytes={layer.name: layer.output_bytes for layer in view.layers[: len(layers)]},
        busy_ns={device: sums[id(work_ns)][0] for device, work_ns in busy.items()},
        update_ns={device: sums[id(work_ns)][1] for device, work_ns in busy.items()},
        computing=frozenset(
            layer
            for op, layer in layer_of.items()
            if layer is not None and op in first and first[op].time_ns > 0
        ),
    )
