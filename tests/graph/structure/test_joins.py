from __future__ import annotations

from hypothesis import given
from layer_models import model
from op_graphs import graphs

from placement_advisor.graph.layer_structure import Join, common_ancestor, counting_layers, towers
from placement_advisor.graph.layer_view import layer_view
from placement_advisor.graph.op import Edge, Op, Role
from placement_advisor.graph.op_graph import OpGraph


def found(graph: OpGraph) -> tuple[Join, ...]:
    view = layer_view(graph)
    return towers(view, counting_layers(graph, view))


def test_two_chains_that_meet_are_two_towers() -> None:
    graph = model("in1 -> a1", "a1 -> a2", "in2 -> b1", "b1 -> b2", "a2 b2 -> dot", "dot -> loss")
    assert found(graph) == (Join(layer="dot", towers=(("a1", "a2"), ("b1", "b2"))),)


def test_reading_one_input_ties_no_towers_but_a_common_layer_does() -> None:
    assert found(model("in -> a", "in -> b", "a b -> dot"))
    tied = model("in -> stem", "stem -> a", "stem -> b", "a b -> dot")
    assert found(tied) == ()
    assert common_ancestor(layer_view(tied)) == ("dot", "stem")


def test_a_head_that_needs_one_tower_alone_belongs_to_it() -> None:
    graph = model("in1 -> a", "in2 -> b", "a b -> dot", "b -> head")
    assert found(graph) == (Join(layer="dot", towers=(("a",), ("b", "head"))),)


def test_three_feeders_of_which_two_share_a_layer_are_two_towers() -> None:
    graph = model("in -> s", "s -> a", "s -> b", "in -> c", "a c b -> cat")
    assert found(graph) == (Join(layer="cat", towers=(("s", "a", "b"), ("c",))),)


def test_every_join_is_found_in_layer_order() -> None:
    graph = model("in -> a", "in -> b", "in -> c", "a b -> near", "near c -> far")
    assert [(join.layer, join.towers) for join in found(graph)] == [
        ("near", (("a",), ("b",))),
        ("far", (("c",), ("a", "b", "near"))),
    ]


def test_a_label_that_is_only_cast_is_no_tower() -> None:
    graph = model("in -> a", "in2 -> cast", "a cast -> loss")
    view = layer_view(graph)
    assert towers(view, {"a"}) == ()
    assert len(towers(view, {"a", "cast"})) == 1


def test_what_counts_reads_a_variable_or_does_a_hundredth_of_the_arithmetic() -> None:
    ops = [
        Op(name="v", kind="VarHandleOp", role=Role.VARIABLE, variable="v"),
        Op(name="read", kind="ReadVariableOp", layer="reads", variable="v"),
        Op(name="heavy", kind="MatMul", layer="heavy", flops=990),
        Op(name="edge", kind="MatMul", layer="edge", flops=10),
        Op(name="light", kind="Cast", layer="light", flops=0),
        Op(name="unknown", kind="Cast", layer="unknown"),
    ]
    graph = OpGraph(ops, [Edge("v", "read", 0, 0)])
    assert counting_layers(graph, layer_view(graph)) == {"reads", "heavy", "edge"}


def test_a_layer_that_wraps_another_is_no_join_of_it() -> None:
    ops = [
        Op(name="x", kind="Placeholder", role=Role.INPUT),
        *[
            Op(name=name, kind="MatMul", layer=layer, flops=1)
            for name, layer in (("before", "outer"), ("inner", "inner"), ("after", "outer"))
        ],
    ]
    ends = [("x", "before"), ("before", "inner"), ("inner", "after")]
    assert found(OpGraph(ops, [Edge(*pair, 0, 8) for pair in ends])) == ()


def test_an_empty_graph_has_no_towers() -> None:
    assert found(OpGraph([], [])) == ()
    assert common_ancestor(layer_view(OpGraph([], []))) is None


@given(graphs())
def test_towers_of_any_graph_share_no_layer_and_no_tensor(graph: OpGraph) -> None:
    view = layer_view(graph)
    for join in towers(view, view.forward_layers()):
        tower_of = {layer: i for i, tower in enumerate(join.towers) for layer in tower}
        assert len(tower_of) == sum(map(len, join.towers))
        assert len(join.towers) >= 2
        assert join.layer not in tower_of
        for edge in view.edges:
            assert len({tower_of[layer] for layer in edge if layer in tower_of}) < 2
