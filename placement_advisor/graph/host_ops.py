"""Ops that have no GPU kernel, and what they hold on the host with them.

Left out: ops whose GPU kernel takes or leaves some tensors in host memory, and ops within loops and
conditionals (`Op.inside`).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from placement_advisor.graph.op_graph import Role
from placement_advisor.graph.partial_sums import Total
from placement_advisor.graph.roles import KERNEL_FREE_ROLES

if TYPE_CHECKING:
    from placement_advisor.graph.op_graph import Op, OpGraph

_GPU = "GPU"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostKind:
    """The ops of one kind that have no GPU kernel.

    ``bound_ops`` have one, but stand with a variable or table that such an op takes, so they stay
    on the host as well. ``crossing`` are the bytes between ops of the kind and ops that could run
    on a GPU, either way, each tensor once.
    """

    kind: str
    ops: int
    layers: tuple[str, ...]
    bound_ops: int
    crossing: Total


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
                crossing=_crossing(graph, ops),
            )
        )
    return tuple(sorted(found, key=lambda k: (-k.crossing.known, -k.ops, k.kind)))


def host_bound(graph: OpGraph, kind: str) -> frozenset[str]:
    """Return the ops that run on the host of a device of that kind, wherever they are placed.

    That are the ops without a kernel for it, what holds or takes a variable or table that such an
    op takes, and inputs, which a pipeline leaves on the host.
    """
    without = [op for op in graph.ops if op.role is Role.INPUT or kind not in op.device_kinds]
    states = {op.variable for op in without} - {None}
    bound = {op.name for op in without} | {op.name for op in graph.ops if op.variable in states}
    return frozenset(bound)


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
                crossing[edge.producer, edge.port] = edge.size_bytes
    return Total.of(crossing.values())
