"""Peak memory of a simulated step is found per device by replay, with what it consists of.

Variables and optimizer slots stay on their device for the whole step, constants on every
device that reads them. Outputs of an op exist from its start, its inputs until its end; a
tensor is freed after its last reader and its last transfer. Kernels may reuse the buffer of
an input: an *alias* hands it on, others write their output over an input of the same size if
they are the last to hold it (``OpKernelContext::forward_input``). Each device is replayed alone,
with the copies that reach or leave it.
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
from placement_advisor.simulator.arrays import UNKNOWN, ScheduleArrays

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from placement_advisor.graph.op import Op
    from placement_advisor.graph.op_graph import OpGraph

    Ints = NDArray[np.int64]
    Flags = NDArray[np.bool_]


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


# Tensors are numbered by op and port.
_PORT_BITS = 32


class OpInterval(NamedTuple):
    """An op that ran, from when to when."""

    start_ns: int
    end_ns: int
    op: int


class CopyInterval(NamedTuple):
    """A tensor that comes to the device or leaves it; what comes takes memory at ``taken_ns``."""

    tensor: int
    is_coming: bool
    size_bytes: int | None
    taken_ns: int
    end_ns: int


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
        number = {op.name: i for i, op in enumerate(self._graph.placed_ops)}
        return [
            ReadConstant(self._graph.op(edge.producer), edge.port, number[edge.consumer])
            for edge in self._graph.edges
            if edge.producer not in number and not edge.is_control
        ]


class DeviceFlow:
    """The flow of tensors through one of the places of a step.

    ``ops`` has those that run there, those that send something there, and constants, by number.
    ``runs`` are in the order of their starts. By op: ``reads`` has the tensors that it takes,
    ``variables_of`` the variables that it reads or writes, ``copies_of`` the copies that it feeds.
    ``users_of`` has the ops that read or write a variable. ``awaited`` counts who reads a tensor or
    sends it elsewhere, and ``crossing`` has those that go to or come from another process.
    """

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
        self.here = np.flatnonzero(is_here).tolist()
        seen = np.union1d(self.here, arrays.producer[tensor]).astype(np.int64)
        self._source = dict(zip(seen.tolist(), step.op[seen].tolist(), strict=True))
        self._constants: dict[int, Op] = {}
        number = arrays.producer << _PORT_BITS | arrays.port
        reads = list(zip(number[tensor].tolist(), reader.tolist(), strict=True))
        reads += self._reads_of_constants(constants, len(step.op))
        self.ops = self._sized(ops)
        self.runs = _runs(step, seen)
        is_touching = (step.source == place) | (step.target == place)
        copies = np.flatnonzero(is_touching & (arrays.port[step.copied] != CONTROL_PORT))
        copied, unpacked_ns = number[step.copied[copies]], step.unpacked_ns[copies]
        self.copies = _copies(step, copies, step.target[copies] == place, copied)
        self.crossing = set(copied[unpacked_ns > 0].tolist())
        self.reads: defaultdict[int, list[int]] = defaultdict(list)
        self.variables_of: defaultdict[int, list[int]] = defaultdict(list)
        self.users_of: defaultdict[int, list[Op]] = defaultdict(list)
        self.copies_of: defaultdict[int, list[int]] = defaultdict(list)
        self.awaited: defaultdict[int, int] = defaultdict(int)
        for made, op in reads:
            producer = made >> _PORT_BITS
            if self.ops[producer].role is Role.VARIABLE:
                self.variables_of[op].append(producer)
                self.users_of[producer].append(self.ops[op])
            else:
                self.reads[op].append(made)
                self.awaited[made] += 1
        for i, each in enumerate(self.copies):
            self.copies_of[each.tensor >> _PORT_BITS].append(i)
            self.awaited[each.tensor] += not each.is_coming

    def peak(self) -> schedules.PeakMemory:
        """Return the most that the device holds."""
        replay = _Replay(self)
        replay.run()
        return replay.memory.peak()

    def resized(self, ops: Sequence[Op]) -> DeviceFlow:
        """Return the flow of ops, by number as before, that make tensors of other sizes."""
        other = copy(self)
        other.ops = self._sized(ops)
        other.copies = [
            each._replace(size_bytes=other.ops[each.tensor >> _PORT_BITS].output_bytes[port])
            for each in self.copies
            for port in [each.tensor & (1 << _PORT_BITS) - 1]
        ]
        return other

    def _sized(self, ops: Sequence[Op]) -> dict[int, Op]:
        return {number: ops[source] for number, source in self._source.items()} | self._constants

    def _reads_of_constants(self, constants: Constants, after: int) -> Iterator[tuple[int, int]]:
        """Number those that ops read here; yield each tensor of them with an op that reads it."""
        readers = defaultdict(list)
        for op in self.here:
            readers[self._source[op]].append(op)
        number: dict[str, int] = {}
        for constant, port, reader in constants.reads:
            for op in readers.get(reader, ()):
                made_by = number.setdefault(constant.name, after + len(number))
                self._constants[made_by] = constant
                yield made_by << _PORT_BITS | port, op


def _runs(step: ScheduleArrays, seen: Ints) -> list[OpInterval]:
    start_ns, end_ns = step.run_ns[seen].T
    order = np.lexsort((end_ns, start_ns))
    rows = start_ns[order].tolist(), end_ns[order].tolist(), seen[order].tolist()
    return [OpInterval(*row) for row in zip(*rows, strict=True)]


def _copies(
    step: ScheduleArrays, copies: Ints, is_coming: Flags, tensor: Ints
) -> list[CopyInterval]:
    start_ns, end_ns = step.copy_ns[copies].T
    unpacked_ns = step.unpacked_ns[copies]
    # What processors move, the target unpacks.
    taken_ns = np.where(unpacked_ns > 0, end_ns - unpacked_ns, start_ns)
    sizes = [None if size == UNKNOWN else size for size in step.copy_bytes[copies].tolist()]
    columns = (column.tolist() for column in (tensor, is_coming, taken_ns, end_ns))
    return [
        CopyInterval(made, coming, size, taken, end)
        for size, made, coming, taken, end in zip(sizes, *columns, strict=True)
    ]


def peaks(step: ScheduleArrays, graph: OpGraph, constants: Constants) -> schedules.Peaks:
    """Return the peak of each place of a simulated step.

    Tensors of unknown size count nothing.
    """
    place_of = {name: place for place, name in enumerate(step.places)}

    def replay(name: str) -> schedules.PeakMemory:
        return DeviceFlow(step, place_of[name], step.arrays.ops, constants).peak()

    at_most = _at_most(step, graph) + constants.size_bytes
    return schedules.Peaks(dict(zip(step.places, at_most.tolist(), strict=True)), replay)


def _at_most(step: ScheduleArrays, graph: OpGraph) -> NDArray[np.float64]:
    """Return what each place holds, constants apart, if nothing is freed or reused."""
    sizes = [sum(filter(None, op.output_bytes), op.parameter_bytes) for op in step.arrays.ops]
    for i, op in enumerate(step.arrays.ops):
        if op.role is Role.VARIABLE:
            # Who reads it may copy it, who writes it may give it another buffer.
            sizes[i] += op.parameter_bytes * len(graph.outputs_of(op.name))
    count, received = len(step.places), np.maximum(step.copy_bytes, 0)
    held = np.bincount(step.place, sizes, count) + np.bincount(step.target, received, count)
    return held.astype(np.float64)


class _Replay:
    """A step run through again on one device, in the numbers of its flow."""

    def __init__(self, flow: DeviceFlow) -> None:
        self.memory = MemoryTracker()
        self._flow = flow
        self._buffers: dict[int, Buffer] = {}
        self._variables: dict[int, Buffer] = {}
        self._read_by_copy: set[int] = set()
        # By op, the buffers that it holds; others than those that run here hold none.
        self._held: dict[int, list[Buffer]] = {number: [] for number in flow.here}
        # What is to come, as (ns, what, op or copy).
        self._later: list[tuple[int, int, int]] = []

    def run(self) -> None:
        """Go through the step; after its last start there is no further peak."""
        for number, op in self._flow.ops.items():
            if op.role is Role.VARIABLE:
                self._place_variable(number)
            elif op.role is Role.CONSTANT or (
                op.role in KERNEL_FREE_ROLES and number in self._held
            ):
                self._place(number)
        for run in self._flow.runs:
            self._catch_up(run.start_ns)
            if run.op in self._held and self._flow.ops[run.op].role in COMPUTING_ROLES:
                self._start(run.op, run.start_ns)
            heappush(self._later, (run.end_ns, _END, run.op))

    def _catch_up(self, now_ns: int) -> None:
        """Let all happen that ends or arrives until now; what ends now makes room for starts."""
        while self._later and self._later[0][0] <= now_ns:
            time_ns, what, number = heappop(self._later)
            if what == _END:
                self._end(number, time_ns)
            elif what == _RECEIVE:
                self._receive(number, time_ns)
            elif (buffer := self._buffers.get(self._flow.copies[number].tensor)) is not None:
                self.memory.release(buffer)

    def _place_variable(self, number: int) -> None:
        op, users = self._flow.ops[number], self._flow.users_of[number]
        # What only updates look at was made for them.
        is_slot = users and all(user.role is Role.UPDATE for user in users)
        held = schedules.BufferUse.OPTIMIZER_SLOT if is_slot else schedules.BufferUse.VARIABLE
        memory = self.memory if number in self._held else MemoryTracker()
        self._variables[number] = memory.reside(op.name, held, op.parameter_bytes)
        if any(user.kind.startswith(_BY_ROWS) for user in users):
            self._read_by_copy.add(number)

    def _place(self, number: int) -> None:
        """Put constants where they are read, inputs where they were placed."""
        op = self._flow.ops[number]
        for port, size_bytes in enumerate(op.output_bytes):
            tensor = number << _PORT_BITS | port
            is_read = op.role is not Role.CONSTANT or tensor in self._flow.awaited
            if is_read and size_bytes is not None:
                self._publish(tensor, self.memory.reside(op.name, _HELD_FOR[op.role], size_bytes))

    def _publish(self, tensor: int, buffer: Buffer) -> None:
        """Give a tensor its buffer, to be held by all who will read or send it."""
        self._buffers[tensor] = buffer
        buffer.holders += self._flow.awaited.get(tensor, 0)

    def _start(self, number: int, now_ns: int) -> None:
        """Let an op take hold of its inputs and outputs."""
        op, held = self._flow.ops[number], self._held[number]
        inputs: dict[int, Buffer] = {}
        for tensor in self._flow.reads[number]:
            buffer = self._buffers.get(tensor)
            if buffer is not None:
                inputs[tensor] = buffer
                held.append(buffer)
        variables = self._flow.variables_of[number]
        if variables:
            if op.kind in VARIABLE_READ_KINDS:
                self._read(number, variables[0], now_ns)
                return
            held += [old for each in variables for old in self._given_up(op, each, held, now_ns)]
        seen = self._seen_each_trip(op, variables, inputs)
        for port, size_bytes in enumerate(op.output_bytes):
            tensor = number << _PORT_BITS | port
            if size_bytes is None:
                continue
            if op.kind in COMPOSITE_KINDS and tensor not in self._flow.awaited:
                continue
            if size_bytes in seen:
                seen.remove(size_bytes)
                continue
            found = self._handed_on(op.kind, port, tensor, size_bytes, inputs)
            if found is None:
                found = self.memory.take(op.name, _HELD_FOR[op.role], size_bytes, now_ns)
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
            if self._flow.ops[tensor >> _PORT_BITS].kind in VARIABLE_READ_KINDS:
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
        op, buffer = self._flow.ops[number], self._variables[variable]
        if variable in self._read_by_copy:
            buffer = self.memory.take(op.name, _HELD_FOR[op.role], buffer.size_bytes, now_ns)
        else:
            buffer.holders += 1
        self._publish(number << _PORT_BITS, buffer)
        self._held[number].append(buffer)

    def _given_up(
        self, op: Op, variable: int, inputs: Iterable[Buffer], now_ns: int
    ) -> Iterator[Buffer]:
        """Yield the buffer that a variable gives up, if others hold it while it changes."""
        old = self._variables[variable]
        if variable in self._read_by_copy:
            return
        if op.kind.startswith(_DENSE_UPDATES) and old.holders > 1:
            self._variables[variable] = self.memory.take(old.name, old.held, old.size_bytes, now_ns)
            yield old
        elif op.kind == ASSIGNMENT:
            value = next((each for each in inputs if each.size_bytes == old.size_bytes), None)
            # Where nobody else holds either, it makes no difference which of them is freed.
            if value is not None and (old.holders > 1 or value.holders > 1):
                value.holders += 1
                self._variables[variable] = value
                yield old

    def _end(self, number: int, now_ns: int) -> None:
        for copied in self._flow.copies_of.get(number, ()):
            taken_ns = self._flow.copies[copied].taken_ns
            heappush(self._later, (max(now_ns, taken_ns), _RECEIVE, copied))
        for buffer in self._held.get(number, ()):
            self.memory.release(buffer)

    def _receive(self, number: int, now_ns: int) -> None:
        tensor, is_coming, size_bytes, _, end_ns = self._flow.copies[number]
        if is_coming and size_bytes is not None:
            name, held = (
                self._flow.ops[tensor >> _PORT_BITS].name,
                schedules.BufferUse.RECEIVED_COPY,
            )
            self._publish(tensor, self.memory.take(name, held, size_bytes, now_ns))
        heappush(self._later, (max(now_ns, end_ns), _ARRIVE, number))
