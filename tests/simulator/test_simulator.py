from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from placed_steps import (
    HALF_EACH,
    PlacedStep,
    control,
    diamond,
    edge,
    launching_ahead,
    op,
    pair,
    place,
    placed_steps,
    price,
    wired,
)
from schedules import check_schedule

from placement_advisor.errors import PlacementError
from placement_advisor.graph.op import Op, Role
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.graph.placement import placed_ops
from placement_advisor.machine.devices import Cluster, CopyWork, Dispatch, Sharing
from placement_advisor.measurement.invariants import schedule_violations
from placement_advisor.simulator.schedule import hidden_ns


def chain_of_three(*devices: str) -> PlacedStep:
    """x (10 ns, 100 bytes) read by y (10 ns) and z (10 ns)."""
    return PlacedStep(
        graph=OpGraph([op("x", 100), op("y"), op("z")], [edge("x", "y", 100), edge("x", "z", 100)]),
        placement=place(dict(zip("xyz", devices, strict=True))),
        costs=price({"x": 10, "y": 10, "z": 10}),
        cluster=pair(),
    )


def test_diamond_split_over_two_devices_by_hand() -> None:
    schedule = diamond().simulate()
    # src 50, transfer 10 + 100, right 100, transfer 10 + 100, sink 20; left runs meanwhile.
    assert schedule.step_ns == 50 + 110 + 100 + 110 + 20
    assert schedule.compute_ns == {"a": 50 + 80 + 20, "b": 100}
    assert [(t.producer, t.target, t.start_ns, t.end_ns) for t in schedule.transfers] == [
        ("src", "b", 50, 160),
        ("right", "a", 260, 370),
    ]
    # b waits for all of the first transfer; left ended at 130, so a waits for all of the second.
    assert schedule.exposed_by_device == {"a": 110, "b": 110}
    assert schedule.exposed_ns == 110
    assert schedule.carried.amount == 200


def test_diamond_on_devices_that_move_the_bytes_themselves_by_hand() -> None:
    schedule = diamond(work=HALF_EACH).simulate()
    left = next(run for run in schedule.runs if run.op == "left")
    # Sending keeps a busy for half of the copy's 10 + 100 ns, before left may start.
    assert (left.ready_ns, left.start_ns) == (50, 50 + 55)
    # The rest is idle devices: src 50, send 55, receive 55, right 100, and back.
    assert schedule.step_ns == 50 + 110 + 100 + 110 + 20
    assert schedule.compute_ns == {"a": 50 + 80 + 20, "b": 100}


def test_receiving_waits_for_the_op_that_the_receiver_runs() -> None:
    step = wired(
        {"x": ("a", 10, 100), "busy": ("b", 1000), "y": ("b", 10)}, "x -> y", pair(work=HALF_EACH)
    )
    schedule = step.simulate()
    # busy until 1000, then the receiving half of the copy, then y.
    assert schedule.step_ns == 1_000 + 55 + 10
    (copy,) = schedule.transfers
    # x ended at 10; sent until 65, when the other half of the copy's 110 ns began to wait.
    assert (copy.send_work, copy.receive_work[0] - copy.held_ns) == ((10, 65), 65)
    assert (copy.held_ns, copy.receive_work) == (1_000 - 65, (1_000, 1_055))


def test_a_copy_engine_hides_the_copy_behind_the_op_that_the_receiver_runs() -> None:
    step = wired({"x": ("a", 10, 100), "busy": ("b", 1000), "y": ("b", 10)}, "x -> y")
    schedule = step.simulate()
    assert schedule.step_ns == 1_000 + 10
    assert schedule.exposed_ns == 0


def test_a_tensor_with_two_readers_on_one_device_crosses_once() -> None:
    schedule = chain_of_three("a", "b", "b").simulate()
    assert [t.size_bytes for t in schedule.transfers] == [100]
    assert schedule.step_ns == 10 + 110 + 10 + 10


def test_a_tensor_crosses_to_every_device_that_reads_it() -> None:
    step = replace(chain_of_three("a", "b", "c"), cluster=pair(count=3))
    assert [t.target for t in step.simulate().transfers] == ["b", "c"]


def test_ports_and_control_signals_of_one_op_cross_separately() -> None:
    step = wired({"x": ("a", 10, 100, 30), "y": ("b", 10)}, "x -> y, x:1 -> y, ^x -> y")
    schedule = step.simulate()
    assert sorted((t.port, t.size_bytes) for t in schedule.transfers) == [
        (-1, 0),
        (0, 100),
        (1, 30),
    ]
    # Bytes queue on the link, latencies do not: 10, then 100 + 30 of bytes, one latency, then y.
    assert schedule.step_ns == 10 + 130 + 10 + 10


def test_transfers_in_opposite_directions_do_not_queue() -> None:
    step = wired(
        {"x": ("a", 10, 100), "y": ("b", 10, 100), "from_y": ("a", 10), "from_x": ("b", 10)},
        "x -> from_x, y -> from_y",
    )
    assert step.simulate().step_ns == 10 + 110 + 10


def test_a_tensor_of_unknown_size_costs_the_latency_and_is_counted() -> None:
    step = wired({"x": ("a", 10, None), "y": ("b", 10)}, "x -> y")
    schedule = step.simulate()
    assert (schedule.step_ns, schedule.carried.unknown) == (10 + 10 + 10, 1)
    assert [transfer.size_bytes for transfer in schedule.transfers] == [None]
    assert (schedule.carried.known, schedule.carried.amount) == (0, None)


def test_a_control_signal_beside_a_tensor_of_unknown_size_does_not_make_it_known() -> None:
    step = wired({"x": ("a", 10, None), "y": ("b", 10)}, "x -> y, ^x -> y")
    schedule = step.simulate()
    assert (schedule.transfer_count, schedule.carried.amount) == (2, None)


def test_a_constant_is_on_every_device_and_takes_no_time() -> None:
    step = PlacedStep(
        graph=OpGraph(
            [op("c", 100, kind="Const", role=Role.CONSTANT), op("x"), op("y")],
            [edge("c", "x", 100), edge("c", "y", 100)],
        ),
        placement=place({"x": "a", "y": "b"}),
        costs=price({"x": 10, "y": 10}),
        cluster=pair(),
    )
    schedule = step.simulate()
    assert (schedule.step_ns, schedule.transfers) == (10, ())
    assert {run.op for run in schedule.runs} == {"x", "y"}


def test_ready_ops_run_first_come_first_served_and_ties_in_graph_order() -> None:
    step = wired(
        {"x": ("a", 10, 4), "late": ("a", 10), "first": ("a", 10), "second": ("a", 10)}, "x -> late"
    )
    assert [run.op for run in step.simulate().runs] == ["x", "first", "second", "late"]


def test_what_an_op_of_no_time_makes_ready_queues_behind_what_was_ready_before() -> None:
    """All but src is ready at 10, early last, though it stands before late in the graph."""
    step = wired(
        {"src": ("a", 10, 0), "instant": ("a", 0, 0), "early": ("a", 30, 0), "late": ("a", 50, 0)},
        "src -> instant, instant -> early, src -> late",
    )
    runs = step.simulate().runs
    assert [(run.op, run.ready_ns) for run in runs] == [
        ("src", 0),
        ("instant", 10),
        ("late", 10),
        ("early", 10),
    ]


def test_what_one_end_makes_ready_queues_by_port_and_then_in_graph_order() -> None:
    names = ("by control", "by port 1", "by port 0", "by port 0 too")
    step = PlacedStep(
        graph=OpGraph(
            [op("src", 0, 0), *(op(name, 0) for name in names)],
            [
                control("src", "by control"),
                edge("src", "by port 1", 0, port=1),
                edge("src", "by port 0", 0),
                edge("src", "by port 0 too", 0),
            ],
        ),
        placement=place(dict.fromkeys(("src", *names), "a")),
        costs=price({"src": 10, **dict.fromkeys(names, 20)}),
        cluster=pair(),
    )
    order = [run.op for run in step.simulate().runs]
    assert order == ["src", "by port 0", "by port 0 too", "by port 1", "by control"]


def test_launch_and_step_overheads_lengthen_the_step_but_are_not_compute() -> None:
    cluster = pair(launch_overhead_ns=3, dispatch=Dispatch(step_overhead_ns=1_000))
    schedule = replace(chain_of_three("a", "a", "a"), cluster=cluster).simulate()
    assert schedule.step_ns == 3 * (10 + 3) + 1_000
    assert schedule.compute_ns == {"a": 30, "b": 0}


def chain_launched_ahead(*times_ns: int) -> PlacedStep:
    """Return a chain of ops on a device that takes 3 ns to launch each, and a reader on another."""
    names = [f"op{i}" for i in range(len(times_ns))]
    return PlacedStep(
        graph=OpGraph(
            [*(op(name, 4) for name in names), op("there")],
            [edge(*ends, 4) for ends in pairwise([*names, "there"])],
        ),
        placement=place({**dict.fromkeys(names, "a"), "there": "b"}),
        costs=price({**dict(zip(names, times_ns, strict=True)), "there": 1}),
        cluster=launching_ahead(3),
    )


def test_launches_hide_behind_a_long_op_by_hand() -> None:
    schedule = chain_launched_ahead(20, 5, 5).simulate()
    here = {run.op: (run.ready_ns, run.launch, run.start_ns, run.end_ns) for run in schedule.runs}
    assert here == {
        "op0": (0, (0, 3), 3, 23),
        "op1": (3, (3, 6), 23, 28),
        "op2": (6, (6, 9), 28, 33),
        # What leaves the device leaves it at the end: 10 ns of latency and 4 of bytes later.
        "there": (47, (47, 50), 50, 51),
    }
    assert schedule.compute_ns == {"a": 30, "b": 1}


def test_a_step_loses_a_share_of_copies_beside_kernels_by_hand() -> None:
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


def test_short_ops_are_bound_by_their_launches_by_hand() -> None:
    schedule = chain_launched_ahead(1, 1, 1).simulate()
    assert [(run.start_ns, run.end_ns) for run in schedule.runs] == [
        (3, 4),
        (6, 7),
        (9, 10),
        (10 + 14 + 3, 10 + 14 + 4),
    ]


def test_inputs_and_variables_without_a_cost_are_free() -> None:
    variable = Op(name="v", kind="VarHandleOp", role=Role.VARIABLE, variable="v")
    read = Op(name="read", kind="ReadVariableOp", variable="v", output_bytes=(8,))
    step = PlacedStep(
        graph=OpGraph(
            [variable, op("fed", 8, role=Role.INPUT), read],
            [edge("v", "read", None), edge("fed", "read", 8)],
        ),
        placement=place({"v": "a", "read": "a", "fed": "a"}),
        costs=price({"read": 10}),
        cluster=pair(launch_overhead_ns=3),
    )
    assert step.simulate().step_ns == 13


def test_an_op_without_a_cost_is_named() -> None:
    step = replace(chain_of_three("a", "a", "a"), costs=price({"x": 10, "z": 10}))
    with pytest.raises(ValueError, match=r"op 'y' \(MatMul\) has no cost"):
        step.simulate()


def test_a_crossing_without_a_link_is_refused() -> None:
    step = chain_of_three("a", "b", "b")
    with pytest.raises(PlacementError, match="no link from 'a' to 'b'"):
        replace(step, cluster=replace(step.cluster, links=())).simulate()


def test_a_placement_that_does_not_fit_is_refused() -> None:
    with pytest.raises(PlacementError, match="'z'"):
        chain_of_three("a", "a", "elsewhere").simulate()


def test_an_empty_graph_takes_the_step_overhead_alone() -> None:
    step = wired({}, "", pair(dispatch=Dispatch(step_overhead_ns=7)))
    schedule = step.simulate()
    assert (schedule.step_ns, schedule.runs, schedule.exposed_ns) == (7, (), 0)


def first_come_first_served(quantum_ns: int) -> dict[str, int]:
    """Return when ops start on a, after x made a tensor for b, and when that sets out."""
    names = ("x", "p", "q", "r")
    step = PlacedStep(
        graph=OpGraph([op("x", 100), *map(op, names[1:]), op("far")], [edge("x", "far", 100)]),
        placement=place(dict.fromkeys(names, "a") | {"far": "b"}),
        costs=price(dict.fromkeys((*names, "far"), 10)),
        cluster=pair(work=HALF_EACH, dispatch=Dispatch(quantum_ns=quantum_ns)),
    )
    schedule = step.simulate()
    starts = {run.op: run.start_ns for run in schedule.runs if run.device == "a"}
    return starts | {"sending": schedule.transfers[0].set_out_ns}


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
def test_ops_go_before_copy_work_until_the_quantum_is_over(
    quantum_ns: int, order: list[str]
) -> None:
    starts = first_come_first_served(quantum_ns)
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
def test_copy_work_has_its_quantum_as_well(
    size_bytes: int, sending: list[tuple[int, int]], q_starts_ns: int, queued_ns: list[int]
) -> None:
    step = PlacedStep(
        graph=OpGraph(
            [op("x", size_bytes, size_bytes), op("p"), op("q"), op("far")],
            [edge("x", "far", size_bytes), edge("x", "far", size_bytes, port=1)],
        ),
        placement=place({"x": "a", "p": "a", "q": "a", "far": "b"}),
        costs=price(dict.fromkeys(("x", "p", "q", "far"), 10)),
        cluster=pair(work=HALF_EACH, dispatch=Dispatch(quantum_ns=15)),
    )
    schedule = step.simulate()
    # Before either, x and p until 20.
    assert [copy.send_work for copy in schedule.transfers] == sending
    assert next(run.start_ns for run in schedule.runs if run.op == "q") == q_starts_ns
    assert [copy.queued_ns for copy in schedule.transfers] == queued_ns


def test_a_device_that_was_idle_begins_its_quantum_anew() -> None:
    step = wired(
        {
            "x": ("a", 10),
            "far": ("b", 100, 100),
            "y": ("a", 10, 100),
            "z": ("a", 10),
            "last": ("b", 10),
        },
        "far -> y, far -> z, y -> last",
        pair(work=HALF_EACH, dispatch=Dispatch(quantum_ns=15)),
    )
    links = tuple(replace(link, receiver=CopyWork()) for link in step.cluster.links)
    schedule = replace(step, cluster=replace(step.cluster, links=links)).simulate()
    runs = {run.op: run for run in schedule.runs}
    # x kept it for 10 ns, long before y; so what y made waits for z.
    assert runs["z"].start_ns == runs["y"].end_ns > 100
    assert schedule.transfers[1].send_work[0] == runs["z"].end_ns


def test_sending_that_takes_longer_than_the_link_makes_the_copy_longer() -> None:
    step = chain_of_three("a", "b", "b")
    slow = CopyWork(per_copy_ns=500)
    links = tuple(replace(link, sender=slow) for link in step.cluster.links)
    schedule = replace(step, cluster=replace(step.cluster, links=links)).simulate()
    assert schedule.transfers[0].end_ns == 10 + 500


def test_the_first_device_starts_the_others_and_hears_of_their_end() -> None:
    dispatch = Dispatch(
        step_overhead_ns=7, partition_overhead_ns=40, remote_start_ns=60, remote_end_ns=30
    )
    step = wired(
        {"x": ("a", 10), "y": ("b", 20), "z": ("c", 20)}, "", pair(count=4, dispatch=dispatch)
    )
    schedule = step.simulate()
    # Two further devices are in use; the fourth is not.
    assert {run.op: run.start_ns for run in schedule.runs} == {"x": 80, "y": 60, "z": 60}
    assert schedule.step_ns == 60 + 20 + 30 + 7
    alone = replace(step, placement=place(dict.fromkeys("xyz", "a"))).simulate()
    assert alone.step_ns == 10 + 20 + 20 + 7


def test_a_far_device_begins_later_asks_for_its_input_and_is_heard_of_later() -> None:
    # a drives b next to it and c far away, as all three would be if c's host were 50 ns off.
    step = wired(
        {"x": ("a", 10, 100), "y": ("b", 20), "z": ("c", 20, 100)},
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


@pytest.mark.parametrize(
    ("asleep_ns", "end_ns"),
    [
        (0, 135 + 7),
        # b has rested since 0; what comes at 135 - 15 finds it asleep, nearly so, or halfway there.
        (120, 135 + 7),
        (121, 135 + 6),
        (240, 135 + 3),
    ],
)
def test_what_reaches_a_device_asleep_takes_longer_to_receive(asleep_ns: int, end_ns: int) -> None:
    work = CopyWork(per_copy_ns=15)
    cluster = pair(work=work, dispatch=Dispatch(asleep_ns=asleep_ns))
    step = wired({"x": ("a", 35, 90), "y": ("b", 20)}, "x -> y", cluster).with_links(wake_ns=7)
    schedule = step.simulate()
    (copy,) = schedule.transfers
    assert copy.end_ns == end_ns
    assert schedule.step_ns == end_ns + 20


def test_a_device_that_had_an_op_in_between_has_rested_since_then() -> None:
    work = CopyWork(per_copy_ns=15)
    step = wired(
        {"x": ("a", 35, 90), "y": ("b", 20), "z": ("b", 60)},
        "x -> y",
        pair(work=work, dispatch=Dispatch(asleep_ns=120)),
    ).with_links(wake_ns=8)
    assert step.simulate().step_ns == 135 + 4 + 20


@pytest.mark.parametrize(
    ("z_on", "y_starts_ns", "z_takes_ns"),
    [
        # On one device, nothing takes longer.
        ("a", 100, 100),
        # On two, each takes half as long again; z, beside x, twice that for what it draws from
        # memory: 40 of its 100 ns.
        ("b", 150, 100 + 50 + 40),
    ],
)
def test_devices_that_share_a_machine_slow_each_other(
    z_on: str, y_starts_ns: int, z_takes_ns: int
) -> None:
    sharing = Sharing(split_ratio=1.5, memory_bytes_per_s=1e9, memory_ratio=2.0)
    step = PlacedStep(
        graph=OpGraph([op("x"), op("y"), op("z")._replace(bytes_accessed=40)], []),
        placement=place({"x": "a", "y": "a", "z": z_on}),
        costs=price({"x": 100, "y": 100, "z": 100}),
        cluster=replace(pair(), sharing=sharing),
    )
    schedule = step.simulate()
    runs = {run.op: run for run in schedule.runs}
    assert runs["y"].start_ns == y_starts_ns
    assert runs["z"].end_ns - runs["z"].start_ns == z_takes_ns
    assert schedule.compute_ns[z_on] == sum(
        run.end_ns - run.start_ns for run in schedule.runs if run.device == z_on
    )


def two_senders(channel: str | None) -> PlacedStep:
    """x on a and y on b end at 10 and send 100 bytes each to c."""
    return wired(
        {"x": ("a", 10, 100), "y": ("b", 10, 100), "z": ("c", 10)},
        "x -> z, y -> z",
        pair(count=3, channel=channel),
    )


def test_links_of_one_channel_queue_for_it_and_others_do_not() -> None:
    assert two_senders(None).simulate().step_ns == 10 + 110 + 10
    shared = two_senders("switch").simulate()
    # The second gets hold of the wire when the first's 100 bytes are through.
    assert [(copy.start_ns, copy.end_ns) for copy in shared.transfers] == [(10, 120), (110, 220)]
    assert shared.step_ns == 220 + 10


def test_what_a_copy_takes_beyond_its_bytes_in_a_stream_others_use() -> None:
    shared = two_senders("switch").with_links(stream_bytes_per_s=2.5e9).simulate()
    # Each takes 110 ns, but keeps the wire from others for 40 ns.
    assert [(copy.start_ns, copy.end_ns) for copy in shared.transfers] == [(10, 120), (50, 160)]


def with_host() -> Cluster:
    """Return devices a and b, GPUs with the host h, all linked alike."""
    cluster = pair(count=3)
    a, b, h = cluster.devices
    gpus = tuple(replace(device, kind="GPU", host=h.name) for device in (a, b))
    return replace(cluster, devices=gpus, hosts=(h,))


BOTH = frozenset({"CPU", "GPU"})


def test_an_op_without_a_gpu_kernel_runs_on_the_host_and_its_tensors_cross_twice() -> None:
    step = PlacedStep(
        graph=OpGraph(
            [
                op("x", 100)._replace(device_kinds=BOTH),
                op("unique", 50),
                op("y")._replace(device_kinds=BOTH),
            ],
            [edge("x", "unique", 100), edge("unique", "y", 50)],
        ),
        placement=place(dict.fromkeys(("x", "unique", "y"), "a")),
        costs=price({"x": 10, "unique": 10, "y": 10}),
        cluster=with_host(),
    )
    schedule = step.simulate()
    assert {run.op: run.device for run in schedule.runs} == {"x": "a", "unique": "c", "y": "a"}
    assert [(t.source, t.target, t.size_bytes) for t in schedule.transfers] == [
        ("a", "c", 100),
        ("c", "a", 50),
    ]
    assert schedule.step_ns == 10 + 110 + 10 + 60 + 10
    assert schedule.compute_ns == {"a": 20, "b": 0, "c": 10}


def test_what_takes_the_variable_of_an_op_on_the_host_stays_there_too() -> None:
    variable = Op(name="v", kind="VarHandleOp", role=Role.VARIABLE, variable="v", device_kinds=BOTH)
    read = Op(
        name="read", kind="ReadVariableOp", variable="v", output_bytes=(100,), device_kinds=BOTH
    )
    update = Op(name="update", kind="ResourceScatterUpdate", variable="v")
    step = PlacedStep(
        graph=OpGraph(
            [variable, read, update, op("y")._replace(device_kinds=BOTH)],
            [edge("v", "read", None), edge("v", "update", None), edge("read", "y", 100)],
        ),
        placement=place(dict.fromkeys(("v", "read", "update", "y"), "b")),
        costs=price({"read": 10, "update": 10, "y": 10}),
        cluster=with_host(),
    )
    schedule = step.simulate()
    where = {run.op: run.device for run in schedule.runs}
    assert where == {"v": "c", "read": "c", "update": "c", "y": "b"}
    assert schedule.transfer_count == 1


def test_an_op_costs_what_it_costs_where_it_runs() -> None:
    step = replace(chain_of_three("a", "b", "b"), costs_on={"b": price({"y": 500, "z": 70})})
    assert step.simulate().step_ns == 10 + 110 + 500 + 70
    # What b would take for x is not asked for.
    with pytest.raises(ValueError, match="'x'"):
        replace(step, placement=place(dict.fromkeys("xyz", "b"))).simulate()


@given(placed_steps(hosts=True))
def test_any_schedule_obeys_data_flow_and_never_overlaps_on_a_device(step: PlacedStep) -> None:
    check_schedule(step.simulate(), step.graph, step.placement, step.cluster)


@given(placed_steps())
def test_on_one_device_the_step_is_the_sum_of_its_ops(step: PlacedStep) -> None:
    schedule = step.on_one_device().simulate()
    overhead_ns = step.cluster.devices[0].launch_overhead_ns
    work_ns = sum(cost.time_ns + overhead_ns for cost in step.costs.costs.values())
    assert schedule.step_ns == work_ns + step.cluster.dispatch.step_overhead_ns
    assert (schedule.transfers, schedule.exposed_ns) == ((), 0)


@given(placed_steps(hosts=True))
def test_no_step_is_shorter_than_its_critical_path_or_its_busiest_device(step: PlacedStep) -> None:
    end_ns: dict[str, int] = {}
    busy_ns: dict[str, int] = {}
    places = {place.name: place for place in step.cluster.places()}
    schedule = step.simulate()
    device_of = {run.op: run.device for run in schedule.runs}
    for op_ in placed_ops(step.graph):
        device = places[device_of[op_.name]]
        cost = step.all_costs()[device.name].costs.get(op_.name)
        launch_ns = 0 if device.launches_ahead else device.launch_overhead_ns
        time_ns = 0 if cost is None else cost.time_ns + launch_ns
        ready_ns = max(
            (end_ns.get(e.producer, 0) for e in step.graph.inputs_of(op_.name)), default=0
        )
        end_ns[op_.name] = ready_ns + time_ns
        busy_ns[device.name] = busy_ns.get(device.name, 0) + time_ns
    for copy in schedule.transfers:
        for end, work_ns in ((copy.source, copy.send_work_ns), (copy.target, copy.receive_work_ns)):
            busy_ns[end] += 0 if places[end].launches_ahead else work_ns
    overhead_ns = step.cluster.dispatch.step_overhead_ns
    assert schedule.step_ns - overhead_ns >= max(busy_ns.values(), default=0)
    for one in (schedule, step.with_free_copies().simulate()):
        assert one.step_ns - overhead_ns >= max(end_ns.values(), default=0)


def schedule_devices(step: PlacedStep) -> list[str]:
    return list(step.cluster.place_names())


@given(placed_steps(hosts=True))
def test_bytes_on_one_channel_never_overlap(step: PlacedStep) -> None:
    held: dict[str | tuple[str, str], list[tuple[int, int]]] = {}
    for copy in step.simulate().transfers:
        link = step.cluster.link(copy.source, copy.target)
        wire = link.channel or (link.source, link.target)
        until_ns = copy.start_ns + link.wire_ns(copy.size_bytes or 0)
        held.setdefault(wire, []).append((copy.start_ns, until_ns))
    for spans in held.values():
        assert all(end <= start for (_, end), (start, _) in pairwise(sorted(spans)))


@given(placed_steps(hosts=True))
def test_exposed_and_hidden_time_equal_a_count_of_single_nanoseconds(step: PlacedStep) -> None:
    schedule = step.simulate()
    assert schedule_violations(schedule) == ()
    for device in schedule_devices(step):
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
