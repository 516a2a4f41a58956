"""The placement that the user's scopes make, where they disagree."""

from __future__ import annotations

from op_graphs import edge, op
from step_graphs import cluster_of

from placement_advisor.candidates.references import as_written, layer_devices
from placement_advisor.graph.op import Op, Role
from placement_advisor.graph.op_graph import OpGraph

CLUSTER = cluster_of("a", "b")


def variable(name: str, layer: str) -> Op:
    return op(name, layer)._replace(kind="VarHandleOp", role=Role.VARIABLE, variable=name)


def training() -> OpGraph:
    """Two layers, the second with a weight, which has a slot."""
    ops = [
        op("first", "first"),
        variable("w", "second"),
        variable("slot", "second"),
        op("read", "second")._replace(kind="ReadVariableOp", variable="w"),
        op("second", "second"),
        op("gradient", "second")._replace(role=Role.BACKWARD),
        op("update", "second")._replace(
            kind="ResourceApplyMomentum", role=Role.UPDATE, variable="w"
        ),
    ]
    wires = [("w", "read"), ("read", "second"), ("first", "second"), ("second", "gradient")]
    wires += [(read, "update") for read in ("w", "slot", "gradient")]
    return OpGraph(ops, [edge(*wire) for wire in wires])


def test_a_layer_asks_for_what_most_of_its_ops_ask_for() -> None:
    graph = OpGraph([op(name, "layer") for name in "xyz"] + [op("u", "silent")], [])
    asked = {"x": "GPU:0", "y": "GPU:1", "z": "GPU:1"}
    assert layer_devices(graph, asked) == {"layer": "GPU:1"}
    assert layer_devices(graph, {"x": "GPU:0", "y": "GPU:1"}) == {"layer": "GPU:0"}


def test_a_variable_stands_where_it_was_created_and_its_slot_with_it() -> None:
    scopes = {"first": "CPU:0", "read": "CPU:1", "second": "CPU:1"}
    here = as_written(training(), scopes | {"w": "CPU:0", "slot": "CPU:1"}, CLUSTER)
    assert here is not None
    assert {here.device_of[name] for name in ("w", "slot", "read", "update")} == {"a"}
    assert here.device_of["second"] == "b"
    there = as_written(training(), scopes | {"w": "CPU:1", "slot": "CPU:0"}, CLUSTER)
    assert there is not None
    assert {there.device_of[name] for name in ("w", "slot", "read", "update")} == {"b"}


def test_gradients_run_where_they_ask_to_and_else_on_the_default_device() -> None:
    scopes = {"first": "CPU:0", "w": "CPU:1", "read": "CPU:1", "second": "CPU:1"}
    by_tape = as_written(training(), scopes, CLUSTER)
    in_scope = as_written(training(), scopes | {"gradient": "CPU:1"}, CLUSTER)
    assert by_tape is not None
    assert in_scope is not None
    assert (by_tape.device_of["gradient"], in_scope.device_of["gradient"]) == ("a", "b")


def test_an_op_runs_where_it_asks_to_though_most_of_its_layer_ask_otherwise() -> None:
    graph = OpGraph([op(name, "layer") for name in "xyz"], [edge("x", "y"), edge("y", "z")])
    found = as_written(graph, {"x": "CPU:1", "y": "CPU:0", "z": "CPU:1"}, CLUSTER)
    assert found is not None
    assert found.device_of == {"x": "b", "y": "a", "z": "b"}
