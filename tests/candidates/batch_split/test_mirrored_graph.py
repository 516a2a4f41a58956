from collections import Counter
from functools import partial

import pytest
from placed_steps import pair, place, price
from split_steps import split_traces, split_training, split_updates, step, training

from placement_advisor.candidates.batch_split.mirrored_graph import (
    RingTensor,
    all_gather,
    all_reduce,
    mirrored_graph,
)
from placement_advisor.candidates.batch_split.split_graph import Merge
from placement_advisor.cost.links import assumed_cluster
from placement_advisor.graph.op import CONTROL_PORT, Edge, Op, Role
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.simulator.simulator import Simulator


def mirrored(*shares, **merges):
    return mirrored_graph(split_training(*shares, **merges))


def crossing(found):
    return {
        (edge.producer, edge.consumer)
        for edge in found.graph.edges
        if found.replica_of[edge.producer] != found.replica_of[edge.consumer]
    }


def test_every_replica_has_the_variables_and_its_share_and_only_chunks_of_gradients_cross():
    found = mirrored(2, 2)
    updates = {op.name: op.variable for op in found.graph.ops if op.role is Role.UPDATE}
    both = ("replica_0", "replica_1")
    assert updates == {f"{replica}/update": f"{replica}/weights" for replica in both}
    assert found.graph.parameter_bytes == 2 * training(1).parameter_bytes
    for replica in both:
        read = {edge.producer for edge in found.graph.inputs_of(f"{replica}/update")}
        assert f"{replica}/all_reduce/done" in read
        assert f"{replica}/gradient" not in read
    assert found.graph.op("replica_1/product").output_bytes == (16,)
    assert found.source["replica_1/product"] == (1, "product")
    assert found.source["replica_1/update"] == (None, "update")
    placement = found.placed(["a", "b"], label="mirrored", rationale="")
    placement.check(found.graph, ("a", "b"))
    assert placement.family == "mirrored"
    for name, device in placement.device_of.items():
        assert device == {"replica_0": "a", "replica_1": "b"}[name.split("/")[0]]
    assert not crossing(mirrored(2, 2, gradient=Merge.SAME))
    four = mirrored(2, 2, 2, 2)
    ends = crossing(four)
    assert {producer.split("/")[1] for producer, _ in ends} == {"all_reduce"}
    between = [edge for edge in four.graph.edges if (edge.producer, edge.consumer) in ends]
    assert {edge.size_bytes for edge in between} == {16 // 4}


def test_what_is_not_of_a_share_is_as_large_as_for_the_whole_batch():
    text = "x 8n - input; state 0 VarHandleOp variable state; "
    text += "swap 8n Exchange - state < state x; product 8n < swap"
    at = partial(step, text=text)
    found = mirrored_graph(split_traces(at, (2, 2), [("product", 0)], merge=Merge.CONCAT))
    assert found.graph.op("replica_1/swap").output_bytes == (32,)
    assert found.graph.op("replica_1/product").output_bytes == (16,)


def test_rows_of_a_table_are_gathered_in_turn_after_their_number():
    graph = mirrored(2, 2, gradient=Merge.WEIGHTED_CONCAT).graph
    assert "replica_0/all_reduce/pack" not in graph
    rows = "all_gather/gradient"
    waits = {edge.producer for edge in graph.inputs_of(f"replica_1/{rows}/pack") if edge.is_control}
    assert waits == {f"replica_1/{rows}/lengths/done"}
    hops = {op.bytes_accessed for op in graph.ops if op.kind == "Identity"}
    assert hops == {0}
    # Two replicas' rows are as many as those of the whole batch twice: each has a full gradient.
    assert graph.op(f"replica_1/{rows}/done").output_bytes == (32,)


def test_a_replica_keeps_its_own_gradients_until_it_has_the_sums_and_holds_them_thrice():
    found = mirrored(2, 2)
    graph = found.graph
    for replica in ("replica_0", "replica_1"):
        reads = [edge.producer for edge in graph.inputs_of(f"{replica}/all_reduce/done")]
        assert f"{replica}/gradient" in reads
    # It does not touch them: of 16 bytes it moves the sums alone, in and out.
    assert graph.op("replica_0/all_reduce/done").bytes_accessed == 16 + 16
    cluster = assumed_cluster(2)
    names = cluster.device_names()
    costs = price({op.name: 10 for op in graph.placed_ops})
    simulator = Simulator(graph, costs.everywhere(cluster), cluster)
    peaks = simulator.schedule(found.placed(names, label="mirrored", rationale="")).peak_memory
    # Weights, inputs and a rate stay; of 16 bytes each its own gradient, the sums and their parts.
    assert {peaks[name].size_bytes for name in names} == {16 + 2 * 8 + 4 + 3 * 16}
    graph = mirrored_lookups("Mul", first=Merge.SUM).graph
    assert "replica_0/all_gather/second/done" in graph
    reads = [edge.producer for edge in graph.inputs_of("replica_0/all_reduce/done")]
    assert reads == [f"replica_0/all_reduce/hop_{hop}" for hop in range(2)]


def test_gradients_that_follow_from_an_update_are_exchanged_after_it():
    """As those of a generator, which learns from the discriminator that was just updated."""
    found = mirrored_graph(split_updates())
    for replica in ("replica_0", "replica_1"):
        for name, exchange in (("update", "all_reduce"), ("update 2", "all_reduce_1")):
            read = {edge.producer for edge in found.graph.inputs_of(f"{replica}/{name}")}
            assert f"{replica}/{exchange}/done" in read
        waits = {e.producer for e in found.graph.inputs_of(f"{replica}/all_reduce_1/pack")}
        assert waits == {f"{replica}/gradient 2", f"{replica}/all_reduce/done"}
    exchanges = {name.split("/")[1] for pair in crossing(found) for name in pair}
    assert exchanges == {"all_reduce", "all_reduce_1"}


def mirrored_lookups(joining="ConcatV2", first=Merge.CONCAT, second=Merge.CONCAT):
    """Mirror a step that adds the rows of two lookups up in one table: 8 bytes a row."""
    text = (
        "x 8n Placeholder input; table 64 VarHandleOp variable table; axis 4 Const constant; "
        "first 8n Reshape backward < x; second 8n Reshape backward < x; "
        f"joined 16n {joining} update < first second axis; "
        "update - ResourceScatterAdd update table < table joined"
    )
    at = partial(step, text=text)
    traces = split_traces(at, (2, 2), (), ("update",), first=first, second=second)
    assert set(traces.wiring.plan.merged) == {("first", 0), ("second", 0)}
    return mirrored_graph(traces)


def test_rows_of_several_lookups_are_exchanged_once_unless_more_is_done_with_them():
    found = mirrored_lookups()
    assert set(found.collective_of.values()) == {"all_gather/joined"}
    # Each replica joins its own rows, and the update has those of both.
    assert found.graph.op("replica_0/joined").output_bytes == (2 * 16,)
    assert found.graph.op("replica_0/all_gather/joined/done").output_bytes == (2 * 2 * 16,)
    read = {edge.producer for edge in found.graph.inputs_of("replica_1/update")}
    assert read == {"replica_1/table", "replica_1/all_gather/joined/done"}
    found = mirrored_lookups("Mul")
    assert set(found.collective_of.values()) == {"all_gather/first", "all_gather/second"}
    read = {edge.producer for edge in found.graph.inputs_of("replica_1/joined")}
    assert {f"replica_1/all_gather/{rows}/done" for rows in ("first", "second")} < read


def test_gradients_of_several_uses_are_exchanged_once_unless_merged_in_two_ways():
    """As those of a recurrent kernel, which each time step of an unrolled layer reads."""
    graph = mirrored_lookups("AddN", Merge.SUM, Merge.SUM).graph
    for replica in ("replica_0", "replica_1"):
        packed = {edge.producer for edge in graph.inputs_of(f"{replica}/all_reduce/pack")}
        assert packed == {f"{replica}/joined"}
        added = {edge.producer for edge in graph.inputs_of(f"{replica}/joined")}
        assert {f"{replica}/first", f"{replica}/second"} < added
        read = {edge.producer for edge in graph.inputs_of(f"{replica}/update")}
        assert read == {f"{replica}/table", f"{replica}/all_reduce/done"}
    graph = mirrored_lookups("AddN", Merge.SUM, Merge.MEAN).graph
    packed = {edge.producer for edge in graph.inputs_of("replica_0/all_reduce/pack")}
    assert packed == {"replica_0/first", "replica_0/second"}


LATENCY_NS = 7_000
replicas = pytest.mark.parametrize("count", [2, 3, 4, 8])


def own(count, *sizes):
    """Return tensors of these sizes that each of so many replicas has."""
    return [
        [RingTensor(replica, "own", port, size) for port, size in enumerate(sizes)]
        for replica in range(count)
    ]


def sent(ops):
    """Return the bytes that cross from one replica to another."""
    found = Counter()
    for each in ops:
        for tensor in each.inputs:
            if tensor.replica != each.replica:
                found[tensor.replica, each.replica] += tensor.size_bytes
    return found


def reached(ops, end):
    """Return all that an op was computed from."""
    made = {(each.replica, each.name): each for each in ops}
    found = set()
    waiting = [end]
    while waiting:
        here = waiting.pop()
        if here not in found:
            found.add(here)
            inputs = made[here].inputs if here in made else ()
            waiting += [(tensor.replica, tensor.op) for tensor in inputs]
    return found


def simulated_ns(ops, count):
    """Return how long a collective takes on a ring of links where its ops take no time."""
    cluster = pair(count=count, latency_ns=LATENCY_NS)
    names = cluster.device_names()
    starts = {(t.replica, t.op, t.size_bytes) for each in ops for t in each.inputs if t.op == "own"}
    all_ops = [Op(f"{r}/{n}", "MatMul", output_bytes=(size,)) for r, n, size in sorted(starts)]
    all_ops += [
        Op(f"{each.replica}/{each.name}", each.kind, output_bytes=each.made_bytes) for each in ops
    ]
    edges = [
        Edge(f"{t.replica}/{t.op}", f"{each.replica}/{each.name}", t.port, t.size_bytes)
        for each in ops
        for t in each.inputs
    ]
    costs = price({each.name: 0 for each in all_ops}).everywhere(cluster)
    placement = place({each.name: names[int(each.name.split("/")[0])] for each in all_ops})
    return Simulator(OpGraph(all_ops, edges), costs, cluster).schedule(placement).step_ns


@replicas
def test_an_all_reduce_sends_two_parts_of_k_less_one_over_each_link(count):
    size = 840  # Chunks are equal for all these counts.
    ops = list(all_reduce("sum", own(count, size - 40, 40), None))
    around = {(r, (r + 1) % count) for r in range(count)}
    assert sent(ops) == dict.fromkeys(around, 2 * (count - 1) * size // count)


@replicas
def test_every_replica_ends_with_what_all_of_them_had(count):
    rows = [RingTensor(r, "own", 0, 10 + r) for r in range(count)]
    for made in (all_reduce("sum", own(count, 10), None), all_gather("rows", rows, None)):
        ops = list(made)
        name = ops[0].name.split("/")[0]
        for replica in range(count):
            assert {(r, "own") for r in range(count)} <= reached(ops, (replica, f"{name}/done"))


def test_chunks_that_cannot_be_equal_hold_all_bytes_together():
    ops = list(all_reduce("sum", own(3, 100), None))
    (pack,) = (each for each in ops if each.name == "sum/pack" and each.replica == 0)
    assert sorted(pack.made_bytes) == [33, 33, 34]
    for each in ops:
        if each.name == "sum/done":
            assert sum(tensor.size_bytes for tensor in each.inputs) == 100
            assert each.made_bytes == (100,)


@replicas
def test_an_all_gather_hands_on_what_it_got(count):
    ops = list(all_gather("rows", [RingTensor(r, "own", 0, 100) for r in range(count)], None))
    assert set(sent(ops).values()) == {(count - 1) * 100}
    assert {each.made_bytes for each in ops if each.name == "rows/done"} == {(100 * count,)}


@replicas
def test_simulated_an_all_reduce_takes_its_hops_over_the_links(count):
    ops = list(all_reduce("sum", own(count, 840_000), None))
    expected = 2 * (count - 1) * (LATENCY_NS + 840_000 / count)
    assert simulated_ns(ops, count) == pytest.approx(expected)


def test_a_collective_begins_after_the_one_before():
    ops = list(all_gather("b", [RingTensor(r, "own", 0, 4) for r in range(2)], "a/done"))
    for each in ops:
        waits = [tensor for tensor in each.inputs if tensor.port == CONTROL_PORT]
        before = [RingTensor(each.replica, "a/done", -1, 0)]
        assert waits == (before if each.name == "b/pack" else [])
