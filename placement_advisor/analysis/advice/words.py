"""A placement in words: "layers user_* on GPU:0, item_* on GPU:1; their gradients with them".

Model: a layer is where most of its forward ops are (of a layer without any: most of its ops). The
words name every layer, then say where the gradients are, and then which layers have ops elsewhere.
Ops of no layer are left out: most count steps or hold the learning rate.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from placement_advisor.graph.name_patterns import listed, name_patterns
from placement_advisor.graph.op import Role
from placement_advisor.graph.placement import placed_ops

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from placement_advisor.graph.op import Op
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.graph.placement import Placement

# One line is read, a longer one is looked over. Files have all of it.
MOST_IN_ONE_LINE = 3


def _named(names: Sequence[str], most: int | None, count: int) -> str:
    """Return names, or how many layers they stand for where they are more than ``most``.

    What is to be followed is told in full, or it is not told: never in part.
    """
    return listed(names) if most is None or len(names) <= most else f"{count} layers"


def layer_devices(graph: OpGraph, placement: Placement) -> dict[str, str]:
    """Return the device of each layer, in the order of the layers."""
    ops: dict[str, list[Op]] = defaultdict(list)
    for op in placed_ops(graph):
        if op.layer is not None:
            ops[op.layer].append(op)
    found = {}
    for layer in graph.layers():
        forward = [op for op in ops[layer] if op.role is Role.FORWARD]
        count = Counter(placement.device_of[op.name] for op in forward or ops[layer])
        if count:  # Of a layer there may be constants alone.
            found[layer] = min(count, key=lambda device: (-count[device], device))
    return found


def placement_in_words(graph: OpGraph, placement: Placement, *, most: int | None = None) -> str:
    """Return the placement in one sentence; it counts layers where that takes more names."""
    device_of = layer_devices(graph, placement)
    if not device_of:
        counts = Counter(placement.device_of.values())
        return ", ".join(f"{_ops(n)} on {device}" for device, n in sorted(counts.items()))
    parts = [_layers(device_of, most), _gradients(graph, placement, device_of)]
    parts.append(_elsewhere(graph, placement, device_of, most))
    return "; ".join(filter(None, parts))


def _layers(device_of: Mapping[str, str], most: int | None) -> str:
    devices = list(dict.fromkeys(device_of.values()))
    if len(devices) == 1:
        return f"all layers on {devices[0]}"
    patterns = {
        device: name_patterns([n for n in device_of if device_of[n] == device], device_of)
        for device in devices
    }
    # Whichever takes most words is the rest.
    rest = max(devices, key=lambda device: len(patterns[device]))
    named = [device for device in devices if device != rest or len(patterns[rest]) == 1]
    held = Counter(device_of.values())
    words = [f"{_named(patterns[device], most, held[device])} on {device}" for device in named]
    if rest not in named:
        words.append(f"all other layers on {rest}")
    is_named = most is None or all(len(patterns[device]) <= most for device in named)
    return f"{'layers ' if is_named else ''}{', '.join(words)}"


def _gradients(graph: OpGraph, placement: Placement, device_of: Mapping[str, str]) -> str:
    backward = [op for op in _in_layers(graph, device_of) if op.role is Role.BACKWARD]
    devices = {placement.device_of[op.name] for op in backward}
    if len(set(device_of.values())) == 1 and devices <= set(device_of.values()):
        return ""
    if len(devices) == 1:
        return f"all gradients on {devices.pop()}"
    return "their gradients with them" if backward else ""


def _elsewhere(
    graph: OpGraph, placement: Placement, device_of: Mapping[str, str], most: int | None
) -> str:
    """Return which layers have ops apart from them, and where; gradients all together are told."""
    apart = [
        op
        for op in _in_layers(graph, device_of)
        if placement.device_of[op.name] != device_of[op.layer or ""]
    ]
    gradients = {
        placement.device_of[op.name]
        for op in _in_layers(graph, device_of)
        if op.role is Role.BACKWARD
    }
    if len(gradients) == 1:
        apart = [op for op in apart if op.role is not Role.BACKWARD]
    alike: dict[tuple[Role, str], list[Op]] = defaultdict(list)
    for op in apart:
        alike[op.role, placement.device_of[op.name]].append(op)
    parts = []
    for (role, device), ops in alike.items():
        layers = {op.layer or "" for op in ops}
        count = _ops(len(ops), f"{role.value} ")
        named = _named(name_patterns(layers, device_of), most, len(layers))
        parts.append(f"{count} of {named} on {device}")
    return f"except for {', '.join(parts)}" if parts else ""


def _ops(count: int, role: str = "") -> str:
    return f"{count} {role}{'op' if count == 1 else 'ops'}"


def _in_layers(graph: OpGraph, device_of: Mapping[str, str]) -> Sequence[Op]:
    return [op for op in placed_ops(graph) if op.layer in device_of]
