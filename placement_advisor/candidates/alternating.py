"""The device changes at every layer: bad on purpose.

With it one sees what copies cost on a testbed. The study that this copies (the seed of the
project) changed the device at every layer, down one tower, then down the next. So layers are
taken depth first, each tower to its end, and not in the order of the trace, which may interleave
towers: two towers in turn on two devices would be the tower split.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.candidates.by_layer import place_by_layer
from placement_advisor.candidates.not_applicable import NotApplicable
from placement_advisor.graph.layer_view import layer_view
from placement_advisor.graph.placement import Placement
from placement_advisor.graph.structure.order import depth_first

if TYPE_CHECKING:
    from collections.abc import Mapping

    from placement_advisor.cost.table import CostTable
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.machine.devices import Cluster

FAMILY = "alternating"
MIN_LAYERS = 2


def propose(
    graph: OpGraph, costs: Mapping[str, CostTable], cluster: Cluster
) -> Placement | NotApplicable:
    """Return the placement that changes device at every layer; variables with their first reader.

    Not applicable to a step of fewer than two layers.
    """
    del costs  # The same for any cost.
    devices = cluster.device_names()
    view = layer_view(graph)
    layers = depth_first(view)
    if len(layers) < MIN_LAYERS:
        return NotApplicable(
            family=FAMILY, reason="the step has no two layers between which the device could change"
        )
    layer_device = {layer: devices[i % len(devices)] for i, layer in enumerate(layers)}
    return Placement(
        label=FAMILY,
        family=FAMILY,
        device_of=place_by_layer(graph, layer_device, {}, devices[0], member=view.membership),
        rationale=f"the device changes at each of {len(layers)} layers: "
        "bad on purpose, to show what copies cost",
    )
