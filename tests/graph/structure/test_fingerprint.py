from random import Random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from op_graphs import called, chain, edge, graphs, op, sized

from placement_advisor.graph.fingerprint import fingerprints, layer_fingerprints
from placement_advisor.graph.identities import numbering
from placement_advisor.graph.op import CONTROL_PORT, Op, Role
from placement_advisor.graph.op_graph import OpGraph

CHAIN = chain("a", "b", "c", "d")
HERE = dict.fromkeys("abcd", "GPU:0")


def fingerprint(graph, device_of=None):
    """Return the fingerprint of a graph, or of a placed one."""
    return fingerprints(graph, device_of or {})[device_of is not None]


def with_ops(graph, **changed):
    return sized([changed.get(each.name, each) for each in graph.ops], graph.edges)


@pytest.mark.parametrize(
    "changes",
    [
        {"output_bytes": (16,)},
        {"output_bytes": (None,)},
        {"output_bytes": (8, 8)},
        {"parameter_bytes": 4},
        {"flops": 3},
        {"bytes_accessed": 3},
        {"trips": 2},
        {"role": Role.BACKWARD},
        {"device_kinds": frozenset({"CPU", "GPU"})},
        {"host_outputs": (0,)},
    ],
    ids=" ".join,
)
def test_another_figure_of_an_op_is_another_graph(changes):
    changed = with_ops(CHAIN, b=op("b")._replace(**changes))
    assert fingerprint(changed) != fingerprint(CHAIN)
    assert fingerprint(changed, HERE) != fingerprint(CHAIN, HERE)


def test_what_is_read_from_afar_and_by_whom_counts():
    two = OpGraph([op(name) for name in "abcd"], [edge("a", "b"), edge("c", "d")])
    first = with_ops(two, a=op("a")._replace(kind="Relu"))
    both = with_ops(first, d=op("d")._replace(kind="Relu"))
    other = with_ops(first, b=op("b")._replace(kind="Relu"))
    assert fingerprint(both) != fingerprint(other)
    ops = [op("a"), op("b"), op("c")._replace(kind="Relu"), op("d")._replace(kind="Tanh")]
    shared = OpGraph(ops, [edge("a", "c"), edge("a", "d")])
    each = OpGraph(ops, [edge("a", "c"), edge("b", "d")])
    assert fingerprint(shared) != fingerprint(each)


def test_control_edges_and_copies_of_constants_do_not_count():
    one = Op("one", "Const", Role.CONSTANT, output_bytes=(4,))
    shared = OpGraph(
        [*CHAIN.ops, one], [*CHAIN.edges, *(edge("one", name, size_bytes=4) for name in "bd")]
    )
    edges = [edge("one", "b", size_bytes=4), edge("uno", "d", size_bytes=4)]
    control = edge("a", "d", port=CONTROL_PORT, size_bytes=None)
    two = one, one._replace(name="uno")
    copied = OpGraph([*CHAIN.ops, *two], [*CHAIN.edges, *edges, control])
    assert fingerprint(shared) == fingerprint(copied)
    assert fingerprint(shared, HERE) == fingerprint(copied, HERE)
    assert layer_fingerprints(shared) == layer_fingerprints(copied)
    assert fingerprint(shared) != fingerprint(CHAIN)


def test_which_ops_are_elsewhere_counts_though_devices_hold_the_same():
    ends = ("in", "cheap"), ("in", "dear"), ("cheap", "out"), ("dear", "out")
    ops = [op("in"), op("cheap")._replace(kind="Relu"), op("dear"), op("out")]
    fork = OpGraph(ops, [edge(*each) for each in ends])
    together = dict.fromkeys(("in", "cheap", "dear", "out"), "GPU:0")
    apart = [fingerprint(fork, together | {name: "GPU:1"}) for name in ("cheap", "dear")]
    assert apart[0] != apart[1]
    ops = [op(name)._replace(kind=name[0]) for name in ("a1", "b1", "a2", "b2")]
    chains = OpGraph(ops, [edge("a1", "b1"), edge("a2", "b2")])
    stay = {"a1": "x", "b1": "x", "a2": "y", "b2": "y"}
    cross = {"a1": "x", "b1": "y", "a2": "y", "b2": "x"}
    assert fingerprint(chains, stay) != fingerprint(chains, cross)
    there = dict.fromkeys(HERE, "GPU:1")
    assert fingerprints(CHAIN, HERE) == fingerprints(CHAIN, there)
    sorts = {"GPU:0": "0", "GPU:1": "1"}
    assert fingerprints(CHAIN, HERE, sorts)[1] != fingerprints(CHAIN, there, sorts)[1]


def test_a_layer_is_made_of_its_ops_whatever_is_around_them():
    one = OpGraph([op("a", "x"), op("b", "x"), op("c", "y")], [edge("a", "b"), edge("b", "c")])
    other = OpGraph([op("z", "q"), op("c", "x"), op("a", "x")], [])
    assert layer_fingerprints(one)["x"] == layer_fingerprints(other)["x"]
    assert layer_fingerprints(one)["y"] == layer_fingerprints(other)["q"]
    assert layer_fingerprints(one)["x"] != layer_fingerprints(one)["y"]


def test_fingerprints_are_the_same_on_any_machine():
    assert fingerprint(CHAIN) == "d9b4756b557551fb"
    assert fingerprint(CHAIN, {**HERE, "d": "GPU:1"}) == "10d9683360e5538e"


@given(graphs(), st.randoms(use_true_random=False))
def test_names_and_order_do_not_count(graph, shuffle):
    name = new_names(graph, shuffle)
    other = renamed(graph, name, shuffle)
    assert fingerprint(other) == fingerprint(graph)
    layers = layer_fingerprints(graph).values()
    assert sorted(layer_fingerprints(other).values()) == sorted(layers)
    device_of = {each.name: f"GPU:{shuffle.randrange(3)}" for each in graph.placed_ops}
    places = ["GPU:0", "GPU:1", "GPU:2"]
    trade = dict(zip(places, shuffle.sample(places, 3), strict=True))
    traded = {name[op_name]: trade[device] for op_name, device in device_of.items()}
    assert fingerprint(other, traded) == fingerprint(graph, device_of)


@given(graphs(), st.data())
def test_one_change_of_what_is_computed_counts(graph, data):
    ops = [each for each in graph.ops if each.role is not Role.CONSTANT]
    assume(ops)
    one = data.draw(st.sampled_from(ops))
    changes = [
        {"kind": "Softmax"},
        {"output_bytes": (*one.output_bytes, 3)},
        {"parameter_bytes": one.parameter_bytes + 1},
        {"flops": (one.flops or 0) + 1},
    ]
    change = data.draw(st.sampled_from(changes))
    assert fingerprint(with_ops(graph, **{one.name: one._replace(**change)})) != fingerprint(graph)


@given(graphs(), st.data())
def test_an_edge_more_or_less_counts(graph, data):
    kept = {each.name for each in graph.placed_ops}
    there = [each for each in graph.edges if not each.is_control and each.consumer in kept]
    assume(there)
    gone = data.draw(st.integers(0, len(there) - 1))
    left = list(graph.edges)
    left.remove(there[gone])
    assert fingerprint(OpGraph(graph.ops, left)) != fingerprint(graph)


@given(graphs(), st.data())
def test_a_move_to_a_device_of_its_own_counts(graph, data):
    ops = graph.placed_ops
    assume(len(ops) > 1)
    moved = data.draw(st.sampled_from(ops)).name
    together = {each.name: "a" for each in ops}
    assert fingerprint(graph, together) != fingerprint(graph, {**together, moved: "b"})


def renamed(graph, names, shuffle):
    """Return the graph under other names, its ops and edges in another order if they are shuffled.

    Layers take the names backwards.
    """
    ops, edges = called(graph, names, lambda layer: layer[::-1] + "_3")
    if shuffle is not None:
        ops, edges = shuffle.sample(ops, len(ops)), shuffle.sample(edges, len(edges))
    return OpGraph(ops, edges)


def towers(*prefixes):
    """Return equal towers of four ops that meet."""
    ops = [op(f"{p}{i}", f"{p} {i // 2}") for p in prefixes for i in range(4)]
    edges = [edge(f"{p}{i}", f"{p}{i + 1}") for p in prefixes for i in range(3)]
    return OpGraph([*ops, op("top")], [*edges, *(edge(f"{p}3", "top") for p in prefixes)])


def new_names(graph, shuffle):
    names = [each.name for each in graph.ops]
    return dict(zip(names, (f"{i}?" for i in shuffle.sample(range(99), len(names))), strict=True))


@given(graphs(), st.randoms(use_true_random=False))
def test_under_other_names_every_op_has_its_number(graph, shuffle):
    names = new_names(graph, shuffle)
    mine, others = numbering(graph), numbering(renamed(graph, names, None))
    assert others.fingerprint == mine.fingerprint
    assert others.ops == {names[name]: number for name, number in mine.ops.items()}


@given(graphs(), st.randoms(use_true_random=False))
def test_where_fingerprints_are_equal_numbers_take_edges_to_edges_layers_to_layers(graph, shuffle):
    other = renamed(graph, new_names(graph, shuffle), shuffle)
    mine, others = numbering(graph), numbering(other)
    if mine.fingerprint != others.fingerprint:
        return  # Ops are alike in more than one way, and in another order: not taken for the same.
    assert _described(graph) == _described(other)


def test_towers_alike_have_numbers_whatever_their_order_and_layers_count():
    mine = towers("a", "b", "c")
    others = OpGraph(Random(0).sample(mine.ops, len(mine.ops)), mine.edges)
    assert numbering(mine).fingerprint == numbering(others).fingerprint
    assert _described(mine) == _described(others)
    one = chain("a", "b", "c")
    ops = [each._replace(layer="x" if each.name == "a" else "y") for each in one.ops]
    layered = OpGraph(ops, one.edges)
    assert numbering(layered).fingerprint != numbering(one).fingerprint


def _described(graph):
    """Return all of a graph by numbers: kinds, layers and edges between ops that have one."""
    found = numbering(graph)
    own = [
        (found.ops[each.name], each.kind, found.layers[each.layer or None])
        for each in graph.placed_ops
    ]
    edges = [
        (found.ops[each.producer], found.ops[each.consumer], each.port, str(each.size_bytes))
        for each in graph.edges
        if not each.is_control and {each.producer, each.consumer} <= found.ops.keys()
    ]
    return [sorted(own), sorted(edges)]
