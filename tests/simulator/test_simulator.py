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

from placement_advisor.errors import PlacementError
from placement_advisor.graph.op import Role
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.machine.devices import CopyWork, Dispatch, Sharing
from placement_advisor.measurement.invariants import schedule_violations
from placement_advisor.simulator.arrays import Repetition
from placement_advisor.simulator.schedule import CopyInterval, Transfer, copy_intervals


def chained(*devices, costs=MappingProxyType({"x": 10, "y": 10, "z": 10}), **cluster):
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
    "a copy engine hides the copy": (wired({"x": X, "busy": BUSY, "y": Y}, "x -> y"), 1_000 + 10),
    "what two on a device read crosses once": (chained(*"abb"), 10 + 110 + 10 + 10),
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
        chained(*"aaa", launch_overhead_ns=3, dispatch=Dispatch(step_overhead_ns=1_000)),
        3 * (10 + 3) + 1_000,
    ),
    # What leaves the device leaves it at its end, 14 ns long, and has a launch there.
    "launches hide behind long ops": (chain_launched_ahead(20, 5, 5), 33 + 14 + 3 + 1),
    "short ops are bound by their launches": (chain_launched_ahead(1, 1, 1), 10 + 14 + 3 + 1),
    "what has no cost is free and has no launch": (HELD, 13),
    "sending that takes longer than the link makes the copy longer": (
        chained("a", "b", "b").with_links(sender=CopyWork(per_copy_ns=500)),
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
        replace(chained("a", "b", "b"), costs_on={"b": price({"y": 500, "z": 70})}),
        10 + 110 + 500 + 70,
    ),
    # The second kernel runs from 23 to 53, the copy is under way from 23 to 37.
    "a step loses half of what copies take beside kernels": (
        wired(
            {"first": ("a", 20, 4), "second": ("a", 30), "there": ("b", 1)},
            "first -> second, first -> there",
            replace(launching_ahead(3), sharing=Sharing(exchange_loss=0.5)),
        ),
        53 + 14 // 2,
    ),
    "no op at all": (wired({}, "", pair(dispatch=Dispatch(step_overhead_ns=7))), 7),
}


@pytest.mark.parametrize("name", STEPS)
def test_a_step_takes_what_is_counted_by_hand(name):
    step, step_ns = STEPS[name]
    assert step.simulate().step_ns == step_ns


def test_hops_of_a_collective_are_one_copy_for_each_device_and_last_from_where_it_joins():
    def hop(source, target, start_ns, *, collective="sum"):
        what = {"producer": "x", "port": 0, "size_bytes": 8, "collective": collective}
        ends = {"source": source, "target": target, "end_ns": start_ns + 10}
        return Transfer(start_ns=start_ns, **what, **ends)

    alone = hop("a", "b", 0, collective=None)
    there, back, again = hop("a", "b", 5), hop("b", "a", 20), hop("a", "b", 30)
    assert copy_intervals([alone, there, back, again]) == (
        CopyInterval("a", "b", (alone,), 0, 10),
        CopyInterval("a", "b", (there, again), 5, 40),
        CopyInterval("b", "a", (back,), 5, 30),
    )


def test_copies_exposed_times_and_copy_work_of_a_diamond_by_hand():
    schedule = diamond().simulate()
    assert schedule.compute_ns == {"a": 50 + 80 + 20, "b": 100}
    copies = [(t.producer, t.target, t.start_ns, t.end_ns) for t in schedule.transfers]
    assert copies == [("src", "b", 50, 160), ("right", "a", 260, 370)]
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


@pytest.mark.parametrize(
    ("step", "error", "message"),
    [
        (chained(*"aaa", costs={"x": 10, "z": 10}), ValueError, r"op 'y' \(MatMul\) has no cost"),
        # What b would take for x is not asked for where x is not.
        (replace(chained(*"bbb"), costs_on={"b": price({"y": 500, "z": 70})}), ValueError, "'x'"),
        (
            replace(chained(*"abb"), cluster=replace(pair(), links=())),
            PlacementError,
            "no link from 'a' to 'b'",
        ),
        (chained("a", "a", "elsewhere"), PlacementError, "'z'"),
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


@given(placed_steps(hosts=True))
def test_exposed_time_equals_a_count_of_single_nanoseconds(step):
    schedule = step.simulate()
    assert schedule_violations(schedule) == ()
    for device in step.cluster.place_names():
        coming = set()
        computing = set()
        for transfer in schedule.transfers:
            if transfer.target == device:
                coming |= set(range(transfer.start_ns, transfer.end_ns))
        for run in schedule.runs:
            if run.device == device:
                computing |= set(range(run.start_ns, run.end_ns))
        assert schedule.exposed_by_device[device] == len(coming - computing)
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
