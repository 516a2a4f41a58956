"""Towers: parts of the model that do not need one another, each on a device of its own.

What towers are, and the joins where they meet, says `structure.joins`; here a group of layers
counts as one if any of it costs time or reads a variable. The rest of the model is the *trunk*.
Towers are packed on devices, longest first, each on the least loaded device.

The trunk goes to the first device, beside the heaviest tower: it waits for that tower last, so
that tower's output crosses nothing and the copies of lighter towers hide behind it. Of several
joins, the one with the least trunk plus fullest device is chosen, because the trunk cannot run
beside the towers; ties: the earliest.

What several devices read: variables and tables shared by the same devices sit together on the one
whose layers that read them cost most (ties: the first). A layer elsewhere that looks up in them, or
whose input and output are fewer bytes than what it reads, moves there as a whole; any other stays
in its tower and reads the variable across.

Left out: towers within towers; moving a tower to lower the copies.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from placement_advisor.candidates.by_layer import place_by_layer
from placement_advisor.candidates.layers import LayerGraph, layer_graph
from placement_advisor.candidates.not_applicable import NotApplicable
from placement_advisor.graph import Role
from placement_advisor.layer_view import total_bytes
from placement_advisor.membership import data_inputs
from placement_advisor.name_patterns import listed, name_patterns
from placement_advisor.placement import Placement
from placement_advisor.structure.joins import common_ancestor, towers
from placement_advisor.units import format_share

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from placement_advisor.cost.table import CostTable
    from placement_advisor.graph import OpGraph

FAMILY = "towers"
# Any join with a label or a sample weight looks like two towers, one of them a cast. What moves
# less than 1 % of the compute cannot be told from the single device in any measurement.
MAX_SHARE_ON_ONE_DEVICE = 0.99
# A rationale is one line.
MAX_NAMES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class _Split:
    """Towers (each a set of layers, with its cost) that meet in a layer."""

    join: str
    towers: tuple[frozenset[str], ...]
    costs_ns: tuple[int, ...]
    trunk_ns: int


def propose(graph: OpGraph, costs: CostTable, devices: Sequence[str]) -> Placement | NotApplicable:
    """Return the placement of independent towers on the devices.

    Not applicable where no layer joins two of them, or where nearly all compute stays together.
    """
    view = layer_graph(graph, costs)
    splits = _splits(view)
    if not splits:
        return NotApplicable(family=FAMILY, reason=_why_none(view))
    packed = [(split, _pack(split.costs_ns, len(devices))) for split in splits]
    split, bins = min(packed, key=lambda pair: pair[0].trunk_ns + _fullest_ns(*pair))

    trunk = devices[0]
    layer_device = dict.fromkeys(view.layers, trunk)
    for device, bin_ in zip(devices, bins, strict=True):
        for tower in bin_:
            layer_device.update(dict.fromkeys(split.towers[tower], device))
    homes = _shared_homes(view, layer_device, devices)
    _move_readers(graph, view, layer_device, homes)
    device_of = place_by_layer(graph, layer_device, homes, trunk, member=view.membership)

    busiest, share = _busiest(device_of, costs)
    if share > MAX_SHARE_ON_ONE_DEVICE:
        return NotApplicable(
            family=FAMILY,
            reason=f"the towers joined by {split.join!r} are too uneven: "
            f"{format_share(share)} of the compute would stay on {busiest}",
        )
    return Placement(
        label=FAMILY,
        family=FAMILY,
        device_of=device_of,
        rationale=_rationale(view, split, bins, devices, homes),
    )


def _splits(view: LayerGraph) -> list[_Split]:
    """Return every way to split, in layer order of the joins."""
    counting = {layer for layers in view.membership.readers.values() for layer in layers}
    counting |= {layer for layer, cost_ns in view.cost_ns.items() if cost_ns > 0}
    total_ns = sum(view.cost_ns.values())
    splits = []
    for join in towers(view.view, counting):
        costs_ns = tuple(sum(view.cost_ns[layer] for layer in tower) for tower in join.towers)
        splits.append(
            _Split(
                join=join.layer,
                towers=tuple(map(frozenset, join.towers)),
                costs_ns=costs_ns,
                trunk_ns=total_ns - sum(costs_ns),
            )
        )
    return splits


def _why_none(view: LayerGraph) -> str:
    """Return why there are no towers, with the branches that come nearest to being some."""
    reason = "no layer joins two independent towers"
    tied = common_ancestor(view.view)
    if tied is None:
        return f"{reason}: every layer feeds the next"
    return f"{reason}: the branches into {tied[0]!r} both come from {tied[1]!r}"


def _pack(costs_ns: Sequence[int], devices: int) -> list[list[int]]:
    """Return the towers of each device.

    Source: longest processing time first, Graham, Bounds on multiprocessing timing anomalies
    (1969), https://doi.org/10.1137/0117039
    """
    bins: list[list[int]] = [[] for _ in range(devices)]
    loads_ns = [0] * devices
    for tower in sorted(range(len(costs_ns)), key=lambda i: (-costs_ns[i], i)):
        device = min(range(devices), key=lambda d: (loads_ns[d], len(bins[d]), d))
        bins[device].append(tower)
        loads_ns[device] += costs_ns[tower]
    return bins


def _fullest_ns(split: _Split, bins: list[list[int]]) -> int:
    return max(sum(split.costs_ns[tower] for tower in bin_) for bin_ in bins)


def _shared_homes(
    view: LayerGraph, layer_device: Mapping[str, str], devices: Sequence[str]
) -> dict[str, str]:
    """Return the device of each variable and table that layers on several devices read."""
    groups: dict[frozenset[str], list[str]] = defaultdict(list)
    for variable, readers in view.membership.readers.items():
        groups[frozenset(layer_device[layer] for layer in readers)].append(variable)
    homes: dict[str, str] = {}
    for sharing, variables in groups.items():
        if len(sharing) == 1:
            continue
        load_ns = dict.fromkeys(devices, 0)
        for layer in {layer for v in variables for layer in view.membership.readers[v]}:
            load_ns[layer_device[layer]] += view.cost_ns[layer]
        home = max((d for d in devices if d in sharing), key=load_ns.__getitem__)
        homes.update(dict.fromkeys(variables, home))
    return homes


def _move_readers(
    graph: OpGraph, view: LayerGraph, layer_device: dict[str, str], homes: Mapping[str, str]
) -> None:
    """Move layers to the shared variables that they read, where that is forced or crosses less."""
    parameter_bytes = {op.name: op.parameter_bytes for op in graph.ops if op.role is Role.VARIABLE}
    lookups = _lookups(graph, view)
    for layer in view.layers:
        for variable, home in homes.items():
            if layer_device[layer] == home or layer not in view.membership.readers[variable]:
                continue
            needs_bytes = total_bytes(
                [view.output_bytes[layer]]
                + [
                    size
                    for (source, target), size in view.edges.items()
                    if target == layer and layer_device[source] != home
                ]
            )
            read_bytes = sum(
                parameter_bytes.get(other, 0)
                for other, its_home in homes.items()
                if its_home == home and layer in view.membership.readers[other]
            )
            if (layer, variable) in lookups or (
                needs_bytes is not None and needs_bytes < read_bytes
            ):
                layer_device[layer] = home


def _lookups(graph: OpGraph, view: LayerGraph) -> set[tuple[str, str]]:
    """Return the layers that look up in a variable or table: that work runs where it sits."""
    found = set()
    for op in graph.ops:
        layer = view.membership.layer_of.get(op.name)
        if op.variable is None or layer is None or op.name in view.membership.free:
            continue
        others = (graph.op(edge.producer).role for edge in data_inputs(graph, op.name))
        if op.output_bytes and any(role not in (Role.VARIABLE, Role.CONSTANT) for role in others):
            found.add((layer, op.variable))
    return found


def _busiest(device_of: Mapping[str, str], costs: CostTable) -> tuple[str, float]:
    """Return the device with most compute and its share; 0 if nothing has a known cost."""
    load_ns: dict[str, int] = defaultdict(int)
    for op, device in device_of.items():
        cost = costs.costs.get(op)
        load_ns[device] += cost.time_ns if cost is not None else 0
    busiest = max(load_ns, key=load_ns.__getitem__)
    return busiest, load_ns[busiest] / (sum(load_ns.values()) or 1)


def _rationale(
    view: LayerGraph,
    split: _Split,
    bins: list[list[int]],
    devices: Sequence[str],
    homes: Mapping[str, str],
) -> str:
    """Return one line: which towers and shared variables sit where."""
    readers = view.membership.readers
    sharing = {layer for variable in homes for layer in readers[variable]}
    labels = [_tower_label(view, tower, sharing) for tower in split.towers]
    placed = [
        f"{listed([labels[i] for i in bin_], MAX_NAMES)} on {device}"
        for device, bin_ in zip(devices, bins, strict=True)
        if bin_
    ]
    line = f"{len(split.towers)} towers joined by {split.join!r}: {', '.join(placed)}"
    for device in devices:
        shared = [readers[variable][0] for variable, home in homes.items() if home == device]
        if shared:
            line += f"; shared {listed(list(dict.fromkeys(shared)), MAX_NAMES)} on {device}"
    idle = [device for device, bin_ in zip(devices, bins, strict=True) if not bin_]
    if idle:
        line += f"; {listed(idle, MAX_NAMES)} idle: there are more devices than towers"
    return line


def _tower_label(view: LayerGraph, tower: frozenset[str], sharing: set[str]) -> str:
    """Return a name for the tower: what its own layers have in common, else first to last."""
    own = [layer for layer in view.layers if layer in tower and layer not in sharing]
    own = own or [layer for layer in view.layers if layer in tower]
    patterns = name_patterns(own, view.layers)
    return patterns[0] if len(patterns) == 1 else f"{own[0]} … {own[-1]}"
