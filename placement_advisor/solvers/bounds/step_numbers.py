"""A step in numbers, as far as bounds rest on it: where ops can run, how long, and what they send.

Model: that of the simulator (`simulator.simulator`), of which bounds use this. An op occupies one
place for its time there, one op after the other, and starts when all its inputs have been made. A
device that is not the first one begins and is known to have ended at times of its own, the first
one when it has started at least one other. Where processors move the bytes, a tensor that crosses
keeps both ends busy. A device that launches ahead launches one op after the other, and runs one
after the other: of each op counts either the one or the other, on one device always the same. The
order of ops, wires that are taken, and memory are left to the placement, so that bounds hold
whatever becomes of them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from placement_advisor.graph.host_ops import host_bound
from placement_advisor.graph.placement import placed_ops

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from placement_advisor.cost.table import CostTable
    from placement_advisor.graph.op_graph import Op, OpGraph
    from placement_advisor.machine.devices import Cluster, Device


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """An output of an op, or its control signal, with the ops that read it; all by number."""

    producer: int
    port: int
    readers: tuple[int, ...]
    size_bytes: int


class Step:
    """A graph with its costs on a cluster. Ops are numbered as they stand in ``ops``.

    ``time_ns`` has the time of each op by place where it can run, which are all hosts and those
    devices that have a kernel for it; an op of unknown cost takes none.
    ``least_ns`` is the least of them. ``group_of`` numbers what has to be on one device: ops of one
    variable or table together, others alone. ``has_hosts`` says whether an op may run elsewhere
    than where it is placed: on a host, which may be one of the devices.
    """

    def __init__(self, graph: OpGraph, costs: Mapping[str, CostTable], cluster: Cluster) -> None:
        self.graph, self.cluster = graph, cluster
        self.ops: tuple[Op, ...] = placed_ops(graph)
        self.index = {op.name: i for i, op in enumerate(self.ops)}
        self._reach_ns = {
            device.name: (cluster.remote_start_ns(device), cluster.remote_end_ns(device))
            for device in cluster.devices[1:]
        }
        places = cluster.places()
        self.has_hosts = bool(cluster.hosts) or any(place.host is not None for place in places)
        self._runs_at = {place.name: _runs_at(graph, self.ops, place) for place in places}
        self.time_ns = _times_ns(self.ops, self._runs_at.values(), costs, cluster)
        self.least_ns = [min(times.values()) for times in self.time_ns]
        self.group_of, self.groups = _groups(self.ops)
        self.tensors = _tensors(graph, self.index)
        # Copy work is the host's where launches are ahead, beside what the device runs.
        links = () if any(place.launches_ahead for place in places) else cluster.links
        self._send_ns = {
            size: min((link.sender.time_ns(size) for link in links), default=0)
            for size in {tensor.size_bytes for tensor in self.tensors}
        }
        self._receive_ns = {
            size: min((link.receiver.time_ns(size) for link in links), default=0)
            for size in self._send_ns
        }

    @property
    def overhead_ns(self) -> int:
        """What any step costs beside its ops and copies."""
        return self.cluster.dispatch.step_overhead_ns

    def begin_ns(self, place: str) -> int:
        """Return when a place begins at the earliest in a step that is not on one device.

        Where there are hosts, such a step need not start a further device: all of its ops may run
        on one, wherever they were placed.
        """
        if self.has_hosts:
            return 0
        if place == self.cluster.devices[0].name:
            return self.cluster.dispatch.partition_overhead_ns
        start_ns, _ = self._reach_ns.get(place, (0, 0))
        return start_ns

    def end_ns(self, place: str) -> int:
        """Return how long after the last op of a place its end is known, in such a step."""
        if self.has_hosts:
            return 0
        _, end_ns = self._reach_ns.get(place, (0, 0))
        return end_ns

    def further_ns(self) -> int:
        """Return the least that it takes to start a device that is not the first and to end it."""
        return min(map(sum, self._reach_ns.values()), default=0)

    def send_ns(self, tensor: Tensor) -> int:
        """Return how long a tensor keeps the device busy that sends it, at least."""
        return self._send_ns[tensor.size_bytes]

    def receive_ns(self, tensor: Tensor) -> int:
        """Return how long a tensor keeps the device busy that receives it, at least."""
        return self._receive_ns[tensor.size_bytes]

    def alone_ns(self, device: str) -> int:
        """Return what the step takes at least if all ops are placed on one device, or host."""
        busy_ns: Counter[str] = Counter()
        for times_ns, runs_at in zip(self.time_ns, self._runs_at[device], strict=True):
            busy_ns[runs_at] += times_ns[runs_at]
        if busy_ns[device]:
            busy_ns[device] += sum(self._reach_ns.get(device, ()))
        return self.overhead_ns + max(busy_ns.values(), default=0)


def _runs_at(graph: OpGraph, ops: tuple[Op, ...], device: Device) -> list[str]:
    """Return where each op runs that is placed on a device: there, or on its host."""
    if device.host is None:
        return [device.name] * len(ops)
    bound = host_bound(graph, device.kind)
    return [device.host if op.name in bound else device.name for op in ops]


def _times_ns(
    ops: tuple[Op, ...],
    runs_at: Iterable[list[str]],
    costs: Mapping[str, CostTable],
    cluster: Cluster,
) -> list[dict[str, int]]:
    """Return by op what it takes on each place where it can run."""
    of_time, overhead_ns = {}, {}
    for place in cluster.places():
        table = costs[place.name]
        launches_ns = len(table.costs) * place.launch_overhead_ns
        counts_launches = place.launches_ahead and launches_ns > table.total_ns
        of_time[place.name] = 0 if counts_launches else 1
        overhead_ns[place.name] = (
            place.launch_overhead_ns if counts_launches or not place.launches_ahead else 0
        )
    rows = []
    for op, *places in zip(ops, *runs_at, strict=True):
        known = {name: costs[name].costs.get(op.name) for name in places}
        rows.append(
            {
                name: 0 if cost is None else cost.time_ns * of_time[name] + overhead_ns[name]
                for name, cost in known.items()
            }
        )
    return rows


def _groups(ops: tuple[Op, ...]) -> tuple[list[int], list[list[int]]]:
    number: dict[str, int] = {}
    group_of, groups = [], list[list[int]]()
    for i, op in enumerate(ops):
        group = len(groups)
        if op.variable is not None:
            group = number.setdefault(op.variable, group)
        if group == len(groups):
            groups.append([])
        groups[group].append(i)
        group_of.append(group)
    return group_of, groups


def _tensors(graph: OpGraph, index: Mapping[str, int]) -> tuple[Tensor, ...]:
    found: dict[tuple[int, int], tuple[set[int], int]] = {}
    for producer, consumer, port, size_bytes in graph.edges:
        if producer in index and consumer in index:
            key = index[producer], port
            readers, _ = found.setdefault(key, (set(), 0 if port < 0 else size_bytes or 0))
            readers.add(index[consumer])
    return tuple(
        Tensor(producer=p, port=port, readers=tuple(sorted(readers)), size_bytes=size)
        for (p, port), (readers, size) in found.items()
    )
