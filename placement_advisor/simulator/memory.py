"""Peak memory of a simulated step, per device, and what it consists of.

Model:

- Variables (optimizer slots too) stay where they stand for the whole step, constants on every
  device that reads them, inputs where they are placed: the caller holds the batch.
- An op's outputs exist from its start; its inputs, until its end. A tensor is free once its last
  local reader has ended and its last transfer has arrived.
- What a kernel hands on, writes in place or reads by copy stands in `reuse.py`. An update that
  finds its variable's buffer still being read leaves that buffer to the readers and takes a new
  one; an assignment takes the buffer of the value. A list in which a loop keeps a variable, or its
  value, for each trip holds that one buffer.
- A copy engine writes into memory that the target has taken before. Where processors move the
  bytes, from process to process, the target takes it when it begins to unpack what has arrived;
  and a tensor that goes there reuses no buffer, unless that one came from there or goes there too.

Left out, so the truth is higher: tensors of unknown size, workspace of kernels (oneDNN's max
pooling has a byte per element), what is received while the thread that received it still holds it
(a millisecond where others have the core), what loops hold within their bodies beyond their
results, what the allocator rounds up and cannot use again for want of a fitting gap, tables, texts
beyond their characters (24 bytes each), ops that share a device's time and so hold their buffers
side by side, TensorFlow itself. Left out, so the truth is lower: slices that share their tensor's
buffer.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

from placement_advisor.graph.op import COMPUTING_ROLES, KERNEL_FREE_ROLES, LOOP_KINDS, Role
from placement_advisor.graph.op_work.movement import VARIABLE_READ_KINDS
from placement_advisor.simulator.holding import Buffer, DeviceMemory
from placement_advisor.simulator.peak import Held
from placement_advisor.simulator.reuse import (
    ASSIGNMENT,
    COMPOSITE_KINDS,
    is_alias,
    is_dense_update,
    may_reuse,
    works_by_rows,
)
from placement_advisor.simulator.tensor_flow import flow_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from placement_advisor.graph.op import Op
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.simulator.events import OpRun, Transfer
    from placement_advisor.simulator.peak import PeakMemory
    from placement_advisor.simulator.tensor_flow import StepFlow

# What is to come, in the order in which it happens at one moment: an op ends, a copy is complete,
# the memory for a copy is taken.
_END, _ARRIVE, _RECEIVE = range(3)

_HELD_FOR = {
    Role.INPUT: Held.INPUT,
    Role.CONSTANT: Held.CONSTANT,
    Role.FORWARD: Held.ACTIVATION,
    Role.BACKWARD: Held.GRADIENT,
    Role.UPDATE: Held.UPDATE,
}


def peak_memory(
    graph: OpGraph,
    runs: Sequence[OpRun],
    transfers: Sequence[Transfer],
    devices: Iterable[str],
) -> dict[str, PeakMemory]:
    """Return the peak of each of the devices; ops and copies may be on others too, as on hosts.

    Tensors of unknown size count nothing.
    """
    devices = list(devices)
    names = dict.fromkeys([*devices, *(run.device for run in runs)])
    device_index = {name: i for i, name in enumerate(names)}
    peaks = peaks_of(flow_of(graph, runs, transfers, device_index))
    return {device: peaks[device_index[device]] for device in devices}


def peaks_of(flow: StepFlow) -> list[PeakMemory]:
    """Return the peak of each device of a flow, by number."""
    replay = _Replay(flow)
    replay.run()
    return [memory.peak() for memory in replay.memories]


class _Replay:
    """A step run through again, in the numbers of its flow."""

    def __init__(self, flow: StepFlow) -> None:
        self.memories = [DeviceMemory() for _ in range(flow.devices)]
        self._flow = flow
        self._buffers: dict[int, Buffer] = {}
        self._variables: dict[int, Buffer] = {}
        self._read_by_copy: set[int] = set()
        self._held: list[list[Buffer]] = [[] for _ in flow.ops]
        # What is to come, as (ns, what, op or transfer).
        self._later: list[tuple[int, int, int]] = []

    def run(self) -> None:
        """Go through the step."""
        for number, op in enumerate(self._flow.ops):
            if op.role is Role.VARIABLE:
                self._place_variable(number)
            elif op.role in KERNEL_FREE_ROLES:
                self._place(number)
        for run in self._flow.runs:
            self._catch_up(run.start_ns)
            if self._flow.ops[run.op].role in COMPUTING_ROLES:
                self._start(run.op, run.start_ns)
            heappush(self._later, (run.end_ns, _END, run.op))
        self._catch_up(None)

    def _catch_up(self, now_ns: int | None) -> None:
        """Let all happen that ends or arrives until now; what ends now makes room for starts."""
        while self._later and (now_ns is None or self._later[0][0] <= now_ns):
            time_ns, what, number = heappop(self._later)
            if what == _END:
                self._end(number, time_ns)
            elif what == _RECEIVE:
                self._receive(number, time_ns)
            else:
                self._arrive(number)

    def _place_variable(self, number: int) -> None:
        device = self._flow.device_of[number]
        if device is None:
            return
        op = self._flow.ops[number]
        memory = self.memories[device]
        users = self._flow.users_of[number]
        # What only updates look at was made for them.
        is_slot = users and all(user.role is Role.UPDATE for user in users)
        held = Held.OPTIMIZER_SLOT if is_slot else Held.VARIABLE
        self._variables[number] = memory.reside(op.name, held, op.parameter_bytes)
        if any(works_by_rows(user.kind) for user in users):
            self._read_by_copy.add(number)

    def _place(self, number: int) -> None:
        """Put constants where they are read, inputs where they were placed."""
        op, own = self._flow.ops[number], self._flow.device_of[number]
        for port, size_bytes in enumerate(op.output_bytes):
            for device, memory in enumerate(self.memories):
                tensor = self._flow.tensor(number, port) + device
                is_here = tensor in self._flow.awaited if own is None else device == own
                if is_here and size_bytes is not None:
                    buffer = memory.reside(op.name, _HELD_FOR[op.role], size_bytes)
                    self._publish(tensor, buffer)

    def _publish(self, tensor: int, buffer: Buffer) -> None:
        """Give a tensor its buffer, to be held by all who will read or send it."""
        self._buffers[tensor] = buffer
        buffer.holders += self._flow.awaited.get(tensor, 0)

    def _start(self, number: int, now_ns: int) -> None:
        """Let an op take hold of its inputs and outputs."""
        op, device, held = self._flow.ops[number], self._flow.device_of[number], self._held[number]
        assert device is not None
        inputs: dict[int, Buffer] = {}
        for tensor in self._flow.reads[number]:
            buffer = self._buffers.get(tensor + device)
            if buffer is not None:
                inputs[tensor + device] = buffer
                held.append(buffer)
        variables = self._flow.variables_of[number]
        if variables:
            if op.kind in VARIABLE_READ_KINDS:
                self._read(number, variables[0], now_ns)
                return
            held += [old for each in variables for old in self._given_up(op, each, held, now_ns)]
        seen = self._seen_each_trip(op, variables, inputs)
        tensor = self._flow.tensor(number, 0) + device - self._flow.devices
        for port, size_bytes in enumerate(op.output_bytes):
            tensor += self._flow.devices
            if size_bytes is None:
                continue
            if op.kind in COMPOSITE_KINDS and tensor not in self._flow.awaited:
                continue
            if size_bytes in seen:
                seen.remove(size_bytes)
                continue
            found = self._handed_on(op.kind, port, tensor, size_bytes, inputs)
            if found is None:
                memory = self.memories[device]
                found = memory.take(op.name, _HELD_FOR[op.role], size_bytes, now_ns)
            else:
                found.holders += 1
            self._publish(tensor, found)
            held.append(found)

    def _seen_each_trip(
        self, op: Op, variables: Iterable[int], inputs: Mapping[int, Buffer]
    ) -> list[int]:
        """Return the sizes of lists in which a loop has the same buffers again and again.

        For its gradient, a loop collects what its body reads; of a variable, or of its value that
        the loop takes, that is one buffer. After a single trip a list cannot be told from a tensor
        by its size.
        """
        if op.kind not in LOOP_KINDS or op.trips in (None, 1):
            return []
        buffers = [self._variables[each] for each in variables]
        for tensor, buffer in inputs.items():
            if self._flow.producer(tensor).kind in VARIABLE_READ_KINDS:
                buffers.append(buffer)
        return [(op.trips or 0) * buffer.size_bytes for buffer in buffers]

    def _handed_on(
        self, kind: str, port: int, output: int, size_bytes: int, inputs: Mapping[int, Buffer]
    ) -> Buffer | None:
        """Return the input whose buffer the output has, None if it takes one of its own."""
        if is_alias(kind, port):
            return next((each for each in inputs.values() if each.size_bytes == size_bytes), None)
        if may_reuse(kind, port):
            for tensor, buffer in inputs.items():
                if (
                    buffer.size_bytes == size_bytes
                    and buffer.holders == 1
                    and (tensor in self._flow.crossing or output not in self._flow.crossing)
                ):
                    return buffer
        return None

    def _read(self, number: int, variable: int, now_ns: int) -> None:
        op, device = self._flow.ops[number], self._flow.device_of[number]
        assert device is not None
        buffer = self._variables[variable]
        if variable in self._read_by_copy:
            held = _HELD_FOR[op.role]
            buffer = self.memories[device].take(op.name, held, buffer.size_bytes, now_ns)
        else:
            buffer.holders += 1
        self._publish(self._flow.tensor(number, 0) + device, buffer)
        self._held[number].append(buffer)

    def _given_up(
        self, op: Op, variable: int, inputs: Iterable[Buffer], now_ns: int
    ) -> Iterator[Buffer]:
        """Yield the buffer that a variable gives up, if others hold it while it changes."""
        old = self._variables[variable]
        if variable in self._read_by_copy:
            return
        if is_dense_update(op.kind) and old.holders > 1:
            device = self._flow.device_of[variable]
            assert device is not None
            memory = self.memories[device]
            self._variables[variable] = memory.take(old.name, old.held, old.size_bytes, now_ns)
            yield old
        elif op.kind == ASSIGNMENT:
            value = next((each for each in inputs if each.size_bytes == old.size_bytes), None)
            # Where nobody else holds either, it makes no difference which of them is freed.
            if value is not None and (old.holders > 1 or value.holders > 1):
                value.holders += 1
                self._variables[variable] = value
                yield old

    def _end(self, number: int, now_ns: int) -> None:
        device = self._flow.device_of[number]
        assert device is not None
        for number_sent in self._flow.transfers_of.get(number, ()):
            taken_ns = self._flow.transfers[number_sent].taken_ns
            heappush(self._later, (max(now_ns, taken_ns), _RECEIVE, number_sent))
        memory = self.memories[device]
        for buffer in self._held[number]:
            memory.release(buffer)

    def _receive(self, number: int, now_ns: int) -> None:
        transfer = self._flow.transfers[number]
        memory = self.memories[transfer.target]
        if transfer.size_bytes is not None:
            held = Held.RECEIVED_COPY
            copy = memory.take(self._flow.ops[transfer.op].name, held, transfer.size_bytes, now_ns)
            self._publish(self._flow.received[number], copy)
        heappush(self._later, (max(now_ns, transfer.end_ns), _ARRIVE, number))

    def _arrive(self, number: int) -> None:
        for tensor in (self._flow.sent[number], self._flow.received[number]):
            buffer = self._buffers.get(tensor)
            if buffer is not None:
                self.memories[tensor % self._flow.devices].release(buffer)
