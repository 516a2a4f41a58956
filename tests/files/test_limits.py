"""Numbers that 64 bits would not add up are refused where they come in, whatever they come from.

What cluster files and calibrations may hold is tested with them; a placement file holds no numbers.
"""

from dataclasses import replace

import numpy as np
import pytest
from placed_steps import diamond, edge, op, pair, price, wired

from placement_advisor import api
from placement_advisor.errors import AdvisorError
from placement_advisor.files.untrusted import MAX_BYTES, MAX_NS, MAX_TOTAL_BYTES
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.machine.devices import CopyWork, Dispatch
from placement_advisor.simulator.arrays import Repetition
from placement_advisor.solvers.lower_bounds import bound_step

HUGE = 2**63 - 1


def two_ops(size_bytes, time_ns=10, **cluster):
    ops = {"one": ("a", time_ns, size_bytes), "two": ("b", 10, 4)}
    return wired(ops, "one -> two", pair(**cluster))


@pytest.mark.parametrize("size_bytes", [MAX_BYTES + 1, HUGE, 2**64, -1])
@pytest.mark.parametrize(
    "graph",
    [
        lambda size: two_ops(size),
        lambda size: OpGraph([op("one", 4), op("two", 4)], [edge("one", "two", size)]),
        lambda size: OpGraph([op("one")._replace(parameter_bytes=size)], []),
    ],
)
def test_a_tensor_that_no_machine_holds_is_refused(graph, size_bytes):
    with pytest.raises(AdvisorError, match=rf"op 'one': {size_bytes} bytes, where a tensor"):
        graph(size_bytes)


def test_tensors_that_no_machine_holds_together_are_refused_and_the_largest_one_loads(tmp_path):
    ops = [op(f"op{i}", MAX_BYTES) for i in range(MAX_TOTAL_BYTES // MAX_BYTES)]
    OpGraph(ops, [])
    with pytest.raises(AdvisorError, match="of the graph have 100000000000000001 bytes"):
        OpGraph([*ops, op("one more", 1)], [])
    graph = two_ops(MAX_BYTES).graph
    graph.save(tmp_path / "graph.json.gz")
    assert OpGraph.load(tmp_path / "graph.json.gz") == graph


@pytest.mark.parametrize(
    ("step", "longest"),
    [
        (two_ops(4, time_ns=MAX_NS), "op 'one'"),
        (two_ops(4, time_ns=2**70), "op 'one'"),
        (two_ops(MAX_BYTES, bytes_per_ns=1e-4), "copies of output 0 of op 'one'"),
        (two_ops(4, latency_ns=2**70), "copies of output 0 of op 'one'"),
        (two_ops(MAX_BYTES, work=CopyWork(ns_per_byte=1e3)), "copies of output 0 of op 'one'"),
        (two_ops(4, dispatch=Dispatch(remote_start_ns=2**61)), "the start and the end of devices"),
        (two_ops(4).with_links(request_ns=2**70), "the start and the end of devices"),
        (two_ops(4, dispatch=Dispatch(quantum_ns=2**63)), ""),
    ],
)
def test_a_step_that_may_take_longer_than_is_counted_is_refused(step, longest):
    with pytest.raises(AdvisorError, match=f"more than 36 years, most of it for {longest}") as told:
        step.simulator()
    assert told.value.hint is not None


def test_a_step_that_becomes_too_long_is_refused():
    step = two_ops(4, time_ns=MAX_NS // 4)
    longer = pair(latency_ns=MAX_NS)
    with pytest.raises(AdvisorError, match="36 years"):
        step.simulator().on(longer)
    step = two_ops(4)
    simulator = step.simulator()
    device = simulator.devices_of(step.placement)

    def costing(time_ns):
        costs_ns = np.full(len(simulator.ops), time_ns, np.int64)
        return simulator.resized(simulator.ops, dict.fromkeys(("a", "b"), costs_ns))

    with pytest.raises(AdvisorError, match="36 years"):
        costing(MAX_NS).outline(device)
    short = costing(MAX_NS // 4)
    assert short.outline(device).step_ns < MAX_NS
    all_ops, none = np.ones(2, bool), np.zeros(2, bool)
    four = Repetition(times=4, ops=all_ops, on_next=none, dealt=none)
    with pytest.raises(AdvisorError, match="36 years"):
        short.outline(device, four)


def test_the_longest_step_that_is_counted_is_simulated_and_bounded():
    step = two_ops(4, time_ns=MAX_NS - 10 - 14)
    assert step.simulate().step_ns == MAX_NS
    bound = bound_step(step.simulator())
    assert (bound.alone_ns["a"], bound.split_ns) == (MAX_NS - 14, MAX_NS)


@pytest.mark.parametrize("time_ns", [-1, MAX_NS + 1, 1.5, float("nan"), float("inf")])
def test_costs_that_are_no_times_are_refused(time_ns):
    step = diamond()
    costs = {"src": 50, "left": time_ns, "right": 100, "sink": 20}
    with pytest.raises(AdvisorError, match=rf"op 'left': {time_ns!r} is not a whole number of ns"):
        api.search(step.graph, costs, step.cluster)
    with pytest.raises(AdvisorError, match="op 'left'"):
        api.simulate(step.graph, step.placement, price(costs), step.cluster)


def test_a_cluster_without_a_device_or_with_two_of_one_name_is_refused():
    step = diamond()
    first, _ = step.cluster.devices
    for devices, problem in (((), "no device"), ((first, first), "one name: a, a")):
        with pytest.raises(AdvisorError, match=problem):
            api.search(step.graph, step.costs, replace(step.cluster, devices=devices))
