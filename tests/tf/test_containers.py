"""What a layer that holds others computes itself is divided into parts: by hand."""

from __future__ import annotations

from small_graphs import nodes_of

from placement_advisor.tf.trace.op_layers import Part, parts_of


def _parts(ops: dict[str, tuple[str, list[str]]], own: dict[str, str]) -> list[list[str]]:
    found = parts_of(nodes_of(ops), own, variables={"weights": "v", "read": "v"})
    return [[op.name for op in part.ops] for part in found]


def test_each_residual_addition_of_a_model_is_a_part():
    ops = {
        "x": ("Placeholder", []),
        "m/a/MatMul": ("MatMul", ["x"]),
        "m/b/MatMul": ("MatMul", ["m/a/MatMul"]),
        "m/add": ("AddV2", ["m/a/MatMul", "m/b/MatMul"]),
        "m/c/MatMul": ("MatMul", ["m/add"]),
        "m/add_1": ("AddV2", ["m/add", "m/c/MatMul"]),
    }
    assert _parts(ops, {"m/add": "m", "m/add_1": "m"}) == [["m/add"], ["m/add_1"]]


def test_what_is_connected_without_leaving_is_one_part():
    ops = {
        "x": ("Placeholder", []),
        "m/gate/MatMul": ("MatMul", ["x"]),
        "m/Softmax": ("Softmax", ["m/gate/MatMul"]),
        "m/TopKV2": ("TopKV2", ["m/Softmax"]),
        "m/dispatch": ("Einsum", ["m/TopKV2", "x"]),
        "m/expert/MatMul": ("MatMul", ["m/dispatch"]),
        "m/combine": ("Einsum", ["m/expert/MatMul", "m/TopKV2:1"]),
    }
    own = dict.fromkeys(["m/Softmax", "m/TopKV2", "m/dispatch", "m/combine"], "m")
    assert _parts(ops, own) == [["m/Softmax", "m/TopKV2", "m/dispatch"], ["m/combine"]]


def test_casts_of_inputs_are_no_parts_and_do_not_tie_towers():
    ops = {
        "user": ("Placeholder", []),
        "item": ("Placeholder", []),
        "m/Cast": ("Cast", ["user"]),
        "m/Cast_1": ("Cast", ["item"]),
        "m/users/Gather": ("GatherV2", ["m/Cast"]),
        "m/items/Gather": ("GatherV2", ["m/Cast_1"]),
        "m/mul": ("Mul", ["m/users/Gather", "m/items/Gather"]),
    }
    placeholders = {"m/Cast": "m", "m/Cast_1": "m", "m/mul": "m"}
    nodes = [node for node in nodes_of(ops) if node.kind != "Placeholder"]
    parts = parts_of(nodes, placeholders, variables={})
    assert [[op.name for op in part.ops] for part in parts] == [["m/mul"]]


def test_a_part_that_reads_inputs_and_a_variable_is_a_layer():
    ops = {
        "x": ("Placeholder", []),
        "read": ("ReadVariableOp", []),
        "m/MatMul": ("MatMul", ["x", "read"]),
        "m/dense/MatMul": ("MatMul", ["m/MatMul"]),
    }
    nodes = [node for node in nodes_of(ops) if node.kind != "Placeholder"]
    parts = parts_of(nodes, {"m/MatMul": "m"}, variables={"read": "v"})
    assert [[op.name for op in part.ops] for part in parts] == [["m/MatMul"]]


def test_a_part_is_named_after_its_first_op_and_known_by_scopes_of_its_own():
    first, second, other = nodes_of(
        {"m/scale/Mul": ("Mul", []), "m/Tanh": ("Tanh", []), "m/scale/Mul_1": ("Mul", [])}
    )
    part = Part(scope="m", ops=(first, second))
    assert part.short_name == "scale"
    assert part.keys(others=()) == {"m/scale", "m/Tanh"}
    # Where a scope holds other ops as well, the op's own name is the key.
    assert part.keys(others={other.name}) == {"m/scale/Mul", "m/Tanh"}
