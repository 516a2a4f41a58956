"""Updates that work on a whole table, though a step has gradients of a few of its rows alone.

A lookup's gradient is slices: the rows that were read, with their indices. An optimizer that
combines it with something dense, as Adam does with its moving averages, makes a tensor of the
table's size of it first (`UnsortedSegmentSum`), and all that follows is of that size.

Left out: optimizers that write the table by rows and compute with a whole slot before that (Keras'
Adagrad and RMSprop); weight decay and averages of weights (`use_ema`), which are of the whole table
by their nature.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from placement_advisor.graph.op_graph import Role

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from placement_advisor.graph.op_graph import Op, OpGraph

_MADE_DENSE = "UnsortedSegmentSum"
_READ = "ReadVariableOp"
_ASSIGN = "Assign"
_ROLES = frozenset({Role.BACKWARD, Role.UPDATE})


class DenseUpdate(NamedTuple):
    """The update of one table.

    ``rows_share`` is the share of the table's bytes that a step has gradients of, at most: rows
    that are read twice count twice. ``share_of`` has, for each op that works on the whole table,
    what share of its work is left where it works on these rows. ``slots`` are what the optimizer
    keeps for the table.
    """

    table: str
    size_bytes: int
    rows_share: float
    share_of: Mapping[str, float]
    slots: tuple[str, ...]


def dense_updates(graph: OpGraph) -> tuple[DenseUpdate, ...]:
    """Return the updates of whole tables by gradients of fewer rows, in graph order."""
    found: dict[str, DenseUpdate] = {}
    seen: set[str] = set()
    for op in graph.ops:
        if op.kind == _MADE_DENSE and op.role in _ROLES and op.name not in seen:
            update = _update(graph, op)
            if update is not None:
                seen |= update.share_of.keys()
                found.setdefault(update.table, update)
    return tuple(found.values())


def _update(graph: OpGraph, made_dense: Op) -> DenseUpdate | None:
    """Return the update that a gradient made dense goes into, None if it is of another kind."""
    (size_bytes,) = made_dense.output_bytes
    rows_bytes = _rows_bytes(graph, made_dense)
    if not size_bytes or rows_bytes is None or rows_bytes >= size_bytes:
        return None
    ops = _of_table_size(graph, made_dense, size_bytes)
    if any(_is_dense_by_nature(graph, op, size_bytes) for op in ops):
        return None
    assigned = dict.fromkeys(op.variable for op in ops if op.kind.startswith(_ASSIGN))
    written = [name for name in assigned if name is not None]
    read_forward = _read_forward(graph)
    tables = [name for name in written if name in read_forward]
    if len(tables) != 1:
        return None
    share = rows_bytes / size_bytes
    return DenseUpdate(
        table=tables[0],
        size_bytes=size_bytes,
        rows_share=share,
        share_of={op.name: _share(graph, op, size_bytes, share) for op in ops},
        slots=tuple(name for name in written if name != tables[0]),
    )


def _rows_bytes(graph: OpGraph, made_dense: Op) -> int | None:
    """Return the bytes of the rows, or of their indices where these are more; None if unknown."""
    sizes = [edge.size_bytes for edge in graph.inputs_of(made_dense.name) if not edge.is_control]
    return None if not sizes or None in sizes else max(size or 0 for size in sizes)


def _of_table_size(graph: OpGraph, made_dense: Op, size_bytes: int) -> list[Op]:
    """Return the ops that tensors of the table's size lead to and from, through slots as well."""
    read_forward = _read_forward(graph)
    of_slot: dict[str, list[Op]] = {}
    for op in graph.ops:
        if op.variable is not None and op.variable not in read_forward:
            of_slot.setdefault(op.variable, []).append(op)
    found: dict[str, Op] = {}
    open_ = [made_dense]
    while open_:
        op = open_.pop()
        if op.name not in found and op.role in _ROLES:
            found[op.name] = op
            open_ += _neighbours(graph, op, size_bytes)
            open_ += of_slot.get(op.variable or "", [])
    return sorted(found.values(), key=lambda op: graph.index(op.name))


def _read_forward(graph: OpGraph) -> set[str]:
    """Return the variables that the forward pass takes: not those of an optimizer."""
    return {op.variable for op in graph.ops if op.role is Role.FORWARD and op.variable}


def _neighbours(graph: OpGraph, op: Op, size_bytes: int) -> Iterator[Op]:
    for edge in graph.outputs_of(op.name):
        if not edge.is_control and edge.size_bytes == size_bytes:
            yield graph.op(edge.consumer)
    for edge in graph.inputs_of(op.name):
        if not edge.is_control and edge.size_bytes == size_bytes:
            yield graph.op(edge.producer)


def _is_dense_by_nature(graph: OpGraph, op: Op, size_bytes: int) -> bool:
    """Whether an op makes a tensor of the table's size of something else, as a product does."""
    if op.kind in (_MADE_DENSE, _READ) or size_bytes not in op.output_bytes:
        return False
    return all(edge.size_bytes != size_bytes for edge in graph.inputs_of(op.name))


def _share(graph: OpGraph, op: Op, size_bytes: int, rows_share: float) -> float:
    """Return which share of an op's work is left on rows alone."""
    if op.kind != _MADE_DENSE or not op.bytes_accessed:
        return rows_share
    # It adds up the rows anyway; what is spared is to fill the table with zeros.
    return 1 - (1 - rows_share) * size_bytes / op.bytes_accessed
