"""Names of recorded ops against those of a graph: what each rule joins, and what it leaves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement_advisor.profile.recorded_costs import plain, same_ops


def same(graph: list[str], ran: list[str]) -> dict[str, str]:
    """Return which op of the graph each recorded op is, all written as ``name:Kind``."""
    kinds = {name: kind or None for name, _, kind in (op.partition(":") for op in graph)}
    recorded = [(name, kind) for name, _, kind in (op.partition(":") for op in ran)]
    return {f"{name}:{kind}": op for (name, kind), op in same_ops(kinds, recorded).items()}


def test_a_model_that_was_built_as_the_second_of_its_process_by_hand():
    # What Keras 3 called one model in a process of its own, and in the `fit` of another process.
    # The dense_2 of the recording is the graph's dense_1, although the graph has a dense_2.
    pairs = {
        "functional_1/dense_1_1/Relu:Relu": "functional_1_1/dense_2_1/Relu:_MklNativeFusedMatMul",
        "functional_1/dense_2_1/MatMul:MatMul": "functional_1_1/dense_3_1/MatMul:_MklMatMul",
        "functional_1/lstm_1/transpose:Transpose": "functional_1_1/lstm_3_1/transpose:Transpose",
        "gradient_tape/functional_1/dense_2_1/MatMul/MatMul_1:MatMul": (
            "gradient_tape/functional_1_1/dense_3_1/MatMul/MatMul_1:MatMul"
        ),
        "adam/Square_5:Square": "adam_1/Square_5:Square",
        "AssignVariableOp:AssignVariableOp": "AssignVariableOp:AssignVariableOp",
    }
    ran = [f"StatefulPartitionedCall/{op}" for op in pairs.values()]

    found = same([*pairs, "functional_1/dense_1_1/MatMul:MatMul"], [*ran, "optional:Optional"])

    assert found == dict(zip(ran, [op.partition(":")[0] for op in pairs], strict=True))


@pytest.mark.parametrize(
    ("recorded", "expected"),
    [
        ("StatefulPartitionedCall/model/dense/MatMul", "model/dense/MatMul"),
        ("StatefulPartitionedCall_1/PartitionedCall/dense/MatMul", "dense/MatMul"),
        ("while/body/_1/while/StatefulPartitionedCall/dense/MatMul", "dense/MatMul"),
        ("Call/lstm/while/body/_37/lstm/while/cell/MatMul", "lstm/while/cell/MatMul"),
        ("lstm/while/cond/_36/lstm/while/Less", "lstm/while/Less"),
        ("cond/then/_4/cond/inner/else/_9/cond/inner/Add", "cond/inner/Add"),
        ("model/ArithmeticOptimizer/FoldTransposeIntoMatMul_MatMul_1", "model/MatMul_1"),
        ("ArithmeticOptimizer/ReplaceMulWithSquare_mul_2", "mul_2"),
        ("a/ArithmeticOptimizer/SimplifyAggregation_Mul_AddN", "a/AddN"),
        # A layer may be called so.
        ("ArithmeticOptimizer/a_b/MatMul", "ArithmeticOptimizer/a_b/MatMul"),
        ("body/then/MatMul", "body/then/MatMul"),
        ("model/PartitionedCall/MatMul", "model/PartitionedCall/MatMul"),
        ("while/MatMul", "while/MatMul"),
    ],
)
def test_what_a_call_puts_before_a_name_is_taken_off(recorded, expected):
    assert plain(recorded) == expected


@pytest.mark.parametrize("shift", [0, 1, 7])
def test_layers_that_are_numbered_from_another_start_are_the_same_in_their_order(shift):
    # Numbers go by their value: 10 comes after 9.
    graph, ran = (
        [f"dense{f'_{i}' if i else ''}/MatMul:MatMul" for i in range(first, first + 12)]
        for first in (0, shift)
    )

    assert same(graph, ran) == {
        theirs: ours.removesuffix(":MatMul") for ours, theirs in zip(graph, ran, strict=True)
    }


def test_some_of_the_layers_by_their_own_numbers_are_themselves():
    graph = ["dense/MatMul:MatMul", "dense_1/MatMul:MatMul", "dense_2/MatMul:MatMul"]

    assert same(graph, ["dense_1/MatMul:MatMul"]) == {"dense_1/MatMul:MatMul": "dense_1/MatMul"}


@pytest.mark.parametrize(
    ("graph", "ran"),
    [
        # Which two of three?
        (
            ["dense/MatMul", "dense_1/MatMul", "dense_2/MatMul"],
            ["dense_2/MatMul", "dense_3/MatMul"],
        ),
        # One of two layers that ran in one step, of which the graph has one.
        (["dense/MatMul"], ["dense/MatMul", "dense_1/MatMul"]),
        # Two calls that ran.
        (["dense/MatMul"], ["PartitionedCall/dense/MatMul", "PartitionedCall_1/dense/MatMul"]),
        # One more scope around either of two.
        (["dense/MatMul"], ["left/dense/MatMul", "right/dense/MatMul"]),
        (["left/dense/MatMul", "right/dense/MatMul"], ["dense/MatMul"]),
        # Two more scopes.
        (["dense/MatMul"], ["a/b/dense/MatMul"]),
        # Ops are not counted by the process.
        (["dense/MatMul"], ["dense/MatMul_1"]),
        # Scopes that are named after an op neither.
        (["Sub_1", "Sub_1/MatMul"], ["Sub_2/MatMul"]),
    ],
)
def test_what_could_be_two_ops_is_none(graph, ran):
    assert same([f"{op}:MatMul" for op in graph], [f"{op}:MatMul" for op in ran]) == {}


def test_of_two_calls_the_one_with_the_graphs_own_name_is_the_op():
    calls = ["PartitionedCall/dense/MatMul:MatMul", "PartitionedCall_1/dense/MatMul:MatMul"]

    assert same(calls, calls) == {call: call.removesuffix(":MatMul") for call in calls}


@pytest.mark.parametrize(
    ("graph", "ran"),
    [
        ("dense/MatMul", "model/dense/MatMul"),
        ("model/dense/MatMul", "dense/MatMul"),
        ("gradient_tape/dense/MatMul", "gradient_tape/model/dense/MatMul"),
        ("dense/MatMul", "while/body/_3/while/dense_4/MatMul"),
    ],
)
def test_one_more_scope_around_the_step_is_seen_through(graph, ran):
    # With another op that both sides have as it is.
    found = same([f"{graph}:MatMul", "Add:AddV2"], [f"{ran}:MatMul", "Add:AddV2"])

    assert found == {f"{ran}:MatMul": graph, "Add:AddV2": "Add"}


@pytest.mark.parametrize(
    ("kind", "ran_kind", "agree"),
    [
        ("MatMul", "MatMul", True),
        ("MatMul", "_MklMatMul", True),
        ("Relu", "_FusedConv2D", True),
        ("Add", "AddV2", True),
        ("BatchMatMulV2", "BatchMatMulV3", True),
        ("Pow", "Square", True),
        ("AddV2", "Sub", True),
        ("Square", "Pow", False),
        ("MatMul", "Relu", False),
        ("", "Relu", True),
    ],
)
def test_kinds_have_to_agree_where_they_are_known(kind, ran_kind, agree):
    assert bool(same([f"a:{kind}"], [f"a:{ran_kind}"])) is agree


_PARTS = st.sampled_from(["dense", "dense_1", "dense_2", "while", "MatMul", "MatMul_1", "model"])
_NAMES = st.lists(_PARTS, min_size=1, max_size=4).map("/".join)


@given(st.sets(_NAMES, max_size=12))
def test_a_graph_that_was_recorded_under_its_own_names_is_all_joined_to_itself(names):
    ran = [(name, "MatMul") for name in names]

    assert same_ops(dict(ran), ran) == {op: op[0] for op in ran}


@given(st.sets(_NAMES, max_size=12), st.sets(_NAMES, max_size=12))
def test_no_op_is_joined_twice(names, ran):
    found = same_ops(dict.fromkeys(names, "MatMul"), [(name, "MatMul") for name in ran])

    assert len(set(found.values())) == len(found)
    assert set(found.values()) <= names
    assert {name for name, _ in found} <= ran
