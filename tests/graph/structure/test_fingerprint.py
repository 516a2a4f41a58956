"""Fingerprints tell what a graph computes, and nothing of names, order or devices' names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from op_graphs import chain, edge, graphs, op, sized

from placement_advisor.graph.fingerprint import fingerprints, layer_fingerprints
from placement_advisor.graph.op import CONTROL_PORT, Edge, Op, Role
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.graph.placement import placed_ops

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping

    from hypothesis.strategies import DataObject

CHAIN = chain("a", "b", "c", "d")
HERE = dict.fromkeys("abcd", "GPU:0")


def fingerprint(graph: OpGraph, device_of: Mapping[str, str] | None = None) -> str:
    """Return the fingerprint of a graph, or of a placed one."""
    return fingerprints(graph, device_of or {})[device_of is not None]


def with_ops(graph: OpGraph, **changed: Op) -> OpGraph:
    return sized([changed.get(each.name, each) for each in graph.ops], graph.edges)


def fork(*edges: Edge) -> OpGraph:
    """Return a cheap and a dear op that read the same, and one that reads both."""
    ops = [op("in"), op("cheap")._replace(kind="Relu"), op("dear"), op("out")]
    return OpGraph(ops, edges or [edge("in", "cheap"), edge("in", "dear"), edge("cheap", "out"),
                                  edge("dear", "out")])  # fmt: skip


def renamed(graph: OpGraph, name: Mapping[str, str], shuffle: random.Random) -> OpGraph:
    """Return the graph under other names, its ops and edges in another order."""
    ops = [each._replace(name=name[each.name], layer=f"other {each.layer}") for each in graph.ops]
    edges = [
        each._replace(producer=name[each.producer], consumer=name[each.consumer])
        for each in graph.edges
    ]
    return OpGraph(shuffle.sample(ops, len(ops)), shuffle.sample(edges, len(edges)))


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
def test_another_figure_of_an_op_is_another_graph(changes: dict[str, object]) -> None:
    changed = with_ops(CHAIN, b=op("b")._replace(**changes))
    assert fingerprint(changed) != fingerprint(CHAIN)
    assert fingerprint(changed, HERE) != fingerprint(CHAIN, HERE)


def test_what_an_op_reads_from_afar_and_what_reads_it_count() -> None:
    two = OpGraph([op(name) for name in "abcd"], [edge("a", "b"), edge("c", "d")])
    first = with_ops(two, a=op("a")._replace(kind="Relu"))
    both = with_ops(first, d=op("d")._replace(kind="Relu"))
    other = with_ops(first, b=op("b")._replace(kind="Relu"))
    assert fingerprint(both) != fingerprint(other)


def test_two_readers_of_one_op_are_not_one_reader_each_of_two_equal_ones() -> None:
    ops = [op("a"), op("b"), op("c")._replace(kind="Relu"), op("d")._replace(kind="Tanh")]
    shared = OpGraph(ops, [edge("a", "c"), edge("a", "d")])
    each = OpGraph(ops, [edge("a", "c"), edge("b", "d")])
    assert fingerprint(shared) != fingerprint(each)


def test_another_output_of_the_same_op_is_another_graph() -> None:
    halves = op("a")._replace(output_bytes=(8, 8))
    first, second = (OpGraph([halves, op("b")], [edge("a", "b", port=port)]) for port in (0, 1))
    assert fingerprint(first) != fingerprint(second)


def test_control_edges_and_copies_of_constants_do_not_count() -> None:
    one = Op(name="one", kind="Const", role=Role.CONSTANT, output_bytes=(4,))
    shared = OpGraph(
        [*CHAIN.ops, one], [*CHAIN.edges, *(edge("one", name, size_bytes=4) for name in "bd")]
    )
    copied = OpGraph(
        [*CHAIN.ops, one, one._replace(name="uno")],
        [
            *CHAIN.edges,
            edge("one", "b", size_bytes=4),
            edge("uno", "d", size_bytes=4),
            edge("a", "d", port=CONTROL_PORT, size_bytes=None),
        ],
    )
    assert fingerprint(shared) == fingerprint(copied)
    assert fingerprint(shared, HERE) == fingerprint(copied, HERE)
    assert layer_fingerprints(shared) == layer_fingerprints(copied)
    assert fingerprint(shared) != fingerprint(CHAIN)


def test_which_branch_is_elsewhere_counts() -> None:
    placed = [
        dict.fromkeys(("in", "cheap", "dear", "out"), 0) | {name: 1} for name in ("cheap", "dear")
    ]
    first, second = (
        fingerprint(fork(), {k: f"GPU:{v}" for k, v in each.items()}) for each in placed
    )
    assert first != second


def test_chains_that_cross_are_not_chains_that_stay_though_devices_hold_the_same_ops() -> None:
    ops = [op(name)._replace(kind=name[0]) for name in ("a1", "b1", "a2", "b2")]
    chains = OpGraph(ops, [edge("a1", "b1"), edge("a2", "b2")])
    stay = {"a1": "x", "b1": "x", "a2": "y", "b2": "y"}
    cross = {"a1": "x", "b1": "y", "a2": "y", "b2": "x"}
    assert fingerprint(chains, stay) != fingerprint(chains, cross)


def test_a_layer_is_made_of_its_ops_whatever_is_around_them() -> None:
    one = OpGraph([op("a", "x"), op("b", "x"), op("c", "y")], [edge("a", "b"), edge("b", "c")])
    other = OpGraph([op("z", "q"), op("c", "x"), op("a", "x")], [])
    assert layer_fingerprints(one)["x"] == layer_fingerprints(other)["x"]
    assert layer_fingerprints(one)["y"] == layer_fingerprints(other)["q"]
    assert layer_fingerprints(one)["x"] != layer_fingerprints(one)["y"]


def test_a_layer_without_a_name_is_no_layer() -> None:
    graph = OpGraph([op("a", ""), op("b")], [])
    assert layer_fingerprints(graph).keys() == {None}


def test_an_empty_graph_has_a_fingerprint() -> None:
    empty = OpGraph([], [])
    assert fingerprint(empty) != fingerprint(CHAIN)
    assert fingerprint(empty, {}) != fingerprint(CHAIN, HERE)
    assert layer_fingerprints(empty) == {}


def test_devices_of_another_sort_count() -> None:
    there = dict.fromkeys(HERE, "GPU:1")
    assert fingerprints(CHAIN, HERE) == fingerprints(CHAIN, there)
    sorts = {"GPU:0": "0", "GPU:1": "1"}
    assert fingerprints(CHAIN, HERE, sorts)[1] != fingerprints(CHAIN, there, sorts)[1]


def test_fingerprints_are_the_same_on_any_machine() -> None:
    assert fingerprint(CHAIN) == "d9b4756b557551fb"
    assert fingerprint(CHAIN, {**HERE, "d": "GPU:1"}) == "10d9683360e5538e"


@given(graphs(), st.randoms(use_true_random=False))
def test_names_and_order_do_not_count(graph: OpGraph, shuffle: random.Random) -> None:
    names = [each.name for each in graph.ops]
    name = dict(zip(names, (f"{i}?" for i in shuffle.sample(range(99), len(names))), strict=True))
    other = renamed(graph, name, shuffle)
    assert fingerprint(other) == fingerprint(graph)
    assert sorted(layer_fingerprints(other).values()) == sorted(
        layer_fingerprints(renamed(graph, {n: n for n in names}, shuffle)).values()
    )
    device_of = {each.name: f"GPU:{shuffle.randrange(3)}" for each in placed_ops(graph)}
    places = ["GPU:0", "GPU:1", "GPU:2"]
    trade = dict(zip(places, shuffle.sample(places, 3), strict=True))
    traded = {name[op_name]: trade[device] for op_name, device in device_of.items()}
    assert fingerprint(other, traded) == fingerprint(graph, device_of)


@given(graphs(), st.data())
def test_one_change_of_what_is_computed_counts(graph: OpGraph, data: DataObject) -> None:
    ops = [each for each in graph.ops if each.role is not Role.CONSTANT]
    assume(ops)
    one = data.draw(st.sampled_from(ops))
    change = data.draw(
        st.sampled_from(
            [
                {"kind": "Softmax"},
                {"output_bytes": (*one.output_bytes, 3)},
                {"parameter_bytes": one.parameter_bytes + 1},
                {"flops": (one.flops or 0) + 1},
            ]
        )
    )
    assert fingerprint(with_ops(graph, **{one.name: one._replace(**change)})) != fingerprint(graph)


@given(graphs(), st.data())
def test_an_edge_more_or_less_counts(graph: OpGraph, data: DataObject) -> None:
    there = [each for each in graph.edges if not each.is_control and each.consumer in _kept(graph)]
    assume(there)
    gone = data.draw(st.integers(0, len(there) - 1))
    left = list(graph.edges)
    left.remove(there[gone])
    assert fingerprint(OpGraph(graph.ops, left)) != fingerprint(graph)


@given(graphs(), st.data())
def test_a_move_to_a_device_of_its_own_counts(graph: OpGraph, data: DataObject) -> None:
    ops = placed_ops(graph)
    assume(len(ops) > 1)
    moved = data.draw(st.sampled_from(ops)).name
    together = {each.name: "a" for each in ops}
    assert fingerprint(graph, together) != fingerprint(graph, {**together, moved: "b"})


def _kept(graph: OpGraph) -> set[str]:
    return {each.name for each in placed_ops(graph)}
