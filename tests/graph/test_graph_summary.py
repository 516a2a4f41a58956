import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from layer_models import model
from op_graphs import graphs
from summary_graphs import BOTH, HOST, edge, op, training_step

from placement_advisor.graph.graph_summary import ControlFlow, summarize
from placement_advisor.graph.layer_view import LayerSummary, depth_for, layer_view
from placement_advisor.graph.name_patterns import listed, name_patterns
from placement_advisor.graph.op import CONTROL_PORT, Edge, Op, Role, Total
from placement_advisor.graph.op_graph import OpGraph

TRAINED = summarize(training_step())


def total(known, parts, unknown=0):
    return Total(amount=known, parts=parts, unknown=unknown)


def test_a_training_step_by_hand():
    assert TRAINED.ops == 13
    assert TRAINED.ops_by_role[Role.VARIABLE] == 3
    # w is read by the forward pass, m only by the update; a table has no bytes.
    assert TRAINED.parameter_bytes == total(32, 1)
    assert TRAINED.state_bytes == total(32, 1)
    assert TRAINED.constant_bytes == total(4, 1)
    # MatMul 300 + 100, update 16; the loop is unknown.
    assert TRAINED.flops == total(416, 8, unknown=1)
    # 128 + 56 + 56 + 160
    assert TRAINED.bytes_accessed == total(400, 8, unknown=1)
    assert TRAINED.edge_bytes == total(220, 15, unknown=1)
    assert TRAINED.control_edges == 1
    assert TRAINED.layers == 3


def test_a_variable_that_the_forward_pass_writes_counts_and_is_no_parameter():
    ops = [
        op("seen", "VarHandleOp", Role.VARIABLE, parameter_bytes=4),
        op("read", "ReadVariableOp", output_bytes=(4,)),
        op("count", "AssignAddVariableOp"),
    ]
    found = summarize(OpGraph(ops, [edge("seen", "read", 0), edge("seen", "count", 0)]))
    assert found.parameter_bytes == total(0, 0)
    assert found.state_bytes == total(4, 1)


def test_activations_are_forward_tensors_that_the_backward_pass_reads_or_all_without_one():
    assert TRAINED.trains
    # The gradient reads the loop's list (unknown), the ids through a reshape, and a variable.
    assert TRAINED.activation_bytes == total(16, 2, unknown=1)
    found = summarize(model("in -> a", "a -> b", "a -> c"))
    assert not found.trains
    assert found.activation_bytes == total(3 * 8, 3)


def test_largest_tensors_and_kinds_come_first():
    largest = [(t.op, t.size_bytes) for t in TRAINED.largest_tensors]
    assert largest == [("words", 64), ("grad", 32), ("ids", 16), ("dense", 8)]
    kinds = TRAINED.kinds
    # MatMul 400 of 416 flops; update 160 of 400 bytes; lookup 128 of 400 bytes.
    names = [kind.kind for kind in kinds[:3]]
    assert names == ["MatMul", "ResourceApplyMomentum", "LookupTableFindV2"]
    assert kinds[0].ops == 2
    assert kinds[0].flops_share == pytest.approx(400 / 416)
    assert kinds[0].bytes_accessed_share == pytest.approx(112 / 400)


def test_a_loop_has_its_share_and_trips_unless_its_work_is_unknown():
    assert TRAINED.control_flow == (
        ControlFlow(
            op="loop",
            kind="While",
            role=Role.FORWARD,
            layer="loop",
            trips=None,
            flops_share=None,
            bytes_accessed_share=None,
        ),
    )
    loop = next(kind for kind in TRAINED.kinds if kind.kind == "While")
    assert loop.flops.amount is None
    assert loop.flops_share is None
    ops = [
        op("loop", "StatelessWhile", trips=7, flops=30, bytes_accessed=10),
        op("if", "If", flops=0, bytes_accessed=10),
        op("a", "MatMul", flops=10, bytes_accessed=20),
    ]
    loop, branch = summarize(OpGraph(ops, [])).control_flow
    facts = (loop.op, loop.trips, loop.flops_share, loop.bytes_accessed_share)
    assert facts == ("loop", 7, 0.75, 0.25)
    assert loop.is_loop
    assert not branch.is_loop


def test_a_host_op_says_what_it_binds_and_what_crosses_from_it():
    host = {kind.kind: kind for kind in TRAINED.host_only}
    assert set(host) == {"LookupTableFindV2", "HashTableV2"}
    lookup = host["LookupTableFindV2"]
    assert lookup.layers == ("ids",)
    # Its table's size could be asked on a GPU, but only where the table is.
    assert lookup.bound_ops == 1
    # The ids go on to a reshape; the words are an input, which starts on the host anyway.
    assert lookup.crossing_bytes == total(16, 1)
    ops = [
        op("a", "StringSplit", device_kinds=HOST, output_bytes=(8,)),
        op("b", "StringToHashBucket", device_kinds=HOST, output_bytes=(4,)),
        op("c", "MatMul", device_kinds=BOTH),
        op("d", "MatMul", device_kinds=BOTH),
    ]
    graph = OpGraph(ops, [edge("a", "b", 8), edge("b", "c", 4), edge("b", "d", 4)])
    crossing = {kind.kind: kind.crossing_bytes for kind in summarize(graph).host_only}
    assert crossing == {"StringSplit": total(0, 0), "StringToHashBucket": total(4, 1)}


@given(graphs())
def test_any_graph_has_a_summary_that_adds_up(graph):
    found = summarize(graph)
    assert found.ops == len(graph)
    assert found.edge_bytes.parts + found.control_edges == len(graph.edges)
    variables = [op for op in graph.ops if op.role is Role.VARIABLE]
    parameter_bytes = sum(variable.parameter_bytes for variable in variables)
    assert found.parameter_bytes.known + found.state_bytes.known == parameter_bytes
    assert sum(kind.ops for kind in found.kinds) == found.flops.parts
    assert sum(kind.flops.known for kind in found.kinds) == found.flops.known


def test_a_long_chain_of_reshapes_holds_no_tensor_of_its_own():
    ops = [op(f"o{i}", "Reshape", layer=f"l{i // 500}", output_bytes=(8,)) for i in range(20_000)]
    edges = [edge(f"o{i}", f"o{i + 1}", 8) for i in range(len(ops) - 1)]
    gradient = op("g", "Grad", Role.BACKWARD)
    graph = OpGraph([*ops, gradient], [*edges, edge(ops[-1].name, "g", 8)])
    assert summarize(graph).activation_bytes == total(0, 0)


def test_a_training_step_of_two_layers_by_hand():
    held = {"variable": "w", "parameter_bytes": 12, "output_bytes": (0,)}
    # Layer b reads 40 bytes of a, its gradient sends 20 back and reads a's 7 again.
    ops = [
        Op("x", "Placeholder", Role.INPUT, output_bytes=(99,)),
        Op("w", "VarHandleOp", Role.VARIABLE, layer="a", **held),
        Op("a/mul", "MatMul", layer="a", flops=6, output_bytes=(40, 7)),
        Op("b/relu", "Relu", layer="b", flops=1, output_bytes=(40,)),
        Op("b/grad", "ReluGrad", Role.BACKWARD, layer="b", output_bytes=(20,)),
        Op("a/grad", "MatMul", Role.BACKWARD, layer="a", flops=6, output_bytes=(12,)),
        Op("step", "AssignSub", Role.UPDATE, layer="a", variable="w", flops=3),
    ]
    wires = [
        *(("x", "a/mul", 0, 99), ("w", "a/mul", 0, 0), ("a/mul", "b/relu", 0, 40)),
        *(("a/mul", "b/grad", 0, 40), ("a/mul", "b/grad", 1, 7), ("b/relu", "b/grad", 0, 40)),
        *(("b/grad", "a/grad", 0, 20), ("a/grad", "step", 0, 12), ("w", "step", 0, 0)),
        ("b/relu", "a/grad", CONTROL_PORT, None),
    ]
    view = layer_view(OpGraph(ops, [Edge(*wire) for wire in wires]))
    assert view.layers == (
        LayerSummary(
            name="a",
            ops_by_role={Role.VARIABLE: 1, Role.FORWARD: 1, Role.BACKWARD: 1, Role.UPDATE: 1},
            flops=Total(amount=15, parts=3, unknown=0),
            output_bytes=40,
        ),
        LayerSummary(
            name="b",
            ops_by_role={Role.FORWARD: 1, Role.BACKWARD: 1},
            flops=Total(amount=1, parts=2, unknown=1),
            output_bytes=0,
        ),
    )
    assert view.edges == {("a", "b"): 40}


def test_a_tensor_counts_once_per_layer_and_one_unknown_size_makes_the_sum_unknown():
    ops = [
        Op("a", "K", layer="A", output_bytes=(40,)),
        *(Op(name, "K", layer=name[0].upper()) for name in ("b1", "b2", "c")),
    ]
    view = layer_view(OpGraph(ops, [Edge("a", name, 0, 40) for name in ("b1", "b2", "c")]))
    assert view.edges == {("A", "B"): 40, ("A", "C"): 40}
    assert view.layers[0].output_bytes == 40
    ops = [Op("a", "K", layer="A"), Op("b", "K", layer="B")]
    view = layer_view(OpGraph(ops, [Edge("a", "b", 0, 8), Edge("a", "b", 1, None)]))
    assert view.edges == {("A", "B"): None}
    assert view.layers[0].output_bytes is None


def test_a_layer_that_wraps_another_makes_a_loop_that_is_kept():
    names = {"before": "outer", "within": "inner", "after": "outer"}
    ops = [Op(name, "K", layer=layer) for name, layer in names.items()]
    wires = [Edge("before", "within", 0, 8), Edge("within", "after", 0, 8)]
    view = layer_view(OpGraph(ops, wires))
    assert set(view.edges) == {("outer", "inner"), ("inner", "outer")}
    assert view.feeders() == {"inner": ("outer",), "outer": ("inner",)}


def nested():
    names = ["stem", "enc/0/q", "enc/0/k", "enc/1/q", "enc/1/k@2", "head"]
    ops = [Op(f"op{i}", "K", layer=name) for i, name in enumerate(names)]
    return OpGraph(ops, [Edge(f"op{i}", f"op{i + 1}", 0, 8) for i in range(len(names) - 1)])


def test_a_depth_folds_paths_and_readers_and_the_largest_that_fits_is_chosen():
    names = [layer.name for layer in layer_view(nested(), 2).layers]
    assert names == ["stem", "enc/0", "enc/1", "head"]
    folded = layer_view(nested(), 1)
    ops = [(layer.name, layer.ops) for layer in folded.layers]
    assert ops == [("stem", 1), ("enc", 4), ("head", 1)]
    assert list(folded.edges) == [("stem", "enc"), ("enc", "head")]
    ops = [
        Op("v", "VarHandleOp", Role.VARIABLE, variable="v"),
        *(Op(f"r{i}", "ReadVariableOp", layer=f"enc/{i}", variable="v") for i in range(2)),
    ]
    graph = OpGraph(ops, [Edge("v", f"r{i}", 0, 0) for i in range(2)])
    assert layer_view(graph).membership.readers == {"v": ("enc/0", "enc/1")}
    assert layer_view(graph, 1).membership.readers == {"v": ("enc",)}
    # Six layers at full depth, four at depth 2, three at depth 1.
    chosen = {most: depth_for(nested(), most) for most in (6, 5, 4, 3, 2)}
    assert chosen == {6: None, 5: 2, 4: 2, 3: 1, 2: 1}


@given(graphs(), st.one_of(st.none(), st.integers(1, 3)))
def test_every_op_of_a_layer_is_counted_once(graph, depth):
    view = layer_view(graph, depth)
    layer_of = [view.membership.layer_of.get(op.name, op.layer) for op in graph.ops]
    assert sum(layer.ops for layer in view.layers) == len(graph) - layer_of.count(None)
    names = [layer.name for layer in view.layers]
    assert len(set(names)) == len(names)
    for source, target in view.edges:
        assert {source, target} <= set(names)
        assert source != target


TOWERS = ["word_ids", "user_conv", "item_conv", "user_dense", "item_dense", "rating"]
BLOCKS = [f"block_{i}/{name}" for i in range(1, 13) for name in ("query", "key", "norm")]


def says(pattern, name):
    """Return whether a pattern stands for a name, by what a reader would make of it."""
    if " … " not in pattern:
        prefix = pattern.removesuffix("*")
        return name.startswith(prefix) if prefix != pattern else name == pattern
    first, last = (re.fullmatch(r"(.*?)(\d+)(\D*)", end) for end in pattern.split(" … "))
    stem, tail = first[1], first[3].removesuffix("*")
    rest = "" if first[3] == tail else ".*"
    match = re.fullmatch(rf"{re.escape(stem)}(\d+){re.escape(tail)}{rest}", name)
    return match is not None and int(first[2]) <= int(match[1]) <= int(last[2])


def test_names_that_begin_alike_are_one_pattern():
    assert name_patterns(["user_conv", "user_dense"], TOWERS) == ["user_*"]
    assert name_patterns(["user_conv", "rating"], TOWERS) == ["user_conv", "rating"]
    assert name_patterns(["user_conv"], ["user_conv", "rating"]) == ["user_conv"]


def test_blocks_that_count_up_are_a_range():
    assert name_patterns(BLOCKS[:18], BLOCKS) == ["block_1/* … block_6/*"]
    patterns = name_patterns(BLOCKS[:17], BLOCKS)
    assert patterns == ["block_1/* … block_5/*", "block_6/query", "block_6/key"]
    dense = ["dense", *(f"dense_{i}" for i in range(1, 12))]
    assert name_patterns(dense[:5], dense) == ["dense", "dense_1 … dense_4"]


@pytest.mark.parametrize(
    ("most", "text"), [(None, "a, b and c"), (3, "a, b and c"), (2, "a, b and 1 more")]
)
def test_lists_read_as_sentences_and_are_cut_with_their_number(most, text):
    assert listed(["a", "b", "c"], most) == text
    assert listed(["a"], most) == "a"


names = st.lists(
    st.lists(st.sampled_from(["a", "b", "1", "2", "3", "10", "conv"]), min_size=1, max_size=4).map(
        tuple
    ),
    unique=True,
    max_size=14,
)


@given(names, st.sampled_from("_/.@-"), st.data())
def test_patterns_stand_for_exactly_the_names(pieces, separator, data):
    among = [separator.join(name) for name in pieces]
    wanted = [name for name in among if data.draw(st.booleans())]
    patterns = name_patterns(wanted, among)
    assert {name for name in among if any(says(each, name) for each in patterns)} == set(wanted)
    assert len(patterns) <= len(wanted)
