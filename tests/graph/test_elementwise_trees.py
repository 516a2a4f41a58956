from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement_advisor.graph.op import Edge, Op, Role
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.graph.op_patterns import with_trees_as_one

BOTH = frozenset({"CPU", "GPU"})


def op(name: str, kind: str = "Mul", **more: object) -> Op:
    fields = {"bytes_accessed": 300, "flops": 10, "output_bytes": (100,), "device_kinds": BOTH}
    return Op(name=name, kind=kind, **fields | more)  # type: ignore[arg-type]


def edges(*ends: tuple[str, str]) -> list[Edge]:
    return [Edge(source, target, 0, 100) for source, target in ends]


def test_a_tree_reads_each_tensor_from_outside_once_and_writes_its_last():
    graph = OpGraph(
        [op("x", "MatMul"), op("y", "MatMul"), op("a"), op("b"), op("c"), op("z", "MatMul")],
        edges(("x", "a"), ("y", "a"), ("x", "b"), ("a", "c"), ("b", "c"), ("c", "z")),
    )
    fused = with_trees_as_one(graph)
    assert [each.name for each in fused.ops] == ["x", "y", "c", "z"]
    tree = fused.op("c")
    # x and y are read, the result is written; each of three ops computes.
    assert (tree.bytes_accessed, tree.flops, tree.kernel) == (300, 30, None)
    assert {edge.producer for edge in fused.inputs_of("c")} == {"x", "y"}
    assert fused.op("z") == graph.op("z")


def test_what_is_read_twice_by_one_op_is_one_tensor_still():
    graph = OpGraph([op("a"), op("b")], [*edges(("a", "b")), *edges(("a", "b"))])
    (tree,) = with_trees_as_one(graph).ops
    assert (tree.name, tree.bytes_accessed) == ("b", 100)


@pytest.mark.parametrize(
    ("producer", "consumer"),
    [
        ({"kind": "MatMul"}, {}),
        ({}, {"kind": "Sum"}),
        ({"device_kinds": frozenset({"CPU"})}, {}),
        ({"host_outputs": (0,)}, {}),
        ({"role": Role.CONSTANT}, {}),
        ({"bytes_accessed": None}, {}),
    ],
)
def test_what_is_not_elementwise_on_a_gpu_stays_an_op(producer, consumer):
    graph = OpGraph([op("a", **producer), op("b", **consumer)], edges(("a", "b")))
    assert with_trees_as_one(graph) == graph


def test_what_several_ops_of_one_tree_read_is_part_of_it():
    """As of x · sigmoid(x)."""
    graph = OpGraph(
        [op("x"), op("sigmoid", "Sigmoid"), op("y")],
        edges(("x", "sigmoid"), ("x", "y"), ("sigmoid", "y")),
    )
    (tree,) = with_trees_as_one(graph).ops
    assert (tree.name, tree.flops) == ("y", 30)


def test_an_op_with_two_readers_or_that_others_wait_for_stays():
    two = OpGraph([op(n) for n in "abc"], edges(("a", "b"), ("a", "c")))
    assert with_trees_as_one(two) == two
    waits = OpGraph(
        [op("a"), op("b"), op("c", "NoOp")], [*edges(("a", "b")), Edge("a", "c", -1, None)]
    )
    assert with_trees_as_one(waits) == waits


@st.composite
def graphs(draw: st.DrawFn) -> OpGraph:
    count = draw(st.integers(1, 12))
    kinds = st.sampled_from(["Mul", "Tanh", "MatMul", "Sum"])
    pairs = [(i, j) for j in range(count) for i in range(j)]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    return OpGraph(
        [op(f"op{i}", draw(kinds)) for i in range(count)],
        edges(*((f"op{i}", f"op{j}") for i, j in chosen)),
    )


@given(graphs())
def test_no_graph_gets_a_cycle_or_more_to_do_or_trees_that_could_grow(graph: OpGraph) -> None:
    fused = with_trees_as_one(graph)
    assert sum(each.flops or 0 for each in fused.ops) == sum(each.flops or 0 for each in graph.ops)
    assert {each.name for each in fused.ops} <= {each.name for each in graph.ops}
    assert with_trees_as_one(fused) == fused
