"""A graph whose elementwise ops are one with the elementwise ops that alone read them.

That is what XLA makes of them at least (`jit_compile=True`): one kernel that reads what the tree
reads, and writes what its last op writes; what lies between stays in registers.

Left out: an op that several trees read, which XLA may compute for each of them; broadcasts,
reductions and products that take a tree in.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from placement_advisor.graph.op_graph import Edge, Op, OpGraph
from placement_advisor.graph.op_work import elementwise
from placement_advisor.graph.roles import COMPUTING_ROLES

if TYPE_CHECKING:
    from collections.abc import Mapping

_GPU = "GPU"


def with_trees_as_one(graph: OpGraph) -> OpGraph:
    """Return the graph; a tree has the name of its last op, and no kernel with a known time."""
    root: dict[str, str] = {}
    for op in reversed(graph.ops):  # Readers come behind what they read.
        root[op.name] = _root_of_readers(graph, op, root) or op.name
    trees: defaultdict[str, list[Op]] = defaultdict(list)
    for op in graph.ops:
        trees[root[op.name]].append(op)
    edges = dict.fromkeys(
        edge._replace(producer=root[edge.producer], consumer=root[edge.consumer])
        for edge in graph.edges
        if root[edge.producer] != root[edge.consumer]
    )
    ops = [members[0] if len(members) == 1 else _one(graph, members) for members in trees.values()]
    return OpGraph(ops, edges)


def _root_of_readers(graph: OpGraph, op: Op, root: Mapping[str, str]) -> str | None:
    """Return the last op of the tree that alone reads an elementwise op, None if there is none."""
    edges = graph.outputs_of(op.name)
    roots = {root[edge.consumer] for edge in edges}
    if len(roots) != 1 or any(edge.is_control for edge in edges):
        return None
    (found,) = roots
    return found if _is_elementwise(op) and _is_elementwise(graph.op(found)) else None


def _is_elementwise(op: Op) -> bool:
    return (
        op.kind in elementwise.FORMULAS
        and op.role in COMPUTING_ROLES
        and _GPU in op.device_kinds
        and not op.host_outputs
        and op.bytes_accessed is not None
        and None not in op.output_bytes
    )


def _one(graph: OpGraph, members: list[Op]) -> Op:
    """Return a tree, given in graph order, as one op: each tensor from outside is read once."""
    names = {op.name for op in members}
    last = members[-1]
    read: dict[tuple[str, int], Edge] = {}
    for op in members:
        read |= {
            (edge.producer, edge.port): edge
            for edge in graph.inputs_of(op.name)
            if edge.producer not in names and not edge.is_control
        }
    inputs_bytes = sum(edge.size_bytes or 0 for edge in read.values())
    return last._replace(
        flops=sum(op.flops or 0 for op in members),
        bytes_accessed=inputs_bytes + sum(size or 0 for size in last.output_bytes),
        kernel=None,
    )
