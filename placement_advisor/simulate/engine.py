"""Discrete-event simulation of one placed step.

Model:

- A device runs one op at a time, without preemption, in the order in which ops become ready
  (ties: topological order). Every op that has a cost also pays the launch overhead of its device.
- A constant stands on every device at time 0: it takes no time and never crosses.
- A tensor, that is one output port of its producer, crosses once to each device that reads it.
  A control edge to another device is a transfer of 0 bytes, once per producer and device, beside
  the producer's data, as TensorFlow's partitioner sends it. Several transfers of one op set out in
  the order in which their first readers stand in the graph.
- Where a copy engine moves the bytes, transfers on one directed link queue in the order of their
  readiness. Bytes over bandwidth occupy the link; the latency is pipelined, so a queued transfer
  waits for the bytes before it, not for their arrival.
- Where the devices move the bytes themselves (``copies_occupy_devices``), a copy is work, its
  latency too: between processes of one machine there is no wire to wait for, only calls, wake-ups
  and serialising. Half of it is done by the sender, the other half by the receiver, each as one
  piece of work in its device's ready order. So a copy between idle devices takes what the link's
  fit says, and beside compute both slow down.
- A tensor of unknown size is priced at latency alone and counted in ``Schedule.unknown_bytes``.

Left out: TensorFlow's executor is nearer last-in-first-out within a thread; a real core shares
itself between copies and ops in slices, so this order is one of many; ops do not slow each other
through shared caches or memory; a later start of remote partitions.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from placement_advisor.graph import Role
from placement_advisor.simulate.exposure import exposed_ns
from placement_advisor.simulate.memory import peak_memory_bytes
from placement_advisor.simulate.schedule import OpRun, Schedule, Transfer

if TYPE_CHECKING:
    from placement_advisor.cost.table import CostTable
    from placement_advisor.devices import Cluster, Link
    from placement_advisor.graph import OpGraph
    from placement_advisor.placement import Placement

# What a device works on or an event tells, in the order that settles ties of one op.
_OP, _SEND, _RECEIVE, _ARRIVAL = range(4)
# The device of a constant.
_NOWHERE = -1

# Roles that may lack a cost: a handle or a fed tensor is there, nothing computes it.
_FREE_ROLES = frozenset({Role.VARIABLE, Role.INPUT})


def simulate(graph: OpGraph, placement: Placement, costs: CostTable, cluster: Cluster) -> Schedule:
    """Return the schedule of one step; equal arguments give equal schedules.

    ``Schedule.compute_ns`` sums what ops cost, without launch overheads and copy work, as a
    profile does; ``step_ns`` is the makespan plus the cluster's step overhead.

    Raises:
        PlacementError: the placement does not fit the graph and the devices, or a tensor crosses
            between devices without a link.
        ValueError: an op has no cost; only constants, variables and inputs may lack one.
    """
    names = cluster.device_names()
    placement.check(graph, names)
    simulation = _Simulation(graph, placement, costs, cluster)
    simulation.run()
    runs, transfers = simulation.runs(), simulation.transfers()
    compute_ns = dict.fromkeys(names, 0)
    for run in runs:
        compute_ns[run.device] += simulation.cost_ns[graph.index(run.op)]
    return Schedule(
        label=placement.label,
        runs=runs,
        transfers=transfers,
        step_ns=max((run.end_ns for run in runs), default=0) + cluster.step_overhead_ns,
        compute_ns=compute_ns,
        exposed_ns=exposed_ns(runs, transfers),
        peak_memory_bytes=peak_memory_bytes(graph, runs, transfers, names),
        unknown_bytes=sum(crossing.size_bytes is None for crossing in simulation.crossings),
    )


@dataclass(slots=True, kw_only=True)
class _Crossing:
    """A tensor bound for another device; ``readers`` wait for it there, one entry per edge."""

    producer: int
    port: int
    source: int
    target: int
    size_bytes: int | None
    readers: list[int]
    latency_ns: int
    bytes_ns: int
    start_ns: int = 0
    end_ns: int = 0

    @property
    def whole_ns(self) -> int:
        """What the copy takes between idle devices."""
        return self.latency_ns + self.bytes_ns


class _Simulation:
    """State of one simulated step; ops and devices are indices in graph and cluster order.

    ``queues`` holds for each device what is ready, as (ready ns, op, what, number), ``events``
    what will end, as (ns, op, what, number). The number is that of the op or of the crossing.
    """

    def __init__(
        self, graph: OpGraph, placement: Placement, costs: CostTable, cluster: Cluster
    ) -> None:
        self.graph = graph
        self.cluster = cluster
        self.device_names = cluster.device_names()
        device_index = {name: i for i, name in enumerate(self.device_names)}
        self.device_of: list[int] = []
        self.cost_ns: list[int] = []
        self.duration_ns: list[int] = []
        for op in graph.ops:
            if op.role is Role.CONSTANT:
                self.device_of.append(_NOWHERE)
                self.cost_ns.append(0)
                self.duration_ns.append(0)
                continue
            device = device_index[placement.device_of[op.name]]
            cost = costs.costs.get(op.name)
            if cost is None and op.role not in _FREE_ROLES:
                raise ValueError(f"op {op.name!r} ({op.kind}) has no cost")
            overhead_ns = 0 if cost is None else cluster.devices[device].launch_overhead_ns
            cost_ns = 0 if cost is None else cost.time_ns
            self.device_of.append(device)
            self.cost_ns.append(cost_ns)
            self.duration_ns.append(cost_ns + overhead_ns)
        self.missing_inputs = [
            sum(
                self.device_of[graph.index(edge.producer)] != _NOWHERE
                for edge in graph.inputs_of(op.name)
            )
            for op in graph.ops
        ]
        count = len(graph)
        self.ready_ns, self.start_ns, self.end_ns = [0] * count, [0] * count, [0] * count
        self.started: list[int] = []
        self.crossings: list[_Crossing] = []
        self.links: dict[tuple[int, int], Link] = {}
        self.link_free_ns: defaultdict[tuple[int, int], int] = defaultdict(int)
        self.queues: list[list[tuple[int, int, int, int]]] = [[] for _ in cluster.devices]
        self.is_busy = [False] * len(cluster.devices)
        self.events: list[tuple[int, int, int, int]] = []

    def run(self) -> None:
        for op, missing in enumerate(self.missing_inputs):
            device = self.device_of[op]
            if device != _NOWHERE and not missing:
                heappush(self.queues[device], (0, op, _OP, op))
        self._start_work(0)
        while self.events:
            now = self.events[0][0]
            while self.events and self.events[0][0] == now:
                _, _, what, number = heappop(self.events)
                if what == _OP:
                    self._end_op(number, now)
                elif what == _SEND:
                    self._end_send(number, now)
                elif what == _ARRIVAL:
                    self._arrive(number, now)
                else:
                    self._end_receive(number, now)
            self._start_work(now)

    def _start_work(self, now: int) -> None:
        """Give every idle device the work that has been ready longest."""
        for device, queue in enumerate(self.queues):
            if self.is_busy[device] or not queue:
                continue
            _, op, what, number = heappop(queue)
            if what == _OP:
                self.started.append(op)
                self.start_ns[op] = now
                length_ns = self.duration_ns[op]
            elif what == _SEND:
                self.crossings[number].start_ns = now
                length_ns = _send_ns(self.crossings[number])
            else:
                length_ns = self.crossings[number].whole_ns - _send_ns(self.crossings[number])
            self.is_busy[device] = True
            heappush(self.events, (now + length_ns, op, what, number))

    def _end_op(self, op: int, now: int) -> None:
        device = self.device_of[op]
        self.is_busy[device] = False
        self.end_ns[op] = now
        outbound: dict[tuple[int, int], _Crossing] = {}
        for edge in self.graph.outputs_of(self.graph.ops[op].name):
            reader = self.graph.index(edge.consumer)
            target = self.device_of[reader]
            if target == _NOWHERE:
                continue
            if target == device:
                self._deliver(reader, now)
                continue
            crossing = outbound.get((edge.port, target))
            if crossing is None:
                size_bytes = 0 if edge.is_control else edge.size_bytes
                crossing = self._crossing(op, edge.port, (device, target), size_bytes)
                outbound[edge.port, target] = crossing
            crossing.readers.append(reader)
        for crossing in outbound.values():
            self._set_out(crossing, now)

    def _crossing(
        self, op: int, port: int, ends: tuple[int, int], size_bytes: int | None
    ) -> _Crossing:
        link = self.links.get(ends)
        if link is None:
            source, target = (self.device_names[end] for end in ends)
            link = self.links[ends] = self.cluster.link(source, target)
        return _Crossing(
            producer=op,
            port=port,
            source=ends[0],
            target=ends[1],
            size_bytes=size_bytes,
            readers=[],
            latency_ns=link.latency_ns,
            bytes_ns=link.transfer_ns(size_bytes or 0) - link.latency_ns,
        )

    def _set_out(self, crossing: _Crossing, now: int) -> None:
        number = len(self.crossings)
        self.crossings.append(crossing)
        op = crossing.producer
        if not self.cluster.copies_occupy_devices:
            link = (crossing.source, crossing.target)
            crossing.start_ns = max(now, self.link_free_ns[link])
            self.link_free_ns[link] = crossing.start_ns + crossing.bytes_ns
            arrival_ns = self.link_free_ns[link] + crossing.latency_ns
            heappush(self.events, (arrival_ns, op, _ARRIVAL, number))
        else:
            heappush(self.queues[crossing.source], (now, op, _SEND, number))

    def _end_send(self, number: int, now: int) -> None:
        crossing = self.crossings[number]
        self.is_busy[crossing.source] = False
        heappush(self.events, (now, crossing.producer, _ARRIVAL, number))

    def _arrive(self, number: int, now: int) -> None:
        crossing = self.crossings[number]
        if self.cluster.copies_occupy_devices:
            heappush(self.queues[crossing.target], (now, crossing.producer, _RECEIVE, number))
        else:
            self._hand_over(crossing, now)

    def _end_receive(self, number: int, now: int) -> None:
        crossing = self.crossings[number]
        self.is_busy[crossing.target] = False
        self._hand_over(crossing, now)

    def _hand_over(self, crossing: _Crossing, now: int) -> None:
        crossing.end_ns = now
        for reader in crossing.readers:
            self._deliver(reader, now)

    def _deliver(self, reader: int, now: int) -> None:
        """Note that one more input of ``reader`` is there; queue the reader with its last one."""
        self.missing_inputs[reader] -= 1
        if not self.missing_inputs[reader]:
            self.ready_ns[reader] = now
            heappush(self.queues[self.device_of[reader]], (now, reader, _OP, reader))

    def runs(self) -> tuple[OpRun, ...]:
        """Return the runs in the order in which they started."""
        return tuple(
            OpRun(
                op=self.graph.ops[op].name,
                device=self.device_names[self.device_of[op]],
                ready_ns=self.ready_ns[op],
                start_ns=self.start_ns[op],
                end_ns=self.end_ns[op],
            )
            for op in self.started
        )

    def transfers(self) -> tuple[Transfer, ...]:
        """Return the transfers by start, then in the order in which they set out."""
        return tuple(
            Transfer(
                producer=self.graph.ops[crossing.producer].name,
                port=crossing.port,
                source=self.device_names[crossing.source],
                target=self.device_names[crossing.target],
                size_bytes=crossing.size_bytes or 0,
                start_ns=crossing.start_ns,
                end_ns=crossing.end_ns,
            )
            for crossing in sorted(self.crossings, key=lambda crossing: crossing.start_ns)
        )


def _send_ns(crossing: _Crossing) -> int:
    return crossing.whole_ns // 2
