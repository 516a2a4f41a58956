"""From a device per layer to a device per op, and what every family needs for that."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from placement_advisor.graph import name_patterns, placement
from placement_advisor.graph.layer_view import Membership, membership
from placement_advisor.graph.op import PASS_ROLES, STANDING_ROLES, TRAINING_ROLES, Role, Total

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from placement_advisor.cost.table import CostTable
    from placement_advisor.graph.op import Edge, Op
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.machine.devices import Cluster, Device


@dataclass(frozen=True, slots=True)
class NotApplicable:
    """A family that does not apply, with the reason in plain words.

    ``unbeaten`` is the placement of another family than which a search found none better.
    """

    family: str
    reason: str
    unbeaten: placement.Placement | None = None


MAX_NAMES = 3


def listed(names: Sequence[str]) -> str:
    """Return the names as one phrase, cut where they are many.

    >>> listed(["a", "b"]), listed(["a", "b", "c", "d", "e"])
    ('a and b', 'a, b, c and 2 more')
    """
    return name_patterns.listed(names, MAX_NAMES)


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
            elsewhere = graph.host_bound(kind) if kind is not None else frozenset()
            shared[key] = {
                op.name: device.busy_ns(cost.time_ns)
                for op in graph.ops
                if (cost := table.costs.get(op.name)) is not None and op.name not in elsewhere
            }
        found[device.name] = shared[key]
    return found


def place_by_layer(
    graph: OpGraph,
    layer_device: Mapping[str, str],
    variable_device: Mapping[str, str],
    default_device: str,
    *,
    member: Membership | None = None,
) -> dict[str, str]:
    """Return the device of every placed op.

    Layers are named as in `membership`; one that has no device, and ops that serve no
    layer, go to ``default_device``. ``variable_device`` overrides where a variable sits. Pass
    ``member`` where it is already at hand.
    """
    placing = _Placing(graph, member or membership(graph), layer_device, default_device)
    placing.settle_variables(variable_device)
    placing.place_layers()
    placing.place_updates()
    placing.move_to_variables()
    placing.place_rest()
    return {op.name: placing.device_of[op.name] for op in graph.placed_ops}


@dataclass(slots=True)
class _Placing:
    """A placement in the making; the methods run in the order in which they stand."""

    graph: OpGraph
    member: Membership
    layer_device: Mapping[str, str]
    default_device: str
    home_of: dict[str, str] = field(default_factory=dict)
    layer_homes: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    device_of: dict[str, str] = field(default_factory=dict)

    def settle_variables(self, variable_device: Mapping[str, str]) -> None:
        """Give variables and tables a home: first those that layers read, then the slots."""
        owner: dict[str, str | None] = {}
        for op in self.graph.ops:
            if op.variable is not None and (op.role is Role.VARIABLE or op.variable not in owner):
                owner[op.variable] = op.layer
        for variable, layer in owner.items():
            readers = self.member.readers.get(variable)
            if variable in variable_device:
                home = variable_device[variable]
            elif readers:
                home = self.layer_device.get(readers[0], self.default_device)
            else:
                continue
            self.home_of[variable] = home
            if layer is not None:
                self.layer_homes[layer].add(home)

        aims = self._aims()
        slot_aims: dict[str, set[str]] = defaultdict(set)
        for op in self.graph.ops:
            if op.variable is not None and op.variable not in self.home_of:
                slot_aims[op.variable] |= aims[op.name]
        for variable, devices in slot_aims.items():
            self.home_of[variable] = _only(devices) or self._layer_home(owner[variable])

    def place_layers(self) -> None:
        """Place what is bound to a variable, then forward and backward ops with their layer."""
        for op in self.graph.placed_ops:
            layer = self.member.layer_of.get(op.name)
            if op.role is Role.BACKWARD:
                layer = op.layer
            if op.variable is not None:
                self.device_of[op.name] = self.home_of[op.variable]
            elif layer is not None:
                self.device_of[op.name] = self.layer_device.get(layer, self.default_device)

    def place_updates(self) -> None:
        """Place update ops, and backward ops that serve no layer."""
        aims = self._aims()
        constant_from: dict[str, set[str]] = {}
        for op in self.graph.ops:
            if op.role not in TRAINING_ROLES:
                continue
            producers = [self.graph.op(name) for name in self.graph.producers(op.name)]
            constant = all(
                producer.role in STANDING_ROLES
                or producer.name in constant_from
                or producer.name in self.member.free
                for producer in producers
            )
            known = {
                p.name: constant_from[p.name] if p.name in constant_from else self._device(p)
                for p in producers
            }
            if constant:
                constant_from[op.name] = (
                    {self.home_of[op.variable]}
                    if op.variable is not None
                    else set().union(*known.values())
                )
            if op.name in self.device_of:
                continue
            forward = (known[p.name] for p in producers if p.role is Role.FORWARD)
            if constant and not constant_from[op.name]:
                continue  # Nothing but constants: it sits beside what reads it.
            self.device_of[op.name] = (
                _only(constant_from.get(op.name, set()))
                or _only(aims[op.name])
                or _only(set().union(*forward))
                or self._layer_home(op.layer)
            )

    def move_to_variables(self) -> None:
        """Move ops that read a whole variable from another device, where that crosses less."""
        for read in self.graph.ops:
            if read.variable is None or read.name not in self.member.free:
                continue
            home = self.device_of[read.name]
            abroad: dict[str, set[str]] = defaultdict(set)
            size_bytes = None
            for edge in self.graph.data_outputs(read.name):
                consumer = self.graph.op(edge.consumer)
                device = self.device_of.get(consumer.name, home)
                if device != home and consumer.role in PASS_ROLES:
                    abroad[device].add(consumer.name)
                    size_bytes = edge.size_bytes
            for users in abroad.values():
                crossing = self._crossing_bytes(users, home)
                if size_bytes is None or crossing is None or crossing >= size_bytes:
                    continue
                if all(self.graph.op(user).variable is None for user in users):
                    self.device_of.update(dict.fromkeys(users, home))

    def place_rest(self) -> None:
        """Place inputs with their first reader, and other ops beside a neighbour."""
        for op in reversed(self.graph.placed_ops):
            if op.name in self.device_of:
                continue
            if op.role is Role.INPUT and op.layer is not None and op.layer in self.layer_device:
                self.device_of[op.name] = self.layer_device[op.layer]
                continue
            consumers = [self.graph.op(name) for name in self.graph.consumers(op.name)]
            consumers.sort(key=lambda consumer: consumer.role is not Role.FORWARD)
            near = [*self.graph.producers(op.name), *(consumer.name for consumer in consumers)]
            placed = (self.device_of[name] for name in near if name in self.device_of)
            self.device_of[op.name] = next(placed, self.default_device)

    def _aims(self) -> dict[str, set[str]]:
        """Return the homes of the variables whose update each op leads to, some if several."""
        aims: dict[str, set[str]] = {}
        for op in reversed(self.graph.ops):
            if op.role is Role.UPDATE and op.variable in self.home_of:
                aims[op.name] = {self.home_of[op.variable]}
                continue
            aims[op.name] = _one_or_some(
                aims[consumer]
                for consumer in self.graph.consumers(op.name)
                if self.graph.op(consumer).role in TRAINING_ROLES
            )
        return aims

    def _layer_home(self, layer: str | None) -> str:
        """Return where the variables of the layer sit, else the layer itself."""
        if layer is None:
            return self.default_device
        home = _only(self.layer_homes.get(layer, set()))
        return home or self.layer_device.get(layer, self.default_device)

    def _device(self, op: Op) -> set[str]:
        return {self.device_of[op.name]} if op.name in self.device_of else set()

    def _crossing_bytes(self, moved: set[str], home: str) -> int | None:
        """Return what crosses if ops move to ``home``: their inputs and their outputs."""

        def is_there(name: str) -> bool:
            return name in moved or self.device_of.get(name) == home

        tensors: dict[tuple[str, int], Edge] = {}
        for name in moved:
            for edge in self.graph.data_inputs(name):
                source = self.graph.op(edge.producer)
                comes_along = source.role is Role.CONSTANT or (
                    source.role is Role.INPUT
                    and all(map(is_there, self.graph.consumers(source.name)))
                )
                if not comes_along and not is_there(source.name):
                    tensors[edge.tensor] = edge
            for edge in self.graph.data_outputs(name):
                if not is_there(edge.consumer):
                    tensors[edge.tensor] = edge
        return Total.of(edge.size_bytes for edge in tensors.values()).exact


def _only(devices: Iterable[str]) -> str | None:
    """Return the one device, None if there are none or several."""
    found = set(devices)
    return found.pop() if len(found) == 1 else None


def _one_or_some(sets: Iterable[set[str]]) -> set[str]:
    """Return the union, or a part of it with several members: more make no difference."""
    found: set[str] = set()
    for some in sets:
        found |= some
        if len(found) > 1:
            break
    return found
