"""Embedding tables on the host: the device keeps its memory, and only looked-up rows cross.

A *table* is a variable of which a step reads rows and never the whole; what an optimizer does to it
is done where it stands, with its slots. Only tables that hold more bytes than a step looks up in
them go to the host: of any other more bytes would cross than the device saves. Rows whose number is
unknown count nothing in that.

The host is that of the first device. Where the cluster has none, the second device takes its part.
Everything else stands on the first device, but for the sum of the rows' gradients, which is as
large as the table and is made beside it.

Left out: tables that are read through more than a chain of identities; a share of a table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from placement_advisor.candidates.by_layer import NotApplicable, listed, place_by_layer
from placement_advisor.graph.layer_view import layer_view
from placement_advisor.graph.op import LOOKUP_KINDS, PASS_ROLES, Op, Role
from placement_advisor.graph.placement import Placement
from placement_advisor.units import counted, format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from placement_advisor.cost.table import CostTable
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.machine.devices import Cluster

FAMILY = "parameters-on-host"
_READS = frozenset({"ReadVariableOp", "Identity"})
# They turn the gradients of rows into one as large as the table.
_ROW_SUMS = frozenset({"UnsortedSegmentSum", "ScatterNd"})
# They take a variable or its value, and want nothing of it but how large it is.
_SHAPES = frozenset({"Shape", "ShapeN", "Size", "Rank", "VariableShape"})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    """A variable that is only looked up in, and what a step looks up in it, as far as known."""

    variable: str
    size_bytes: int
    rows_bytes: int


def propose(
    graph: OpGraph, costs: Mapping[str, CostTable], cluster: Cluster
) -> Placement | NotApplicable:
    """Return the placement with large tables on the host and the rest on the first device."""
    del costs  # The same for any cost.
    device, host = cluster.devices[0].name, cluster.first_host()
    if host is None:
        return NotApplicable(FAMILY, f"{device} has no host, and no other device")
    tables = _tables(graph)
    large = [table for table in tables if table.size_bytes > table.rows_bytes]
    if not large:
        return NotApplicable(FAMILY, _why_none(tables))
    view = layer_view(graph)
    placed = place_by_layer(
        graph,
        dict.fromkeys(view.forward_layers(), device),
        {table.variable: host for table in large},
        device,
        member=view.membership,
    )
    device_of = _with_sums_beside_tables(graph, placed, host)
    where = f"{host}, for want of a host" if host in cluster.device_names() else host
    moved_bytes = sum(op.parameter_bytes for op in graph.ops if device_of.get(op.name) == host)
    rows_bytes = sum(table.rows_bytes for table in large)
    names = [table.variable for table in sorted(large, key=lambda t: (-t.size_bytes, t.variable))]
    return Placement.of(
        FAMILY,
        device_of,
        f"{counted(len(large), 'table')} ({listed(names)}) on {where}: "
        f"{format_bytes(moved_bytes)} with optimizer slots, of which a step looks up "
        f"{format_bytes(rows_bytes)}; the rest on {device}",
    )


def _why_none(tables: Iterable[_Table]) -> str:
    largest = max(tables, key=lambda table: table.size_bytes, default=None)
    if largest is None:
        return "the step has no embedding table: no variable of which it only looks up rows"
    return (
        f"no embedding table holds more than a step looks up in it: {largest.variable} has "
        f"{format_bytes(largest.size_bytes)}, a step looks up {format_bytes(largest.rows_bytes)}"
    )


def _tables(graph: OpGraph) -> list[_Table]:
    """Return the variables that are only looked up in, in graph order."""
    users: dict[str, list[Op]] = {}
    for op in graph.ops:
        if op.variable is not None and op.role in PASS_ROLES:
            users.setdefault(op.variable, []).append(op)
    found = []
    for op in graph.ops:
        if op.role is Role.VARIABLE and op.variable is not None and op.parameter_bytes > 0:
            lookups = _lookups(graph, users.get(op.variable, []))
            if lookups:
                rows_bytes = sum(size for each in lookups for size in each.output_bytes if size)
                found.append(
                    _Table(
                        variable=op.variable, size_bytes=op.parameter_bytes, rows_bytes=rows_bytes
                    )
                )
    return found


def _lookups(graph: OpGraph, users: Iterable[Op]) -> list[Op] | None:
    """Return the ops that read rows, None if some op reads the whole."""
    lookups: dict[str, Op] = {}
    ahead = list(users)
    while ahead:
        op = ahead.pop()
        if op.kind in LOOKUP_KINDS:
            lookups[op.name] = op
        elif op.kind in _READS:
            readers = map(graph.op, graph.consumers(op.name))
            ahead += [reader for reader in readers if reader.role is not Role.UPDATE]
        elif op.kind not in _SHAPES:
            return None
    return list(lookups.values())


def _with_sums_beside_tables(
    graph: OpGraph, device_of: Mapping[str, str], host: str
) -> dict[str, str]:
    """Move to the host what sums up gradients of rows for the host alone."""
    found = dict(device_of)
    for op in graph.placed_ops:
        if op.kind in _ROW_SUMS and op.variable is None:
            wanted = {found[consumer] for consumer in graph.consumers(op.name)}
            if wanted == {host}:
                found[op.name] = host
    return found
