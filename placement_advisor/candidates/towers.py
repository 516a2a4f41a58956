"""Towers: parts of the model that do not need one another, each on a device of its own.

`towers-forward-only` leaves the backward pass on the first device, as `with tf.device` around
layers does. `batch-towers` also splits the batch among pairs of devices.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from placement_advisor.candidates.by_layer import NotApplicable, busy_ns, listed, place_by_layer
from placement_advisor.graph.layer_structure import common_ancestor, towers
from placement_advisor.graph.layer_view import LayerView, layer_view
from placement_advisor.graph.name_patterns import name_patterns
from placement_advisor.graph.op import STANDING_ROLES, TRAINING_ROLES, Role, Total
from placement_advisor.graph.placement import Placement
from placement_advisor.units import counted, format_ns, format_share

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from placement_advisor.candidates.batch_split.split_graph import SplitGraph
    from placement_advisor.cost.table import CostTable
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.machine.devices import Cluster


TOWERS = "towers"
MIN_DEVICES = 2
# Any join with a label or a sample weight looks like two towers, one of them a cast. What moves
# less than 1 % of the compute cannot be told from the single device in any measurement.
MAX_SHARE_ON_ONE_DEVICE = 0.99


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layers:
    """The layers of the forward pass with their costs.

    ``busy_ns`` says for how long a layer's forward, backward and update ops keep each device busy:
    a lower bound where an op has no known cost. ``update_ns`` is the part of update ops in that.
    ``computing`` are the layers with an op that takes time, launches apart.
    """

    view: LayerView
    names: tuple[str, ...]
    busy_ns: Mapping[str, Mapping[str, int]]
    update_ns: Mapping[str, Mapping[str, int]]
    computing: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Split:
    """Towers (each a set of layers) that meet in a layer, the devices of each, and of the rest.

    ``step_ns`` is what of the trunk runs alone plus the fullest device; copies are left out.
    """

    join: str
    towers: tuple[frozenset[str], ...]
    device_of: tuple[str, ...]
    trunk_device: str
    step_ns: int

    def on(self, device: str) -> list[frozenset[str]]:
        """Return the towers of a device."""
        pairs = zip(self.towers, self.device_of, strict=True)
        return [tower for tower, where in pairs if where == device]


def propose_towers(
    graph: OpGraph, costs: Mapping[str, CostTable], cluster: Cluster
) -> Placement | NotApplicable:
    """Return the placement of independent towers on the devices.

    Not applicable with one device, where no layer joins two towers, or where nearly all compute
    stays together.
    """
    devices = cluster.device_names()
    if len(devices) < MIN_DEVICES:
        return NotApplicable(TOWERS, "there is one device")
    layers = _with_costs(graph, costs, cluster)
    splits = _splits(layers, devices)
    if not splits:
        return NotApplicable(TOWERS, _why_none(layers))
    split = min(splits, key=lambda split: split.step_ns)

    layer_device = dict.fromkeys(layers.names, split.trunk_device)
    for tower, device in zip(split.towers, split.device_of, strict=True):
        layer_device.update(dict.fromkeys(tower, device))
    homes = _shared_homes(layers, layer_device, devices)
    moved = _move_readers(graph, layers, layer_device, homes)
    device_of = place_by_layer(
        graph, layer_device, homes, split.trunk_device, member=layers.view.membership
    )

    busiest, share = _busiest(device_of, costs)
    if share > MAX_SHARE_ON_ONE_DEVICE:
        why = "are too uneven"
        if moved:
            why = "share variables that are more bytes than what their layers take and give"
        return NotApplicable(
            TOWERS,
            f"the towers joined by {split.join!r} {why}: {format_share(share)} of the "
            f"compute would stay on {busiest}",
        )
    return Placement.of(TOWERS, device_of, _rationale(layers, split, devices, homes))


def _with_costs(graph: OpGraph, costs: Mapping[str, CostTable], cluster: Cluster) -> _Layers:
    view = layer_view(graph)
    names = view.forward_layers()
    layer_of = {op.name: view.membership.layer_of.get(op.name, op.layer) for op in graph.ops}
    updates = {op.name for op in graph.ops if op.role is Role.UPDATE}
    work_on = busy_ns(graph, costs, cluster)
    # Devices that are alike share their sums.
    busy = {id(work_ns): dict.fromkeys(names, 0) for work_ns in work_on.values()}
    update = {alike: dict.fromkeys(names, 0) for alike in busy}
    for alike, work_ns in {id(work_ns): work_ns for work_ns in work_on.values()}.items():
        for op, time_ns in work_ns.items():
            layer = layer_of[op]
            if layer in busy[alike]:
                busy[alike][layer] += time_ns
                update[alike][layer] += time_ns if op in updates else 0
    first = costs[cluster.devices[0].name].costs
    takes_time = {op for op, cost in first.items() if cost.time_ns > 0}
    computing = {layer for op, layer in layer_of.items() if layer and op in takes_time}
    return _Layers(
        view=view,
        names=names,
        busy_ns={device: busy[id(work_ns)] for device, work_ns in work_on.items()},
        update_ns={device: update[id(work_ns)] for device, work_ns in work_on.items()},
        computing=frozenset(computing),
    )


def _splits(layers: _Layers, devices: Sequence[str]) -> list[_Split]:
    """Return every way to split, in layer order of the joins."""
    counting = layers.computing.union(*layers.view.membership.readers.values())
    return [
        _packed(join.layer, tuple(map(frozenset, join.towers)), layers, devices)
        for join in towers(layers.view, counting)
    ]


def _packed(
    join: str, parts: tuple[frozenset[str], ...], layers: _Layers, devices: Sequence[str]
) -> _Split:
    """Return the towers with a device for each.

    Source: longest processing time first, Graham, Bounds on multiprocessing timing anomalies
    (1969), https://doi.org/10.1137/0117039
    """
    costs_ns = [
        [sum(layers.busy_ns[device][layer] for layer in part) for device in devices]
        for part in parts
    ]
    first, *others = sorted(range(len(parts)), key=lambda i: (-sum(costs_ns[i]), i))
    beside = min(range(len(devices)), key=costs_ns[first].__getitem__)
    trunk = set(layers.names).difference(*parts)
    update_ns = sum(layers.update_ns[devices[beside]][layer] for layer in trunk)
    alone_ns = sum(layers.busy_ns[devices[beside]][layer] for layer in trunk) - update_ns

    chosen = [beside] * len(parts)
    loads_ns, counts = [0] * len(devices), [0] * len(devices)
    loads_ns[beside], counts[beside] = update_ns + costs_ns[first][beside], 1
    for i in others:
        its_ns = costs_ns[i]
        device = min(range(len(devices)), key=lambda d: (loads_ns[d] + its_ns[d], counts[d], d))
        chosen[i] = device
        loads_ns[device] += its_ns[device]
        counts[device] += 1
    return _Split(
        join=join,
        towers=parts,
        device_of=tuple(devices[i] for i in chosen),
        trunk_device=devices[beside],
        step_ns=alone_ns + max(loads_ns),
    )


def _why_none(layers: _Layers) -> str:
    """Return why there are no towers, with the branches that come nearest to being some."""
    reason = "no layer joins two independent towers"
    tied = common_ancestor(layers.view)
    if tied is None:
        return f"{reason}: every layer feeds the next"
    return f"{reason}: the branches into {tied[0]!r} both come from {tied[1]!r}"


def _shared_homes(
    layers: _Layers, layer_device: Mapping[str, str], devices: Sequence[str]
) -> dict[str, str]:
    """Return the device of each variable and table that layers on several devices read."""
    groups: dict[frozenset[str], list[str]] = defaultdict(list)
    for variable, readers in layers.view.membership.readers.items():
        groups[frozenset(layer_device[layer] for layer in readers)].append(variable)
    homes: dict[str, str] = {}
    for sharing, variables in groups.items():
        if len(sharing) == 1:
            continue
        load_ns = dict.fromkeys(devices, 0)
        for layer in {layer for v in variables for layer in layers.view.membership.readers[v]}:
            load_ns[layer_device[layer]] += layers.busy_ns[layer_device[layer]][layer]
        home = max((d for d in devices if d in sharing), key=load_ns.__getitem__)
        homes.update(dict.fromkeys(variables, home))
    return homes


def _move_readers(
    graph: OpGraph, layers: _Layers, layer_device: dict[str, str], homes: Mapping[str, str]
) -> list[str]:
    """Move layers to the shared variables that they read, where that is forced or crosses less.

    Returns the layers that moved.
    """
    moved = []
    parameter_bytes = {op.name: op.parameter_bytes for op in graph.ops if op.role is Role.VARIABLE}
    lookups = _lookups(graph, layers)
    output_bytes = {layer.name: layer.output_bytes for layer in layers.view.layers}
    for layer in layers.names:
        for variable, home in homes.items():
            if layer_device[layer] == home or layer not in layers.view.membership.readers[variable]:
                continue
            taken = [
                size
                for (source, target), size in layers.view.edges.items()
                if target == layer and layer_device[source] != home
            ]
            needs_bytes = Total.of([output_bytes[layer], *taken]).exact
            read_bytes = sum(
                parameter_bytes.get(other, 0)
                for other, its_home in homes.items()
                if its_home == home and layer in layers.view.membership.readers[other]
            )
            if (layer, variable) in lookups or (
                needs_bytes is not None and needs_bytes < read_bytes
            ):
                layer_device[layer] = home
                moved.append(layer)
    return moved


def _lookups(graph: OpGraph, layers: _Layers) -> set[tuple[str, str]]:
    """Return the layers that look up in a variable or table: that work runs where it sits."""
    found = set()
    for op in graph.ops:
        layer = layers.view.membership.layer_of.get(op.name)
        if op.variable is None or layer is None or op.name in layers.view.membership.free:
            continue
        others = (graph.op(producer).role for producer in graph.producers(op.name))
        if op.output_bytes and any(role not in STANDING_ROLES for role in others):
            found.add((layer, op.variable))
    return found


def _busiest(device_of: Mapping[str, str], costs: Mapping[str, CostTable]) -> tuple[str, float]:
    """Return the device with most compute and its share; 0 if nothing has a known cost."""
    load_ns: dict[str, int] = defaultdict(int)
    for op, device in device_of.items():
        cost = costs[device].costs.get(op)
        load_ns[device] += cost.time_ns if cost is not None else 0
    busiest = max(load_ns, key=load_ns.__getitem__)
    return busiest, load_ns[busiest] / (sum(load_ns.values()) or 1)


def _rationale(
    layers: _Layers, split: _Split, devices: Sequence[str], homes: Mapping[str, str]
) -> str:
    """Return one line: which towers and shared variables sit where."""
    readers = layers.view.membership.readers
    sharing = {layer for variable in homes for layer in readers[variable]}
    labels = {d: [_tower_label(layers, tower, sharing) for tower in split.on(d)] for d in devices}
    placed = [f"{listed(some)} on {device}" for device, some in labels.items() if some]
    line = f"{len(split.towers)} towers joined by {split.join!r}: {', '.join(placed)}"
    for device in devices:
        shared = [readers[variable][0] for variable, home in homes.items() if home == device]
        if shared:
            line += f"; shared {listed(list(dict.fromkeys(shared)))} on {device}"
    idle = [device for device, some in labels.items() if not some]
    return f"{line}; {listed(idle)} idle: there are more devices than towers" if idle else line


def _tower_label(layers: _Layers, tower: frozenset[str], sharing: set[str]) -> str:
    """Return a name for the tower: what its own layers have in common, else first to last."""
    own = [layer for layer in layers.names if layer in tower and layer not in sharing]
    own = own or [layer for layer in layers.names if layer in tower]
    patterns = name_patterns(own, layers.names)
    return patterns[0] if len(patterns) == 1 else f"{own[0]} … {own[-1]}"


TOWERS_FORWARD_ONLY = "towers-forward-only"


def propose_towers_forward_only(
    graph: OpGraph, costs: Mapping[str, CostTable], cluster: Cluster
) -> Placement | NotApplicable:
    """Return the towers with all backward ops on the first device.

    Not applicable without towers or without a backward pass.
    """
    if all(op.role is not Role.BACKWARD for op in graph.ops):
        return NotApplicable(TOWERS_FORWARD_ONLY, "the step has no backward pass")
    split = propose_towers(graph, costs, cluster)
    if isinstance(split, NotApplicable):
        return NotApplicable(TOWERS_FORWARD_ONLY, f"as for towers: {split.reason}")
    first = cluster.devices[0].name
    left_behind = [
        op.name
        for op in graph.placed_ops
        if op.role in TRAINING_ROLES and op.variable is None and split.device_of[op.name] != first
    ]
    work_ns = busy_ns(graph, costs, cluster)[first]
    time_ns = sum(work_ns.get(name, 0) for name in left_behind)
    return replace(
        split,
        label=TOWERS_FORWARD_ONLY,
        family=TOWERS_FORWARD_ONLY,
        device_of={**split.device_of, **dict.fromkeys(left_behind, first)},
        rationale=f"towers by `with tf.device`: {counted(len(left_behind), 'op')} of the backward "
        f"pass and the optimizer ({format_ns(time_ns)}) stay on {first}, whatever the forward "
        "pass says",
    )


BATCH_TOWERS = "batch-towers"
GROUP = 2
MIN_DEVICES_FOR_PAIRS = 2 * GROUP


def within_a_pair(
    graph: OpGraph, costs: Mapping[str, CostTable], cluster: Cluster
) -> Placement | NotApplicable:
    """Return the placement of the unsplit step on the first pair of devices.

    Not applicable with fewer than four devices, or where there are no towers.
    """
    names = cluster.device_names()
    if len(names) < MIN_DEVICES_FOR_PAIRS:
        reason = f"two pairs of devices are {MIN_DEVICES_FOR_PAIRS}, and there are {len(names)}"
        return NotApplicable(BATCH_TOWERS, reason)
    found = propose_towers(graph, costs, cluster.with_devices(names[:GROUP]))
    if isinstance(found, NotApplicable):
        return NotApplicable(BATCH_TOWERS, found.reason)
    return replace(found, label=BATCH_TOWERS, family=BATCH_TOWERS)


def by_pair(amounts: Sequence[float]) -> list[float]:
    """Return what the devices of each pair make together; a last one without a partner is left."""
    return [one + other for one, other in zip(amounts[::GROUP], amounts[1::GROUP], strict=False)]


def on_pairs(
    split: SplitGraph, within: Placement, devices: Sequence[str], samples: Sequence[int]
) -> Placement:
    """Return the placement of each replica on a pair, as the unsplit step is placed on the first.

    ``samples`` are those of each replica.
    """
    first, second = devices[:GROUP]
    pairs = [devices[GROUP * i : GROUP * (i + 1)] for i in range(len(samples))]
    shares = " + ".join(map(str, samples))
    return split.laid_out(
        within,
        [dict(zip((first, second), pair, strict=True)) for pair in pairs],
        label=BATCH_TOWERS,
        rationale=f"{shares} samples side by side on pairs of devices, each: {within.rationale}",
    )
