from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from placed_steps import (
    HALF_EACH,
    PlacedStep,
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

from placement_advisor.graph.op import Role
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.machine.devices import Dispatch
from placement_advisor.simulator.schedule import PathKind, PathStep, critical_path, time_by_kind

Told = list[tuple[str, str, str, int, int]]


def path_of(step: PlacedStep) -> tuple[PathStep, ...]:
    return critical_path(step.graph, step.simulate(), step.cluster)


def told(step: PlacedStep) -> Told:
    return [(s.kind.value, s.what, s.where, s.start_ns, s.end_ns) for s in path_of(step)]


def test_the_path_of_a_diamond_goes_over_its_slower_side_by_hand() -> None:
    assert told(diamond()) == [
        ("compute", "src", "a", 0, 50),
        ("copy", "src:0", "a → b", 50, 160),
        ("compute", "right", "b", 160, 260),
        ("copy", "right:0", "b → a", 260, 370),
        ("compute", "sink", "a", 370, 390),
    ]
    assert time_by_kind(path_of(diamond())) == {
        PathKind.COMPUTE: 50 + 100 + 20,
        PathKind.COPY: 110 + 110,
        PathKind.QUEUEING: 0,
        PathKind.OVERHEAD: 0,
    }


def test_an_op_that_found_its_device_busy_waited_for_what_that_did_before() -> None:
    step = wired({"x": ("a", 10), "y": ("a", 30)}, "")
    assert told(step) == [("compute", "x", "a", 0, 10), ("compute", "y", "a", 10, 40)]


def test_an_op_that_waited_for_its_device_to_send_something_waited_for_that() -> None:
    step = diamond(work=HALF_EACH)
    slow_left = replace(step, costs=price({"src": 50, "left": 900, "right": 100, "sink": 20}))
    # right's tensor arrives at 315, but a has time for it at 1005 only.
    assert told(slow_left) == [
        ("compute", "src", "a", 0, 50),
        ("copy", "src:0", "a", 50, 105),
        ("compute", "left", "a", 105, 1_005),
        ("copy", "right:0", "a", 1_005, 1_060),
        ("compute", "sink", "a", 1_060, 1_080),
    ]


def test_a_wire_that_another_copy_holds_is_queueing() -> None:
    step = wired({"x": ("a", 10, 100, 30), "y": ("b", 10)}, "x -> y, x:1 -> y")
    assert told(step) == [
        ("compute", "x", "a", 0, 10),
        ("queueing", "x:1", "a → b", 10, 110),
        ("copy", "x:1", "a → b", 110, 150),
        ("compute", "y", "b", 150, 160),
    ]


def test_a_copy_that_arrives_is_no_work_of_the_device_that_it_reaches() -> None:
    step = wired(
        {"x": ("a", 10, 80), "busy": ("b", 100), "later": ("b", 50), "y": ("b", 1)}, "x -> y"
    )
    # x's tensor is there at 10 + 80 + 10, just when b has done the first of its ops.
    assert told(step) == [
        ("compute", "busy", "b", 0, 100),
        ("compute", "later", "b", 100, 150),
        ("compute", "y", "b", 150, 151),
    ]


def test_overheads_at_both_ends_are_named() -> None:
    dispatch = Dispatch(
        step_overhead_ns=7, partition_overhead_ns=40, remote_start_ns=60, remote_end_ns=30
    )
    step = wired({"x": ("a", 35), "y": ("b", 10)}, "", pair(dispatch=dispatch))
    # x ends at 75 and y at 70, but of y's end nobody knows before 100.
    assert told(step) == [
        ("overhead", "start of the device", "b", 0, 60),
        ("compute", "y", "b", 60, 70),
        ("overhead", "end of the step", "b", 70, 70 + 30 + 7),
    ]


def test_a_tensor_that_waits_to_be_asked_for_is_queueing() -> None:
    cluster = pair(latency_ns=50)
    near, far = cluster.devices
    step = wired(
        {"x": ("a", 35, 100), "y": ("b", 10)},
        "x -> y",
        replace(cluster, devices=(near, replace(far, remote_start_ns=50, remote_end_ns=51))),
    ).with_links(request_ns=50)
    # b begins at 50, and what it asks for then reaches a at 100.
    assert told(step) == [
        ("compute", "x", "a", 0, 35),
        ("queueing", "x:0", "a → b", 35, 100),
        ("copy", "x:0", "a → b", 100, 250),
        ("compute", "y", "b", 250, 260),
        ("overhead", "end of the step", "b", 260, 260 + 51),
    ]


def test_an_op_that_is_launched_ahead_waited_for_its_launch_or_for_its_device() -> None:
    ops = ["x", "long", "y"]
    step = PlacedStep(
        graph=OpGraph([*map(op, ops)], [edge("x", "long", 4), edge("x", "y", 4)]),
        placement=place(dict.fromkeys(ops, "a")),
        costs=price({"x": 1, "long": 100, "y": 1}),
        cluster=launching_ahead(5),
    )
    # long is launched when x is, and runs from 10 on, after its launch; y is launched by then 15.
    assert told(step) == [
        ("overhead", "launch of x", "a", 0, 5),
        ("overhead", "launch of long", "a", 5, 10),
        ("compute", "long", "a", 10, 110),
        ("compute", "y", "a", 110, 111),
    ]


def test_a_launch_that_found_its_thread_busy_waited_for_the_launch_before() -> None:
    step = wired({"x": ("a", 1), "y": ("a", 100)}, "", launching_ahead(5))
    assert told(step) == [
        ("overhead", "launch of x", "a", 0, 5),
        ("overhead", "launch of y", "a", 5, 10),
        ("compute", "y", "a", 10, 110),
    ]


def test_a_constant_is_no_input_that_anything_waited_for() -> None:
    constant = op("one", 4, kind="Const", role=Role.CONSTANT)
    step = PlacedStep(
        graph=OpGraph([constant, op("x", 4), op("y")], [edge("one", "y", 4), edge("x", "y", 4)]),
        placement=place({"x": "a", "y": "a"}),
        costs=price({"x": 10, "y": 30}),
        cluster=pair(),
    )
    assert told(step) == [("compute", "x", "a", 0, 10), ("compute", "y", "a", 10, 40)]


def test_a_step_without_ops_is_overhead() -> None:
    step = wired({}, "", pair(dispatch=Dispatch(step_overhead_ns=7)))
    assert told(step) == [("overhead", "call of the step", "", 0, 7)]


@given(placed_steps(hosts=True))
def test_the_parts_of_any_path_follow_each_other_from_0_to_the_step_time(step: PlacedStep) -> None:
    schedule = step.simulate()
    path = critical_path(step.graph, schedule, step.cluster)
    assert all(part.time_ns > 0 for part in path)
    assert all(before.end_ns == after.start_ns for before, after in pairwise(path))
    assert sum(part.time_ns for part in path) == schedule.step_ns
    if path:
        assert (path[0].start_ns, path[-1].end_ns) == (0, schedule.step_ns)
    assert sum(time_by_kind(path).values()) == schedule.step_ns


@given(placed_steps(hosts=True))
def test_every_op_on_a_path_ran_then_and_every_copy_was_under_way(step: PlacedStep) -> None:
    schedule = step.simulate()
    runs = {(run.op, run.device, run.start_ns, run.end_ns) for run in schedule.runs}
    for part in critical_path(step.graph, schedule, step.cluster):
        if part.kind is PathKind.COMPUTE:
            assert (part.what, part.where, part.start_ns, part.end_ns) in runs
        elif part.kind is PathKind.COPY:
            assert any(
                part.what == copy.tensor
                and copy.set_out_ns <= part.start_ns
                and part.end_ns <= max(copy.end_ns, copy.send_work[1])
                for copy in schedule.transfers
            )
