from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from placed_steps import (
    HALF_EACH,
    PlacedStep,
    diamond,
    launching_ahead,
    op,
    pair,
    place,
    placed_steps,
    price,
    wired,
)

from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.machine.devices import Dispatch
from placement_advisor.simulator.schedule import DeviceTime, device_times


def test_the_parts_of_a_diamond_by_hand() -> None:
    a, b = device_times(diamond().simulate())
    # a: src until 50, left until 130; right runs until 260 and crosses until 370; sink until 390.
    assert a == DeviceTime(
        device="a",
        compute_ns=50 + 80 + 20,
        copy_work_ns=0,
        before_first_ns=0,
        waits_for_copy_ns=110,
        waits_for_launch_ns=0,
        waits_for_device_ns=260 - 130,
        after_last_ns=0,
    )
    # What b waits for before its first op lies before it.
    assert b == DeviceTime(
        device="b",
        compute_ns=100,
        copy_work_ns=0,
        before_first_ns=160,
        waits_for_copy_ns=0,
        waits_for_launch_ns=0,
        waits_for_device_ns=0,
        after_last_ns=390 - 260,
    )


def test_copy_work_is_neither_compute_nor_idle() -> None:
    a, b = device_times(diamond(work=HALF_EACH).simulate())
    # a: src, send until 105, left until 185, waits, receives from 315, sink until 390.
    assert (a.compute_ns, a.copy_work_ns) == (150, 110)
    # right is sent at 260, and under way until a turns to it.
    assert (a.waits_for_device_ns, a.waits_for_copy_ns) == (260 - 185, 315 - 260)
    assert (b.before_first_ns, b.copy_work_ns, b.after_last_ns) == (105, 110, 390 - 315)


def test_a_device_that_does_nothing_is_idle_before_its_first_work() -> None:
    step = replace(diamond(), cluster=pair(count=3))
    *_, c = device_times(step.simulate())
    assert (c.before_first_ns, c.after_last_ns) == (390, 0)


def test_waiting_for_a_wire_is_waiting_for_a_copy() -> None:
    step = wired(
        {"x": ("a", 10, 100, 100), "y": ("b", 10), "z": ("b", 10)},
        "x -> y, x:1 -> z",
        pair(latency_ns=0, dispatch=Dispatch(step_overhead_ns=5)),
    )
    _, b = device_times(step.simulate())
    # y from 110 to 120, z from 210.
    assert (b.waits_for_copy_ns, b.waits_for_device_ns, b.after_last_ns) == (90, 0, 5)


@given(placed_steps(hosts=True))
def test_the_parts_of_any_device_add_up_to_the_step_time(step: PlacedStep) -> None:
    schedule = step.simulate()
    times = device_times(schedule)
    assert [time.device for time in times] == [place.name for place in step.cluster.places()]
    for time in times:
        idle_ns = (
            time.before_first_ns,
            time.waits_for_copy_ns,
            time.waits_for_launch_ns,
            time.waits_for_device_ns,
            time.after_last_ns,
        )
        assert time.compute_ns + time.copy_work_ns + sum(idle_ns) == schedule.step_ns
        assert min(idle_ns) >= 0


@given(placed_steps(hosts=True))
def test_waiting_for_a_copy_equals_a_count_of_single_nanoseconds(step: PlacedStep) -> None:
    schedule = step.simulate()
    for time in device_times(schedule):
        busy: set[int] = set()
        for run in schedule.runs:
            if run.device == time.device:
                busy |= set(range(run.start_ns, run.end_ns))
        for copy in schedule.transfers:
            if copy.source == time.device:
                busy |= set(range(*copy.send_work))
            if copy.target == time.device:
                busy |= set(range(*copy.receive_work))
        coming: set[int] = set()
        for copy in schedule.transfers:
            if copy.target == time.device:
                coming |= set(range(copy.set_out_ns, copy.end_ns))
        between = range(time.before_first_ns, schedule.step_ns - time.after_last_ns)
        assert time.waits_for_copy_ns == len((coming - busy) & set(between))


def test_a_device_whose_ops_are_shorter_than_their_launches_waits_for_these() -> None:
    ops = ["x", "y", "z"]
    step = PlacedStep(
        graph=OpGraph([*map(op, ops)], []),
        placement=place(dict.fromkeys(ops, "a")),
        costs=price({"x": 1, "y": 1, "z": 9}),
        cluster=launching_ahead(3),
    )
    a, _ = device_times(step.simulate())
    # Launched at 3, 6 and 9; the last one runs until 18.
    assert (a.before_first_ns, a.compute_ns, a.waits_for_launch_ns) == (3, 11, 2 + 2)
    assert (a.waits_for_device_ns, a.after_last_ns) == (0, 0)
