"""The placement that the user's own `tf.device` scopes make.

Model: TensorFlow's. What no scope names runs on the default device, the backward pass too; an op
that takes a variable runs where the variable stands: where it was created, on the default device
outside of all scopes. An optimizer's slots stand with their variable.
The n-th device named is the n-th of the cluster, the default device the first of them. Devices of
another kind than the default one are hosts of GPUs: what asks for one counts with the first device,
whose host takes the ops that it cannot run. (Keras asks for the CPU for its lookups of texts.)

Left out: the process that a scope names.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from placement_advisor.candidates.by_layer import place_by_layer
from placement_advisor.defaults import AS_WRITTEN
from placement_advisor.graph.membership import membership
from placement_advisor.graph.op_graph import Role
from placement_advisor.graph.placement import Placement, placed_ops

if TYPE_CHECKING:
    from collections.abc import Mapping

    from placement_advisor.graph.membership import Membership
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.machine.devices import Cluster

_NUMBERS = re.compile(r"(\d+)")


def default_device(requested_device_of: Mapping[str, str]) -> str:
    """Return the device on which TensorFlow runs what no scope names, by what scopes name."""
    return "GPU:0" if any("GPU:" in device for device in requested_device_of.values()) else "CPU:0"


def kind_of_device(device: str) -> str:
    """Return ``GPU`` for ``GPU:1``, of whichever process."""
    return device.rpartition("/")[2].partition(":")[0]


def devices_asked_for(requested_device_of: Mapping[str, str]) -> list[str]:
    """Return the default device, then the others of its kind that scopes name, in order."""
    default = default_device(requested_device_of)
    kind = kind_of_device(default)
    alike = {asked for asked in requested_device_of.values() if kind_of_device(asked) == kind}
    return [default, *sorted(alike - {default}, key=_by_number)]


def layer_devices(
    graph: OpGraph, requested_device_of: Mapping[str, str], member: Membership | None = None
) -> dict[str, str]:
    """Return the device that most forward ops of each layer ask for; layers that ask for none lack.

    Ties go to the device whose op stands first.
    """
    votes: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for op, layer in (member or membership(graph)).layer_of.items():
        if op in requested_device_of:
            votes[layer][requested_device_of[op]] += 1
    return {layer: count.most_common(1)[0][0] for layer, count in votes.items()}


def as_written(
    graph: OpGraph,
    requested_device_of: Mapping[str, str],
    cluster: Cluster,
) -> Placement | None:
    """Return the placement, None if it needs one device alone or more than there are."""
    default, *others = devices_asked_for(requested_device_of)
    names = cluster.device_names()
    if not others or 1 + len(others) > len(names):
        return None
    member = membership(graph)
    by_layer = layer_devices(graph, requested_device_of, member)
    device = dict(zip([default, *others], names, strict=False))
    device_of = place_by_layer(
        graph,
        {layer: device.get(asked, names[0]) for layer, asked in by_layer.items()},
        {
            op.name: device.get(requested_device_of.get(op.name, default), names[0])
            for op in graph.ops
            if op.role is Role.VARIABLE
            and (op.name in member.readers or op.name not in requested_device_of)
        },
        names[0],
        member=member,
    )
    for op in placed_ops(graph):
        if op.variable is not None:
            continue
        asked = requested_device_of.get(op.name)
        if asked is not None:
            device_of[op.name] = device.get(asked, names[0])
        elif op.role is Role.BACKWARD:
            device_of[op.name] = names[0]
    return Placement(
        label=AS_WRITTEN,
        family=AS_WRITTEN,
        device_of=device_of,
        rationale="the user's own tf.device scopes",
    )


def _by_number(device: str) -> list[str | int]:
    return [int(part) if part.isdigit() else part for part in _NUMBERS.split(device)]
