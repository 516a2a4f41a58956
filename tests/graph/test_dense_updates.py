"""An optimizer with two slots on a table of 100 rows of 8 bytes, of which a step reads 5."""

from __future__ import annotations

import pytest

from placement_advisor.graph.op import Edge, Op, Role
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.graph.op_patterns import dense_updates

TABLE, ROWS, INDICES = 800, 40, 20


def _op(name: str, kind: str, size_bytes: int = 0, role: Role = Role.UPDATE, **more: object) -> Op:
    return Op(name=name, kind=kind, role=role, output_bytes=(size_bytes,), **more)  # type: ignore[arg-type]


def _graph(*, rows_bytes: int = ROWS, product: bool = False) -> OpGraph:
    """Return m += g - m; v = g; table -= m / v, with a product added to the first g if asked."""
    ops = [
        _op("table", "VarHandleOp", role=Role.VARIABLE, parameter_bytes=TABLE),
        _op("m", "VarHandleOp", role=Role.VARIABLE, parameter_bytes=TABLE),
        _op("v", "VarHandleOp", role=Role.VARIABLE, parameter_bytes=TABLE),
        _op("read", "ReadVariableOp", TABLE, Role.FORWARD, variable="table"),
        _op("lookup", "GatherV2", rows_bytes, Role.FORWARD),
        _op("indices", "Reshape", INDICES, Role.BACKWARD),
        _op("rows", "Reshape", rows_bytes, Role.BACKWARD),
        # 800 of zeros; 40 read, and 40 read and written in the sum; 20 of indices.
        _op("dense", "UnsortedSegmentSum", TABLE, bytes_accessed=TABLE + 3 * rows_bytes + INDICES),
        _op("read_m", "ReadVariableOp", TABLE, variable="m"),
        _op("less", "Sub", TABLE),
        _op("add_m", "AssignAddVariableOp", variable="m"),
        _op("new_m", "ReadVariableOp", TABLE, variable="m"),
        _op("dense_2", "UnsortedSegmentSum", TABLE, bytes_accessed=TABLE + 3 * rows_bytes),
        _op("set_v", "AssignVariableOp", variable="v"),
        _op("new_v", "ReadVariableOp", TABLE, variable="v"),
        _op("scaled", "RealDiv", TABLE),
        _op("update", "AssignSubVariableOp", variable="table"),
        _op("norm", "L2Loss", 4),
    ]
    ends = [
        *[("table", "read"), ("read", "lookup"), ("lookup", "rows"), ("rows", "dense")],
        *[("indices", "dense"), ("m", "read_m"), ("read_m", "less"), ("less", "add_m")],
        *[("m", "new_m"), ("new_m", "scaled"), ("scaled", "update"), ("table", "update")],
        *[("v", "set_v"), ("rows", "dense_2"), ("indices", "dense_2"), ("dense_2", "set_v")],
        *[("v", "new_v"), ("new_v", "scaled"), ("rows", "norm")],
    ]
    if product:
        ops += [_op("product", "MatMul", TABLE, Role.BACKWARD), _op("both", "AddV2", TABLE)]
        ends += [("product", "both"), ("dense", "both"), ("both", "less")]
    else:
        ends += [("dense", "less")]
    size = {op.name: op.output_bytes[0] for op in ops}
    edges = [Edge(source, target, 0, size[source]) for source, target in ends]
    ordered = [Edge(*ends, -1, None) for ends in (("add_m", "new_m"), ("set_v", "new_v"))]
    return OpGraph(ops, [*edges, *ordered])


def test_what_works_on_the_whole_table_by_hand() -> None:
    (update,) = dense_updates(_graph())
    assert (update.table, update.slots, update.size_bytes) == ("table", ("m", "v"), TABLE)
    assert update.rows_share == pytest.approx(0.05)
    on_rows = {"read_m", "less", "add_m", "new_m", "set_v", "new_v", "scaled", "update"}
    assert update.share_of.keys() == on_rows | {"dense", "dense_2"}
    assert {update.share_of[name] for name in on_rows} == {update.rows_share}
    # Of 940 bytes, 760 are zeros in rows that nobody has read.
    assert update.share_of["dense"] == pytest.approx(180 / 940)


def test_a_gradient_that_is_a_product_too_is_dense_by_nature() -> None:
    """As of a table that is the output layer as well."""
    assert dense_updates(_graph(product=True)) == ()


def test_a_batch_that_reads_more_rows_than_the_table_has_is_left_alone() -> None:
    assert dense_updates(_graph(rows_bytes=TABLE)) == ()


def test_a_sum_that_updates_no_table_is_left_alone() -> None:
    graph = _graph()
    ops = [op for op in graph.ops if op.name != "update"]
    edges = [edge for edge in graph.edges if edge.consumer != "update"]
    assert dense_updates(OpGraph(ops, edges)) == ()
