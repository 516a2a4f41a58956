from step_graphs import Call, proposed, training_step

from placement_advisor.candidates.references import propose_alternating_ops
from placement_advisor.cost.table import CostTable
from placement_advisor.graph.op import Edge, Op, Role
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.graph.placement import placed_ops


def test_every_op_takes_the_next_device_but_those_of_one_variable_stay_together():
    ops = [
        Op(name="x", kind="Placeholder", role=Role.INPUT),
        Op(name="c", kind="Const", role=Role.CONSTANT),
        Op(name="w", kind="VarHandleOp", role=Role.VARIABLE, variable="w"),
        Op(name="read", kind="ReadVariableOp", variable="w"),
        Op(name="mul", kind="MatMul"),
        Op(name="relu", kind="Relu"),
        Op(name="assign", kind="AssignVariableOp", variable="w", role=Role.UPDATE),
    ]
    ends = ["w read", "x mul", "read mul", "c mul", "mul relu", "relu assign"]
    edges = [Edge(producer=e.split()[0], consumer=e.split()[1], port=0, size_bytes=4) for e in ends]
    found = proposed(
        propose_alternating_ops, OpGraph(ops, edges), CostTable(costs={}), "a", "b", "c"
    )
    assert found.device_of == {
        "x": "a", "w": "b", "read": "b", "mul": "c", "relu": "a", "assign": "b",
    }  # fmt: skip
    assert found.rationale.startswith("the device changes at each of 4 ops, those of one variable")


def test_a_step_of_one_op_cannot_alternate():
    graph, costs = training_step([Call(name="a", feeds=("in:x",))])
    only = OpGraph(placed_ops(graph)[:1], [])
    found = proposed(propose_alternating_ops, only, costs, "d0", "d1")
    assert found.reason == "the step has no two ops between which the device could change"
