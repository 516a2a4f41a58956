"""Placements that others are compared with.

`single` puts everything on one device, `as_written` follows the user's own `tf.device`
scopes, and `alternating` and `alternating-ops` change the device at every layer or op: the
worst cases.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from placement_advisor.candidates.by_layer import NotApplicable, alike, place_by_layer
from placement_advisor.defaults import AS_WRITTEN, BASELINE
from placement_advisor.graph.layer_structure import depth_first
from placement_advisor.graph.layer_view import Membership, layer_view, membership
from placement_advisor.graph.op import Role
from placement_advisor.graph.placement import Placement
from placement_advisor.units import format_ns

if TYPE_CHECKING:
    from collections.abc import Mapping

    from placement_advisor.cost.table import CostTable
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.machine.devices import Cluster, Device


SINGLE = BASELINE


def propose_single(graph: OpGraph, costs: Mapping[str, CostTable], cluster: Cluster) -> Placement:
    """Return the placement of all ops on the first device."""
    del costs  # The same for any cost.
    return on_device(graph, cluster.devices[0].name)


def on_device(graph: OpGraph, device: str) -> Placement:
    """Return the placement of all ops on a device."""
    device_of = {op.name: device for op in graph.placed_ops}
    return Placement.of(SINGLE, device_of, f"everything on {device}")


def on_other_kinds(
    graph: OpGraph, costs: Mapping[str, CostTable], cluster: Cluster
) -> tuple[Placement, ...]:
    """Return the placement of all ops on the first device or host of each further kind.

    They are labelled after the kind (``single-cpu``), or after the device where one before it has
    that label (``single-gpu-1``).
    """
    kinds = [cluster.devices[0]]
    labels = {SINGLE, _label(kinds[0].kind)}
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
    return place.kind != "CPU" or all(place.kind in op.device_kinds for op in graph.placed_ops)


def _label(name: str) -> str:
    return f"{SINGLE}-{name.lower().replace(':', '-')}"


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
    graph: OpGraph, requested_device_of: Mapping[str, str], cluster: Cluster
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
    for op in graph.placed_ops:
        if op.variable is not None:
            continue
        asked = requested_device_of.get(op.name)
        if asked is not None:
            device_of[op.name] = device.get(asked, names[0])
        elif op.role is Role.BACKWARD:
            device_of[op.name] = names[0]
    return Placement.of(AS_WRITTEN, device_of, "the user's own tf.device scopes")


def _by_number(device: str) -> list[str | int]:
    return [int(part) if part.isdigit() else part for part in _NUMBERS.split(device)]


ALTERNATING = "alternating"
MIN_LAYERS = 2


def propose_alternating(
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
            ALTERNATING, "the step has no two layers between which the device could change"
        )
    layer_device = {layer: devices[i % len(devices)] for i, layer in enumerate(layers)}
    return Placement.of(
        ALTERNATING,
        place_by_layer(graph, layer_device, {}, devices[0], member=view.membership),
        f"the device changes at each of {len(layers)} layers: "
        "bad on purpose, to show what copies cost",
    )


ALTERNATING_OPS = "alternating-ops"
MIN_TURNS = 2


def propose_alternating_ops(
    graph: OpGraph, costs: Mapping[str, CostTable], cluster: Cluster
) -> Placement | NotApplicable:
    """Return the placement that changes device at every op.

    Not applicable to a step of a single op, or of ops that all share one variable.
    """
    del costs  # The same for any cost.
    devices = cluster.device_names()
    device_of: dict[str, str] = {}
    home_of: dict[str, str] = {}
    turns = 0
    for op in graph.placed_ops:
        if op.variable is not None and op.variable in home_of:
            device_of[op.name] = home_of[op.variable]
            continue
        device_of[op.name] = devices[turns % len(devices)]
        turns += 1
        if op.variable is not None:
            home_of[op.variable] = device_of[op.name]
    if turns < MIN_TURNS:
        return NotApplicable(
            ALTERNATING_OPS, "the step has no two ops between which the device could change"
        )
    return Placement.of(
        ALTERNATING_OPS,
        device_of,
        f"the device changes at each of {turns:,} ops, those of one variable counted "
        "once: bad on purpose, to show what copies cost",
    )
