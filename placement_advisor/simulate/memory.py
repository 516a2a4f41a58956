"""Peak memory of a simulated step, per device.

Model: variables (optimizer slots are variables too) and constants stay for the whole step. A
tensor lives from the end of its producer until its last local reader has ended and its last
transfer has arrived; on a receiving device from its arrival until its last reader there has
ended. Ops that hand their input on, or show a variable, take no memory of their own.

Left out, so the truth is higher: tensors of unknown size, workspace of kernels, what the
allocator rounds up or cannot reuse, TensorFlow itself. Buffers that a kernel reuses in place make
the truth lower.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from placement_advisor.graph import Role
from placement_advisor.work.bookkeeping import ALIAS_KINDS, VARIABLE_READ_KINDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from placement_advisor.graph import Op, OpGraph
    from placement_advisor.simulate.schedule import OpRun, Transfer


@dataclass(slots=True, kw_only=True)
class _Buffer:
    """Memory on one device, held from ``born_ns`` to ``freed_ns``, both included."""

    device: str
    size_bytes: int
    born_ns: int
    freed_ns: int

    def hold_until(self, time_ns: int) -> None:
        self.freed_ns = max(self.freed_ns, time_ns)


# Which buffer holds output `port` of `op` on `device`.
_Held = dict[tuple[str, int, str], _Buffer]


def peak_memory_bytes(
    graph: OpGraph,
    runs: Sequence[OpRun],
    transfers: Sequence[Transfer],
    devices: Sequence[str],
) -> dict[str, int]:
    """Return the most bytes that each device holds at one moment of the step.

    Tensors of unknown size count nothing.
    """
    resident = _resident_bytes(graph, runs, devices)
    buffers = _buffers(graph, runs, transfers)
    changes: dict[str, list[tuple[int, int, int]]] = {device: [] for device in devices}
    for buffer in buffers:
        # At one moment, what is born counts before what is freed: an op's inputs and outputs exist
        # side by side.
        changes[buffer.device].append((buffer.born_ns, 0, buffer.size_bytes))
        changes[buffer.device].append((buffer.freed_ns, 1, -buffer.size_bytes))
    return {device: resident[device] + _peak(changes[device]) for device in devices}


def _peak(changes: Iterable[tuple[int, int, int]]) -> int:
    peak = held = 0
    for _, _, change in sorted(changes):
        held += change
        peak = max(peak, held)
    return peak


def _resident_bytes(
    graph: OpGraph, runs: Sequence[OpRun], devices: Sequence[str]
) -> dict[str, int]:
    """Return the bytes of variables where they stand and of constants where they are read."""
    resident = dict.fromkeys(devices, 0)
    device_of = {run.op: run.device for run in runs}
    for op in graph.ops:
        if op.role is Role.VARIABLE:
            resident[device_of[op.name]] += op.parameter_bytes
        elif op.role is Role.CONSTANT:
            known_bytes = sum(size for size in op.output_bytes if size is not None)
            readers = {edge.consumer for edge in graph.outputs_of(op.name)} & device_of.keys()
            for device in {device_of[reader] for reader in readers}:
                resident[device] += known_bytes
    return resident


def _buffers(graph: OpGraph, runs: Sequence[OpRun], transfers: Sequence[Transfer]) -> list[_Buffer]:
    run_of = {run.op: run for run in runs}
    sent: defaultdict[str, list[Transfer]] = defaultdict(list)
    for transfer in transfers:
        sent[transfer.producer].append(transfer)
    held: _Held = {}
    buffers: list[_Buffer] = []
    for op in graph.ops:
        run = run_of.get(op.name)
        if run is None:
            continue
        for edge in graph.inputs_of(op.name):
            source = held.get((edge.producer, edge.port, run.device))
            if source is not None:
                source.hold_until(run.end_ns)
        buffers += _outputs(graph, op, run, held)
        for transfer in sent[op.name]:
            source = held.get((op.name, transfer.port, transfer.source))
            if source is not None:
                source.hold_until(transfer.end_ns)
            copy = _Buffer(
                device=transfer.target,
                size_bytes=transfer.size_bytes,
                born_ns=transfer.end_ns,
                freed_ns=transfer.end_ns,
            )
            held[op.name, transfer.port, transfer.target] = copy
            buffers.append(copy)
    return buffers


def _outputs(graph: OpGraph, op: Op, run: OpRun, held: _Held) -> list[_Buffer]:
    """Return the buffers that the op makes, and note in ``held`` what holds its outputs."""
    if op.role is Role.VARIABLE or op.kind in VARIABLE_READ_KINDS:
        return []
    if op.kind in ALIAS_KINDS and op.output_bytes:
        # An edge does not say which argument it feeds; the one that is handed on keeps its size.
        for edge in graph.inputs_of(op.name):
            if not edge.is_control and edge.size_bytes == op.output_bytes[0]:
                source = held.get((edge.producer, edge.port, run.device))
                if source is not None:
                    held[op.name, 0, run.device] = source
                return []
    made = []
    for port, size_bytes in enumerate(op.output_bytes):
        if size_bytes is None:
            continue
        buffer = _Buffer(
            device=run.device, size_bytes=size_bytes, born_ns=run.end_ns, freed_ns=run.end_ns
        )
        held[op.name, port, run.device] = buffer
        made.append(buffer)
    return made
