from __future__ import annotations

from hypothesis import given
from layer_models import model
from op_graphs import graphs

from placement_advisor.graph.layer_structure import depth_first, flow
from placement_advisor.graph.layer_view import layer_view
from placement_advisor.graph.op import Edge, Op
from placement_advisor.graph.op_graph import OpGraph


def order(graph: OpGraph) -> str:
    return " ".join(depth_first(layer_view(graph)))


def test_interleaved_towers_come_one_after_the_other() -> None:
    graph = model("in -> a1", "in -> b1", "a1 -> a2", "b1 -> b2", "a2 b2 -> dot")
    assert order(graph) == "a1 a2 b1 b2 dot"


def test_towers_with_forks_inside_are_not_interleaved_either() -> None:
    graph = model(
        "in -> a", "in -> b", "a -> a1", "b -> b1", "a a1 -> a2", "b b1 -> b2", "a2 b2 -> dot"
    )
    assert order(graph) == "a a1 a2 b b1 b2 dot"


def test_a_decoder_comes_after_the_encoder_with_its_own_keys_in_each_block() -> None:
    graph = model(
        "in -> e", "in2 -> d", "e -> e1", "d -> d1", "e e1 -> enc",
        "enc -> key1", "d1 key1 -> d2", "d2 d -> d3", "enc -> key2", "d3 key2 -> d4", "d4 d3 -> d5",
    )  # fmt: skip
    assert order(graph) == "e e1 enc d d1 key1 d2 d3 key2 d4 d5"


def test_towers_whose_every_layer_has_a_head_are_taken_one_after_the_other() -> None:
    graph = model(
        "in -> a1", "in -> b1", "a1 -> a2", "b1 -> b2", "a1 -> x1", "b1 -> y1", "a2 -> x2",
        "b2 -> y2",
    )  # fmt: skip
    assert order(graph) == "a1 a2 x2 x1 b1 b2 y2 y1"


def test_layers_of_a_loop_stand_together() -> None:
    names = {"before": "outer", "within": "inner", "after": "outer", "end": "end"}
    ops = [Op(name=name, kind="K", layer=layer) for name, layer in names.items()]
    pairs = [("before", "within"), ("within", "after"), ("after", "end")]
    assert order(OpGraph(ops, [Edge(*pair, 0, 8) for pair in pairs])) == "inner outer end"


@given(graphs())
def test_every_layer_comes_once_and_after_its_feeders_unless_they_are_on_a_loop(
    graph: OpGraph,
) -> None:
    view = layer_view(graph)
    place = {layer: i for i, layer in enumerate(depth_first(view))}
    assert sorted(place) == sorted(view.forward_layers())
    node_of = dict(zip(flow(view).layers, flow(view).node_of, strict=True))
    for layer, feeders in view.feeders().items():
        for feeder in feeders:
            assert place[feeder] < place[layer] or node_of[feeder] == node_of[layer]
