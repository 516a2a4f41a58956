"""The simulator once more, written from its docstring: objects, a heap of events, no haste.

It shares neither arrays nor queues with the event loop that it judges.
"""

from __future__ import annotations

import sys
from collections import deque
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from placement_advisor.graph.op import CONTROL_PORT, Op, Role
from placement_advisor.simulator.schedule import OpRun, Transfer

if TYPE_CHECKING:
    from placement_advisor.machine.devices import Device, Link

# Events of one moment: ends of what devices do, then arrivals.
_END, _ARRIVAL = 0, 1


@dataclass(slots=True, kw_only=True, eq=False)
class _Task:
    op: Op
    place: _Place
    # What it takes, and what if another device runs an op when it starts.
    duration_ns: int
    beside_ns: int
    launch_ns: int = 0
    # Tensors that it still waits for, each as often as it reads it.
    waits_for: int = 0
    ready_ns: int = 0
    start_ns: int = -1
    end_ns: int = -1
    launch: tuple[int, int] | None = None


@dataclass(slots=True, kw_only=True, eq=False)
class _Copy:
    producer: _Task
    port: int
    size_bytes: int | None
    link: Link
    target: _Place
    readers: list[_Task]
    number: int
    set_out_ns: int = -1
    start_ns: int = -1
    arrival_ns: int = -1
    end_ns: int = -1

    @property
    def priced_bytes(self):
        return self.size_bytes or 0


@dataclass(slots=True, kw_only=True, eq=False)
class _Place:
    device: Device
    number: int
    begin_ns: int = 0
    doing: _Task | tuple[str, _Copy] | str | None = "begin"
    # Ops that are ready, a heap: by event, port and place in the graph.
    ops: list[tuple[tuple[int, int, int], _Task]] = field(default_factory=list)
    copies: deque[tuple[str, _Copy]] = field(default_factory=deque)
    # What has the device, "op" or "copy", and since when; None if it had nothing to do.
    turn: str | None = None
    turn_since_ns: int = 0
    # Since when it has had nothing to do; None while it does something.
    rests_since_ns: int | None = None
    # Where launches are ahead: when the kernels launched so far have run.
    kernels_until_ns: int = 0


class Oracle:
    """One simulation; `runs`, `transfers` and `step_ns` are as in the schedule."""

    def __init__(self, step):
        self._step = step
        self._dispatch = step.cluster.dispatch
        devices = step.cluster.devices
        self._places = {
            device.name: _Place(device=device, number=i)
            for i, device in enumerate((*devices, *step.cluster.hosts))
        }
        self._events = []
        self._copies = []
        self._started = []
        # Events so far: what one of them makes ready goes before what a later one does.
        self._event = 0
        self._wire_free_ns = {}
        self._last_arrival_ns = {}
        runs = [op for op in step.graph.ops if op.role is not Role.CONSTANT]
        in_use = {self._place(op).device.name for op in runs}
        further = [device for device in devices[1:] if device.name in in_use]
        self._is_split = len(in_use & {device.name for device in devices}) > 1
        self._tasks = {op.name: self._task(op) for op in runs}
        for edge in step.graph.edges:
            if edge.producer in self._tasks and edge.consumer in self._tasks:
                self._tasks[edge.consumer].waits_for += 1
        for task in self._tasks.values():
            if not task.waits_for:
                self._is_ready(task, 0)
        for device in devices[1:]:
            self._places[device.name].begin_ns = step.cluster.remote_start_ns(device)
        first = self._places[devices[0].name]
        first.begin_ns = self._dispatch.partition_overhead_ns * len(further)
        for place in self._places.values():
            self._ends_at(place, place.begin_ns)
        self._run()
        late_ns = {device.name: step.cluster.remote_end_ns(device) for device in further}
        ends = [
            task.end_ns + late_ns.get(task.place.device.name, 0) for task in self._tasks.values()
        ]
        lost_ns = round(step.cluster.sharing.exchange_loss * self._beside_kernels_ns())
        self.step_ns = max(ends, default=0) + lost_ns + self._dispatch.step_overhead_ns

    def _beside_kernels_ns(self):
        """Count nanoseconds with a kernel and a copy, on the device ahead that ends last."""
        ahead = [place for place in self._places.values() if place.device.launches_ahead]
        if not ahead:
            return 0

        def end_ns(place):
            ends = [task.end_ns for task in self._started if task.place is place]
            return max(ends, default=-1), place.number

        last = max(ahead, key=end_ns)
        copied = {
            moment
            for copy in self._copies
            if copy.priced_bytes and last.device.name in (copy.link.source, copy.link.target)
            for moment in range(copy.set_out_ns, copy.end_ns)
        }
        kernels = [task for task in self._started if task.place is last]
        return sum(moment in copied for k in kernels for moment in range(k.start_ns, k.end_ns))

    @property
    def runs(self):
        return tuple(
            OpRun(
                op=task.op.name,
                device=task.place.device.name,
                ready_ns=task.ready_ns,
                start_ns=task.start_ns,
                end_ns=task.end_ns,
                launch=task.launch,
            )
            for task in sorted(self._started, key=lambda task: task.start_ns)
        )

    @property
    def transfers(self):
        return tuple(
            Transfer(
                producer=copy.producer.op.name,
                port=copy.port,
                source=copy.link.source,
                target=copy.link.target,
                size_bytes=copy.size_bytes,
                start_ns=copy.start_ns,
                end_ns=copy.end_ns,
                queued_ns=copy.start_ns - copy.set_out_ns,
                held_ns=copy.end_ns - _receive_ns(copy) - copy.arrival_ns,
                send_work_ns=_send_ns(copy),
                receive_work_ns=_receive_ns(copy),
            )
            for copy in sorted(self._copies, key=lambda copy: copy.start_ns)
        )

    def _place(self, op):
        place = self._places[self._step.placement.device_of[op.name]]
        kind, host = place.device.kind, place.device.host
        if host is not None and any(
            other.role is Role.INPUT or kind not in other.device_kinds
            for other in self._step.graph.ops
            if other.name == op.name or (op.variable and other.variable == op.variable)
        ):
            place = self._places[host]
        return place

    def _task(self, op):
        place = self._place(op)
        cost = self._step.all_costs()[place.device.name].costs.get(op.name)
        own_ns = 0 if cost is None else cost.time_ns
        launch_ns = 0 if cost is None else place.device.launch_overhead_ns
        task = _Task(op=op, place=place, duration_ns=own_ns, beside_ns=own_ns, launch_ns=launch_ns)
        if not place.device.launches_ahead:
            sharing = self._step.cluster.sharing
            longer_ns = own_ns * (sharing.split_ratio - 1)
            draws_ns = (op.bytes_accessed or 0) * 1e9 / sharing.memory_bytes_per_s
            beside_ns = longer_ns + min(own_ns, draws_ns) * (sharing.memory_ratio - 1)
            task.duration_ns += launch_ns + round(longer_ns) * self._is_split
            task.beside_ns += launch_ns + round(beside_ns)
        return task

    def _run(self):
        while self._events:
            now, kind, _, who = heappop(self._events)
            self._event += 1
            if kind == _ARRIVAL:
                place = who.target
                if not _receive_ns(who):
                    self._deliver(who, now)
                else:
                    place.copies.append(("receive", who))
            elif isinstance(who, _Task):
                # Its kernel ends, behind its launch.
                place = who.place
                self._tell(who, now, here=False, away=True)
            else:
                place, done = who, who.doing
                place.doing = None
                if isinstance(done, _Task) and place.device.launches_ahead:
                    self._launched(done, now)
                elif isinstance(done, _Task):
                    done.end_ns = now
                    self._tell(done, now, here=True, away=True)
                elif isinstance(done, tuple) and done[0] == "receive":
                    self._deliver(done[1], now)
            if place.doing is None:
                self._next(place, now)

    def _launched(self, task, now):
        """Let the kernel run behind those before it; what reads it here can be launched."""
        task.launch = (now - task.launch_ns, now)
        task.start_ns = max(now, task.place.kernels_until_ns)
        task.end_ns = task.place.kernels_until_ns = task.start_ns + task.duration_ns
        self._tell(task, now, here=True, away=False)
        order = (task.place.number, 1, self._started.index(task))
        heappush(self._events, (task.end_ns, _END, order, task))

    def _tell(self, task, now, *, here, away):
        edges = self._step.graph.outputs_of(task.op.name)
        ports = {edge.port for edge in edges}
        for port in sorted(ports, key=lambda port: (port == CONTROL_PORT, port)):
            readers = [self._tasks[edge.consumer] for edge in edges if edge.port == port]
            sizes = (edge.size_bytes for edge in edges if edge.port == port)
            size = 0 if port == CONTROL_PORT else next(sizes)
            elsewhere = []
            for reader in readers:
                if reader.place is task.place:
                    if here:
                        self._gets_input(reader, port, now)
                elif away and reader.place not in elsewhere:
                    elsewhere.append(reader.place)
            for target in elsewhere:
                there = [reader for reader in readers if reader.place is target]
                self._send(task, port, size, target, there, now)

    def _send(self, task, port, size, target, readers, now):
        link = self._step.cluster.link(task.place.device.name, target.device.name)
        copy = _Copy(
            producer=task,
            port=port,
            size_bytes=size,
            link=link,
            target=target,
            readers=readers,
            number=len(self._copies),
        )
        self._copies.append(copy)
        if not _send_ns(copy):
            self._set_out(copy, now)
        else:
            task.place.copies.append(("send", copy))

    def _set_out(self, copy, now):
        link = copy.link
        ends = (link.source, link.target)
        copy.set_out_ns = copy.start_ns = now
        if link.request_ns:
            copy.start_ns = max(now, copy.target.begin_ns + link.request_ns)
        wire = ends if link.channel is None else link.channel
        copy.start_ns = max(copy.start_ns, self._wire_free_ns.get(wire, 0))
        self._wire_free_ns[wire] = copy.start_ns + link.wire_ns(copy.priced_bytes)
        between_idle_ns = max(link.transfer_ns(copy.priced_bytes), _send_ns(copy))
        copy.arrival_ns = copy.start_ns + max(between_idle_ns - _receive_ns(copy), 0)
        copy.arrival_ns = max(copy.arrival_ns, self._last_arrival_ns.get(ends, 0))
        self._last_arrival_ns[ends] = copy.arrival_ns
        out_of = sum(one.set_out_ns >= 0 for one in self._copies)
        order = (copy.producer.place.number, copy.target.number, out_of, copy.number)
        heappush(self._events, (copy.arrival_ns, _ARRIVAL, order, copy))

    def _deliver(self, copy, now):
        copy.end_ns = now
        for reader in copy.readers:
            self._gets_input(reader, copy.port, now)

    def _gets_input(self, task, port, now):
        task.waits_for -= 1
        if not task.waits_for:
            task.ready_ns = now
            self._is_ready(task, port)

    def _is_ready(self, task, port):
        # A control edge comes behind all ports.
        behind = sys.maxsize if port == CONTROL_PORT else port
        order = (self._event, behind, self._step.graph.index(task.op.name))
        heappush(task.place.ops, (order, task))

    def _next(self, place, now):
        """Let the device do copy work, an op, or nothing."""
        turn = self._turn(place, now)
        if turn != place.turn:
            place.turn, place.turn_since_ns = turn, now
        if turn == "copy":
            end, copy = place.doing = place.copies.popleft()
            if end == "send":
                self._set_out(copy, now)
                self._ends_at(place, now + _send_ns(copy))
            else:
                wake_ns = self._wake_ns(copy.link, place, now)
                self._ends_at(place, now + _receive_ns(copy) + wake_ns)
            place.rests_since_ns = None
        elif turn == "op":
            is_beside = any(
                isinstance(other.doing, _Task) and not other.device.launches_ahead
                for other in self._places.values()
            )
            task = place.doing = heappop(place.ops)[1]
            task.start_ns = now
            self._started.append(task)
            place.rests_since_ns = None
            takes_ns = task.beside_ns if is_beside else task.duration_ns
            self._ends_at(
                place, now + (task.launch_ns if place.device.launches_ahead else takes_ns)
            )
        else:
            if place.rests_since_ns is None:
                place.rests_since_ns = now

    def _turn(self, place, now):
        """Return what the device does next."""
        if not (place.ops and place.copies):
            return "op" if place.ops else "copy" if place.copies else None
        if place.turn is None:
            return "op"
        is_over = now - place.turn_since_ns >= self._dispatch.quantum_ns
        return {"op": "copy", "copy": "op"}[place.turn] if is_over else place.turn

    def _wake_ns(self, link, place, now):
        if place.rests_since_ns is None:
            return 0
        rested_ns = now - place.rests_since_ns
        if rested_ns >= self._dispatch.asleep_ns:
            return link.wake_ns
        return int(link.wake_ns * (rested_ns / self._dispatch.asleep_ns))

    def _ends_at(self, place, time_ns):
        heappush(self._events, (time_ns, _END, (place.number, 0), place))


def _send_ns(copy):
    return copy.link.sender.time_ns(copy.priced_bytes)


def _receive_ns(copy):
    return copy.link.receiver.time_ns(copy.priced_bytes)
