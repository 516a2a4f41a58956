from __future__ import annotations

from hypothesis import given
from layer_models import model
from op_graphs import graphs

from placement_advisor.graph.layer_structure import repeated_blocks
from placement_advisor.graph.layer_view import layer_view
from placement_advisor.graph.op_graph import OpGraph


def found(graph: OpGraph) -> list[list[str]]:
    """Return each repetition as blocks of names joined by spaces."""
    repetitions = repeated_blocks(graph, layer_view(graph))
    return [[" ".join(block) for block in repetition.blocks] for repetition in repetitions]


def encoder(count: int) -> tuple[list[str], dict[str, str]]:
    """Blocks of a residual attention and a residual dense layer, under names of no pattern."""
    wires, kinds, before = ["in -> zero"], {"zero": "Gather"}, "zero"
    for i in range(count):
        q, k, mix, one, dense, two = (f"{'zyxwvu'[j]}{(i * 7) % 5}{i}" for j in range(6))
        wires += [f"{before} -> {q}", f"{before} -> {k}", f"{q} {k} -> {mix}"]
        wires += [f"{mix} {before} -> {one}", f"{one} -> {dense}", f"{dense} {one} -> {two}"]
        kinds |= {mix: "Softmax", one: "Add", dense: "Conv2D", two: "Add"}
        before = two
    return [*wires, f"{before} -> end"], kinds | {"end": "Sum"}


def test_alike_layers_in_a_chain_are_blocks_of_one() -> None:
    kinds = {"first": "Cast", "last": "Sum"}
    graph = model("in -> first", "first -> a", "a -> b", "b -> c", "c -> last", kinds=kinds)
    assert found(graph) == [["a", "b", "c"]]


def test_the_blocks_of_an_encoder_are_found_in_order() -> None:
    wires, kinds = encoder(12)
    (blocks,) = found(model(*wires, kinds=kinds))
    assert len(blocks) == 12
    assert [len(block.split()) for block in blocks] == [6] * 12
    assert blocks[0] == "z00 y00 x00 w00 v00 u00"
    assert blocks[11].endswith("u211")


def test_units_after_one_with_a_projection_are_blocks_and_that_one_is_not() -> None:
    kinds = {"stem": "Pool", "sum0": "Add", "skip0": "BiasAdd", "sum1": "Add", "sum2": "Add"}
    graph = model(
        "in -> stem", "stem -> conv0", "stem -> skip0", "conv0 skip0 -> sum0",
        "sum0 -> conv1", "conv1 sum0 -> sum1",
        "sum1 -> conv2", "conv2 sum1 -> sum2",
        kinds=kinds,
    )  # fmt: skip
    assert found(graph) == [["conv1 sum1", "conv2 sum2"]]


def test_a_mask_that_every_block_reads_is_no_hindrance() -> None:
    kinds = {"mask": "Cast", "x": "Gather", "s1": "Softmax", "s2": "Softmax", "s3": "Softmax"}
    graph = model(
        "in -> mask", "in2 -> x", "x -> a1", "a1 mask -> s1", "s1 -> a2", "a2 mask -> s2",
        "s2 -> a3", "a3 mask -> s3", kinds=kinds,
    )  # fmt: skip
    assert found(graph) == [["a1 s1", "a2 s2", "a3 s3"]]


def test_towers_that_the_trace_interleaves_are_two_repetitions() -> None:
    graph = model(
        "in1 -> a0", "in2 -> b0", "a0 -> a1", "b0 -> b1", "a1 -> a2", "b1 -> b2", "a2 -> a3",
        "b2 -> b3", "a3 b3 -> dot",
        kinds={"a0": "Cast", "b0": "Gather", "dot": "Dot"},
    )  # fmt: skip
    assert found(graph) == [["a1", "a2", "a3"], ["b1", "b2", "b3"]]


def test_alike_layers_side_by_side_are_no_repetition() -> None:
    assert found(model("in -> a", "in -> b", "in -> c", "a b c -> cat", kinds={"cat": "Cat"})) == []


def test_layers_of_other_kinds_or_other_wiring_do_not_repeat() -> None:
    assert found(model("in -> a", "a -> b", kinds={"a": "Conv2D"})) == []
    # Both pairs hold a MatMul and an Add; in the second the Add does not read the first's Add.
    kinds = {"x": "Cast", "add1": "Add", "add2": "Add"}
    graph = model(
        "in -> x", "x -> m1", "m1 x -> add1", "add1 -> m2", "m2 x m1 -> add2", kinds=kinds
    )
    assert found(graph) == []


def test_an_empty_graph_and_one_of_a_single_layer_repeat_nothing() -> None:
    assert found(OpGraph([], [])) == found(model("in -> a")) == []


@given(graphs())
def test_blocks_of_any_graph_are_of_one_size_feed_one_another_and_never_overlap(
    graph: OpGraph,
) -> None:
    view = layer_view(graph)
    edges = set(view.edges)
    seen: list[str] = []
    for repetition in repeated_blocks(graph, view):
        assert len({len(block) for block in repetition.blocks}) == 1
        assert len(repetition.blocks) >= 2
        seen += [layer for block in repetition.blocks for layer in block]
        for one, other in zip(repetition.blocks, repetition.blocks[1:], strict=False):
            assert any((a, b) in edges for a in one for b in other)
    assert len(seen) == len(set(seen))
