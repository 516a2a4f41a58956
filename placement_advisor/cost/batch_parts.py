"""Which ops and tensors of a step grow with its batch, told from the graph of one batch size.

Model: an input holds a part for each sample, unless it is a lone number; so do random numbers whose
bytes divide by the batch, and what is computed from such a tensor, as far as its bytes divide by
the batch as well. What updates read of a variable's own size does not: it is a gradient, summed
over the batch, and so is what leads to it element by element. An op that reads or makes a tensor of
the batch takes as much longer as the batch is larger.

Left out: what an op takes however small the batch is (its launch is priced apart; the weights that
it reads are not); tensors that a step fills with constants; small tensors whose bytes divide by the
batch by chance, and, at a batch of one, everything that is computed from an input. Exact would be
a second trace at another batch size, and a second profile.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from placement_advisor.graph.op_graph import OpGraph, Role
from placement_advisor.graph.op_work import elementwise, random
from placement_advisor.graph.roles import COMPUTING_ROLES, STANDING_ROLES

if TYPE_CHECKING:
    from placement_advisor.graph.op_graph import Op

    Tensor = tuple[str, int]

# Fewer bytes for each sample than one number takes are a chance: a lone number is not a batch.
_LEAST_BYTES_PER_SAMPLE = 4
_CAST = "Cast"
# Kinds whose output has an element for each of an input's.
_SAME_SIZE_KINDS = frozenset(elementwise.FORMULAS) | {
    "CheckNumerics",
    "ExpandDims",
    "Identity",
    "Reshape",
    "Squeeze",
    "Transpose",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchParts:
    """The ops whose time, and the tensors (producer and port) whose size, grow with the batch."""

    ops: frozenset[str]
    tensors: frozenset[Tensor]


def batch_parts(graph: OpGraph, batch_size: int) -> BatchParts:
    """Return what grows with the batch in a graph that was traced with so many samples."""
    summed = _parameter_sized(graph)
    ops: set[str] = set()
    tensors: set[Tensor] = set()
    for op in graph.ops:
        if op.role in STANDING_ROLES:
            continue
        is_input = op.role is Role.INPUT
        reads = any((edge.producer, edge.port) in tensors for edge in graph.inputs_of(op.name))
        if not (reads or is_input or op.kind in random.FORMULAS):
            continue
        made = {
            (op.name, port)
            for port, size_bytes in enumerate(op.output_bytes)
            if (op.name, port) not in summed and _may_hold(size_bytes, batch_size, whole=is_input)
        }
        tensors |= made
        if reads or made:
            ops.add(op.name)
    return BatchParts(ops=frozenset(ops), tensors=frozenset(tensors))


def _may_hold(size_bytes: int | None, batch_size: int, *, whole: bool) -> bool:
    """Say whether a tensor may hold a part for each sample; one of unknown size may.

    The parts of a ``whole`` need not be equal: texts are not.
    """
    if size_bytes is None:
        return True
    is_divided = whole or size_bytes % batch_size == 0
    return is_divided and size_bytes >= _LEAST_BYTES_PER_SAMPLE * batch_size


def _parameter_sized(graph: OpGraph) -> set[Tensor]:
    """Return what updates read of their variable's size, and what leads to it by element."""
    found: set[Tensor] = set()
    open_: list[Tensor] = [
        (edge.producer, edge.port)
        for op in graph.ops
        if op.role is Role.UPDATE and op.variable is not None and op.variable in graph
        for edge in graph.inputs_of(op.name)
        if not edge.is_control and edge.size_bytes == graph.op(op.variable).parameter_bytes
    ]
    while open_:
        tensor = open_.pop()
        producer = graph.op(tensor[0])
        if tensor in found or producer.role not in COMPUTING_ROLES:
            continue
        found.add(tensor)
        if producer.kind in _SAME_SIZE_KINDS:
            open_ += _of_same_size(graph, producer, tensor[1])
    return found


def _of_same_size(graph: OpGraph, op: Op, port: int) -> list[Tensor]:
    """Return the inputs of an op that have an element for each of an output's."""
    return [
        (edge.producer, edge.port)
        for edge in graph.inputs_of(op.name)
        if not edge.is_control
        and (op.kind == _CAST or edge.size_bytes == op.output_bytes[port])
        and edge.size_bytes is not None
    ]
