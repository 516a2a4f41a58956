from itertools import pairwise

import pytest
from drawn_pictures import count, pixels, unreadable
from hypothesis import given
from hypothesis import strategies as st
from layer_models import model
from summary_graphs import edge, op, training_step

from placement_advisor.errors import AdvisorError
from placement_advisor.graph.layer_view import layer_view
from placement_advisor.graph.op import Role
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.graph.placement import Placement, placed_ops
from placement_advisor.report.pictures.canvas import DEVICE_COLORS, save
from placement_advisor.report.pictures.layer_layout import best_layout, layer_parts, merged
from placement_advisor.report.pictures.layer_picture import MAX_BOXES, draw_layers, layer_boxes

BOX = (2.0, 0.5)


def in_a_row(layers, *sizes):
    ops = [op(f"{i}", "Relu", layer=layer, flops=1) for i, layer in enumerate(layers)]
    steps = zip(pairwise(ops), sizes or [8] * len(ops), strict=False)
    return OpGraph(ops, [edge(one.name, other.name, size) for (one, other), size in steps])


def residual_blocks(count):
    wires = ["in -> add0"]
    for i in range(count):
        wires += [f"add{i} -> conv{i}", f"conv{i} -> norm{i}", f"add{i} norm{i} -> add{i + 1}"]
    return model(*wires)


def placed(graph, **device_of):
    devices = {o.name: device_of.get(o.name, "worker:0") for o in placed_ops(graph)}
    return Placement(label="towers", family="towers", device_of=devices, rationale="by hand")


# The model adds what its layer a returns, and reads b's.
WRAPPED = in_a_row(["model", "a", "model", "b", "model"])
VARIABLE = op("w", "VarHandleOp", Role.VARIABLE, variable="w", parameter_bytes=8, output_bytes=(0,))
READ = op("read", "ReadVariableOp", layer="lstm/cell", variable="w", output_bytes=(8,))


SIDE_BY_SIDE = OpGraph(
    [op(name, "AddV2", layer=name[0]) for name in ("a1", "b1", "b2", "a2")],
    [edge("a1", "b1", 8), edge("b2", "a2", 8)],
)
# A layer that only reads its variables is drawn before its reader.
READS_ONLY = OpGraph(
    [VARIABLE, READ, op("loop", "While", layer="lstm")],
    [edge("w", "read", 0), edge("read", "loop", 8)],
)


@pytest.mark.parametrize(
    ("graph", "sent"),
    [
        (WRAPPED, ["model > a", "a > model #2", "model #2 > b", "b > model #3"]),
        (SIDE_BY_SIDE, ["a > b", "b > a #2"]),
        (model("in -> a", "a -> b", "a b -> c"), ["a > b", "a > c", "b > c"]),
        (READS_ONLY, ["lstm/cell > lstm"]),
    ],
)
def test_a_layer_is_cut_where_its_data_comes_back_to_it(graph, sent):
    found = layer_parts(graph, layer_view(graph))
    names = [part.name for part in found.parts]
    assert [f"{names[source]} > {names[target]}" for source, target in found.edges] == sent
    assert all(source < target for source, target in found.edges)
    assert set(found.edges.values()) == {8}


def test_a_box_has_its_layers_parameters_flops_arrow_and_place():
    boxes = layer_boxes(training_step(), "tiny")
    # dense has 416 of the step's 416 flops: its own 300, the gradient's 100, the update's 16.
    texts = {"ids": "0 % of flops", "dense": "32 B · 100 % of flops", "loop": "flops unknown"}
    assert {box.name: box.texts for box in boxes.boxes} == {k: [v] for k, v in texts.items()}
    assert boxes.arrows == {(0, 1): 16, (1, 2): 8}
    assert list(boxes.colors) == ["loop or branch", "matrix product", "lookup"]
    assert layer_boxes(in_a_row(["a", "b"], None), "x").arrows == {(0, 1): None}
    with pytest.raises(AdvisorError, match="x: nothing to draw"):
        layer_boxes(OpGraph([op("c", "Const", Role.CONSTANT)], []), "x")
    ops = [
        *(VARIABLE, READ, op("x", "Placeholder", Role.INPUT, output_bytes=(8,))),
        op("loop", "While", layer="lstm", variable="w", flops=1, output_bytes=(8,)),
    ]
    graph = OpGraph(ops, [edge("w", "read", 0), edge("w", "loop", 0), edge("x", "loop", 8)])
    (box,) = layer_boxes(graph, "x").boxes
    assert (box.name, box.texts) == ("lstm", ["8 B · 100 % of flops"])
    # With nothing else, what reads nothing but variables is drawn.
    (box,) = layer_boxes(OpGraph([VARIABLE, READ], [edge("w", "read", 0)]), "x").boxes
    assert box.name == "lstm/cell"
    graph = model("in -> a", "a -> b")
    boxes = layer_boxes(graph, "x", placement=placed(graph, b="worker:1"))
    assert boxes.title == "x, placed as in towers"
    assert [box.texts[-1] for box in boxes.boxes] == ["worker:0", "worker:1"]
    assert list(boxes.colors) == ["worker:0", "worker:1"]
    graph = in_a_row(["one"] * 4)
    (box,) = layer_boxes(graph, "x", placement=placed(graph, **{"3": "worker:1"})).boxes
    assert box.texts[-1] == "worker:0 75 %"
    assert box.shares == {"worker:0": 0.75, "worker:1": 0.25}


NESTED = in_a_row([f"block_{i // 10}/part_{i}" for i in range(99)])


@pytest.mark.parametrize(
    ("graph", "depth", "drawn", "note", "text"),
    [
        (in_a_row([f"l{i}" for i in range(MAX_BOXES)]), None, MAX_BOXES, "tensors.", "1.7 %"),
        # A chain is conv and norm; an add is fed by two and feeds two.
        (residual_blocks(20), None, 41, "61 layers in 41 boxes: neighbours share one.", "2 layers"),
        # 36 adds and 35 chains are too many: each chain shares a box with an add.
        (residual_blocks(35), None, 36, "106 layers in 36 boxes: neighbours share one.", "3 layer"),
        (in_a_row([f"l{i}" for i in range(2_000)]), None, 59, "neighbours share one.", "34 layers"),
        (NESTED, None, 10, "depth 1 of their paths.", "10 %"),
        (NESTED, 2, 50, "99 layers in 50 boxes: neighbours share one.", "2 layers"),
    ],
)
def test_many_layers_are_drawn_as_few_boxes_and_the_picture_says_so(
    graph, depth, drawn, note, text
):
    boxes = layer_boxes(graph, "x", depth=depth)
    assert len(boxes.boxes) == drawn
    assert boxes.note.endswith(note)
    assert any(box.texts[0].startswith(text) for box in boxes.boxes)


@st.composite
def dags(draw):
    count = draw(st.integers(1, 30))
    pairs = st.tuples(st.integers(0, count - 1), st.integers(0, count - 1))
    return count, [(i, j) for i, j in draw(st.lists(pairs, unique=True)) if i < j]


@given(dags(), st.integers(1, 30))
def test_merging_reaches_the_limit_keeps_all_and_makes_no_loop(dag, limit):
    count, edges = dag
    groups = merged(count, edges, limit)
    assert sorted(number for group in groups for number in group) == list(range(count))
    assert len(groups) <= limit
    place = {number: i for i, group in enumerate(groups) for number in group}
    assert all(place[one] <= place[other] for one, other in edges)


@given(dags())
def test_boxes_never_overlap_and_arrows_lead_from_rank_to_rank(dag):
    count, edges = dag
    layout = best_layout(count, edges, BOX)
    for i, (along, across, _) in enumerate(layout.boxes):
        for other_along, other_across, _ in layout.boxes[:i]:
            far = abs(along - other_along), abs(across - other_across)
            assert any(one >= side - 1e-6 for one, side in zip(far, layout.box, strict=True))
    assert set(layout.routes) == set(edges)
    for (source, target), route in layout.routes.items():
        assert (route[0], route[-1]) == (layout.boxes[source], layout.boxes[target])
        for one, other in pairwise(route):
            pitch = layout.box[0] + layout.gap if one.ahead == other.ahead else 0
            assert other.along - one.along == pytest.approx(one.ahead * pitch)


def test_a_long_chain_is_folded_a_short_one_is_not_and_two_towers_do_not_cross():
    chain = [(i, i + 1) for i in range(59)]
    layout = best_layout(60, chain, BOX)
    assert {stop.ahead for stop in layout.boxes} == {1, -1}
    assert max(layout.size) < 20
    assert {stop.ahead for stop in best_layout(5, chain[:4], BOX).boxes} == {1}
    # 0 -> 3 -> 4 and 1 -> 2 -> 4, with the second rank given the other way round.
    layout = best_layout(5, [(0, 3), (1, 2), (3, 4), (2, 4)], BOX)
    across = [box.across for box in layout.boxes]
    assert (across[0] < across[1]) == (across[3] < across[2])
    assert across[4] == pytest.approx((across[2] + across[3]) / 2)


def drawn(graph, path, placement=None):
    save(draw_layers(layer_boxes(graph, "x", placement=placement)), path)
    return pixels(path)


@pytest.mark.parametrize(
    "graph",
    [
        *(training_step(), residual_blocks(25), WRAPPED),
        in_a_row([f"layer_{i}" for i in range(60)]),
        in_a_row([f"{'W' * 190}_{i}" for i in range(12)]),
        in_a_row([f"{'block/W' * 28}_{i}/{'dense_' * 20}" for i in range(12)]),
        # The font lacks them, or they look like mathematics.
        in_a_row(["模型 $x$ \x1b {" + "n" * 200, "模 $"]),
    ],
    ids=["kinds", "blocks", "wrapped", "many", "one word", "words", "strange"],
)
def test_a_picture_of_any_size_and_names_can_be_read(graph):
    title = f"{placed_ops(graph)[-1].layer}"
    devices = {o.name: f"worker:{i % 8}{title}" for i, o in enumerate(placed_ops(graph))}
    for placement in (None, placed(graph, **devices)):
        figure = draw_layers(layer_boxes(graph, title, depth=9, placement=placement))
        assert unreadable(figure) == []
        width, height = figure.get_size_inches() * figure.dpi
        assert 1_000 <= width <= 3_500
        assert 250 <= height <= 2_500


def test_devices_have_colours_by_their_share_and_heavier_tensors_thicker_arrows(tmp_path):
    graph = model("in -> a", "a -> b", "a -> c")
    picture = drawn(graph, tmp_path / "x.png", placed(graph, b="worker:1"))
    first, second, third = (count(picture, color) for color in DEVICE_COLORS[:3])
    # Two boxes against one, and one mark each in the legend.
    assert first / second == pytest.approx(2, rel=0.25)
    assert third == 0
    heavy, light = (
        count(drawn(in_a_row(["a", "b", "c"], 1_000_000, size), tmp_path / "x.png"), "#8C8C8C")
        for size in (1_000_000, 10)
    )
    assert heavy > 1.3 * light
