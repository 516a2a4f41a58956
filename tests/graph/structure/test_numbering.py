"""Numbers of ops depend on nothing but what they compute; names and order do not count."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st
from op_graphs import chain, edge, graphs, op

from placement_advisor.graph.identities import numbering
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.graph.placement import placed_ops

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping


def called(graph: OpGraph, names: Mapping[str, str], shuffle: random.Random | None) -> OpGraph:
    """Return the graph under other names, its ops and edges in another order if they are shuffled.

    Layers take the names backwards, variables those of their ops.
    """
    ops = [
        each._replace(
            name=names[each.name],
            layer=each.layer and each.layer[::-1] + "_3",
            variable=each.variable and names.get(each.variable, each.variable),
        )
        for each in graph.ops
    ]
    edges = [
        each._replace(producer=names[each.producer], consumer=names[each.consumer])
        for each in graph.edges
    ]
    if shuffle is not None:
        ops, edges = shuffle.sample(ops, len(ops)), shuffle.sample(edges, len(edges))
    return OpGraph(ops, edges)


def towers(*prefixes: str) -> OpGraph:
    """Return equal towers of four ops that meet; the towers stand in the given order."""
    ops = [op(f"{p}{i}", f"{p} {i // 2}") for p in prefixes for i in range(4)]
    edges = [edge(f"{p}{i}", f"{p}{i + 1}") for p in prefixes for i in range(3)]
    return OpGraph([*ops, op("top")], [*edges, *(edge(f"{p}3", "top") for p in prefixes)])


def new_names(graph: OpGraph, shuffle: random.Random) -> dict[str, str]:
    names = [each.name for each in graph.ops]
    return dict(zip(names, (f"{i}?" for i in shuffle.sample(range(99), len(names))), strict=True))


@given(graphs(), st.randoms(use_true_random=False))
def test_under_other_names_every_op_has_its_number(graph: OpGraph, shuffle: random.Random) -> None:
    names = new_names(graph, shuffle)
    mine, others = numbering(graph), numbering(called(graph, names, None))
    assert others.fingerprint == mine.fingerprint
    assert others.ops == {names[name]: number for name, number in mine.ops.items()}


@given(graphs(), st.randoms(use_true_random=False))
def test_where_fingerprints_are_equal_numbers_take_edges_to_edges_and_layers_to_layers(
    graph: OpGraph, shuffle: random.Random
) -> None:
    other = called(graph, new_names(graph, shuffle), shuffle)
    mine, others = numbering(graph), numbering(other)
    if mine.fingerprint != others.fingerprint:
        return  # Ops are alike in more than one way, and in another order: not taken for the same.
    assert _described(graph) == _described(other)


def test_towers_that_are_alike_are_told_apart_whatever_their_order() -> None:
    mine, others = towers("a", "b", "c"), towers("c", "a", "b")
    assert numbering(mine).fingerprint == numbering(others).fingerprint
    assert _described(mine) == _described(others)


def test_ops_in_other_layers_are_another_graph() -> None:
    one = chain("a", "b", "c")
    ops = [each._replace(layer="x" if each.name == "a" else "y") for each in one.ops]
    layered = OpGraph(ops, one.edges)
    assert numbering(layered).fingerprint != numbering(one).fingerprint


def _described(graph: OpGraph) -> list[object]:
    """Return all of a graph by numbers: kinds, layers and edges between ops that have one."""
    found = numbering(graph)
    own = [
        (found.ops[each.name], each.kind, found.layers[each.layer or None])
        for each in placed_ops(graph)
    ]
    edges = [
        (found.ops[each.producer], found.ops[each.consumer], each.port, str(each.size_bytes))
        for each in graph.edges
        if not each.is_control and {each.producer, each.consumer} <= found.ops.keys()
    ]
    return [sorted(own), sorted(edges)]
