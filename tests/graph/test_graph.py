import pickle

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from op_graphs import chain, edge, graphs, op

from placement_advisor.errors import AdvisorError
from placement_advisor.graph.digraph import (
    find_cycle,
    immediate_dominators,
    maximum_flows,
    strong_components,
    topological_order,
)
from placement_advisor.graph.op import CONTROL_PORT, Op, Role
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.tf.step_limit import MOST_LIMIT_S, step_limit_s, what_waits


def test_ops_stand_after_their_producers_and_otherwise_as_given():
    graph = OpGraph(
        [op("sink"), op("b"), op("a"), op("src")], [edge("src", "b"), edge("b", "sink")]
    )
    assert [o.name for o in graph.ops] == ["a", "src", "b", "sink"]
    assert [graph.index(name) for name in ("a", "sink")] == [0, 3]


def test_a_variable_that_is_not_named_twice_is_named_after_its_op():
    unnamed = Op("v", "VarHandleOp", Role.VARIABLE)
    named = unnamed._replace(variable="v")
    graph = OpGraph([unnamed, op("a")], [edge("v", "a", size_bytes=None)])
    assert graph.op("v") == named
    assert graph.op("a").variable is None
    assert graph == OpGraph([named, op("a")], graph.edges)


def test_a_cycle_is_named_from_end_to_end_or_by_its_beginning_and_length():
    with pytest.raises(AdvisorError) as caught:
        OpGraph([op("a"), op("b"), op("c")], [edge("a", "b"), edge("b", "c"), edge("c", "b")])
    assert caught.value.message == "the graph has a cycle: b → c → b"
    names = [f"op{i}" for i in range(20)]
    circle = [edge(*ends) for ends in zip(names, [*names[1:], names[0]], strict=True)]
    with pytest.raises(AdvisorError) as caught:
        OpGraph(map(op, names), circle)
    assert caught.value.message == (
        "the graph has a cycle: op0 → op1 → op2 → op3 → op4 → op5 → op6 → op7 → … → op0 (20 ops)"
    )


def test_an_op_given_twice_is_named():
    with pytest.raises(AdvisorError, match="op 'b' appears twice"):
        OpGraph([op("a"), op("b"), op("b")], [])


@pytest.mark.parametrize("ends", [("a", "gone"), ("gone", "a")])
def test_an_edge_to_an_unknown_op_is_named(ends):
    with pytest.raises(AdvisorError, match="op 'gone' is not in the graph"):
        OpGraph([op("a")], [edge(*ends)])


@given(graphs())
def test_every_edge_is_found_once_from_either_end(graph):
    names = [o.name for o in graph.ops]
    assert tuple(e for name in names for e in graph.outputs_of(name)) == graph.edges
    entering = [e for name in names for e in graph.inputs_of(name)]
    assert sorted(map(repr, entering)) == sorted(map(repr, graph.edges))
    assert all(e.consumer == name for name in names for e in graph.inputs_of(name))


def test_without_anything_to_look_up_there_is_an_error_and_layers_stand_in_order():
    graph = OpGraph([op("a")], [])
    assert ("a" in graph, "b" in graph, len(graph)) == (True, False, 1)
    for look_up in (graph.op, graph.index, graph.inputs_of, graph.outputs_of):
        with pytest.raises(KeyError):
            look_up("b")
    graph = OpGraph([op("a", "dense"), op("b"), op("c", "conv"), op("d", "dense")], [])
    assert graph.layers() == ("dense", "conv")
    edges = [
        edge("a", "b", size_bytes=8),
        edge("a", "b", port=1, size_bytes=None),
        edge("a", "b", port=CONTROL_PORT, size_bytes=None),
    ]
    assert OpGraph([op("a"), op("b")], edges).edge_bytes_known_share == 0.5
    assert OpGraph([op("a")], []).edge_bytes_known_share == 1.0


def test_a_fingerprint_is_the_same_in_any_process():
    # Another hash seed, which each has, orders sets otherwise.
    kinds = frozenset({"CPU", "GPU", "TPU"})
    assert OpGraph([Op("a", "K", device_kinds=kinds)], []).fingerprint == "84aa910f8fe6eda6"


def test_a_graph_is_sent_to_another_process_without_its_indices():
    graph = chain("a", "b", "c")
    plain = pickle.dumps(graph)
    assert graph.inputs_of("b") == (edge("a", "b"),)
    assert pickle.dumps(graph) == plain
    assert pickle.loads(plain) == graph


@pytest.mark.parametrize(
    ("listed", "sizes", "message"),
    [
        ((8,), [9], "carries 9 bytes, where output 0 of 'a' has 8 bytes"),
        ((8,), [None], "carries an unknown number of bytes, where output 0 of 'a' has 8 bytes"),
        ((None,), [8], "carries 8 bytes, where output 0 of 'a' has an unknown number of bytes"),
        # No list says what is right, but both cannot be.
        ((), [8, 9], "edge 'a' → 'c' carries 9 bytes, where output 0 of 'a' has 8 bytes"),
    ],
)
def test_an_edge_has_the_size_that_its_producer_lists(listed, sizes, message):
    ops = [op("a")._replace(output_bytes=listed), op("b"), op("c")]
    edges = [edge("a", to, size_bytes=size) for to, size in zip("bc", sizes, strict=False)]
    with pytest.raises(AdvisorError, match=message):
        OpGraph(ops, edges)


PAIRS = st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=30)


def ends(pairs):
    return [a for a, _ in pairs], [b for _, b in pairs]


def as_networkx(pairs):
    graph = nx.DiGraph()
    graph.add_nodes_from(range(12))
    graph.add_edges_from(pairs)
    return graph


@given(PAIRS)
def test_orders_and_cycles_are_those_of_networkx(pairs):
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
def test_strong_components_are_those_of_networkx_sources_first(pairs):
    component = strong_components([[b for a, b in pairs if a == node] for node in range(12)])
    assert all(component[a] <= component[b] for a, b in pairs)
    expected = nx.strongly_connected_components(as_networkx(pairs))
    found = {number: {n for n in range(12) if component[n] == number} for number in component}
    assert sorted(map(sorted, found.values())) == sorted(map(sorted, expected))
    assert sorted(found) == list(range(len(found)))


@given(PAIRS)
def test_dominators_are_those_of_networkx(pairs):
    forward = [(a, b) for a, b in pairs if a < b]
    feeders = [sorted({a for a, b in forward if b == node}) for node in range(12)]
    graph = as_networkx(forward)
    graph.add_edges_from((-1, node) for node in range(12) if not feeders[node])
    expected = nx.immediate_dominators(graph, -1)
    assert immediate_dominators(feeders) == [
        None if expected[node] == -1 else expected[node] for node in range(12)
    ]


def test_long_chains_and_cycles_are_no_deep_recursion_and_do_not_take_long():
    count = 20_000
    numbers = list(range(count))
    assert strong_components([[i + 1] for i in range(count - 1)] + [[]]) == numbers
    assert find_cycle(count, *ends([(i, (i + 1) % count) for i in range(count)])) == numbers
    # Whoever looks for a cycle from each op anew goes down the whole chain each time.
    count = 50_000
    chain = [(i, i - 1) for i in range(2, count)]
    assert find_cycle(count, *ends([*chain, (1, 0), (0, 1)])) == [0, 1]


ARCS = [(0, 1, 4), (0, 2, 3), (1, 3, 2), (2, 3, 5), (1, 2, 1)]


def test_flows_are_those_of_networkx_from_each_source():
    graph = nx.DiGraph()
    graph.add_weighted_edges_from(ARCS, weight="capacity")
    expected = [nx.maximum_flow_value(graph, source, 3) for source in (0, 1, 2)]
    assert maximum_flows(ARCS, [0, 1, 2], 3) == expected == [6, 3, 5]


@pytest.mark.parametrize(
    "wrong", [{(0, 1): 5, (1, 3): 3}, {(1, 2): 1}], ids=["more than an arc lets through", "lost"]
)
def test_what_is_no_flow_proves_nothing(monkeypatch, wrong):
    def mistaken(*_, residual):
        nx.set_edge_attributes(residual, 0, "flow")
        for (source, target), amount in wrong.items():
            residual[source][target]["flow"] = amount
        return residual

    monkeypatch.setattr("networkx.algorithms.flow.dinitz", mistaken)
    with pytest.raises(AssertionError, match="no flow"):
        maximum_flows(ARCS, [0], 3)


def working_op(name, kind, *, flops=0, moved_bytes=0):
    return Op(name, kind, flops=flops, bytes_accessed=moved_bytes, output_bytes=(8,) * 2)


def test_a_limit_is_half_a_minute_and_what_a_very_slow_device_takes():
    # 500 and 250 million at 100 million a second, and three ops at a millisecond each.
    product = working_op("a", "MatMul", flops=500_000_000)
    total = working_op("b", "Add", moved_bytes=250_000_000)
    graph = OpGraph([product, total, working_op("c", "Own", flops=None)], [])
    assert step_limit_s(graph) == pytest.approx(37.503)


@pytest.mark.parametrize(
    "most",
    [
        working_op("a", "MatMul", flops=10**15),
        working_op("a", "While", flops=None, moved_bytes=None),
    ],
)
def test_a_large_step_and_a_loop_of_unknown_work_have_the_longest_limit(most):
    assert step_limit_s(OpGraph([working_op("b", "Add"), most], [])) == MOST_LIMIT_S


@pytest.mark.parametrize(
    "kind",
    [
        *("QueueDequeueV2", "QueueDequeueManyV2", "QueueDequeueUpTo", "QueueEnqueueV2"),
        *("BarrierTakeMany", "Unstage", "StagePeek", "MapUnstageNoKey", "OrderedMapPeek"),
        *("IteratorGetNext", "IteratorGetNextSync", "PyFunc", "EagerPyFunc", "ReaderReadV2"),
        *("ResourceAccumulatorTakeGradient", "CollectiveReduceV2", "MutexLock"),
    ],
)
def test_an_op_that_waits_is_named_with_its_kind(kind):
    graph = OpGraph([working_op("a", kind), working_op("b", "QueueSizeV2")], [edge("a", "b")])
    assert what_waits(graph) == f"op 'a' ({kind}) waits for what nothing gives it"


def test_what_waits_is_named_else_loops_and_not_what_comes_after():
    kinds = {"a": "QueueDequeueV2", "b": "Add", "c": "QueueEnqueueV2", "d": "Unstage"}
    ops = [working_op(name, kind) for name, kind in kinds.items()]
    graph = OpGraph(ops, [edge("a", "b"), edge("b", "c")])
    assert what_waits(graph) == (
        "one of these ops waits for what nothing gives it: 'a' (QueueDequeueV2), 'd' (Unstage)"
    )
    loop = OpGraph([working_op("a", "QueueCloseV2"), working_op("b", "While")], [])
    assert what_waits(loop) == "it has loops, which may not end: 'b' (While)"
    closing = OpGraph([working_op("a", "QueueCloseV2")], [])
    assert what_waits(closing) == "none of its ops is of a kind that waits"
