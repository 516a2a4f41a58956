"""Op costs from sizes alone, for when no step may run.

Model: an op takes the longer of its arithmetic at the device's peak and its memory traffic
(distinct inputs plus outputs) at the device's bandwidth. Launch overheads are not in the table:
they belong to the device, and the simulator adds them once per op.

Left out: kernels below their peak, caches, padding, several passes over a tensor. A roofline is
a lower limit of a real op's time, and orders ops better than it times them.

Source: Williams, Waterman, Patterson, Roofline, CACM 52(4), 2009, doi:10.1145/1498765.1498785.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.cost.table import CostBasis, CostTable, OpCost
from placement_advisor.devices import Device
from placement_advisor.graph import Op, OpGraph, Role
from placement_advisor.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Iterable

# One core of a server of today, assumed, for runs that measure nothing. 5e10 flop/s is half of
# what two 8-wide fused multiply-adds per cycle give at 3 GHz: dense kernels reach about that.
# 1e10 B/s is what one core draws from memory when its neighbours work too. 5 µs is what
# TensorFlow's executor spends on an op beside its kernel.
STAND_IN_CPU = Device(
    name="worker:0",
    kind="CPU",
    peak_flops_per_s=5e10,
    memory_bandwidth_bytes_per_s=1e10,
    launch_overhead_ns=5_000,
)

# Kinds that hand the buffer of their input on: their kernels change the shape at most.
ALIAS_KINDS = frozenset(
    {"Identity", "Reshape", "Squeeze", "ExpandDims", "StopGradient", "PreventGradient"}
)
# Kinds whose output is the variable's own buffer; TensorFlow copies it only when it is written.
VARIABLE_READ_KINDS = frozenset({"ReadVariableOp"})
# Kinds that look at the shape of a tensor, not at its elements, or at nothing.
SHAPE_KINDS = frozenset({"Shape", "ShapeN", "Size", "Rank", "NoOp"})
_TRAFFIC_FREE_KINDS = ALIAS_KINDS | VARIABLE_READ_KINDS | SHAPE_KINDS
# Parts of the kinds of updates that touch the rows they are given, not the whole variable.
_SPARSE_UPDATE_MARKS = ("Scatter", "Sparse")
# A dense update reads a variable and writes it back.
_PASSES_OF_UPDATE = 2

_UNCOMPUTED_ROLES = frozenset({Role.CONSTANT, Role.INPUT, Role.VARIABLE})


def roofline_costs(graph: OpGraph, device: Device) -> CostTable:
    """Return a cost for every op that computes; constants, inputs and variables have none.

    The basis is `ROOFLINE`, or `GUESSED` where the flops or the size of any tensor are unknown:
    the cost then covers what is known.

    Raises:
        ValueError: the device has no peak or no memory bandwidth.
    """
    peak, bandwidth = device.peak_flops_per_s, device.memory_bandwidth_bytes_per_s
    if not peak or not bandwidth:
        raise ValueError(f"device {device.name!r} needs a peak and a memory bandwidth")
    costs = {}
    for op in graph.ops:
        if op.role in _UNCOMPUTED_ROLES:
            continue
        known_bytes, all_known = _traffic(graph, op)
        memory_ns = round(known_bytes / bandwidth * NS_PER_S)
        arithmetic_ns = round((op.flops or 0) / peak * NS_PER_S)
        is_complete = all_known and op.flops is not None
        costs[op.name] = OpCost(
            time_ns=max(memory_ns, arithmetic_ns),
            basis=CostBasis.ROOFLINE if is_complete else CostBasis.GUESSED,
        )
    return CostTable(costs=costs)


def _traffic(graph: OpGraph, op: Op) -> tuple[int, bool]:
    """Return the bytes that the op reads and writes, of known tensors, and whether all are known.

    A handle carries no bytes: whoever reads through it reads as much as it puts out, whoever
    updates through it passes over the whole variable.
    """
    if op.kind in _TRAFFIC_FREE_KINDS:
        return 0, True
    tensors: dict[tuple[str, int], int | None] = {}
    variable_bytes = 0
    for edge in graph.inputs_of(op.name):
        if edge.is_control:
            continue
        producer = graph.op(edge.producer)
        if producer.role is Role.VARIABLE:
            variable_bytes += producer.parameter_bytes
        else:
            tensors[edge.producer, edge.port] = edge.size_bytes
    read_bytes, inputs_known = _known_sum(tensors.values())
    written_bytes, outputs_known = _known_sum(op.output_bytes)
    through_handles = 0
    if op.role is Role.UPDATE and not any(mark in op.kind for mark in _SPARSE_UPDATE_MARKS):
        through_handles = variable_bytes * _PASSES_OF_UPDATE
    elif variable_bytes and op.role is not Role.UPDATE:
        through_handles = written_bytes
    return read_bytes + written_bytes + through_handles, inputs_known and outputs_known


def _known_sum(sizes: Iterable[int | None]) -> tuple[int, bool]:
    given = list(sizes)
    known = [size for size in given if size is not None]
    return sum(known), len(known) == len(given)
