from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from types import MappingProxyType

import numpy as np
import pytest
from drawn_cases import cases
from hypothesis import given
from hypothesis import strategies as st
from oracle import Oracle
from placed_steps import (
    HALF_EACH,
    PlacedStep,
    diamond,
    edge,
    launching_ahead,
    op,
    pair,
    place,
    placed,
    placed_steps,
    price,
    wired,
)

from placement_advisor.cost.table import CostBasis, CostTable, OpCost
from placement_advisor.errors import PlacementError
from placement_advisor.graph.op import Op, Role
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.machine.devices import Cluster, CopyWork, Device, Dispatch, Sharing
from placement_advisor.measurement.invariants import schedule_violations
from placement_advisor.simulator.arrays import Repetition
from placement_advisor.simulator.schedule import hidden_ns
from placement_advisor.simulator.simulator import Origin, simulation


def chain_of_three(*devices, costs=MappingProxyType({"x": 10, "y": 10, "z": 10}), **cluster):
    """x (10 ns, 100 bytes) read by y (10 ns) and z (10 ns)."""
    graph = OpGraph([op("x", 100), op("y"), op("z")], [edge("x", "y", 100), edge("x", "z", 100)])
    placement = place(dict(zip("xyz", devices, strict=True)))
    return PlacedStep(graph=graph, placement=placement, costs=price(costs), cluster=pair(**cluster))


def chain_launched_ahead(*times_ns):
    """Return a chain of ops on a device that takes 3 ns to launch each, and a reader on another."""
    names = [f"op{i}" for i in range(len(times_ns))]
    return placed(
        OpGraph(
            [*(op(name, 4) for name in names), op("there")],
            [edge(*ends, 4) for ends in pairwise([*names, "there"])],
        ),
        {**dict.fromkeys(names, "a"), "there": "b"},
        {**dict(zip(names, times_ns, strict=True)), "there": 1},
        launching_ahead(3),
    )


def two_senders(channel):
    """x on a and y on b end at 10 and send 100 bytes each to c."""
    ops = {"x": ("a", 10, 100), "y": ("b", 10, 100), "z": ("c", 10)}
    return wired(ops, "x -> z, y -> z", pair(count=3, channel=channel))


def with_sharing(z_on):
    """Return devices that slow each other: by half, and by twice what is drawn from memory."""
    return placed(
        OpGraph([op("x"), op("y"), op("z")._replace(bytes_accessed=40)], []),
        {"x": "a", "y": "a", "z": z_on},
        {"x": 100, "y": 100, "z": 100},
        replace(pair(), sharing=Sharing(split_ratio=1.5, memory_bytes_per_s=1e9, memory_ratio=2.0)),
    )


def receiving_asleep(asleep_ns, **more):
    work = CopyWork(per_copy_ns=15)
    ops = {"x": ("a", 35, 90), "y": ("b", 20)} | more
    cluster = pair(work=work, dispatch=Dispatch(asleep_ns=asleep_ns))
    return wired(ops, "x -> y", cluster).with_links(wake_ns=8)


X, BUSY, Y = ("a", 10, 100), ("b", 1_000), ("b", 10)
AROUND = Dispatch(
    step_overhead_ns=7, partition_overhead_ns=40, remote_start_ns=60, remote_end_ns=30
)
HELD = placed(
    OpGraph(
        [op("v", role=Role.VARIABLE), op("fed", 8, role=Role.INPUT), op("read")],
        [edge("fed", "read", 8)],
    ),
    {"v": "a", "read": "a", "fed": "a"},
    {"read": 10},
    pair(launch_overhead_ns=3),
)


STEPS = {
    # src 50, transfer 10 + 100, right 100, transfer 10 + 100, sink 20; left runs meanwhile.
    "a diamond": (diamond(), 50 + 110 + 100 + 110 + 20),
    "devices that move the bytes themselves": (diamond(work=HALF_EACH), 50 + 110 + 100 + 110 + 20),
    "receiving waits for the op that the receiver runs": (
        wired({"x": X, "busy": BUSY, "y": Y}, "x -> y", pair(work=HALF_EACH)),
        1_000 + 55 + 10,
    ),
    "a copy engine hides the copy behind it": (
        wired({"x": X, "busy": BUSY, "y": Y}, "x -> y"),
        1_000 + 10,
    ),
    "a tensor with two readers on one device crosses once": (
        chain_of_three("a", "b", "b"),
        10 + 110 + 10 + 10,
    ),
    # Bytes queue on the link, latencies do not.
    "ports and control signals cross separately": (
        wired({"x": ("a", 10, 100, 30), "y": Y}, "x -> y, x:1 -> y, ^x -> y"),
        10 + 130 + 10 + 10,
    ),
    "opposite directions do not queue": (
        wired({"x": X, "y": ("b", 10, 100), "l": ("a", 10), "r": Y}, "x -> r, y -> l"),
        10 + 110 + 10,
    ),
    "a tensor of unknown size costs the latency": (
        wired({"x": ("a", 10, None), "y": Y}, "x -> y"),
        10 + 10 + 10,
    ),
    "launches and the step have overheads": (
        chain_of_three(*"aaa", launch_overhead_ns=3, dispatch=Dispatch(step_overhead_ns=1_000)),
        3 * (10 + 3) + 1_000,
    ),
    # What leaves the device leaves it at its end, 14 ns long, and has a launch there.
    "launches hide behind long ops": (chain_launched_ahead(20, 5, 5), 33 + 14 + 3 + 1),
    "short ops are bound by their launches": (chain_launched_ahead(1, 1, 1), 10 + 14 + 3 + 1),
    "what has no cost is free and has no launch": (HELD, 13),
    "sending that takes longer than the link makes the copy longer": (
        chain_of_three("a", "b", "b").with_links(sender=CopyWork(per_copy_ns=500)),
        10 + 500 + 10 + 10,
    ),
    # Two further devices are in use; the fourth is not.
    "the first device starts the others and hears of their end": (
        wired({"x": ("a", 10), "y": ("b", 20), "z": ("c", 20)}, "", pair(count=4, dispatch=AROUND)),
        60 + 20 + 30 + 7,
    ),
    "one device alone starts no other": (
        wired({"x": ("a", 10), "y": ("a", 20)}, "", pair(dispatch=AROUND)),
        10 + 20 + 7,
    ),
    # b has rested since 0; what comes at 135 - 15 finds it asleep, nearly so, or halfway there.
    "a device asleep takes longer to receive": (receiving_asleep(120), 135 + 8 + 20),
    "a device nearly asleep": (receiving_asleep(121), 135 + 7 + 20),
    "a device halfway asleep": (receiving_asleep(240), 135 + 4 + 20),
    "a device that had an op in between": (receiving_asleep(120, z=("b", 60)), 135 + 4 + 20),
    "on one device nothing takes longer": (with_sharing("a"), 300),
    # z, beside x, is slowed by half, and twice for what it draws: 40 of its 100 ns.
    "devices that share a machine slow each other": (with_sharing("b"), 300),
    "links of their own do not queue": (two_senders(None), 10 + 110 + 10),
    # The second gets hold of the wire when the first's 100 bytes are through.
    "links of one channel queue": (two_senders("switch"), 10 + 100 + 110 + 10),
    # Each takes 110 ns, but keeps the wire from others for 40 ns.
    "a copy that keeps its wire for less than it takes": (
        two_senders("switch").with_links(stream_bytes_per_s=2.5e9),
        10 + 40 + 110 + 10,
    ),
    "an op costs what it costs where it runs": (
        replace(chain_of_three("a", "b", "b"), costs_on={"b": price({"y": 500, "z": 70})}),
        10 + 110 + 500 + 70,
    ),
    "no op at all": (wired({}, "", pair(dispatch=Dispatch(step_overhead_ns=7))), 7),
}


@pytest.mark.parametrize("name", STEPS)
def test_a_step_takes_what_is_counted_by_hand(name):
    step, step_ns = STEPS[name]
    assert step.simulate().step_ns == step_ns


def test_copies_exposed_times_and_copy_work_of_a_diamond_by_hand():
    schedule = diamond().simulate()
    assert schedule.compute_ns == {"a": 50 + 80 + 20, "b": 100}
    assert [(t.producer, t.target, t.start_ns, t.end_ns) for t in schedule.transfers] == [
        ("src", "b", 50, 160),
        ("right", "a", 260, 370),
    ]
    # b waits for all of the first transfer; left ended at 130, so a waits for all of the second.
    assert schedule.exposed_by_device == {"a": 110, "b": 110}
    assert (schedule.exposed_ns, schedule.carried.amount) == (110, 200)
    worked = diamond(work=HALF_EACH).simulate()
    left = next(run for run in worked.runs if run.op == "left")
    # Sending keeps a busy for half of the copy's 10 + 100 ns, before left may start.
    assert (left.ready_ns, left.start_ns) == (50, 50 + 55)
    assert worked.compute_ns == schedule.compute_ns


def test_bytes_of_unknown_size_are_counted_and_a_signal_beside_does_not_make_them_known():
    for wires, count in (("x -> y", 1), ("x -> y, ^x -> y", 2)):
        schedule = wired({"x": ("a", 10, None), "y": Y}, wires).simulate()
        carried = schedule.carried
        assert (schedule.transfer_count, carried.unknown, carried.known) == (count, 1, 0)
        assert carried.amount is None


def test_a_constant_is_on_every_device_and_takes_no_time():
    constant = op("c", 100, kind="Const", role=Role.CONSTANT)
    graph = OpGraph([constant, op("x"), op("y")], [edge("c", "x", 100), edge("c", "y", 100)])
    costs = price({"x": 10, "y": 10})
    placement = place({"x": "a", "y": "b"})
    step = PlacedStep(graph=graph, placement=placement, costs=costs, cluster=pair())
    schedule = step.simulate()
    assert (schedule.step_ns, schedule.transfers) == (10, ())
    assert {run.op for run in schedule.runs} == {"x", "y"}


def test_ready_ops_run_first_come_first_served_and_then_by_port_and_graph_order():
    # All but src is ready at 10, early last, though it stands before late in the graph.
    step = wired(
        {"src": ("a", 10, 0), "instant": ("a", 0, 0), "early": ("a", 30, 0), "late": ("a", 50, 0)},
        "src -> instant, instant -> early, src -> late",
    )
    runs = [(run.op, run.ready_ns) for run in step.simulate().runs]
    assert runs == [("src", 0), ("instant", 10), ("late", 10), ("early", 10)]
    ports = ("by control", "by port 1", "by port 0", "by port 0 too")
    step = wired(
        {"src": ("a", 10, 0, 0), **dict.fromkeys(ports, ("a", 20, 0))},
        "^src -> by control, src:1 -> by port 1, src -> by port 0, src -> by port 0 too",
    )
    order = [run.op for run in step.simulate().runs]
    assert order == ["src", "by port 0", "by port 0 too", "by port 1", "by control"]


def test_launches_hide_behind_a_long_op_by_hand():
    schedule = chain_launched_ahead(20, 5, 5).simulate()
    here = {run.op: (run.ready_ns, run.launch, run.start_ns, run.end_ns) for run in schedule.runs}
    assert here == {
        "op0": (0, (0, 3), 3, 23),
        "op1": (3, (3, 6), 23, 28),
        "op2": (6, (6, 9), 28, 33),
        "there": (47, (47, 50), 50, 51),
    }
    assert schedule.compute_ns == {"a": 30, "b": 1}


def test_a_step_loses_a_share_of_copies_beside_kernels_by_hand():
    step = PlacedStep(
        graph=OpGraph(
            [op("first", 4), op("second"), op("there")],
            [edge("first", "second", 4), edge("first", "there", 4)],
        ),
        placement=place({"first": "a", "second": "a", "there": "b"}),
        costs=price({"first": 20, "second": 30, "there": 1}),
        cluster=launching_ahead(3),
    )
    # The second kernel runs from 23 to 53, the copy is under way from 23 to 37.
    assert step.simulate().step_ns == 53
    lossy = replace(step, cluster=replace(step.cluster, sharing=Sharing(exchange_loss=0.5)))
    assert lossy.simulate().step_ns == 53 + 14 // 2


@pytest.mark.parametrize(
    ("step", "error", "message"),
    [
        (
            chain_of_three(*"aaa", costs={"x": 10, "z": 10}),
            ValueError,
            r"op 'y' \(MatMul\) has no cost",
        ),
        # What b would take for x is not asked for where x is not.
        (
            replace(chain_of_three(*"bbb"), costs_on={"b": price({"y": 500, "z": 70})}),
            ValueError,
            "'x'",
        ),
        (
            replace(chain_of_three(*"abb"), cluster=replace(pair(), links=())),
            PlacementError,
            "no link from 'a' to 'b'",
        ),
        (chain_of_three("a", "a", "elsewhere"), PlacementError, "'z'"),
    ],
)
def test_a_step_that_cannot_be_simulated_is_refused(step, error, message):
    with pytest.raises(error, match=message):
        step.simulate()


@pytest.mark.parametrize(
    ("quantum_ns", "order"),
    [
        (0, ["x", "sending", "p", "q", "r"]),
        # x kept the device for all of its quantum when it ended.
        (10, ["x", "sending", "p", "q", "r"]),
        (11, ["x", "p", "sending", "q", "r"]),
        (21, ["x", "p", "q", "sending", "r"]),
        (1_000, ["x", "p", "q", "r", "sending"]),
    ],
)
def test_ops_go_before_copy_work_until_the_quantum_is_over(quantum_ns, order):
    step = wired(
        {"x": X, **dict.fromkeys("pqr", ("a", 10)), "far": Y},
        "x -> far",
        pair(work=HALF_EACH, dispatch=Dispatch(quantum_ns=quantum_ns)),
    )
    schedule = step.simulate()
    starts = {run.op: run.start_ns for run in schedule.runs if run.device == "a"}
    starts["sending"] = schedule.transfers[0].set_out_ns
    assert sorted(starts, key=lambda name: starts[name]) == order
    before = order.index("sending")
    # Ops take 10 ns, sending takes 55.
    assert [starts[name] for name in order] == [
        10 * place + (45 if place > before else 0) for place in range(5)
    ]


@pytest.mark.parametrize(
    ("size_bytes", "sending", "q_starts_ns", "queued_ns"),
    [
        # Sending takes longer than the quantum, after which it is the turn of q. The second tensor
        # has to wait for the wire, which the first's bytes occupy for 100 ns.
        (100, [(20, 75), (85, 140)], 75, [0, 35]),
        # Both tensors are sent within the quantum.
        (2, [(20, 26), (26, 32)], 32, [0, 0]),
    ],
)
def test_copy_work_has_its_quantum_as_well(size_bytes, sending, q_starts_ns, queued_ns):
    step = wired(
        {"x": ("a", 10, size_bytes, size_bytes), "p": ("a", 10), "q": ("a", 10), "far": Y},
        "x -> far, x:1 -> far",
        pair(work=HALF_EACH, dispatch=Dispatch(quantum_ns=15)),
    )
    schedule = step.simulate()
    # Before either, x and p until 20.
    assert [copy.send_work for copy in schedule.transfers] == sending
    assert next(run.start_ns for run in schedule.runs if run.op == "q") == q_starts_ns
    assert [copy.queued_ns for copy in schedule.transfers] == queued_ns


def test_a_device_that_was_idle_begins_its_quantum_anew():
    step = wired(
        {"x": ("a", 10), "far": ("b", 100, 100), "y": X, "z": ("a", 10), "last": Y},
        "far -> y, far -> z, y -> last",
        pair(work=HALF_EACH, dispatch=Dispatch(quantum_ns=15)),
    )
    schedule = step.with_links(receiver=CopyWork()).simulate()
    runs = {run.op: run for run in schedule.runs}
    # x kept it for 10 ns, long before y; so what y made waits for z.
    assert runs["z"].start_ns == runs["y"].end_ns > 100
    assert schedule.transfers[1].send_work[0] == runs["z"].end_ns


def test_a_far_device_begins_later_asks_for_its_input_and_is_heard_of_later():
    # a drives b next to it and c far away, as all three would be if c's host were 50 ns off.
    step = wired(
        {"x": X, "y": ("b", 20), "z": ("c", 20, 100)},
        "x -> z",
        pair(count=3, dispatch=Dispatch(remote_start_ns=5, remote_end_ns=5)),
    )
    a, b, c = step.cluster.devices
    far = replace(c, remote_start_ns=50, remote_end_ns=51)
    links = tuple(
        replace(link, latency_ns=50, request_ns=50) if "c" in (link.source, link.target) else link
        for link in step.cluster.links
    )
    step = replace(step, cluster=replace(step.cluster, devices=(a, b, far), links=links))
    schedule = step.simulate()
    # c begins at 50 ns and asks, which a hears at 100; what it sends takes 150 ns.
    (copy,) = schedule.transfers
    assert (copy.set_out_ns, copy.start_ns, copy.end_ns) == (10, 100, 250)
    assert {run.op: run.start_ns for run in schedule.runs} == {"x": 0, "y": 5, "z": 250}
    assert schedule.step_ns == 250 + 20 + 51
    # What is ready later than the request comes is sent at once.
    later = replace(step, costs=price({"x": 300, "y": 20, "z": 20})).simulate()
    assert later.step_ns == 300 + 150 + 20 + 51


BOTH = frozenset({"CPU", "GPU"})


def on_gpus(ops, edges, device):
    """Return ops of 10 ns placed on one of two GPUs, a and b, whose host is c, all linked alike."""
    cluster = pair(count=3)
    *devices, host = cluster.devices
    gpus = tuple(replace(each, kind="GPU", host=host.name) for each in devices)
    return placed(
        OpGraph(ops, edges),
        dict.fromkeys((each.name for each in ops), device),
        {each.name: 10 for each in ops if each.role is Role.FORWARD},
        replace(cluster, devices=gpus, hosts=(host,)),
    )


def test_an_op_without_a_gpu_kernel_runs_on_the_host_with_what_takes_its_variable():
    ops = [op("x", 100)._replace(device_kinds=BOTH), op("unique", 50)]
    ops.append(op("y")._replace(device_kinds=BOTH))
    schedule = on_gpus(ops, [edge("x", "unique", 100), edge("unique", "y", 50)], "a").simulate()
    assert {run.op: run.device for run in schedule.runs} == {"x": "a", "unique": "c", "y": "a"}
    copies = [(t.source, t.target, t.size_bytes) for t in schedule.transfers]
    assert copies == [("a", "c", 100), ("c", "a", 50)]
    assert schedule.step_ns == 10 + 110 + 10 + 60 + 10
    assert schedule.compute_ns == {"a": 20, "b": 0, "c": 10}
    held = {"variable": "v", "device_kinds": BOTH}
    ops = [
        Op("v", "VarHandleOp", Role.VARIABLE, **held),
        Op("read", "ReadVariableOp", output_bytes=(100,), **held),
        Op("update", "ResourceScatterUpdate", variable="v"),
        op("y")._replace(device_kinds=BOTH),
    ]
    edges = [edge("v", "read", None), edge("v", "update", None), edge("read", "y", 100)]
    schedule = on_gpus(ops, edges, "b").simulate()
    where = {run.op: run.device for run in schedule.runs}
    assert where == {"v": "c", "read": "c", "update": "c", "y": "b"}
    assert schedule.transfer_count == 1


@given(placed_steps(hosts=True))
def test_exposed_and_hidden_time_equal_a_count_of_single_nanoseconds(step):
    schedule = step.simulate()
    assert schedule_violations(schedule) == ()
    for device in step.cluster.place_names():
        coming: set[int] = set()
        computing: set[int] = set()
        for transfer in schedule.transfers:
            if transfer.target == device:
                coming |= set(range(transfer.start_ns, transfer.end_ns))
        for run in schedule.runs:
            if run.device == device:
                computing |= set(range(run.start_ns, run.end_ns))
        assert schedule.exposed_by_device[device] == len(coming - computing)
        assert hidden_ns(schedule.runs, schedule.copies, device) == len(coming & computing)
    assert schedule.exposed_ns == max(schedule.exposed_by_device.values())


@given(placed_steps(hosts=True), st.sampled_from([0.0, 0.3, 4.0]))
def test_a_simulator_moved_to_another_cluster_is_the_one_made_for_it(step, factor):
    other = step.cluster.scaled(copies=factor + 0.1, launches=factor)
    moved = step.simulator().on(other)
    assert moved.schedule(step.placement) == replace(step, cluster=other).simulate()


def test_a_simulator_is_not_moved_to_other_devices():
    with pytest.raises(ValueError, match="the devices are"):
        diamond().simulator().on(pair(count=3))


@given(st.sampled_from([14, 40]).flatmap(lambda most: placed_steps(most, hosts=True)))
@cases(360)
def test_the_compiled_schedule_is_that_of_the_plain_twin(step):
    oracle = Oracle(step)
    schedule = step.simulate()
    assert schedule.runs == oracle.runs
    assert schedule.transfers == oracle.transfers
    assert schedule.step_ns == oracle.step_ns
    assert step.simulator().step_ns(step.placement) == oracle.step_ns


def simulated(*costs):
    """Return what is told of ops of these costs, one after the other on one device."""
    graph = OpGraph([Op(f"op{i}", "MatMul") for i in range(len(costs))], [])
    table = CostTable(costs={op.name: cost for op, cost in zip(graph.ops, costs, strict=True)})
    placement = place(dict.fromkeys((op.name for op in graph.ops), "a"))
    cluster = Cluster(devices=(Device(name="a", kind="CPU"),), links=())
    origin = Origin(graph_file="", placement_file="", machine="", renamed={})
    return simulation(graph, placement, {"a": table}, cluster, origin)


def test_a_step_with_copies_of_an_op_by_hand():
    ops = {"x": ("b", 100, 8), "y": ("a", 200, 50), "z": ("a", 30, 4), "end": ("a", 5)}
    step = wired(ops, "x -> y, y -> z, z -> end")
    only_z = np.array([False, False, True, False])
    twice = Repetition(times=2, ops=only_z, on_next=only_z, dealt=np.zeros(4, bool))
    simulator = step.simulator()
    found = simulator.outline(simulator.devices_of(step.placement), twice)
    assert (found.op.tolist(), found.place.tolist()) == ([0, 1, 2, 2, 3], [1, 0, 0, 1, 0])
    # x and its way to a, y, the way of its tensor to b, z there, and the way of that back.
    assert found.step_ns == 100 + 18 + 200 + 60 + 30 + 14 + 5


def test_shares_of_the_time_say_where_costs_come_from():
    measured = OpCost(time_ns=500, basis=CostBasis.MEASURED)
    again = OpCost(time_ns=200, basis=CostBasis.MEASURED)
    guessed = OpCost(time_ns=300, basis=CostBasis.GUESSED)
    # 500 + 200 of 1,000 ns are measured.
    found = simulated(measured, guessed, again).basis_shares
    assert found[CostBasis.MEASURED] == pytest.approx(0.7)
    assert found[CostBasis.GUESSED] == pytest.approx(0.3)
    assert sum(found.values()) == pytest.approx(1)


def test_a_step_that_takes_no_time_has_no_shares():
    found = simulated(OpCost(time_ns=0, basis=CostBasis.MEASURED)).basis_shares
    assert set(found) == set(CostBasis)
    assert set(found.values()) == {0}
