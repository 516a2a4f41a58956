"""The layer view with costs: what the families of candidates see of a graph.

Edges and layers are those of the forward pass; backward and update ops count in what a layer
costs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from placement_advisor.layer_view import LayerView, layer_view

if TYPE_CHECKING:
    from collections.abc import Mapping

    from placement_advisor.cost.table import CostTable
    from placement_advisor.graph import OpGraph
    from placement_advisor.membership import Membership


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerGraph:
    """The forward pass by layer.

    ``layers`` are in the order of their last op. ``edges`` holds the bytes that one layer sends
    to another and ``output_bytes`` the bytes that leave a layer, each tensor once; None where
    the size of any is unknown. ``cost_ns`` adds the known costs of a layer's forward, backward
    and update ops: a lower bound where an op has no known cost.
    """

    view: LayerView
    layers: tuple[str, ...]
    edges: Mapping[tuple[str, str], int | None]
    output_bytes: Mapping[str, int | None]
    cost_ns: Mapping[str, int]

    @property
    def membership(self) -> Membership:
        """To which layer each forward op belongs."""
        return self.view.membership


def layer_graph(graph: OpGraph, costs: CostTable) -> LayerGraph:
    """Return the forward pass of the graph by layer."""
    view = layer_view(graph)
    layers = view.forward_layers()
    cost_ns = dict.fromkeys(layers, 0)
    for op in graph.ops:
        layer = view.membership.layer_of.get(op.name, op.layer)
        cost = costs.costs.get(op.name)
        if layer in cost_ns and cost is not None:
            cost_ns[layer] += cost.time_ns
    return LayerGraph(
        view=view,
        layers=layers,
        edges={(e.source, e.target): e.forward_bytes for e in view.edges if e.forward_tensors},
        output_bytes={layer.name: layer.output_bytes for layer in view.layers[: len(layers)]},
        cost_ns=cost_ns,
    )
