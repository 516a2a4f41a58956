from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from op_graphs import graphs

from placement_advisor.graph.layer_view import LayerSummary, depth_for, layer_view
from placement_advisor.graph.op import CONTROL_PORT, Edge, Op, Role, Total
from placement_advisor.graph.op_graph import OpGraph


def training_step() -> OpGraph:
    """Layers a and b: b reads 40 bytes of a, its gradient sends 20 back and reads a's 7 again."""
    ops = [
        Op(name="x", kind="Placeholder", role=Role.INPUT, output_bytes=(99,)),
        Op(
            name="w",
            kind="VarHandleOp",
            role=Role.VARIABLE,
            layer="a",
            variable="w",
            parameter_bytes=12,
            output_bytes=(0,),
        ),
        Op(name="a/mul", kind="MatMul", layer="a", flops=6, output_bytes=(40, 7)),
        Op(name="b/relu", kind="Relu", layer="b", flops=1, output_bytes=(40,)),
        Op(name="b/grad", kind="ReluGrad", role=Role.BACKWARD, layer="b", output_bytes=(20,)),
        Op(
            name="a/grad", kind="MatMul", role=Role.BACKWARD, layer="a", flops=6, output_bytes=(12,)
        ),
        Op(name="step", kind="AssignSub", role=Role.UPDATE, layer="a", variable="w", flops=3),
    ]
    wires = [
        *(("x", "a/mul", 0, 99), ("w", "a/mul", 0, 0), ("a/mul", "b/relu", 0, 40)),
        *(("a/mul", "b/grad", 0, 40), ("a/mul", "b/grad", 1, 7), ("b/relu", "b/grad", 0, 40)),
        *(("b/grad", "a/grad", 0, 20), ("a/grad", "step", 0, 12), ("w", "step", 0, 0)),
        ("b/relu", "a/grad", CONTROL_PORT, None),
    ]
    return OpGraph(ops, [Edge(*wire) for wire in wires])


def test_a_training_step_of_two_layers_by_hand() -> None:
    view = layer_view(training_step())
    assert view.layers == (
        LayerSummary(
            name="a",
            ops_by_role={Role.VARIABLE: 1, Role.FORWARD: 1, Role.BACKWARD: 1, Role.UPDATE: 1},
            flops=Total(known=15, parts=3, unknown=0),
            output_bytes=40,
        ),
        LayerSummary(
            name="b",
            ops_by_role={Role.FORWARD: 1, Role.BACKWARD: 1},
            flops=Total(known=1, parts=2, unknown=1),
            output_bytes=0,
        ),
    )
    assert view.edges == {("a", "b"): 40}


def test_a_tensor_counts_once_per_layer_that_reads_it() -> None:
    ops = [
        Op(name="a", kind="K", layer="A", output_bytes=(40,)),
        *(Op(name=name, kind="K", layer=name[0].upper()) for name in ("b1", "b2", "c")),
    ]
    view = layer_view(OpGraph(ops, [Edge("a", name, 0, 40) for name in ("b1", "b2", "c")]))
    assert view.edges == {("A", "B"): 40, ("A", "C"): 40}
    assert view.layers[0].output_bytes == 40


def test_one_unknown_size_makes_the_sum_unknown() -> None:
    ops = [Op(name="a", kind="K", layer="A"), Op(name="b", kind="K", layer="B")]
    view = layer_view(OpGraph(ops, [Edge("a", "b", 0, 8), Edge("a", "b", 1, None)]))
    assert view.edges == {("A", "B"): None}
    assert view.layers[0].output_bytes is None


def wrapping() -> OpGraph:
    """An outer layer that computes before and after the layer within."""
    names = {"before": "outer", "within": "inner", "after": "outer"}
    ops = [Op(name=name, kind="K", layer=layer) for name, layer in names.items()]
    return OpGraph(ops, [Edge("before", "within", 0, 8), Edge("within", "after", 0, 8)])


def test_a_layer_that_wraps_another_makes_a_loop_that_is_kept() -> None:
    view = layer_view(wrapping())
    assert set(view.edges) == {("outer", "inner"), ("inner", "outer")}
    assert view.feeders() == {"inner": ("outer",), "outer": ("inner",)}


def nested() -> OpGraph:
    names = ["stem", "enc/0/q", "enc/0/k", "enc/1/q", "enc/1/k@2", "head"]
    ops = [Op(name=f"op{i}", kind="K", layer=name) for i, name in enumerate(names)]
    return OpGraph(ops, [Edge(f"op{i}", f"op{i + 1}", 0, 8) for i in range(len(names) - 1)])


def test_a_depth_folds_paths_to_their_first_components() -> None:
    assert [layer.name for layer in layer_view(nested(), 2).layers] == [
        "stem",
        "enc/0",
        "enc/1",
        "head",
    ]
    folded = layer_view(nested(), 1)
    assert [(layer.name, layer.ops) for layer in folded.layers] == [
        ("stem", 1),
        ("enc", 4),
        ("head", 1),
    ]
    assert list(folded.edges) == [("stem", "enc"), ("enc", "head")]


def test_a_depth_as_large_as_the_paths_changes_nothing() -> None:
    assert layer_view(nested(), 3) == layer_view(nested())


def test_the_readers_of_a_variable_are_folded_too() -> None:
    ops = [
        Op(name="v", kind="VarHandleOp", role=Role.VARIABLE, variable="v"),
        *(
            Op(name=f"r{i}", kind="ReadVariableOp", layer=f"enc/{i}", variable="v")
            for i in range(2)
        ),
    ]
    graph = OpGraph(ops, [Edge("v", f"r{i}", 0, 0) for i in range(2)])
    assert layer_view(graph).membership.readers == {"v": ("enc/0", "enc/1")}
    assert layer_view(graph, 1).membership.readers == {"v": ("enc",)}


def test_the_largest_depth_that_fits_is_chosen() -> None:
    # Six layers at full depth, four at depth 2, three at depth 1.
    chosen = {most: depth_for(nested(), most) for most in (6, 5, 4, 3, 2)}
    assert chosen == {6: None, 5: 2, 4: 2, 3: 1, 2: 1}


def test_an_empty_graph_has_an_empty_view() -> None:
    view = layer_view(OpGraph([], []))
    assert (view.layers, view.edges) == ((), {})
    assert depth_for(OpGraph([], []), 5) is None


@given(graphs(), st.one_of(st.none(), st.integers(1, 3)))
def test_every_op_of_a_layer_is_counted_once(graph: OpGraph, depth: int | None) -> None:
    view = layer_view(graph, depth)
    layer_of = [view.membership.layer_of.get(op.name, op.layer) for op in graph.ops]
    assert sum(layer.ops for layer in view.layers) == len(graph) - layer_of.count(None)
    names = [layer.name for layer in view.layers]
    assert len(set(names)) == len(names)
    for source, target in view.edges:
        assert {source, target} <= set(names)
        assert source != target
