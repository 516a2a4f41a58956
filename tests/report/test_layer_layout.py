import pytest
from hypothesis import given
from hypothesis import strategies as st
from layer_models import model
from summary_graphs import edge, op

from placement_advisor.graph.layer_view import layer_view
from placement_advisor.graph.op import Role
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.report.pictures.layer_layout import best_layout, layer_parts

BOX = (2.0, 0.5)


# The model adds what its layer a returns, and reads b's.
LAYERS = ("model", "a", "model", "b", "model")
WRAPPED = OpGraph(
    [op(f"{i}", "Relu", layer=layer, flops=1) for i, layer in enumerate(LAYERS)],
    [edge(f"{i}", f"{i + 1}", 8) for i in range(4)],
)
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
    parts, edges = layer_parts(graph, layer_view(graph))
    names = [part.name for part in parts]
    assert [f"{names[source]} > {names[target]}" for source, target in edges] == sent
    assert all(source < target for source, target in edges)


@given(st.integers(1, 30), st.data())
def test_boxes_never_overlap_and_arrows_lead_from_box_to_box(count, data):
    ends = st.integers(0, count - 1)
    pairs = data.draw(st.lists(st.tuples(ends, ends), unique=True))
    edges = [(i, j) for i, j in pairs if i < j]
    boxes, routes = best_layout(count, edges, BOX)
    for i, box in enumerate(boxes):
        for other in boxes[:i]:
            far = (abs(a - b) for a, b in zip(box, other, strict=True))
            assert any(one >= side - 1e-6 for one, side in zip(far, BOX, strict=True))
    assert set(routes) == set(edges)
    for (source, target), route in routes.items():
        assert (route[0], route[-1]) == (boxes[source], boxes[target])


def test_a_long_chain_is_folded_a_short_one_is_not_and_two_towers_do_not_cross():
    def columns(count):
        edges = [(i, i + 1) for i in range(count - 1)]
        boxes, _ = best_layout(count, edges, BOX)
        assert max(max(box) for box in boxes) < 20
        return [[y for x, y in boxes if x == column] for column in sorted({x for x, _ in boxes})]

    (only,) = columns(5)
    assert only == sorted(only)
    down, up, *_ = columns(60)
    assert (down, up) == (sorted(down), sorted(up, reverse=True))
    # 0 -> 3 -> 4 and 1 -> 2 -> 4, with the second rank given the other way round.
    boxes, _ = best_layout(5, [(0, 3), (1, 2), (3, 4), (2, 4)], BOX)
    x0, x1, x2, x3, x4 = (x for x, _ in boxes)
    assert (x0 < x1) == (x3 < x2)
    assert x4 == pytest.approx((x2 + x3) / 2)
