from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from placed_steps import (
    PlacedStep,
    control,
    diamond,
    edge,
    op,
    pair,
    place,
    placed_steps,
    price,
)

from placement_advisor.errors import PlacementError
from placement_advisor.graph import Op, OpGraph, Role
from placement_advisor.placement import placed_ops


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
    assert schedule.exposed_ns == 110 + 110
    assert schedule.transfer_bytes == 200


def test_diamond_on_devices_that_move_the_bytes_themselves_by_hand() -> None:
    schedule = diamond(copies_occupy_devices=True).simulate()
    left = next(run for run in schedule.runs if run.op == "left")
    # Sending keeps a busy for half of the copy's 10 + 100 ns, before left may start.
    assert (left.ready_ns, left.start_ns) == (50, 50 + 55)
    # The rest is idle devices: src 50, send 55, receive 55, right 100, and back.
    assert schedule.step_ns == 50 + 110 + 100 + 110 + 20
    assert schedule.compute_ns == {"a": 50 + 80 + 20, "b": 100}


def test_receiving_waits_for_the_op_that_the_receiver_runs() -> None:
    step = PlacedStep(
        graph=OpGraph([op("x", 100), op("busy"), op("y")], [edge("x", "y", 100)]),
        placement=place({"x": "a", "busy": "b", "y": "b"}),
        costs=price({"x": 10, "busy": 1_000, "y": 10}),
        cluster=pair(copies_occupy_devices=True),
    )
    # busy until 1000, then the receiving half of the copy, then y.
    assert step.simulate().step_ns == 1_000 + 55 + 10


def test_a_copy_engine_hides_the_copy_behind_the_op_that_the_receiver_runs() -> None:
    step = PlacedStep(
        graph=OpGraph([op("x", 100), op("busy"), op("y")], [edge("x", "y", 100)]),
        placement=place({"x": "a", "busy": "b", "y": "b"}),
        costs=price({"x": 10, "busy": 1_000, "y": 10}),
        cluster=pair(),
    )
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
    step = PlacedStep(
        graph=OpGraph(
            [op("x", 100, 30), op("y")],
            [
                edge("x", "y", 100),
                edge("x", "y", 30, port=1),
                control("x", "y"),
            ],
        ),
        placement=place({"x": "a", "y": "b"}),
        costs=price({"x": 10, "y": 10}),
        cluster=pair(),
    )
    schedule = step.simulate()
    assert sorted((t.port, t.size_bytes) for t in schedule.transfers) == [
        (-1, 0),
        (0, 100),
        (1, 30),
    ]
    # Bytes queue on the link, latencies do not: 10, then 100 + 30 of bytes, one latency, then y.
    assert schedule.step_ns == 10 + 130 + 10 + 10


def test_transfers_in_opposite_directions_do_not_queue() -> None:
    step = PlacedStep(
        graph=OpGraph(
            [op("x", 100), op("y", 100), op("from_y"), op("from_x")],
            [edge("x", "from_x", 100), edge("y", "from_y", 100)],
        ),
        placement=place({"x": "a", "y": "b", "from_y": "a", "from_x": "b"}),
        costs=price({"x": 10, "y": 10, "from_y": 10, "from_x": 10}),
        cluster=pair(),
    )
    assert step.simulate().step_ns == 10 + 110 + 10


def test_a_tensor_of_unknown_size_costs_the_latency_and_is_counted() -> None:
    step = PlacedStep(
        graph=OpGraph([op("x", None), op("y")], [edge("x", "y", None)]),
        placement=place({"x": "a", "y": "b"}),
        costs=price({"x": 10, "y": 10}),
        cluster=pair(),
    )
    schedule = step.simulate()
    assert (schedule.step_ns, schedule.unknown_bytes) == (10 + 10 + 10, 1)


def test_a_control_signal_is_not_an_unknown_size() -> None:
    step = PlacedStep(
        graph=OpGraph([op("x", 4), op("y")], [control("x", "y")]),
        placement=place({"x": "a", "y": "b"}),
        costs=price({"x": 10, "y": 10}),
        cluster=pair(copies_occupy_devices=True),
    )
    schedule = step.simulate()
    assert (schedule.transfer_count, schedule.unknown_bytes, schedule.step_ns) == (1, 0, 30)


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
    step = PlacedStep(
        graph=OpGraph([op("x", 4), op("late"), op("first"), op("second")], [edge("x", "late", 4)]),
        placement=place(dict.fromkeys(("x", "late", "first", "second"), "a")),
        costs=price({"x": 10, "late": 10, "first": 10, "second": 10}),
        cluster=pair(),
    )
    assert [run.op for run in step.simulate().runs] == ["x", "first", "second", "late"]


def test_launch_and_step_overheads_lengthen_the_step_but_are_not_compute() -> None:
    cluster = pair(launch_overhead_ns=3, step_overhead_ns=1_000)
    schedule = replace(chain_of_three("a", "a", "a"), cluster=cluster).simulate()
    assert schedule.step_ns == 3 * (10 + 3) + 1_000
    assert schedule.compute_ns == {"a": 30, "b": 0}


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
    step = PlacedStep(
        graph=OpGraph([], []),
        placement=place({}),
        costs=price({}),
        cluster=pair(step_overhead_ns=7),
    )
    schedule = step.simulate()
    assert (schedule.step_ns, schedule.runs, schedule.exposed_ns) == (7, (), 0)


@given(placed_steps())
def test_any_schedule_obeys_data_flow_and_never_overlaps_on_a_device(step: PlacedStep) -> None:
    step.simulate().check(step.graph, step.placement)


@given(placed_steps())
def test_equal_steps_give_equal_schedules(step: PlacedStep) -> None:
    assert step.simulate() == step.simulate()


def op_times(step: PlacedStep) -> dict[str, int]:
    """Time of every op with its launch overhead; all devices of a drawn step have the same one."""
    overhead_ns = step.cluster.devices[0].launch_overhead_ns
    return {name: cost.time_ns + overhead_ns for name, cost in step.costs.costs.items()}


@given(placed_steps())
def test_on_one_device_the_step_is_the_sum_of_its_ops(step: PlacedStep) -> None:
    schedule = step.on_one_device().simulate()
    assert schedule.step_ns == sum(op_times(step).values()) + step.cluster.step_overhead_ns
    assert (schedule.transfers, schedule.exposed_ns) == ((), 0)


@given(placed_steps())
def test_no_step_is_shorter_than_its_critical_path_or_its_busiest_device(step: PlacedStep) -> None:
    times = op_times(step)
    end_ns: dict[str, int] = {}
    busy_ns: dict[str, int] = {}
    for op_ in placed_ops(step.graph):
        time_ns = times.get(op_.name, 0)
        ready_ns = max(
            (end_ns.get(e.producer, 0) for e in step.graph.inputs_of(op_.name)), default=0
        )
        end_ns[op_.name] = ready_ns + time_ns
        device = step.placement.device_of[op_.name]
        busy_ns[device] = busy_ns.get(device, 0) + time_ns
    for schedule in (step.simulate(), step.with_free_copies().simulate()):
        makespan_ns = schedule.step_ns - step.cluster.step_overhead_ns
        assert makespan_ns >= max(end_ns.values(), default=0)
        assert makespan_ns >= max(busy_ns.values(), default=0)


@given(placed_steps())
def test_a_device_starts_its_ops_in_the_order_in_which_they_became_ready(step: PlacedStep) -> None:
    for device in step.cluster.device_names():
        ready_ns = [run.ready_ns for run in step.simulate().runs if run.device == device]
        assert ready_ns == sorted(ready_ns)


@given(placed_steps())
def test_bytes_on_one_link_never_overlap_where_a_copy_engine_moves_them(step: PlacedStep) -> None:
    step = replace(step, cluster=replace(step.cluster, copies_occupy_devices=False))
    free_ns: dict[tuple[str, str], int] = {}
    for transfer in step.simulate().transfers:
        link = step.cluster.link(transfer.source, transfer.target)
        ends = (transfer.source, transfer.target)
        assert transfer.start_ns >= free_ns.get(ends, 0)
        free_ns[ends] = transfer.end_ns - link.latency_ns


@given(placed_steps())
def test_exposed_time_equals_a_count_of_single_nanoseconds(step: PlacedStep) -> None:
    schedule = step.simulate()
    exposed_ns = 0
    for device in step.cluster.device_names():
        waiting: set[int] = set()
        for transfer in schedule.transfers:
            if transfer.target == device:
                waiting |= set(range(transfer.start_ns, transfer.end_ns))
        for run in schedule.runs:
            if run.device == device:
                waiting -= set(range(run.start_ns, run.end_ns))
        exposed_ns += len(waiting)
    assert schedule.exposed_ns == exposed_ns
