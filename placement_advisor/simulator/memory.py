"""Peak memory of a simulated step is found per device by replay, with what it consists of.

Variables and optimizer slots stay on their device for the whole step, constants on every
device that reads them. Outputs of an op exist from its start, its inputs until its end; a
tensor is freed after its last reader and its last transfer. Kernels may reuse the buffer of
an input: an *alias* hands it on, others write their output over an input of the same size if
they are the last to hold it (``OpKernelContext::forward_input``). One device can be replayed
alone, with the copies that reach or leave it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from heapq import heappop, heappush
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from placement_advisor.graph.op import (
    BRANCH_KINDS,
    CALL_KINDS,
    COMPUTING_ROLES,
    CONTROL_PORT,
    KERNEL_FREE_ROLES,
    LOOP_KINDS,
    Role,
)
from placement_advisor.graph.op_work import elementwise
from placement_advisor.graph.op_work.movement import ALIAS_KINDS, VARIABLE_READ_KINDS
from placement_advisor.simulator import schedule as schedules
from placement_advisor.simulator.arrays import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from placement_advisor.graph.op import Op
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.simulator.arrays import ScheduleArrays

    Ints = NDArray[np.int64]


class OpInterval(NamedTuple):
    """An op that ran, from when to when."""

    start_ns: int
    end_ns: int
    op: int


class TransferInterval(NamedTuple):
    """A tensor on its way from device to device; its target takes memory for it at ``taken_ns``."""

    op: int
    port: int
    source: int
    target: int
    size_bytes: int | None
    taken_ns: int
    end_ns: int
    is_unpacked: bool


class StepFlow:
    """The flow of tensors through a step.

    ``runs`` are in the order of their starts. By op: ``reads`` has the tensors that it takes (on
    the first device), ``variables_of`` the variables that it reads or writes, ``transfers_of`` the
    transfers that it feeds. ``users_of`` has the ops that read or write a variable. ``sent`` and
    ``received`` are the tensor of each transfer at its ends. ``awaited`` counts the readers and
    transfers of a tensor where it is, and ``crossing`` has those that go to or come from another
    process.
    """

    def __init__(
        self,
        ops: Sequence[Op],
        devices: int,
        device_of: Sequence[int | None],
        edges: Iterable[tuple[int, int, int]],
        runs: Sequence[OpInterval],
        transfers: Sequence[TransferInterval],
    ) -> None:
        """Take producer, reader and port of each edge; control signals are left out."""
        edges = list(edges)
        self.ops, self.devices, self.device_of = ops, devices, device_of
        self.runs, self.transfers = runs, transfers
        # A graph may leave out the sizes of ports that its edges leave from.
        edge_ports = 1 + max((port for _, _, port in edges), default=0)
        ports = max(edge_ports, max((len(op.output_bytes) for op in ops), default=0))
        self._op_stride = ports * self.devices
        self.reads: list[list[int]] = [[] for _ in ops]
        self.variables_of: list[list[int]] = [[] for _ in ops]
        self.users_of: defaultdict[int, list[Op]] = defaultdict(list)
        self.awaited: defaultdict[int, int] = defaultdict(int)
        self._follow_edges(edges)
        self.transfers_of: defaultdict[int, list[int]] = defaultdict(list)
        self.sent: list[int] = []
        self.received: list[int] = []
        self.crossing: set[int] = set()
        self._follow_transfers()

    def resized(self, ops: Sequence[Op]) -> StepFlow:
        """Return the same flow of ops that make tensors of other sizes."""
        other = copy(self)
        other.ops = ops
        other.transfers = [
            each._replace(size_bytes=ops[each.op].output_bytes[each.port])
            for each in self.transfers
        ]
        return other

    def tensor(self, op: int, port: int) -> int:
        """Return the number of a tensor on the first device."""
        return op * self._op_stride + port * self.devices

    def producer(self, tensor: int) -> Op:
        """Return the op that makes a tensor, on whichever device it is."""
        return self.ops[tensor // self._op_stride]

    def _follow_edges(self, edges: Iterable[tuple[int, int, int]]) -> None:
        for source, reader, port in edges:
            if self.ops[source].role is Role.VARIABLE:
                self.variables_of[reader].append(source)
                self.users_of[source].append(self.ops[reader])
                continue
            tensor = self.tensor(source, port)
            self.reads[reader].append(tensor)
            device = self.device_of[reader]
            if device is not None:
                self.awaited[tensor + device] += 1

    def _follow_transfers(self) -> None:
        for number, transfer in enumerate(self.transfers):
            tensor = self.tensor(transfer.op, transfer.port)
            sent, received = tensor + transfer.source, tensor + transfer.target
            self.sent.append(sent)
            self.received.append(received)
            self.transfers_of[transfer.op].append(number)
            self.awaited[sent] += 1
            if transfer.is_unpacked:
                self.crossing |= {sent, received}


def flow_of(
    graph: OpGraph,
    runs: Iterable[schedules.OpRun],
    transfers: Iterable[schedules.Transfer],
    device_index: Mapping[str, int],
) -> StepFlow:
    """Return the flow of a schedule's runs and transfers.

    Of runs that start at one moment, that which is given first comes first.
    """
    op_index = {op.name: i for i, op in enumerate(graph.ops)}
    device_of: list[int | None] = [None] * len(graph)
    numbered = []
    for run in runs:
        number = op_index[run.op]
        device_of[number] = device_index[run.device]
        numbered.append(OpInterval(run.start_ns, run.end_ns, number))
    return StepFlow(
        graph.ops,
        len(device_index),
        device_of,
        (
            (op_index[edge.producer], op_index[edge.consumer], edge.port)
            for edge in graph.edges
            if not edge.is_control
        ),
        sorted(numbered, key=lambda run: run.start_ns),
        [
            TransferInterval(
                op=op_index[each.producer],
                port=each.port,
                source=device_index[each.source],
                target=device_index[each.target],
                size_bytes=each.size_bytes,
                # What processors move, the target unpacks.
                taken_ns=each.end_ns - each.receive_work_ns
                if each.receive_work_ns
                else each.start_ns,
                end_ns=each.end_ns,
                is_unpacked=each.receive_work_ns > 0,
            )
            for each in transfers
            if not each.is_control
        ],
    )


# Loops, conditionals and calls put out what ops within them hold.
COMPOSITE_KINDS = LOOP_KINDS | BRANCH_KINDS | CALL_KINDS
_ALIASES = ALIAS_KINDS | {"Bitcast", "CheckNumerics", "CheckNumericsV2", "IdentityN"}
_IF_EQUAL = """
All Any BroadcastTo EuclideanNorm Max Mean Min MirrorPad Pad PadV2 Prod Slice StridedSlice Sum
Tile
"""
_ALIASES_IF_EQUAL = frozenset(_IF_EQUAL.split())
# Elementwise kinds whose output has another type than their input, or that read inputs again.
_NEW_OUTPUT = frozenset({"BiasAddV1", "Betainc", "Complex", "ComplexAbs", "Imag", "Real"})
_FURTHER_REUSING = """
AccumulateNV2 AddN ClipByValue FakeQuantWithMinMaxArgs FakeQuantWithMinMaxVars LogSoftmax
MatrixBandPart MatrixDiagPart MatrixSetDiag MatrixSetDiagV2 MatrixSetDiagV3 OnesLike Select
SelectV2 Softmax TensorScatterAdd TensorScatterMax TensorScatterMin TensorScatterSub
TensorScatterUpdate ZerosLike
"""
_REUSING = (
    elementwise.UNARY.keys() | elementwise.BINARY.keys() | elementwise.GRADIENT.keys()
).difference(_ALIASES, _NEW_OUTPUT) | {*_FURTHER_REUSING.split()}
# The gradient that a loss puts out on its second port may lie where the logits lay.
_REUSING_SECOND = frozenset(
    {"SoftmaxCrossEntropyWithLogits", "SparseSoftmaxCrossEntropyWithLogits"}
)
# They make their variable one that is read by copy.
_BY_ROWS = ("ResourceGather", "ResourceScatter", "ResourceSparseApply", "ResourceStridedSlice")
ASSIGNMENT = "AssignVariableOp"
# They write all of their variables.
_DENSE_UPDATES = ("AssignAddVariableOp", "AssignSubVariableOp", "ResourceApply")


def is_alias(kind: str, port: int) -> bool:
    """Return whether the output at ``port`` is an input handed on, if there is one of its size."""
    return kind in _ALIASES or (kind in _ALIASES_IF_EQUAL and port == 0)


def may_reuse(kind: str, port: int) -> bool:
    """Return whether the output may take the place of an input that nobody else holds."""
    if kind in _REUSING_SECOND:
        return port == 1
    return kind in COMPOSITE_KINDS or (kind in _REUSING and port == 0)


@dataclass(slots=True, kw_only=True, eq=False)
class Buffer:
    """Memory on one device, free when nobody holds it; ``freed`` counts those taken until then."""

    name: str
    held: schedules.BufferUse
    size_bytes: int
    holders: int
    freed: int | None = None


class MemoryTracker:
    """What one device holds, from change to change, and when that was most."""

    def __init__(self) -> None:
        self._buffers: list[Buffer] = []
        self._held_bytes = self._resident_bytes = 0
        self._peak_bytes = self._peak_ns = self._peak_count = 0

    def take(self, name: str, held: schedules.BufferUse, size_bytes: int, now_ns: int) -> Buffer:
        """Return a new buffer with one holder."""
        buffer = Buffer(name=name, held=held, size_bytes=size_bytes, holders=1)
        self._buffers.append(buffer)
        self._held_bytes += size_bytes
        if self._held_bytes > self._peak_bytes:
            self._peak_bytes = self._held_bytes
            self._peak_ns, self._peak_count = now_ns, len(self._buffers)
        return buffer

    def reside(self, name: str, held: schedules.BufferUse, size_bytes: int) -> Buffer:
        """Return a new buffer that is never freed, but for variables that get another one."""
        self._resident_bytes += size_bytes
        return self.take(name, held, size_bytes, 0)

    def release(self, buffer: Buffer) -> None:
        """Take away one holder."""
        buffer.holders -= 1
        if not buffer.holders:
            self._held_bytes -= buffer.size_bytes
            buffer.freed = len(self._buffers)

    def peak(self) -> schedules.PeakMemory:
        """Return the peak so far."""
        there = [
            buffer
            for buffer in self._buffers[: self._peak_count]
            if buffer.freed is None or buffer.freed >= self._peak_count
        ]
        there.sort(key=lambda buffer: -buffer.size_bytes)
        rest: Counter[schedules.BufferUse] = Counter()
        for buffer in there[schedules.MAX_CONTRIBUTORS :]:
            rest[buffer.held] += buffer.size_bytes
        return schedules.PeakMemory(
            size_bytes=self._peak_bytes,
            at_ns=self._peak_ns,
            resident_bytes=self._resident_bytes,
            contributors=tuple(
                schedules.Contributor(
                    name=buffer.name, held=buffer.held, size_bytes=buffer.size_bytes
                )
                for buffer in there[: schedules.MAX_CONTRIBUTORS]
                if buffer.size_bytes
            ),
            rest_bytes={held: size for held, size in rest.items() if size},
        )


# What is to come, in the order in which it happens at one moment: an op ends, a copy is complete,
# the memory for a copy is taken.
_END, _ARRIVE, _RECEIVE = range(3)

_HELD_FOR = {
    Role.INPUT: schedules.BufferUse.INPUT,
    Role.CONSTANT: schedules.BufferUse.CONSTANT,
    Role.FORWARD: schedules.BufferUse.ACTIVATION,
    Role.BACKWARD: schedules.BufferUse.GRADIENT,
    Role.UPDATE: schedules.BufferUse.UPDATE,
}


def peak_memory(
    graph: OpGraph,
    runs: Sequence[schedules.OpRun],
    transfers: Sequence[schedules.Transfer],
    devices: Iterable[str],
) -> schedules.Peaks:
    """Return the peak of each of the devices; ops and copies may be on others too, as on hosts.

    Tensors of unknown size count nothing.
    """
    devices = tuple(devices)
    names = dict.fromkeys([*devices, *(run.device for run in runs)])

    def replay() -> dict[str, schedules.PeakMemory]:
        device_index = {name: i for i, name in enumerate(names)}
        peaks = peaks_of(flow_of(graph, runs, transfers, device_index))
        return {device: peaks[device_index[device]] for device in devices}

    at_most = _at_most(graph, runs, transfers, names)
    return schedules.Peaks({device: at_most[device] for device in devices}, replay)


def _at_most(
    graph: OpGraph,
    runs: Iterable[schedules.OpRun],
    transfers: Iterable[schedules.Transfer],
    devices: Iterable[str],
) -> dict[str, int]:
    """Return what each device holds if it has all constants and nothing is freed or reused."""
    held = dict.fromkeys(devices, 0)
    runs_on = {run.op: (run.device,) for run in runs}
    for op in graph.ops:
        size_bytes = sum(filter(None, op.output_bytes), op.parameter_bytes)
        if op.role is Role.VARIABLE:
            # Who reads it may copy it, who writes it may give it another buffer.
            size_bytes += op.parameter_bytes * len(graph.outputs_of(op.name))
        for device in runs_on.get(op.name, held):
            held[device] += size_bytes
    for transfer in transfers:
        held[transfer.target] += transfer.size_bytes or 0
    return held


def peaks_of(flow: StepFlow) -> list[schedules.PeakMemory]:
    """Return the peak of each device of a flow, by number."""
    replay = _Replay(flow)
    replay.run()
    return [memory.peak() for memory in replay.memories]


class _Replay:
    """A step run through again, in the numbers of its flow."""

    def __init__(self, flow: StepFlow) -> None:
        self.memories = [MemoryTracker() for _ in range(flow.devices)]
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
        held = schedules.BufferUse.OPTIMIZER_SLOT if is_slot else schedules.BufferUse.VARIABLE
        self._variables[number] = memory.reside(op.name, held, op.parameter_bytes)
        if any(user.kind.startswith(_BY_ROWS) for user in users):
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
        if op.kind.startswith(_DENSE_UPDATES) and old.holders > 1:
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
            held = schedules.BufferUse.RECEIVED_COPY
            copy = memory.take(self._flow.ops[transfer.op].name, held, transfer.size_bytes, now_ns)
            self._publish(self._flow.received[number], copy)
        heappush(self._later, (max(now_ns, transfer.end_ns), _ARRIVE, number))

    def _arrive(self, number: int) -> None:
        for tensor in (self._flow.sent[number], self._flow.received[number]):
            buffer = self._buffers.get(tensor)
            if buffer is not None:
                self.memories[tensor % self._flow.devices].release(buffer)


_HERE, _ELSEWHERE = range(2)


class ReadConstant(NamedTuple):
    """An op, by its number, that reads a port of a constant."""

    constant: Op
    port: int
    reader: int


class Constants:
    """The constants of a graph."""

    def __init__(self, graph: OpGraph) -> None:
        """Take the graph that is simulated."""
        self._graph = graph

    @cached_property
    def size_bytes(self) -> int:
        """The bytes of all of them."""
        sizes = [op.output_bytes for op in self._graph.ops if op.role is Role.CONSTANT]
        return sum(size or 0 for made in sizes for size in made)

    @cached_property
    def reads(self) -> Sequence[ReadConstant]:
        """Who reads them, among the ops that are placed."""
        ops = [op for op in self._graph.ops if op.role is not Role.CONSTANT]
        number = {op.name: i for i, op in enumerate(ops)}
        return [
            ReadConstant(self._graph.op(edge.producer), edge.port, number[edge.consumer])
            for edge in self._graph.edges
            if edge.producer not in number and not edge.is_control
        ]


class DeviceFlow:
    """The flow of a step through one of its places."""

    def __init__(
        self, step: ScheduleArrays, place: int, ops: Sequence[Op], constants: Constants
    ) -> None:
        """Take the ops of the graph that is simulated, by number, constants not counted."""
        arrays = step.arrays
        is_here = step.place == place
        tensor = np.repeat(np.arange(len(arrays.producer)), arrays.readers)
        reader = arrays.reader.astype(np.int64)
        read = is_here[reader] & (arrays.port[tensor] != CONTROL_PORT)
        tensor, reader = tensor[read], reader[read]
        is_touching = (step.source == place) | (step.target == place)
        copies = np.flatnonzero(is_touching & (arrays.port[step.copied] != CONTROL_PORT))
        is_seen = is_here.copy()
        is_seen[arrays.producer[tensor]] = True
        seen = np.flatnonzero(is_seen)
        number = np.cumsum(is_seen) - 1
        self._source = step.op[seen]
        readers = defaultdict(list)
        for i, source in enumerate(self._source.tolist()):
            if is_here[seen[i]]:
                readers[source].append(i)
        read_constants = [each for each in constants.reads if each.reader in readers]
        found = {each.constant.name: each.constant for each in read_constants}
        self._constants = tuple(found.values())
        place_of = {name: len(seen) + i for i, name in enumerate(found)}
        edges = list(
            zip(
                number[arrays.producer[tensor]].tolist(),
                number[reader].tolist(),
                arrays.port[tensor].tolist(),
                strict=True,
            )
        )
        edges += [
            (place_of[each.constant.name], here, each.port)
            for each in read_constants
            for here in readers[each.reader]
        ]
        device_of: list[int | None] = np.where(is_here[seen], _HERE, _ELSEWHERE).tolist()
        self._flow = StepFlow(
            self._sized(ops),
            2,
            device_of + [None] * len(found),
            edges,
            _runs(step, seen),
            _crossings(step, copies, place, number),
        )

    def peak(self) -> schedules.PeakMemory:
        """Return the most that the device holds."""
        return peaks_of(self._flow)[_HERE]

    def resized(self, ops: Sequence[Op]) -> DeviceFlow:
        """Return the flow of ops, by number as before, that make tensors of other sizes."""
        other = copy(self)
        other._flow = self._flow.resized(self._sized(ops))
        return other

    def _sized(self, ops: Sequence[Op]) -> tuple[Op, ...]:
        return (*(ops[source] for source in self._source.tolist()), *self._constants)


def _runs(step: ScheduleArrays, seen: Ints) -> list[OpInterval]:
    start_ns, end_ns = step.run_ns[seen].T
    order = np.lexsort((end_ns, start_ns))
    rows = start_ns[order].tolist(), end_ns[order].tolist(), order.tolist()
    return [OpInterval(*row) for row in zip(*rows, strict=True)]


def _crossings(
    step: ScheduleArrays, copies: Ints, place: int, number: Ints
) -> list[TransferInterval]:
    tensor = step.copied[copies]
    start_ns, end_ns = step.copy_ns[copies].T
    unpacked_ns = step.unpacked_ns[copies]
    columns = (
        number[step.arrays.producer[tensor]],
        step.arrays.port[tensor],
        np.where(step.source[copies] == place, _HERE, _ELSEWHERE),
        np.where(step.target[copies] == place, _HERE, _ELSEWHERE),
        step.copy_bytes[copies],
        np.where(unpacked_ns > 0, end_ns - unpacked_ns, start_ns),
        end_ns,
        unpacked_ns > 0,
    )
    return [
        TransferInterval(op, port, source, target, None if size == UNKNOWN else size, *rest)
        for op, port, source, target, size, *rest in zip(
            *(column.tolist() for column in columns), strict=True
        )
    ]
