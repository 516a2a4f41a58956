"""Layer pictures: parts, merging, layout, and what reaches the pixels."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import layer_models
import matplotlib.colors
import matplotlib.image
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from layer_models import model
from made_up_steps import texts, unreadable
from summary_graphs import edge, op, training_step

from placement_advisor.errors import AdvisorError
from placement_advisor.graph.layer_view import layer_view
from placement_advisor.graph.op_graph import OpGraph, Role
from placement_advisor.graph.placement import Placement, placed_ops
from placement_advisor.report.pictures.canvas import DEVICE_COLORS
from placement_advisor.report.pictures.layer_boxes import MAX_BOXES, LayerBoxes, layer_boxes
from placement_advisor.report.pictures.layer_merge import merge_to
from placement_advisor.report.pictures.layer_parts import layer_parts
from placement_advisor.report.pictures.layer_picture import draw_layers, plot_layers
from placement_advisor.report.pictures.layered_layout import Sizes, best_layout

SIZES = Sizes(box_along=0.5, box_across=2, gap_along=0.5, gap_across=0.25, lane=0.25, gutter=0.5)


def layers_in_a_row(count: int) -> OpGraph:
    return model("in -> l0", *(f"l{i} -> l{i + 1}" for i in range(count - 1)))


def residual_blocks(count: int) -> OpGraph:
    wires = ["in -> add0"]
    for i in range(count):
        wires += [f"add{i} -> conv{i}", f"conv{i} -> norm{i}", f"add{i} norm{i} -> add{i + 1}"]
    return model(*wires)


def wrapped() -> OpGraph:
    """The model adds what its layer a returns, and reads b's: model -> a -> model -> b -> model."""
    names = ["start", "a", "add", "b", "end"]
    layers = {"start": "model", "add": "model", "end": "model", "a": "a", "b": "b"}
    ops = [op(name, "AddV2", layer=layers[name], flops=10, output_bytes=(8,)) for name in names]
    return OpGraph(ops, [edge(one, other, 8) for one, other in pairwise(names)])


def placed(graph: OpGraph, **device_of: str) -> Placement:
    return Placement(
        label="towers",
        family="towers",
        device_of={o.name: device_of.get(o.name, "worker:0") for o in placed_ops(graph)},
        rationale="by hand",
    )


def ends(boxes: LayerBoxes) -> set[tuple[str, str]]:
    names = [box.name for box in boxes.boxes]
    return {(names[arrow.source], names[arrow.target]) for arrow in boxes.arrows}


def test_a_layer_that_wraps_others_is_cut_where_data_comes_back_to_it() -> None:
    graph = wrapped()
    found = layer_parts(graph, layer_view(graph))
    assert [(part.layer, part.number) for part in found.parts] == [
        ("model", 1), ("a", 1), ("model", 2), ("b", 1), ("model", 3),
    ]  # fmt: skip
    assert found.edges == {(0, 1): 8, (1, 2): 8, (2, 3): 8, (3, 4): 8}


def test_layers_that_wrap_nothing_stay_whole() -> None:
    graph = residual_blocks(3)
    found = layer_parts(graph, layer_view(graph))
    assert all(part.number == 1 for part in found.parts)
    assert all(source < target for source, target in found.edges)


def test_ways_side_by_side_through_two_wrappers_stay_a_loop() -> None:
    ops = [op(n, "AddV2", layer=n[0], output_bytes=(8,)) for n in ("a1", "b1", "b2", "a2")]
    graph = OpGraph(ops, [edge("a1", "b1", 8), edge("b2", "a2", 8)])
    found = layer_parts(graph, layer_view(graph))
    assert len(found.parts) == 2
    assert set(found.edges) == {(0, 1), (1, 0)}


def test_a_layer_that_only_reads_its_variables_is_drawn_before_its_reader() -> None:
    ops = [
        op("w", "VarHandleOp", Role.VARIABLE, variable="w", parameter_bytes=8, output_bytes=(0,)),
        op("read", "ReadVariableOp", layer="lstm/cell", variable="w", output_bytes=(8,)),
        op("loop", "While", layer="lstm", output_bytes=(8,)),
    ]
    graph = OpGraph(ops, [edge("w", "read", 0), edge("read", "loop", 8)])
    found = layer_parts(graph, layer_view(graph))
    assert [part.layer for part in found.parts] == ["lstm/cell", "lstm"]
    assert found.edges == {(0, 1): 8}


def test_what_a_loop_reads_itself_is_counted_with_the_loop() -> None:
    ops = [
        op("w", "VarHandleOp", Role.VARIABLE, variable="w", parameter_bytes=8, output_bytes=(0,)),
        op("read", "ReadVariableOp", layer="lstm/cell", variable="w", output_bytes=(8,)),
        op("loop", "While", layer="lstm", variable="w", flops=1, output_bytes=(8,)),
        op("x", "Placeholder", Role.INPUT, output_bytes=(8,)),
    ]
    graph = OpGraph(ops, [edge("w", "read", 0), edge("w", "loop", 0), edge("x", "loop", 8)])
    (box,) = layer_boxes(graph, "x").boxes
    assert (box.name, box.texts) == ("lstm", ("8 B · 100 % of flops",))


def test_a_box_has_its_layers_parameters_flops_and_arrow() -> None:
    boxes = layer_boxes(training_step(), "tiny")
    texts = {box.name: box.texts for box in boxes.boxes}
    # dense has 416 of the step's 416 flops: its own 300, the gradient's 100, the update's 16.
    assert texts == {
        "ids": ("0 % of flops",),
        "dense": ("32 B · 100 % of flops",),
        "loop": ("flops unknown",),
    }
    assert {(a.source, a.target): a.size_bytes for a in boxes.arrows} == {(0, 1): 16, (1, 2): 8}
    assert boxes.groups == ("loop or branch", "matrix product", "lookup")


def test_a_tensor_of_unknown_size_makes_its_arrow_unknown() -> None:
    graph = OpGraph(
        [op("a", "Relu", layer="a", output_bytes=(None,)), op("b", "Relu", layer="b")],
        [edge("a", "b", None)],
    )
    assert [arrow.size_bytes for arrow in layer_boxes(graph, "x").arrows] == [None]


def test_a_placement_says_where_and_how_much_of_a_layer_is_there() -> None:
    graph = model("in -> a", "a -> b")
    boxes = layer_boxes(graph, "x", placement=placed(graph, b="worker:1"))
    assert boxes.title == "x, placed as in towers"
    assert [box.texts[-1] for box in boxes.boxes] == ["worker:0", "worker:1"]
    assert boxes.groups == ("worker:0", "worker:1")
    ops = [op(f"o{i}", "Relu", layer="one", output_bytes=(8,)) for i in range(4)]
    graph = OpGraph(ops, [edge(f"o{i}", f"o{i + 1}", 8) for i in range(3)])
    (box,) = layer_boxes(graph, "x", placement=placed(graph, o3="worker:1")).boxes
    assert box.texts[-1] == "worker:0 75 %"
    assert box.group_shares == {"worker:0": 0.75, "worker:1": 0.25}


def test_few_layers_are_all_drawn() -> None:
    boxes = layer_boxes(layers_in_a_row(MAX_BOXES), "x")
    assert len(boxes.boxes) == MAX_BOXES
    assert "boxes: neighbours share one" not in boxes.note


def test_a_flat_model_of_many_layers_is_drawn_by_its_chains_and_says_so() -> None:
    boxes = layer_boxes(residual_blocks(35), "x")
    # A chain is conv and norm; an add is fed by two and feeds two. 36 adds, 35 chains: too many,
    # so neighbours are joined until 60 are left.
    assert len(boxes.boxes) == MAX_BOXES
    assert "106 layers in 60 boxes: neighbours share one." in boxes.note
    boxes = layer_boxes(residual_blocks(20), "x")
    assert len(boxes.boxes) == 41
    assert "61 layers in 41 boxes" in boxes.note
    assert "2 layers · 3.2 % of flops" in {box.texts[0] for box in boxes.boxes}


def test_a_chain_of_thousands_is_cut_in_even_parts() -> None:
    boxes = layer_boxes(layers_in_a_row(2_000), "x")
    assert len(boxes.boxes) == MAX_BOXES
    assert len(boxes.arrows) == MAX_BOXES - 1
    sizes = [int(box.texts[0].split()[0]) for box in boxes.boxes]
    assert sum(sizes) == 2_000
    assert max(sizes) <= 4 * min(sizes)


def test_nested_layers_are_drawn_to_the_depth_that_can_be_read() -> None:
    names = [f"block_{i}/part_{j}" for i in range(10) for j in range(10)]
    ops = [op(name, "Relu", layer=name, flops=1, output_bytes=(8,)) for name in names]
    graph = OpGraph(ops, [edge(one, other, 8) for one, other in pairwise(names)])
    boxes = layer_boxes(graph, "x")
    assert [box.name for box in boxes.boxes] == [f"block_{i}" for i in range(10)]
    assert "Layers to depth 1 of their paths." in boxes.note
    assert len(layer_boxes(graph, "x", depth=2).boxes) > 10


def test_what_reads_nothing_but_variables_is_drawn_if_there_is_nothing_else() -> None:
    ops = [
        op("w", "VarHandleOp", Role.VARIABLE, variable="w", parameter_bytes=8, output_bytes=(0,)),
        op("read", "ReadVariableOp", variable="w", layer="state", output_bytes=(8,)),
    ]
    (box,) = layer_boxes(OpGraph(ops, [edge("w", "read", 0)]), "x").boxes
    assert box.name == "state"


def test_a_graph_without_forward_ops_cannot_be_drawn() -> None:
    with pytest.raises(AdvisorError, match="x: nothing to draw"):
        layer_boxes(OpGraph([op("c", "Const", Role.CONSTANT)], []), "x")


dags = st.integers(1, 30).flatmap(
    lambda count: st.tuples(
        st.just(count),
        st.lists(
            st.tuples(st.integers(0, count - 1), st.integers(0, count - 1))
            .filter(lambda pair: pair[0] != pair[1])
            .map(lambda pair: (min(pair), max(pair))),
            unique=True,
        ),
    )
)


@given(dags, st.integers(1, 30))
def test_merging_reaches_the_limit_keeps_all_and_makes_no_loop(
    dag: tuple[int, list[tuple[int, int]]], limit: int
) -> None:
    count, edges = dag
    groups = merge_to(count, edges, limit)
    assert sorted(number for group in groups for number in group) == list(range(count))
    assert len(groups) <= limit
    place = {number: i for i, group in enumerate(groups) for number in group}
    assert all(place[one] <= place[other] for one, other in edges)


@settings(deadline=None)
@given(dags)
def test_boxes_never_overlap_and_stand_after_those_that_feed_them(
    dag: tuple[int, list[tuple[int, int]]],
) -> None:
    count, edges = dag
    layout, _ = best_layout(count, edges, SIZES, SIZES)
    for i, (along, across) in enumerate(layout.centres):
        for other_along, other_across in layout.centres[:i]:
            apart = abs(along - other_along) >= 1 - 1e-6 or abs(across - other_across) >= 2
            assert apart
    for route in layout.routes:
        for one, other in pairwise(route.stations):
            assert (one[0], one[1]) < (other[0], other[1])
    assert len(layout.routes) == len(edges)


def test_a_long_chain_is_folded_and_a_short_one_is_not() -> None:
    chain = [(i, i + 1) for i in range(59)]
    layout, _ = best_layout(60, chain, SIZES, SIZES)
    assert len(layout.spans) > 1
    assert layout.length < 20
    layout, _ = best_layout(5, chain[:4], SIZES, SIZES)
    assert len(layout.spans) == 1


def test_two_towers_are_drawn_without_crossings() -> None:
    # 0 -> 2 -> 4 and 1 -> 3 -> 4, with the second rank given the other way round.
    layout, _ = best_layout(5, [(0, 3), (1, 2), (3, 4), (2, 4)], SIZES, SIZES)
    across = [place[1] for place in layout.centres]
    assert (across[0] < across[1]) == (across[3] < across[2])
    assert across[4] == pytest.approx((across[2] + across[3]) / 2)


def pixels(boxes: LayerBoxes, path: Path) -> np.ndarray:
    plot_layers(boxes, path)
    return np.asarray(matplotlib.image.imread(path))[:, :, :3]


def count(picture: np.ndarray, color: str) -> int:
    wanted = np.asarray(matplotlib.colors.to_rgb(color))
    return int((np.abs(picture - wanted).max(axis=2) < 0.02).sum())


@pytest.mark.parametrize(
    "graph",
    [training_step(), layers_in_a_row(5), layers_in_a_row(60), residual_blocks(35), wrapped()],
)
def test_a_picture_of_any_size_can_be_read(graph: OpGraph, tmp_path: Path) -> None:
    height, width, _ = pixels(layer_boxes(graph, "x"), tmp_path / "x.png").shape
    assert 1_000 <= width <= 3_500
    assert 300 <= height <= 2_500


def test_devices_have_colours_by_their_share(tmp_path: Path) -> None:
    graph = model("in -> a", "a -> b", "a -> c")
    boxes = layer_boxes(graph, "x", placement=placed(graph, b="worker:1"))
    picture = pixels(boxes, tmp_path / "x.png")
    first, second = (count(picture, color) for color in DEVICE_COLORS[:2])
    # Two boxes against one, and one mark each in the legend.
    assert first / second == pytest.approx(2, rel=0.25)
    assert count(picture, DEVICE_COLORS[2]) == 0


def test_a_heavier_tensor_has_a_thicker_arrow(tmp_path: Path) -> None:
    def grey(size_bytes: int) -> int:
        sizes = {"a": 1_000_000, "b": size_bytes, "c": 8}
        ops = [op(n, "Relu", layer=n, output_bytes=(size,)) for n, size in sizes.items()]
        edges = [edge("a", "b", 1_000_000), edge("b", "c", size_bytes)]
        picture = pixels(layer_boxes(OpGraph(ops, edges), "x"), tmp_path / "x.png")
        return count(picture, "#8C8C8C")

    assert grey(1_000_000) > 1.3 * grey(10)


def test_names_that_the_font_lacks_or_that_look_like_mathematics_do_not_warn(
    tmp_path: Path,
) -> None:
    graph = OpGraph([op("o", "Relu", layer="模型 $x$ \x1b {" + "n" * 200)], [])
    assert pixels(layer_boxes(graph, "模 $"), tmp_path / "x.png").size > 0


def test_names_that_begin_and_end_alike_are_told_apart_in_their_boxes() -> None:
    # The numbers stand in the middle, where names were once cut.
    names = [f"encoder/layer_{i}/attention/output/dense_projection" for i in range(4)]
    ops = [op(name, "Relu", layer=name, output_bytes=(8,)) for name in names]
    graph = OpGraph(ops, [edge(one, other, 8) for one, other in pairwise(names)])
    shown = [text for text, _ in texts(draw_layers(layer_boxes(graph, "x")))]
    assert [sum(f"layer_{i}/" in text for text in shown) for i in range(4)] == [1] * 4


@pytest.mark.parametrize(
    "names",
    [
        [f"layer_{i}" for i in range(60)],
        [f"{'W' * 190}_{i}" for i in range(12)],
        [f"{'block/W' * 28}_{i}/{'dense_' * 20}" for i in range(12)],
    ],
    ids=["many", "one word", "words"],
)
def test_text_of_a_layer_picture_neither_overlaps_nor_is_cut_off(names: list[str]) -> None:
    ops = [op(name, "Relu", layer=name, flops=1, output_bytes=(8,)) for name in names]
    graph = OpGraph(ops, [edge(one, other, 8) for one, other in pairwise(names)])
    devices = {name: f"worker:{i % 8}{names[0]}" for i, name in enumerate(names)}
    placement = placed(graph, **devices)
    assert unreadable(draw_layers(layer_boxes(graph, names[0], depth=9))) == []
    boxes = layer_boxes(graph, names[0], depth=9, placement=placement)
    assert unreadable(draw_layers(boxes)) == []


@pytest.mark.parametrize("graph", [training_step(), residual_blocks(35), wrapped()])
def test_text_of_any_layer_picture_can_be_read(graph: OpGraph) -> None:
    assert unreadable(draw_layers(layer_boxes(graph, "x"))) == []


def test_matplotlib_is_imported_when_a_picture_is_drawn_and_pyplot_never(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib\n"
        "from layer_models import model\n"
        "from placement_advisor.report.pictures import layer_picture\n"
        "from placement_advisor.report.pictures.layer_boxes import layer_boxes\n"
        "boxes = layer_boxes(model('in -> a', 'a -> b'), 'x')\n"
        "assert not {'matplotlib', 'networkx', 'tensorflow'} & set(sys.modules)\n"
        f"layer_picture.plot_layers(boxes, pathlib.Path({str(tmp_path / 'x.png')!r}))\n"
        "assert 'matplotlib' in sys.modules\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    path = [*filter(None, sys.path), str(Path(layer_models.__file__).parent)]
    subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {path!r}\n{code}"],
        check=True,
    )
