from __future__ import annotations

from itertools import pairwise

from op_graphs import sized

from placement_advisor.cost.batch_parts import batch_parts
from placement_advisor.graph.op_graph import CONTROL_PORT, Edge, Op, OpGraph, Role

BATCH = 8


def edge(producer: str, consumer: str, size_bytes: int | None) -> Edge:
    return Edge(producer=producer, consumer=consumer, port=0, size_bytes=size_bytes)


def op(name: str, size_bytes: int | None, kind: str = "MatMul", role: Role = Role.FORWARD) -> Op:
    return Op(name=name, kind=kind, role=role, output_bytes=(size_bytes,))


def dense_step(*between: Op) -> OpGraph:
    """x (8 × 16 floats) times w (16 × 32 floats), its gradient, and SGD by way of some ops."""
    w_bytes = 16 * 32 * 4
    ops = [
        op("x", BATCH * 16 * 4, "Placeholder", Role.INPUT),
        op("w", 0, "VarHandleOp", Role.VARIABLE)._replace(parameter_bytes=w_bytes),
        op("read", w_bytes, "ReadVariableOp")._replace(variable="w"),
        op("y", BATCH * 32 * 4),
        op("loss", 4, "Mean"),
        op("y_grad", BATCH * 32 * 4, "Mul", Role.BACKWARD),
        op("w_grad", w_bytes, "MatMul", Role.BACKWARD),
        *between,
        Op(name="update", kind="AssignSubVariableOp", role=Role.UPDATE, variable="w"),
    ]
    path = ["w_grad", *(each.name for each in between), "update"]
    return OpGraph(
        ops,
        [
            edge("w", "read", 0),
            edge("x", "y", BATCH * 16 * 4),
            edge("read", "y", w_bytes),
            edge("y", "loss", BATCH * 32 * 4),
            edge("y", "y_grad", BATCH * 32 * 4),
            edge("x", "w_grad", BATCH * 16 * 4),
            edge("y_grad", "w_grad", BATCH * 32 * 4),
            edge("w", "update", 0),
            *(edge(*ends, w_bytes) for ends in pairwise(path)),
        ],
    )


def test_activations_grow_with_the_batch_and_parameters_do_not():
    parts = batch_parts(dense_step(), BATCH)
    assert parts.tensors == {("x", 0), ("y", 0), ("y_grad", 0)}
    # The gradient of the weights sums over the batch: longer work for as large a tensor.
    assert parts.ops == {"x", "y", "loss", "y_grad", "w_grad"}


def test_what_happens_to_a_gradient_on_its_way_to_the_update_does_not_grow():
    w_bytes = 16 * 32 * 4
    scaled = op("scaled", w_bytes, "Mul", Role.UPDATE)
    clipped = op("clipped", w_bytes, "ClipByValue", Role.UPDATE)
    parts = batch_parts(dense_step(scaled, clipped), BATCH)
    assert parts.ops == {"x", "y", "loss", "y_grad", "w_grad"}


def test_a_gradient_in_half_precision_is_one_all_the_same():
    w_bytes = 16 * 32 * 4
    graph = dense_step(op("cast", w_bytes, "Cast", Role.UPDATE))
    halved = sized(
        [o._replace(output_bytes=(w_bytes // 2,)) if o.name == "w_grad" else o for o in graph.ops],
        graph.edges,
    )
    assert ("w_grad", 0) not in batch_parts(halved, BATCH).tensors


def test_an_activation_as_large_as_the_weights_grows_all_the_same():
    # With 16 samples and 16 features, y_grad has 16 × 32 elements as the weights have.
    graph = dense_step()
    sizes = {"x": 16 * 16 * 4, "y": 16 * 32 * 4, "y_grad": 16 * 32 * 4}
    square = sized(
        [
            o._replace(
                output_bytes=(sizes.get(o.name, o.output_bytes[0] if o.output_bytes else 0),)
            )
            for o in graph.ops
        ],
        graph.edges,
    )
    assert {("y", 0), ("y_grad", 0)} <= batch_parts(square, 16).tensors


def test_texts_of_uneven_length_and_sizes_that_are_not_known_grow():
    graph = OpGraph(
        [op("text", 77, "Placeholder", Role.INPUT), op("words", None), op("ids", BATCH * 8)],
        [edge("text", "words", 77), edge("words", "ids", None)],
    )
    parts = batch_parts(graph, BATCH)
    assert parts.tensors == {("text", 0), ("words", 0), ("ids", 0)}


def test_a_lone_number_that_is_fed_is_not_a_batch():
    graph = OpGraph(
        [op("rate", 4, "Placeholder", Role.INPUT), op("scaled", BATCH * 40)],
        [edge("rate", "scaled", 4)],
    )
    assert batch_parts(graph, BATCH).ops == frozenset()


def test_noise_grows_and_what_is_ordered_after_it_does_not():
    graph = OpGraph(
        [op("noise", BATCH * 40, "RandomUniform"), op("mask", BATCH * 40), op("after", BATCH * 40)],
        [
            edge("noise", "mask", BATCH * 40),
            Edge(producer="mask", consumer="after", port=CONTROL_PORT, size_bytes=None),
        ],
    )
    assert batch_parts(graph, BATCH).ops == {"noise", "mask"}


def test_what_is_looked_up_is_no_gradient_though_it_is_as_large_as_the_table():
    table_bytes = BATCH * 8
    graph = OpGraph(
        [
            op("words", BATCH * 8, "Placeholder", Role.INPUT),
            op("ids", BATCH * 8, "Cast"),
            op("table", 0, "VarHandleOp", Role.VARIABLE)._replace(parameter_bytes=table_bytes),
            op("rows", BATCH * 40, "ResourceGather")._replace(variable="table"),
        ],
        [edge("words", "ids", BATCH * 8), edge("ids", "rows", BATCH * 8), edge("table", "rows", 0)],
    )
    assert batch_parts(graph, BATCH).tensors == {("words", 0), ("ids", 0), ("rows", 0)}


def test_what_an_update_only_waits_for_is_no_gradient():
    # Of a variable of unknown size there are 0 bytes, as of a signal.
    graph = OpGraph(
        [
            op("x", BATCH * 8, "Placeholder", Role.INPUT),
            op("y", BATCH * 8),
            op("passed", BATCH * 8, "Identity"),
            op("v", 0, "VarHandleOp", Role.VARIABLE),
            Op(name="update", kind="AssignVariableOp", role=Role.UPDATE, variable="v"),
        ],
        [
            edge("x", "y", BATCH * 8),
            edge("y", "passed", BATCH * 8),
            Edge(producer="passed", consumer="update", port=CONTROL_PORT, size_bytes=0),
        ],
    )
    assert batch_parts(graph, BATCH).tensors == {("x", 0), ("y", 0), ("passed", 0)}
