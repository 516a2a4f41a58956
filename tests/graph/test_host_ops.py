"""What stays on the host: by hand, and by the rule written once more."""

from __future__ import annotations

from hypothesis import given
from op_graphs import edge, graphs

from placement_advisor.graph.op import Op, Role
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.graph.op_patterns import host_kinds

BOTH = frozenset({"CPU", "GPU"})


def table(*, variable: str | None) -> OpGraph:
    """Return a table that one op without a GPU kernel and one with it read, and a product."""
    return OpGraph(
        [
            Op(name="x", kind="Placeholder", role=Role.INPUT, device_kinds=BOTH),
            Op(
                name="v",
                kind="VarHandleOp",
                role=Role.VARIABLE,
                variable=variable,
                device_kinds=BOTH,
            ),
            Op(name="find", kind="Find", variable="v", output_bytes=(8,)),
            Op(name="size", kind="Size", variable="v", output_bytes=(8,), device_kinds=BOTH),
            Op(name="y", kind="MatMul", device_kinds=BOTH),
        ],
        [edge("find", "y")],
    )


def test_what_holds_or_takes_a_variable_of_an_op_on_the_host_stays_with_it() -> None:
    assert table(variable="v").host_bound("GPU") == {"x", "v", "find", "size"}
    assert table(variable="v").host_bound("CPU") == {"x"}


def test_a_variable_without_a_name_of_its_own_is_named_after_its_op() -> None:
    assert table(variable=None).host_bound("GPU") == {"x", "v", "find", "size"}
    (kind,) = host_kinds(table(variable=None))
    assert (kind.kind, kind.bound_ops) == ("Find", 2)


def test_what_crosses_is_read_by_the_host_or_from_it_and_each_tensor_once() -> None:
    ops = [
        Op(name="x", kind="MatMul", device_kinds=BOTH, output_bytes=(8, 8)),
        *(Op(name=name, kind="Find", output_bytes=(16,)) for name in ("find", "again")),
        *(Op(name=name, kind="MatMul", device_kinds=BOTH) for name in ("y", "z")),
    ]
    edges = [
        edge("x", "find"),
        edge("x", "again"),
        edge("find", "again", size_bytes=16),
        edge("again", "y", size_bytes=16),
        edge("again", "z", size_bytes=16),
        edge("x", "z", port=1),
    ]
    (kind,) = host_kinds(OpGraph(ops, edges))
    # x's first output, and what `again` gives to both others.
    assert (kind.crossing.known, kind.crossing.unknown) == (8 + 16, 0)


@given(graphs())
def test_ops_of_one_variable_stay_together_and_no_others_do(graph: OpGraph) -> None:
    bound = graph.host_bound("GPU")
    for op in graph.ops:
        together = [other for other in graph.ops if op.variable and other.variable == op.variable]
        assert (op.name in bound) == any(
            other.role is Role.INPUT or "GPU" not in other.device_kinds for other in (op, *together)
        )
