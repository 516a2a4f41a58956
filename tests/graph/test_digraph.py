from __future__ import annotations

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement_advisor.graph.digraph import (
    find_cycle,
    immediate_dominators,
    maximum_flows,
    strong_components,
    topological_order,
)

PAIRS = st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=30)


def ends(pairs: list[tuple[int, int]]) -> tuple[list[int], list[int]]:
    return [a for a, _ in pairs], [b for _, b in pairs]


def as_networkx(pairs: list[tuple[int, int]]) -> nx.DiGraph:
    graph = nx.DiGraph()
    graph.add_nodes_from(range(12))
    graph.add_edges_from(pairs)
    return graph


def test_sources_come_first_and_otherwise_the_smallest() -> None:
    assert topological_order(4, *ends([(3, 1), (1, 0)])) == [2, 3, 1, 0]
    assert topological_order(3, [], []) == [0, 1, 2]
    assert topological_order(2, *ends([(0, 1), (1, 0)])) is None


@given(PAIRS)
def test_orders_and_cycles_are_those_of_networkx(pairs: list[tuple[int, int]]) -> None:
    graph = as_networkx(pairs)
    if nx.is_directed_acyclic_graph(graph):
        order = list(nx.lexicographical_topological_sort(graph))
        assert topological_order(12, *ends(pairs)) == order
        with pytest.raises(ValueError, match="no cycle"):
            find_cycle(12, *ends(pairs))
    else:
        assert topological_order(12, *ends(pairs)) is None
        cycle = find_cycle(12, *ends(pairs))
        assert cycle[0] == min(cycle)
        assert len(set(cycle)) == len(cycle)
        assert set(zip(cycle, [*cycle[1:], cycle[0]], strict=True)) <= set(pairs)


@given(PAIRS)
def test_strong_components_are_those_of_networkx_sources_first(
    pairs: list[tuple[int, int]],
) -> None:
    component = strong_components([[b for a, b in pairs if a == node] for node in range(12)])
    assert all(component[a] <= component[b] for a, b in pairs)
    expected = nx.strongly_connected_components(as_networkx(pairs))
    found = {number: {n for n in range(12) if component[n] == number} for number in component}
    assert sorted(map(sorted, found.values())) == sorted(map(sorted, expected))
    assert sorted(found) == list(range(len(found)))


def test_the_dominator_of_a_diamonds_end_is_its_beginning() -> None:
    assert immediate_dominators([[], [0], [0], [1, 2], [3]]) == [None, 0, 0, 0, 3]
    assert immediate_dominators([[], [], [0, 1]]) == [None, None, None]


@given(PAIRS)
def test_dominators_are_those_of_networkx(pairs: list[tuple[int, int]]) -> None:
    forward = [(a, b) for a, b in pairs if a < b]
    feeders = [sorted({a for a, b in forward if b == node}) for node in range(12)]
    graph = as_networkx(forward)
    graph.add_edges_from((-1, node) for node in range(12) if not feeders[node])
    expected = nx.immediate_dominators(graph, -1)
    assert immediate_dominators(feeders) == [
        None if expected[node] == -1 else expected[node] for node in range(12)
    ]


def test_a_long_chain_is_no_deep_recursion() -> None:
    count = 20_000
    numbers = list(range(count))
    assert strong_components([[i + 1] for i in range(count - 1)] + [[]]) == numbers
    assert find_cycle(count, *ends([(i, (i + 1) % count) for i in range(count)])) == numbers


def test_many_ops_after_one_another_that_lead_to_a_cycle_do_not_take_long() -> None:
    # Whoever looks for a cycle from each op anew goes down the whole chain each time.
    count = 50_000
    chain = [(i, i - 1) for i in range(2, count)]
    assert find_cycle(count, *ends([*chain, (1, 0), (0, 1)])) == [0, 1]


ARCS = [(0, 1, 4), (0, 2, 3), (1, 3, 2), (2, 3, 5), (1, 2, 1)]


def test_flows_are_those_of_networkx_from_each_source() -> None:
    graph = nx.DiGraph()
    graph.add_weighted_edges_from(ARCS, weight="capacity")
    expected = [nx.maximum_flow_value(graph, source, 3) for source in (0, 1, 2)]
    assert maximum_flows(ARCS, [0, 1, 2], 3) == expected == [6, 3, 5]


@pytest.mark.parametrize(
    "wrong", [{(0, 1): 5, (1, 3): 3}, {(1, 2): 1}], ids=["more than an arc lets through", "lost"]
)
def test_what_is_no_flow_proves_nothing(
    monkeypatch: pytest.MonkeyPatch, wrong: dict[tuple[int, int], int]
) -> None:
    def mistaken(*_: object, residual: nx.DiGraph) -> nx.DiGraph:
        nx.set_edge_attributes(residual, 0, "flow")
        for (source, target), amount in wrong.items():
            residual[source][target]["flow"] = amount
        return residual

    monkeypatch.setattr("networkx.algorithms.flow.dinitz", mistaken)
    with pytest.raises(AssertionError, match="no flow"):
        maximum_flows(ARCS, [0], 3)
