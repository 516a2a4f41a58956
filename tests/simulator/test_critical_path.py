from dataclasses import asdict, fields, replace
from itertools import pairwise

import numpy as np
import pytest
from drawn_cases import cases
from hypothesis import assume, given
from hypothesis import strategies as st
from placed_steps import HALF_EACH, diamond, launching_ahead, pair, placed_steps, price, wired

from placement_advisor.machine.devices import Dispatch
from placement_advisor.simulator.schedule import (
    DeviceTime,
    PathKind,
    critical_path,
    device_times,
    interval_shares,
    intervals_length,
    intervals_length_outside,
    merged_intervals,
)

FAR = replace(pair().devices[1], remote_start_ns=50, remote_end_ns=51)
AROUND = Dispatch(
    step_overhead_ns=7, partition_overhead_ns=40, remote_start_ns=60, remote_end_ns=30
)
AHEAD = launching_ahead(5)
SLOW_LEFT = price({"src": 50, "left": 900, "right": 100, "sink": 20})
PATHS = {
    "over the slower side of a diamond": (
        diamond(),
        [
            ("compute", "src", "a", 0, 50),
            ("copy", "src:0", "a → b", 50, 160),
            ("compute", "right", "b", 160, 260),
            ("copy", "right:0", "b → a", 260, 370),
            ("compute", "sink", "a", 370, 390),
        ],
    ),
    "an op waited for its device": (
        wired({"x": ("a", 10), "y": ("a", 30)}, ""),
        [("compute", "x", "a", 0, 10), ("compute", "y", "a", 10, 40)],
    ),
    "an op waited for its launch": (
        wired({"x": ("a", 1), "y": ("a", 100)}, "", AHEAD),
        [
            ("overhead", "launch of x", "a", 0, 5),
            ("overhead", "launch of y", "a", 5, 10),
            ("compute", "y", "a", 10, 110),
        ],
    ),
    # long is launched when x is, and runs from 10 on, after its launch; y is launched by then 15.
    "an op that is launched ahead waited for its device": (
        wired({"x": ("a", 1, 4), "long": ("a", 100), "y": ("a", 1)}, "x -> long, x -> y", AHEAD),
        [
            ("overhead", "launch of x", "a", 0, 5),
            ("overhead", "launch of long", "a", 5, 10),
            ("compute", "long", "a", 10, 110),
            ("compute", "y", "a", 110, 111),
        ],
    ),
    # right's tensor arrives at 315, but a has time for it at 1005 only.
    "an op waited for its device to send something": (
        replace(diamond(work=HALF_EACH), costs=SLOW_LEFT),
        [
            ("compute", "src", "a", 0, 50),
            ("copy", "src:0", "a", 50, 105),
            ("compute", "left", "a", 105, 1_005),
            ("copy", "right:0", "a", 1_005, 1_060),
            ("compute", "sink", "a", 1_060, 1_080),
        ],
    ),
    "a wire that another copy holds is queueing": (
        wired({"x": ("a", 10, 100, 30), "y": ("b", 10)}, "x -> y, x:1 -> y"),
        [
            ("compute", "x", "a", 0, 10),
            ("queueing", "x:1", "a → b", 10, 110),
            ("copy", "x:1", "a → b", 110, 150),
            ("compute", "y", "b", 150, 160),
        ],
    ),
    # x's tensor is there at 10 + 80 + 10, just when b has done the first of its ops.
    "a copy that arrives is no work of the device that it reaches": (
        wired(
            {"x": ("a", 10, 80), "busy": ("b", 100), "later": ("b", 50), "y": ("b", 1)}, "x -> y"
        ),
        [
            ("compute", "busy", "b", 0, 100),
            ("compute", "later", "b", 100, 150),
            ("compute", "y", "b", 150, 151),
        ],
    ),
    # x ends at 75 and y at 70, but of y's end nobody knows before 100.
    "overheads at both ends": (
        wired({"x": ("a", 35), "y": ("b", 10)}, "", pair(dispatch=AROUND)),
        [
            ("overhead", "start of the device", "b", 0, 60),
            ("compute", "y", "b", 60, 70),
            ("overhead", "end of the step", "b", 70, 70 + 30 + 7),
        ],
    ),
    # b begins at 50, and what it asks for then reaches a at 100.
    "a tensor that waits to be asked for is queueing": (
        wired(
            {"x": ("a", 35, 100), "y": ("b", 10)},
            "x -> y",
            replace(pair(latency_ns=50), devices=(pair().devices[0], FAR)),
        ).with_links(request_ns=50),
        [
            ("compute", "x", "a", 0, 35),
            ("queueing", "x:0", "a → b", 35, 100),
            ("copy", "x:0", "a → b", 100, 250),
            ("compute", "y", "b", 250, 260),
            ("overhead", "end of the step", "b", 260, 260 + 51),
        ],
    ),
}


@pytest.mark.parametrize("name", PATHS)
def test_a_path_is_that_found_by_hand(name):
    step, expected = PATHS[name]
    path = critical_path(step.graph, step.simulate(), step.cluster)
    assert [(s.kind.value, s.what, s.where, s.start_ns, s.end_ns) for s in path] == expected


@given(placed_steps(hosts=True))
def test_the_parts_of_any_path_follow_each_other_from_0_to_the_step_time(step):
    schedule = step.simulate()
    path = critical_path(step.graph, schedule, step.cluster)
    assert all(part.time_ns > 0 for part in path)
    assert all(before.end_ns == after.start_ns for before, after in pairwise(path))
    assert sum(part.time_ns for part in path) == schedule.step_ns
    if path:
        assert (path[0].start_ns, path[-1].end_ns) == (0, schedule.step_ns)


@given(placed_steps(hosts=True))
def test_every_op_on_a_path_ran_then_and_every_copy_was_under_way(step):
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


def test_the_parts_of_a_diamond_are_compute_copy_work_and_waits_by_hand():
    a, b = device_times(diamond().simulate())
    # a: src until 50, left until 130; right runs until 260 and crosses until 370; sink until 390.
    nothing = DeviceTime(**dict.fromkeys((field.name for field in fields(DeviceTime)), 0))
    waits = {"waits_for_copy_ns": 110, "waits_for_device_ns": 260 - 130}
    assert a == replace(nothing, device="a", compute_ns=50 + 80 + 20, **waits)
    # What b waits for before its first op lies before it.
    around = {"before_first_ns": 160, "after_last_ns": 390 - 260}
    assert b == replace(nothing, device="b", compute_ns=100, **around)
    a, b = device_times(diamond(work=HALF_EACH).simulate())
    # a: src, send until 105, left until 185, waits, receives from 315, sink until 390.
    assert (a.compute_ns, a.copy_work_ns) == (150, 110)
    # right is sent at 260, and under way until a turns to it.
    assert (a.waits_for_device_ns, a.waits_for_copy_ns) == (260 - 185, 315 - 260)
    assert (b.before_first_ns, b.copy_work_ns, b.after_last_ns) == (105, 110, 390 - 315)
    step = replace(diamond(), cluster=pair(count=3))
    *_, c = device_times(step.simulate())
    assert (c.before_first_ns, c.after_last_ns) == (390, 0)


@given(placed_steps(hosts=True))
def test_the_parts_of_any_device_add_up_to_the_step_time(step):
    schedule = step.simulate()
    times = device_times(schedule)
    assert [time.device for time in times] == [place.name for place in step.cluster.places()]
    for time in times:
        parts_ns = [part for name, part in asdict(time).items() if name != "device"]
        assert sum(parts_ns) == schedule.step_ns
        assert min(parts_ns) >= 0


@given(placed_steps(hosts=True))
def test_waiting_for_a_copy_equals_a_count_of_single_nanoseconds(step):
    schedule = step.simulate()
    for time in device_times(schedule):
        device = time.device
        sent = [copy for copy in schedule.transfers if copy.source == device]
        received = [copy for copy in schedule.transfers if copy.target == device]
        busy = points((run.start_ns, run.end_ns) for run in schedule.runs if run.device == device)
        busy |= points(copy.send_work for copy in sent)
        busy |= points(copy.receive_work for copy in received)
        coming = points((copy.set_out_ns, copy.end_ns) for copy in received)
        between = range(time.before_first_ns, schedule.step_ns - time.after_last_ns)
        assert time.waits_for_copy_ns == len((coming - busy) & set(between))


def test_a_device_whose_ops_are_shorter_than_their_launches_waits_for_these():
    step = wired({"x": ("a", 1), "y": ("a", 1), "z": ("a", 9)}, "", launching_ahead(3))
    a, _ = device_times(step.simulate())
    # Launched at 3, 6 and 9; the last one runs until 18.
    assert (a.before_first_ns, a.compute_ns, a.waits_for_launch_ns) == (3, 11, 2 + 2)
    assert (a.waits_for_device_ns, a.after_last_ns) == (0, 0)


def chain(step):
    """Return the runs of the chain, the first one first."""
    simulator = step.simulator()
    names = step.cluster.place_names()
    device = [names.index(step.placement.device_of[op.name]) for op in simulator.ops]
    run_of = {run.op: run for run in step.simulate().runs}
    numbers = simulator.chain_at(np.array(device, np.int64)).tolist()
    return [run_of[simulator.ops[i].name] for i in reversed(numbers)]


def test_what_ends_last_ends_the_chain():
    # left ends at 130 on a, right at 152 on b, and its tensor arrives at 154.
    step = diamond(latency_ns=1, bytes_per_ns=100.0)
    assert [run.op for run in chain(step)] == ["src", "right", "sink"]
    step = wired({"long": ("a", 100), "short": ("b", 10)}, "")
    assert [run.op for run in chain(step)] == ["long"]


@given(placed_steps(hosts=True))
@cases(200)
def test_each_op_waited_for_the_one_before_and_nothing_ends_later(step):
    runs = chain(step)
    assume(runs)
    assert runs[-1].end_ns == max(run.end_ns for run in step.simulate().runs)
    for first, then in pairwise(runs):
        assert first.end_ns <= then.start_ns
        feeds_it = any(edge.producer == first.op for edge in step.graph.inputs_of(then.op))
        launch_ns, launched_ns = then.launch or (then.start_ns, then.start_ns)
        if launch_ns == then.ready_ns and then.start_ns == launched_ns:
            assert feeds_it
        else:
            assert first.device == then.device


intervals = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 60)).map(sorted).map(tuple), max_size=6
)


def points(of_intervals):
    """The whole nanoseconds that the intervals cover."""
    return {point for start, end in of_intervals for point in range(start, end)}


def test_the_interval_that_ends_first_has_the_time_that_two_share():
    # 0..2 and 5..10 are the first one's alone; 2..5 goes to the second, which ends first.
    assert interval_shares([(0, 10), (2, 5)]) == [2 + 5, 3]


@given(intervals)
def test_a_union_covers_the_same_time_in_order(given_intervals):
    union = merged_intervals(given_intervals)
    assert points(union) == points(given_intervals)
    assert intervals_length(union) == len(points(given_intervals))
    assert all(left[1] < right[0] for left, right in pairwise(union))


@given(intervals, intervals)
def test_length_outside_counts_what_no_cover_covers(spans, covers):
    assert intervals_length_outside(spans, covers) == len(points(spans) - points(covers))


@given(intervals)
def test_shares_add_up_to_the_union_and_none_is_longer_than_its_interval(given_intervals):
    found = interval_shares(given_intervals)
    assert sum(found) == len(points(given_intervals))
    for share, (start, end) in zip(found, given_intervals, strict=True):
        assert 0 <= share <= end - start
