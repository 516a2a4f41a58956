from __future__ import annotations

import pytest
from hypothesis import given
from layer_models import model
from op_graphs import graphs
from summary_graphs import BOTH, HOST, edge, op, training_step

from placement_advisor.graph.graph_summary import LARGEST_TENSORS, ControlFlow, summarize
from placement_advisor.graph.op import Role, Total
from placement_advisor.graph.op_graph import OpGraph


def total(known: int, parts: int, unknown: int = 0) -> Total:
    return Total(known=known, parts=parts, unknown=unknown)


def test_a_training_step_by_hand() -> None:
    found = summarize(training_step())
    assert found.ops == 13
    assert found.ops_by_role[Role.VARIABLE] == 3
    # w is read by the forward pass, m only by the update; a table has no bytes.
    assert found.parameters == total(32, 1)
    assert found.state == total(32, 1)
    assert found.constants == total(4, 1)
    # MatMul 300 + 100, update 16; the loop is unknown.
    assert found.flops == total(416, 8, unknown=1)
    # 128 + 56 + 56 + 160
    assert found.bytes_accessed == total(400, 8, unknown=1)
    assert found.data_edges == total(220, 15, unknown=1)
    assert found.control_edges == 1
    assert found.layers == 3


def test_a_variable_that_the_forward_pass_writes_counts_and_is_no_parameter() -> None:
    ops = [
        op("seen", "VarHandleOp", Role.VARIABLE, parameter_bytes=4),
        op("read", "ReadVariableOp", output_bytes=(4,)),
        op("count", "AssignAddVariableOp"),
    ]
    found = summarize(OpGraph(ops, [edge("seen", "read", 0), edge("seen", "count", 0)]))
    assert found.parameters == total(0, 0)
    assert found.state == total(4, 1)


def test_activations_are_forward_tensors_that_the_backward_pass_reads() -> None:
    found = summarize(training_step())
    assert found.trains
    # The gradient reads the loop's list (unknown), the ids through a reshape, and a variable.
    assert found.activations == total(16, 2, unknown=1)


def test_without_a_backward_pass_all_forward_tensors_are_activations() -> None:
    found = summarize(model("in -> a", "a -> b", "a -> c"))
    assert not found.trains
    assert found.activations == total(3 * 8, 3)


def test_a_tensor_that_many_read_counts_once() -> None:
    ops = [
        op("x", "Placeholder", Role.INPUT, output_bytes=(8,)),
        op("f", "Relu", output_bytes=(8,)),
        op("g1", "ReluGrad", Role.BACKWARD, output_bytes=(8,)),
        op("g2", "ReluGrad", Role.BACKWARD, output_bytes=(8,)),
    ]
    graph = OpGraph(ops, [edge("x", "f", 8), edge("f", "g1", 8), edge("f", "g2", 8)])
    assert summarize(graph).activations == total(8, 1)


def test_the_largest_tensors_come_first_and_reads_and_reshapes_are_none() -> None:
    found = summarize(training_step()).largest_tensors
    assert [(t.op, t.size_bytes) for t in found] == [
        ("words", 64),
        ("grad", 32),
        ("ids", 16),
        ("dense", 8),
    ]


def test_only_the_first_of_many_tensors_are_listed() -> None:
    many = OpGraph([op(f"o{i}", "Relu", output_bytes=(i,)) for i in range(100)], [])
    sizes = [tensor.size_bytes for tensor in summarize(many).largest_tensors]
    assert sizes == list(range(99, 99 - LARGEST_TENSORS, -1))


def test_kinds_come_by_their_larger_share() -> None:
    kinds = summarize(training_step()).kinds
    # MatMul 400 of 416 flops; update 160 of 400 bytes; lookup 128 of 400 bytes.
    assert [kind.kind for kind in kinds[:3]] == [
        "MatMul",
        "ResourceApplyMomentum",
        "LookupTableFindV2",
    ]
    assert kinds[0].ops == 2
    assert kinds[0].flops_share == pytest.approx(400 / 416)
    assert kinds[0].bytes_share == pytest.approx(112 / 400)


def test_the_work_of_an_unknown_loop_is_unknown_not_nothing() -> None:
    found = summarize(training_step())
    assert found.control_flow == (
        ControlFlow(
            op="loop",
            kind="While",
            role=Role.FORWARD,
            layer="loop",
            trips=None,
            flops_share=None,
            bytes_share=None,
        ),
    )
    loop = next(kind for kind in found.kinds if kind.kind == "While")
    assert loop.flops.amount is None
    assert loop.flops_share is None


def test_a_known_loop_has_its_share_and_trips() -> None:
    ops = [
        op("loop", "StatelessWhile", trips=7, flops=30, bytes_accessed=10),
        op("if", "If", flops=0, bytes_accessed=10),
        op("a", "MatMul", flops=10, bytes_accessed=20),
    ]
    loop, branch = summarize(OpGraph(ops, [])).control_flow
    assert (loop.op, loop.trips, loop.flops_share, loop.bytes_share) == ("loop", 7, 0.75, 0.25)
    assert loop.is_loop
    assert not branch.is_loop


def test_a_host_op_says_what_it_binds_and_what_crosses() -> None:
    host = {kind.kind: kind for kind in summarize(training_step()).host_only}
    assert set(host) == {"LookupTableFindV2", "HashTableV2"}
    lookup = host["LookupTableFindV2"]
    assert lookup.layers == ("ids",)
    # Its table's size could be asked on a GPU, but only where the table is.
    assert lookup.bound_ops == 1
    # The ids go on to a reshape; the words are an input, which starts on the host anyway.
    assert lookup.crossing == total(16, 1)


def test_tensors_between_host_ops_do_not_cross() -> None:
    ops = [
        op("a", "StringSplit", device_kinds=HOST, output_bytes=(8,)),
        op("b", "StringToHashBucket", device_kinds=HOST, output_bytes=(4,)),
        op("c", "MatMul", device_kinds=BOTH),
        op("d", "MatMul", device_kinds=BOTH),
    ]
    graph = OpGraph(ops, [edge("a", "b", 8), edge("b", "c", 4), edge("b", "d", 4)])
    crossing = {kind.kind: kind.crossing for kind in summarize(graph).host_only}
    assert crossing == {"StringSplit": total(0, 0), "StringToHashBucket": total(4, 1)}


def test_towers_and_branches_are_found() -> None:
    found = summarize(model("in1 -> a", "in2 -> b", "a b -> dot"))
    assert [join.layer for join in found.joins] == ["dot"]
    found = summarize(model("in -> s", "s -> a", "s -> b", "a b -> add"))
    assert [(region.fork, region.join) for region in found.branches] == [("s", "add")]


def test_an_empty_graph_has_nothing() -> None:
    found = summarize(OpGraph([], []))
    assert found.ops == 0
    assert found.flops == total(0, 0)
    assert found.flops_known_bytes_share is None


@given(graphs())
def test_any_graph_has_a_summary_that_adds_up(graph: OpGraph) -> None:
    found = summarize(graph)
    assert found.ops == len(graph)
    assert found.data_edges.parts + found.control_edges == len(graph.edges)
    variables = [op for op in graph.ops if op.role is Role.VARIABLE]
    parameter_bytes = sum(variable.parameter_bytes for variable in variables)
    assert found.parameters.known + found.state.known == parameter_bytes
    assert sum(kind.ops for kind in found.kinds) == found.flops.parts
    assert sum(kind.flops.known for kind in found.kinds) == found.flops.known


def test_a_long_chain_of_reshapes_holds_no_tensor_of_its_own() -> None:
    ops = [op(f"o{i}", "Reshape", layer=f"l{i // 500}", output_bytes=(8,)) for i in range(20_000)]
    edges = [edge(f"o{i}", f"o{i + 1}", 8) for i in range(len(ops) - 1)]
    gradient = op("g", "Grad", Role.BACKWARD)
    graph = OpGraph([*ops, gradient], [*edges, edge(ops[-1].name, "g", 8)])
    assert summarize(graph).activations == total(0, 0)
