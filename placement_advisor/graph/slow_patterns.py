"""Patterns of ops that a device runs badly.

`host_kinds` finds ops without a GPU kernel, `dense_updates` updates of a whole table for
gradients of a few rows, and `with_fusions` elementwise ops that could be one kernel.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from placement_advisor.files.contract import Count, Positive, Rows, Text
from placement_advisor.graph.op import COMPUTING_ROLES, KERNEL_FREE_ROLES, Edge, Op, Role, Total
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.graph.op_work import elementwise

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


_GPU = "GPU"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostKind:
    """Ops of a kind that GPUs have no kernel for."""

    kind: Text
    """Type of the op."""
    ops: Positive
    layers: Rows[Text]
    bound_ops: Count
    """Kept there by shared variables."""
    crossing_bytes: Total
    """To and from ops that could run on a GPU, each tensor once."""


def host_kinds(graph: OpGraph) -> tuple[HostKind, ...]:
    """Return the kinds without a GPU kernel, those first that most bytes go to or come from."""
    groups: dict[str, list[Op]] = defaultdict(list)
    for op in graph.ops:
        if op.role not in KERNEL_FREE_ROLES and _GPU not in op.device_kinds:
            groups[op.kind].append(op)
    beside: dict[str, set[str]] = defaultdict(set)
    for op in graph.ops:
        if op.variable is not None and _GPU in op.device_kinds:
            beside[op.variable].add(op.name)
    found = []
    for kind, ops in groups.items():
        bound = {name for op in ops if op.variable for name in beside[op.variable]}
        found.append(
            HostKind(
                kind=kind,
                ops=len(ops),
                layers=tuple(dict.fromkeys(op.layer for op in ops if op.layer is not None)),
                bound_ops=len(bound),
                crossing_bytes=_crossing(graph, ops),
            )
        )
    return tuple(sorted(found, key=lambda k: (-k.crossing_bytes.known, -k.ops, k.kind)))


def _crossing(graph: OpGraph, ops: list[Op]) -> Total:
    """Return the tensors between these ops and ops that could run on a GPU."""
    crossing: dict[tuple[str, int], int | None] = {}
    for op in ops:
        edges = [(edge, edge.producer) for edge in graph.inputs_of(op.name)]
        edges += [(edge, edge.consumer) for edge in graph.outputs_of(op.name)]
        for edge, other in edges:
            far = graph.op(other)
            # A handle stays where its variable is: no tensor crosses for it.
            is_handle = Role.VARIABLE in (far.role, op.role)
            if edge.is_control or is_handle or far.role in KERNEL_FREE_ROLES:
                continue
            if _GPU in far.device_kinds:
                crossing[edge.tensor] = edge.size_bytes
    return Total.of(crossing.values())


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
    sizes = [edge.size_bytes for edge in graph.data_inputs(made_dense.name)]
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
    for edge in (*graph.data_outputs(op.name), *graph.data_inputs(op.name)):
        if edge.size_bytes == size_bytes:
            yield from (graph.op(edge.producer), graph.op(edge.consumer))


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


# XLA reads these with what computes their inputs in one kernel.
_REDUCTIONS = frozenset({"BiasAddGrad", "L2Loss", "Max", "Mean", "Min", "Prod", "Sum"})
# XLA makes these of a kernel that reduces their inputs and an elementwise one that reads them again
# (batchnorm_expander.cc).
_NORMALISATIONS = frozenset(
    f"FusedBatchNorm{of}{version}" for of in ("", "Grad") for version in ("", "V2", "V3")
)
# A mask has a byte for each number of four.
_MASK_SHARE = 4


def with_fusions(graph: OpGraph) -> OpGraph:
    """Return the graph with the kernels that XLA would make of elementwise ops.

    Elementwise ops of one size and role that read one another are one kernel, as are reductions
    of what it computes. So is the last pass of a batch normalisation with what reads its result.
    A kernel has the name of its last op, and no time in the record. This is a best case: XLA makes
    some of them several.

    Source: XLA, `instruction_fusion.cc` and `multi_output_fusion.cc` of its GPU service.
    """
    last = _last_of_kernels(graph)
    kernels: defaultdict[str, list[Op]] = defaultdict(list)
    for op in graph.ops:
        kernels[last[op.name]].append(op)
    ops: list[Op] = []
    port: dict[tuple[str, int], int] = {}
    for members in kernels.values():
        written = _written(graph, members)
        ops.append(members[0] if len(members) == 1 else _one(graph, members, written))
        if len(members) > 1:
            port |= {source: number for number, source in enumerate(written)}
    edges = dict.fromkeys(
        Edge(
            producer=last[edge.producer],
            consumer=last[edge.consumer],
            port=port.get(edge.tensor, edge.port),
            size_bytes=edge.size_bytes,
        )
        for edge in graph.edges
        if last[edge.producer] != last[edge.consumer]
    )
    return OpGraph(ops, edges)


def _last_of_kernels(graph: OpGraph) -> dict[str, str]:
    """Return the last op of the kernel that each op is part of.

    No path leaves a kernel and comes back: it is deeper behind each edge that is not fused.
    """
    depth: dict[str, int] = {}
    joined: dict[str, str] = {}

    def last(name: str) -> str:
        while joined[name] != name:
            joined[name] = name = joined[joined[name]]
        return name

    for op in graph.ops:
        joined[op.name] = op.name
        inputs = [(edge.producer, _is_fused(graph, edge)) for edge in graph.inputs_of(op.name)]
        depth[op.name] = max((depth[name] + (not fused) for name, fused in inputs), default=0)
        for name, fused in inputs:
            if fused and depth[name] == depth[op.name]:
                joined[last(name)] = op.name
    return {op.name: last(op.name) for op in graph.ops}


def _is_fused(graph: OpGraph, edge: Edge) -> bool:
    producer, consumer = ends = graph.op(edge.producer), graph.op(edge.consumer)
    is_last_pass = producer.kind in _NORMALISATIONS and edge.port == 0
    is_made = is_last_pass or producer.kind in elementwise.ELEMENTWISE_FORMULAS
    if edge.is_control or producer.role != consumer.role or not is_made:
        return False
    if not all(_is_on_gpu(op) for op in ends):
        return False
    # What is broadcast is read from memory.
    whole_bytes = max((size or 0 for size in consumer.output_bytes), default=0)
    is_whole = _MASK_SHARE * (edge.size_bytes or 0) >= whole_bytes
    is_read = consumer.kind in elementwise.ELEMENTWISE_FORMULAS and is_whole
    return is_read or consumer.kind in _REDUCTIONS


def _is_on_gpu(op: Op) -> bool:
    is_known = op.role in COMPUTING_ROLES and op.bytes_accessed is not None
    return is_known and _GPU in op.device_kinds and not op.host_outputs


def _written(graph: OpGraph, members: list[Op]) -> dict[tuple[str, int], int | None]:
    """Return the sizes of tensors that others read, or nobody, by op and port."""
    names = {op.name for op in members}
    written: dict[tuple[str, int], int | None] = {}
    for op in members:
        outputs = graph.outputs_of(op.name)
        if not outputs:
            written |= {(op.name, port): size for port, size in enumerate(op.output_bytes)}
        written |= {
            (op.name, edge.port): edge.size_bytes
            for edge in outputs
            if edge.consumer not in names and not edge.is_control
        }
    return written


def _one(graph: OpGraph, members: list[Op], written: Mapping[tuple[str, int], int | None]) -> Op:
    """Return a kernel, its ops given in graph order: each tensor from outside is read once."""
    names = {op.name for op in members}
    read: dict[tuple[str, int], int] = {}
    again_bytes = 0
    for op in members:
        inputs = [edge for edge in graph.inputs_of(op.name) if edge.producer not in names]
        read |= {edge.tensor: edge.size_bytes or 0 for edge in inputs}
        if op.kind in _NORMALISATIONS:
            again_bytes += sum(edge.size_bytes or 0 for edge in inputs)
    moved = (*read.values(), *(size or 0 for size in written.values()))
    return members[-1]._replace(
        flops=sum(op.flops or 0 for op in members),
        bytes_accessed=sum(moved) + again_bytes,
        output_bytes=tuple(written.values()),
        kernel=None,
    )
