"""Where variables of a step stand whose batch is split, and with them what all replicas share.

What merges gradients and updates a variable is done where that is. Layers are spread by size, each
to the device that has least so far, as TensorFlow's `GreedyLoadBalancingStrategy` does.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from placement_advisor.candidates.batch_split.split_graph import FAMILY as BATCH
from placement_advisor.candidates.not_applicable import NotApplicable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from placement_advisor.candidates.batch_split.split_graph import SplitGraph
    from placement_advisor.graph.op_graph import Op, OpGraph
    from placement_advisor.graph.placement import Placement

ON_HOST = "variables-on-host"
SPREAD = "variables-spread"
# What `make_parallel` calls these places.
VARIABLES = {BATCH: "first", ON_HOST: "host", SPREAD: "spread"}
BY_VARIABLES = tuple(VARIABLES)


def graph_of(family: str) -> str:
    """Return the family that has the same graph: variables of one can stand in several places."""
    return BATCH if family in BY_VARIABLES else family


def placed_on_devices(
    family: str, split: SplitGraph, devices: Sequence[str], host: str | None, rationale: str
) -> Placement | NotApplicable:
    """Return the placement of a family whose step has a replica on each device.

    ``host`` is that of the first device.
    """
    shared: Mapping[str, str] | str = devices[0]
    if family == SPREAD:
        shared = _spread(split, devices)
    elif family == ON_HOST:
        if host is None:
            reason = f"{devices[0]} has no host beside it that could hold variables"
            return NotApplicable(family=family, reason=reason)
        shared = host
    placed = split.placed(devices, label=family, rationale=rationale, shared=shared)
    return replace(placed, family=family)


def _spread(split: SplitGraph, devices: Sequence[str]) -> dict[str, str]:
    """Return a device for each shared op: that of its layer's variables, or of its first reader."""
    graph = split.graph
    layers: Counter[str] = Counter()
    for op in graph.ops:
        if split.replica_of[op.name] is None and op.variable is not None:
            layers[_layer(op)] += op.parameter_bytes
    held = dict.fromkeys(devices, 0)
    device_of_layer = {}
    for layer, size_bytes in sorted(layers.items(), key=lambda each: (-each[1], each[0])):
        device = min(devices, key=lambda name: held[name])
        held[device] += size_bytes
        device_of_layer[layer] = device
    return _beside_readers(graph, split, device_of_layer, devices[0])


def _layer(op: Op) -> str:
    return op.layer or op.variable or op.name


def _beside_readers(
    graph: OpGraph, split: SplitGraph, device_of_layer: dict[str, str], default: str
) -> dict[str, str]:
    found: dict[str, str] = {}
    first_reader: dict[str, str] = {}
    for edge in graph.edges:
        if split.replica_of[edge.consumer] is None:
            first_reader.setdefault(edge.producer, edge.consumer)
    for op in reversed(graph.ops):
        if split.replica_of[op.name] is not None:
            continue
        own = device_of_layer.get(_layer(op))
        if own is None and op.name in first_reader:
            own = found[first_reader[op.name]]
        found[op.name] = own or default
    return found
