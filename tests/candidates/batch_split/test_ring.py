"""Ring collectives: who sends how much, what arrives, and what that takes when it is simulated."""

from __future__ import annotations

from collections import Counter

import pytest

from placement_advisor.candidates.batch_split.mirrored_graph import (
    RingOp,
    RingTensor,
    all_gather,
    all_reduce,
)
from placement_advisor.cost.table import CostBasis, CostTable, OpCost
from placement_advisor.graph.op import CONTROL_PORT, Edge, Op
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.graph.placement import Placement
from placement_advisor.machine.devices import Basis, Cluster, Device, Link
from placement_advisor.simulator.simulator import Simulator

LATENCY_NS, BYTES_PER_NS = 7_000, 2
replicas = pytest.mark.parametrize("count", [2, 3, 4, 8])


def sent(ops: list[RingOp]) -> Counter[tuple[int, int]]:
    """Return the bytes that cross from one replica to another."""
    found: Counter[tuple[int, int]] = Counter()
    for op in ops:
        for tensor in op.inputs:
            if tensor.replica != op.replica:
                found[tensor.replica, op.replica] += tensor.size_bytes
    return found


def reached(ops: list[RingOp], end: tuple[int, str]) -> set[tuple[int, str]]:
    """Return all that an op was computed from."""
    made = {(op.replica, op.name): op for op in ops}
    found: set[tuple[int, str]] = set()
    waiting = [end]
    while waiting:
        here = waiting.pop()
        if here not in found:
            found.add(here)
            inputs = made[here].inputs if here in made else ()
            waiting += [(tensor.replica, tensor.op) for tensor in inputs]
    return found


def simulated_ns(ops: list[RingOp], count: int) -> int:
    """Return how long a collective takes on a ring of links where its ops take no time."""
    names = [f"d{replica}" for replica in range(count)]
    links = tuple(
        Link(
            source=source,
            target=target,
            latency_ns=LATENCY_NS,
            bandwidth_bytes_per_s=BYTES_PER_NS * 1e9,
            basis=Basis.ASSUMED,
        )
        for source in names
        for target in names
        if source != target
    )
    cluster = Cluster(devices=tuple(Device(name=n, kind="CPU") for n in names), links=links)
    starts = {(t.replica, t.op, t.size_bytes) for op in ops for t in op.inputs if t.op == "own"}
    all_ops = [
        Op(name=f"{r}/{n}", kind="MatMul", output_bytes=(size,)) for r, n, size in sorted(starts)
    ]
    all_ops += [
        Op(name=f"{op.replica}/{op.name}", kind=op.kind, output_bytes=op.made_bytes) for op in ops
    ]
    edges = [
        Edge(f"{t.replica}/{t.op}", f"{op.replica}/{op.name}", t.port, t.size_bytes)
        for op in ops
        for t in op.inputs
    ]
    costs = CostTable(
        costs={op.name: OpCost(time_ns=0, basis=CostBasis.MEASURED) for op in all_ops}
    )
    device_of = {op.name: names[int(op.name.split("/")[0])] for op in all_ops}
    placement = Placement(label="ring", family="ring", device_of=device_of, rationale="")
    simulator = Simulator(OpGraph(all_ops, edges), dict.fromkeys(names, costs), cluster)
    return simulator.schedule(placement).step_ns


@replicas
def test_an_all_reduce_sends_two_parts_of_k_less_one_over_each_link(count: int) -> None:
    size = 840  # Chunks are equal for all these counts.
    parts = [[RingTensor(r, "own", 0, 800), RingTensor(r, "own", 1, 40)] for r in range(count)]
    ops = list(all_reduce("sum", parts, None))
    around = {(r, (r + 1) % count) for r in range(count)}
    assert sent(ops) == dict.fromkeys(around, 2 * (count - 1) * size // count)


@replicas
def test_every_replica_ends_with_what_all_of_them_had(count: int) -> None:
    parts = [RingTensor(r, "own", 0, 10 + r) for r in range(count)]
    for ops in (
        list(all_reduce("sum", [[RingTensor(r, "own", 0, 10)] for r in range(count)], None)),
        list(all_gather("rows", parts, None)),
    ):
        name = ops[0].name.split("/")[0]
        for replica in range(count):
            assert {(r, "own") for r in range(count)} <= reached(ops, (replica, f"{name}/done"))


def test_chunks_that_cannot_be_equal_hold_all_bytes_together() -> None:
    ops = list(all_reduce("sum", [[RingTensor(r, "own", 0, 100)] for r in range(3)], None))
    (pack,) = (op for op in ops if op.name == "sum/pack" and op.replica == 0)
    assert sorted(pack.made_bytes) == [33, 33, 34]
    for op in ops:
        if op.name == "sum/done":
            assert sum(tensor.size_bytes for tensor in op.inputs) == 100
            assert op.made_bytes == (100,)


@replicas
def test_an_all_gather_hands_on_what_it_got(count: int) -> None:
    ops = list(all_gather("rows", [RingTensor(r, "own", 0, 100) for r in range(count)], None))
    assert set(sent(ops).values()) == {(count - 1) * 100}
    assert {op.made_bytes for op in ops if op.name == "rows/done"} == {(100 * count,)}


@replicas
def test_simulated_an_all_reduce_takes_its_hops_over_the_links(count: int) -> None:
    size = 840_000
    parts = [[RingTensor(r, "own", 0, size)] for r in range(count)]
    hops = 2 * (count - 1)
    expected = hops * (LATENCY_NS + size / count / BYTES_PER_NS)
    assert simulated_ns(list(all_reduce("sum", parts, None)), count) == pytest.approx(expected)


@replicas
def test_simulated_an_all_gather_takes_one_round(count: int) -> None:
    size = 840_000
    ops = list(all_gather("rows", [RingTensor(r, "own", 0, size) for r in range(count)], None))
    expected = (count - 1) * (LATENCY_NS + size / BYTES_PER_NS)
    assert simulated_ns(ops, count) == pytest.approx(expected)


def test_a_collective_begins_after_the_one_before() -> None:
    ops = list(all_gather("b", [RingTensor(r, "own", 0, 4) for r in range(2)], "a/done"))
    for op in ops:
        waits = [tensor for tensor in op.inputs if tensor.port == CONTROL_PORT]
        assert waits == ([RingTensor(op.replica, "a/done", -1, 0)] if op.name == "b/pack" else [])


def test_in_the_first_round_chunks_are_added_up_and_in_the_second_kept() -> None:
    ops = all_reduce("sum", [[RingTensor(r, "own", 0, 90)] for r in range(3)], None)
    kinds = {op.name: op.kind for op in ops if op.replica == 0 and "hop" in op.name}
    assert kinds == {
        "sum/hop_0": "AddV2",
        "sum/hop_1": "AddV2",
        "sum/hop_2": "Identity",
        "sum/hop_3": "Identity",
    }
