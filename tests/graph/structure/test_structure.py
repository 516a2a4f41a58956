import math

from hypothesis import given
from layer_models import model
from op_graphs import graphs, sized

from placement_advisor.graph.layer_structure import (
    MAX_BRANCH_VISITS,
    Join,
    common_ancestor,
    counting_layers,
    depth_first,
    flow,
    parallel_branches,
    repeated_blocks,
    towers,
)
from placement_advisor.graph.layer_view import layer_view
from placement_advisor.graph.op import Edge, Op, Role
from placement_advisor.graph.op_graph import OpGraph


def wrapping(*wires):
    """Return a model with a layer `outer` around a layer `within`, and what else there is."""
    graph = model(*wires, "before -> within", "within -> after")
    layers = {"before": "outer", "after": "outer"}
    ops = [each._replace(layer=layers.get(each.name, each.layer)) for each in graph.ops]
    return OpGraph(ops, graph.edges)


def found(graph):
    view = layer_view(graph)
    return towers(view, counting_layers(graph, view))


def test_towers_by_hand():
    graph = model("in1 -> a1", "a1 -> a2", "in2 -> b1", "b1 -> b2", "a2 b2 -> dot", "dot -> loss")
    assert found(graph) == (Join(layer="dot", towers=(("a1", "a2"), ("b1", "b2"))),)
    assert found(model("in -> a", "in -> b", "a b -> dot"))
    tied = model("in -> stem", "stem -> a", "stem -> b", "a b -> dot")
    assert found(tied) == ()
    assert common_ancestor(layer_view(tied)) == ("dot", "stem")
    graph = model("in1 -> a", "in2 -> b", "a b -> dot", "b -> head")
    assert found(graph) == (Join(layer="dot", towers=(("a",), ("b", "head"))),)
    graph = model("in -> a", "in -> b", "in -> c", "a b -> near", "near c -> far")
    joins = [(join.layer, join.towers) for join in found(graph)]
    assert joins == [("near", (("a",), ("b",))), ("far", (("c",), ("a", "b", "near")))]
    graph = model("in -> a", "in2 -> cast", "a cast -> loss")
    view = layer_view(graph)
    assert towers(view, {"a"}) == ()
    assert len(towers(view, {"a", "cast"})) == 1


def test_what_counts_reads_a_variable_or_does_a_hundredth_of_the_arithmetic():
    ops = [
        Op("v", "VarHandleOp", Role.VARIABLE, variable="v"),
        Op("read", "ReadVariableOp", layer="reads", variable="v"),
        Op("heavy", "MatMul", layer="heavy", flops=990),
        Op("edge", "MatMul", layer="edge", flops=10),
        Op("light", "Cast", layer="light", flops=0),
        Op("unknown", "Cast", layer="unknown"),
    ]
    graph = OpGraph(ops, [Edge("v", "read", 0, 0)])
    assert counting_layers(graph, layer_view(graph)) == {"reads", "heavy", "edge"}


def test_a_layer_that_wraps_another_is_no_join_of_it():
    assert found(wrapping("in -> before")) == ()


@given(graphs())
def test_towers_of_any_graph_share_no_layer_and_no_tensor(graph):
    view = layer_view(graph)
    for join in towers(view, view.forward_layers()):
        tower_of = {layer: i for i, tower in enumerate(join.towers) for layer in tower}
        assert len(tower_of) == sum(map(len, join.towers))
        assert len(join.towers) >= 2
        assert join.layer not in tower_of
        for edge in view.edges:
            assert len({tower_of[layer] for layer in edge if layer in tower_of}) < 2


def order(graph):
    return " ".join(depth_first(layer_view(graph)))


def test_towers_come_one_after_the_other_with_their_heads_and_a_decoder_after_its_encoder():
    graph = model("in -> a1", "in -> b1", "a1 -> a2", "b1 -> b2", "a2 b2 -> dot")
    assert order(graph) == "a1 a2 b1 b2 dot"
    graph = model(
        "in -> a1", "in -> b1", "a1 -> a2", "b1 -> b2", "a1 -> x1", "b1 -> y1", "a2 -> x2",
        "b2 -> y2",
    )  # fmt: skip
    assert order(graph) == "a1 a2 x2 x1 b1 b2 y2 y1"
    graph = model(
        "in -> e", "in2 -> d", "e -> e1", "d -> d1", "e e1 -> enc",
        "enc -> key1", "d1 key1 -> d2", "d2 d -> d3", "enc -> key2", "d3 key2 -> d4", "d4 d3 -> d5",
    )  # fmt: skip
    assert order(graph) == "e e1 enc d d1 key1 d2 d3 key2 d4 d5"
    assert order(wrapping("after -> end")) == "within outer end"


@given(graphs())
def test_every_layer_comes_once_and_after_its_feeders_unless_they_are_on_a_loop(graph):
    view = layer_view(graph)
    place = {layer: i for i, layer in enumerate(depth_first(view))}
    assert sorted(place) == sorted(view.forward_layers())
    node_of = dict(zip(flow(view).layers, flow(view).node_of, strict=True))
    for layer, feeders in view.feeders().items():
        for feeder in feeders:
            assert place[feeder] < place[layer] or node_of[feeder] == node_of[layer]


def regions_of(graph):
    return [(b.fork, b.join, b.branches, b.direct) for b in parallel_branches(layer_view(graph))]


def test_branches_by_hand():
    graph = model("in -> x", "x -> a", "x -> b1", "b1 -> b2", "x -> c", "a b2 c -> cat", "cat -> d")
    assert regions_of(graph) == [("x", "cat", (("a",), ("b1", "b2"), ("c",)), False)]
    graph = model("in -> x", "x -> conv", "conv -> relu", "relu x -> add", "add -> end")
    assert regions_of(graph) == [("x", "add", (("conv", "relu"),), True)]
    # Queries and keys meet in the scores, values only after them.
    graph = model(
        "in -> x", "x -> norm", "norm -> q", "norm -> k", "norm -> v",
        "q k -> scores", "scores v -> mix", "mix x -> add",
    )  # fmt: skip
    assert regions_of(graph) == [
        ("x", "add", (("norm", "q", "k", "v", "scores", "mix"),), True),
        ("norm", "mix", (("q", "k", "scores"), ("v",)), False),
    ]
    graph = model("in -> x", "x -> a", "x mask -> b", "a b -> sum", "in2 -> mask")
    assert regions_of(graph) == [("x", "sum", (("a",), ("b",)), False)]
    assert regions_of(model("in -> a", "a -> b", "b -> c")) == []
    assert regions_of(wrapping("after -> a", "after -> b", "a b -> end")) == []
    dense = model("in -> x", "x -> a", "x a -> b", "x a b -> c", "a b c -> end", "x -> a")
    found = {branches for fork, _, branches, _ in regions_of(dense) if fork == "x"}
    assert found <= {(("a", "b", "c"),)}
    assert regions_of(model("in -> x", "x -> a", "x -> b")) == []


def test_of_thousands_of_regions_within_one_another_the_longest_are_left_out():
    depth = 1_500
    down = [f"d{i} -> d{i + 1}" for i in range(depth)]
    up = [f"d{depth} d{depth - 1} -> u{depth - 1}"]
    up += [f"u{i + 1} d{i} -> u{i}" for i in reversed(range(depth - 1))]
    regions = parallel_branches(layer_view(model("in -> d0", *down, *up)))
    # The regions hold 1, 3, 5, … layers: the first n hold n * n.
    assert len(regions) == math.isqrt(MAX_BRANCH_VISITS) + 1
    assert regions[-1].branches == ((f"d{depth}",),)


@given(graphs())
def test_no_tensor_goes_from_one_branch_to_another_or_past_the_join(graph):
    view = layer_view(graph)
    for region in parallel_branches(view):
        branch_of = {layer: i for i, layers in enumerate(region.branches) for layer in layers}
        assert len(branch_of) == sum(map(len, region.branches))
        assert not {region.fork, region.join} & set(branch_of)
        assert len(region.branches) + region.direct >= 2
        for source, target in view.edges:
            if source in branch_of:
                assert target == region.join or branch_of.get(target) == branch_of[source]


def blocks_of(graph):
    """Return each repetition as blocks of names joined by spaces."""
    repetitions = repeated_blocks(graph, layer_view(graph))
    return [[" ".join(block) for block in repetition.blocks] for repetition in repetitions]


def encoder(count):
    """Blocks of a residual attention and a residual dense layer, under names of no pattern."""
    wires, kinds, before = ["in -> zero"], {"zero": "Gather"}, "zero"
    for i in range(count):
        q, k, mix, one, dense, two = (f"{'zyxwvu'[j]}{(i * 7) % 5}{i}" for j in range(6))
        wires += [f"{before} -> {q}", f"{before} -> {k}", f"{q} {k} -> {mix}"]
        wires += [f"{mix} {before} -> {one}", f"{one} -> {dense}", f"{dense} {one} -> {two}"]
        kinds |= {mix: "Softmax", one: "Add", dense: "Conv2D", two: "Add"}
        before = two
    return [*wires, f"{before} -> end"], kinds | {"end": "Sum"}


def test_blocks_that_repeat_by_hand():
    kinds = {"first": "Cast", "last": "Sum"}
    graph = model("in -> first", "first -> a", "a -> b", "b -> c", "c -> last", kinds=kinds)
    assert blocks_of(graph) == [["a", "b", "c"]]
    wires, kinds = encoder(12)
    (blocks,) = blocks_of(model(*wires, kinds=kinds))
    assert len(blocks) == 12
    assert [len(block.split()) for block in blocks] == [6] * 12
    assert blocks[0] == "z00 y00 x00 w00 v00 u00"
    assert blocks[11].endswith("u211")
    kinds = {"stem": "Pool", "sum0": "Add", "skip0": "BiasAdd", "sum1": "Add", "sum2": "Add"}
    graph = model(
        "in -> stem", "stem -> conv0", "stem -> skip0", "conv0 skip0 -> sum0",
        "sum0 -> conv1", "conv1 sum0 -> sum1",
        "sum1 -> conv2", "conv2 sum1 -> sum2",
        kinds=kinds,
    )  # fmt: skip
    assert blocks_of(graph) == [["conv1 sum1", "conv2 sum2"]]
    kinds = {"mask": "Cast", "x": "Gather", "s1": "Softmax", "s2": "Softmax", "s3": "Softmax"}
    graph = model(
        "in -> mask", "in2 -> x", "x -> a1", "a1 mask -> s1", "s1 -> a2", "a2 mask -> s2",
        "s2 -> a3", "a3 mask -> s3", kinds=kinds,
    )  # fmt: skip
    assert blocks_of(graph) == [["a1 s1", "a2 s2", "a3 s3"]]
    graph = model(
        "in1 -> a0", "in2 -> b0", "a0 -> a1", "b0 -> b1", "a1 -> a2", "b1 -> b2", "a2 -> a3",
        "b2 -> b3", "a3 b3 -> dot",
        kinds={"a0": "Cast", "b0": "Gather", "dot": "Dot"},
    )  # fmt: skip
    assert blocks_of(graph) == [["a1", "a2", "a3"], ["b1", "b2", "b3"]]
    assert blocks_of(model("in -> a", "a -> b", kinds={"a": "Conv2D"})) == []
    # One reads a larger tensor, and two that are alike do not feed one another.
    graph = model("in -> a", "a -> b")
    larger = graph.ops[0]._replace(output_bytes=(16,))
    assert blocks_of(sized([larger, *graph.ops[1:]], graph.edges)) == []
    kinds = {"a2": "Add", "b2": "Add", "dot": "Dot"}
    graph = model("in -> a", "in -> b", "a -> a2", "b -> b2", "a2 b2 -> dot", kinds=kinds)
    assert blocks_of(graph) == []
    # Both pairs hold a MatMul and an Add; in the second the Add does not read the first's Add.
    kinds = {"x": "Cast", "add1": "Add", "add2": "Add"}
    graph = model(
        "in -> x", "x -> m1", "m1 x -> add1", "add1 -> m2", "m2 x m1 -> add2", kinds=kinds
    )
    assert blocks_of(graph) == []


@given(graphs())
def test_blocks_of_any_graph_are_of_one_size_feed_one_another_and_never_overlap(graph):
    view = layer_view(graph)
    edges = set(view.edges)
    seen = []
    for repetition in repeated_blocks(graph, view):
        assert len({len(block) for block in repetition.blocks}) == 1
        assert len(repetition.blocks) >= 2
        seen += [layer for block in repetition.blocks for layer in block]
        for one, other in zip(repetition.blocks, repetition.blocks[1:], strict=False):
            assert any((a, b) in edges for a in one for b in other)
    assert len(seen) == len(set(seen))
