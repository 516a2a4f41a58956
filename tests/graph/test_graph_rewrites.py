import pytest
from hypothesis import given
from hypothesis import strategies as st
from op_graphs import edge
from op_graphs import graphs as any_graphs

from placement_advisor.graph.op import Edge, Op, Role
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.graph.slow_patterns import dense_updates, host_kinds, with_fusions

BOTH = frozenset({"CPU", "GPU"})


def op(name, kind="Mul", **more):
    fields = {"bytes_accessed": 300, "flops": 10, "output_bytes": (100,), "device_kinds": BOTH}
    return Op(name, kind, **fields | more)


def edges(*ends):
    return [Edge(source, target, 0, 100) for source, target in ends]


def test_a_kernel_reads_each_tensor_from_outside_once_and_writes_what_others_read():
    graph = OpGraph(
        [op("x", "MatMul"), op("y", "MatMul"), op("a"), op("b"), op("c"), op("z", "MatMul")],
        edges(("x", "a"), ("y", "a"), ("x", "b"), ("a", "c"), ("b", "c"), ("c", "z")),
    )
    fused = with_fusions(graph)
    assert [each.name for each in fused.ops] == ["x", "y", "c", "z"]
    kernel = fused.op("c")
    # x and y are read, the result is written; each of three ops computes.
    assert (kernel.bytes_accessed, kernel.flops, kernel.kernel) == (300, 30, None)
    assert {edge.producer for edge in fused.inputs_of("c")} == {"x", "y"}
    assert fused.op("z") == graph.op("z")


def test_what_others_read_as_well_is_written_on_a_port_of_its_own():
    graph = OpGraph(
        [op("a"), op("b"), op("c"), op("sum", "Sum", output_bytes=(4,)), op("z", "MatMul")],
        [*edges(("a", "b"), ("b", "c"), ("b", "sum"), ("b", "z")), Edge("c", "z", 0, 100)],
    )
    kernel, product = with_fusions(graph).ops
    # Of b and c, which z reads, and of the sum, which nobody does.
    assert (kernel.name, kernel.output_bytes, kernel.bytes_accessed) == ("sum", (100, 100, 4), 204)
    inputs = with_fusions(graph).inputs_of(product.name)
    assert {(edge.producer, edge.port) for edge in inputs} == {("sum", 0), ("sum", 1)}


def test_a_normalisation_reads_its_input_twice_and_writes_what_comes_of_its_result():
    graph = OpGraph(
        [op("x", "MatMul"), op("bn", "FusedBatchNormV3", output_bytes=(100, None)), op("act")],
        [*edges(("x", "bn"), ("bn", "act"))],
    )
    assert [each.bytes_accessed for each in with_fusions(graph).ops] == [300, 300]


@pytest.mark.parametrize(
    ("producer", "consumer"),
    [
        ({"kind": "MatMul"}, {}),
        ({"kind": "Sum"}, {}),
        ({"device_kinds": frozenset({"CPU"})}, {}),
        ({"host_outputs": (0,)}, {}),
        ({"role": Role.CONSTANT}, {}),
        ({"role": Role.BACKWARD}, {}),
        ({"bytes_accessed": None}, {}),
        ({}, {"output_bytes": (401,)}),
    ],
)
def test_what_is_not_elementwise_of_one_size_and_role_on_a_gpu_stays_an_op(producer, consumer):
    graph = OpGraph([op("a", **producer), op("b", **consumer)], edges(("a", "b")))
    assert with_fusions(graph) == graph


def test_what_only_waits_is_not_fused_and_no_path_comes_back():
    waits = OpGraph([op("a"), op("b")], [Edge("a", "b", -1, None)])
    assert with_fusions(waits) == waits
    around = OpGraph(
        [op("a"), op("x", "MatMul"), op("b")], edges(("a", "x"), ("x", "b"), ("a", "b"))
    )
    assert with_fusions(around) == around


@st.composite
def graphs(draw):
    count = draw(st.integers(1, 12))
    kinds = st.sampled_from(["Mul", "Tanh", "MatMul", "Sum"])
    pairs = [(i, j) for j in range(count) for i in range(j)]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    return OpGraph(
        [op(f"op{i}", draw(kinds)) for i in range(count)],
        edges(*((f"op{i}", f"op{j}") for i, j in chosen)),
    )


@given(graphs())
def test_no_graph_gets_a_cycle_or_more_to_do(graph):
    fused = with_fusions(graph)
    assert sum(each.flops or 0 for each in fused.ops) == sum(each.flops or 0 for each in graph.ops)
    assert {each.name for each in fused.ops} <= {each.name for each in graph.ops}


TABLE, ROWS, INDICES = 800, 40, 20


def _op(name, kind, size_bytes=0, role=Role.UPDATE, **more):
    return Op(name, kind, role, output_bytes=(size_bytes,), **more)


def _graph(*, rows_bytes=ROWS, product=False):
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


def test_what_works_on_the_whole_table_by_hand():
    (update,) = dense_updates(_graph())
    assert (update.table, update.slots, update.size_bytes) == ("table", ("m", "v"), TABLE)
    assert update.rows_share == pytest.approx(0.05)
    on_rows = {"read_m", "less", "add_m", "new_m", "set_v", "new_v", "scaled", "update"}
    assert update.share_of.keys() == on_rows | {"dense", "dense_2"}
    assert {update.share_of[name] for name in on_rows} == {update.rows_share}
    # Of 940 bytes, 760 are zeros in rows that nobody has read.
    assert update.share_of["dense"] == pytest.approx(180 / 940)


def test_only_sums_that_update_a_table_by_fewer_rows_than_it_has_are_of_rows():
    """As of a table that is the output layer as well."""
    assert dense_updates(_graph(product=True)) == ()
    assert dense_updates(_graph(rows_bytes=TABLE)) == ()
    graph = _graph()
    ops = [op for op in graph.ops if op.name != "update"]
    edges = [edge for edge in graph.edges if edge.consumer != "update"]
    assert dense_updates(OpGraph(ops, edges)) == ()


def table(*, variable):
    """Return a table that one op without a GPU kernel and one with it read, and a product."""
    return OpGraph(
        [
            Op("x", "Placeholder", Role.INPUT, device_kinds=BOTH),
            Op("v", "VarHandleOp", Role.VARIABLE, variable=variable, device_kinds=BOTH),
            Op("find", "Find", variable="v", output_bytes=(8,)),
            Op("size", "Size", variable="v", output_bytes=(8,), device_kinds=BOTH),
            Op("y", "MatMul", device_kinds=BOTH),
        ],
        [edge("find", "y")],
    )


def test_what_holds_or_takes_a_variable_of_an_op_on_the_host_stays_with_it():
    assert table(variable="v").host_bound("GPU") == {"x", "v", "find", "size"}
    assert table(variable="v").host_bound("CPU") == {"x"}
    assert table(variable=None).host_bound("GPU") == {"x", "v", "find", "size"}
    (kind,) = host_kinds(table(variable=None))
    assert (kind.kind, kind.bound_ops) == ("Find", 2)


def test_what_crosses_is_read_by_the_host_or_from_it_and_each_tensor_once():
    ops = [
        Op("x", "MatMul", device_kinds=BOTH, output_bytes=(8, 8)),
        *(Op(name, "Find", output_bytes=(16,)) for name in ("find", "again")),
        *(Op(name, "MatMul", device_kinds=BOTH) for name in ("y", "z")),
    ]
    of_x = [edge("x", "find"), edge("x", "again"), edge("x", "z", port=1)]
    found = ("find", "again"), ("again", "y"), ("again", "z")
    edges = [*of_x, *(edge(*ends, size_bytes=16) for ends in found)]
    (kind,) = host_kinds(OpGraph(ops, edges))
    # x's first output, and what `again` gives to both others.
    assert (kind.crossing_bytes.known, kind.crossing_bytes.unknown) == (8 + 16, 0)


@given(any_graphs())
def test_ops_of_one_variable_stay_together_and_no_others_do(graph):
    bound = graph.host_bound("GPU")
    for op in graph.ops:
        together = [other for other in graph.ops if op.variable and other.variable == op.variable]
        assert (op.name in bound) == any(
            other.role is Role.INPUT or "GPU" not in other.device_kinds for other in (op, *together)
        )
