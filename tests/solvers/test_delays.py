from __future__ import annotations

from dataclasses import replace

import pytest
from delay_problems import problem, problems
from hypothesis import given
from timetable_faults import faults

from placement_advisor.solvers.makespan.delay_bounds import delay_bounds
from placement_advisor.solvers.makespan.delays import Flow, Timetable, in_order, whole_unit
from placement_advisor.solvers.problem import Pool

# 0 feeds 1 and 2, which feed 3.
DIAMOND = problem([2.0, 3.0, 4.0, 1.0], [(0, 1), (0, 2), (1, 3), (2, 3)], 1.0)


def test_diamond_over_two_devices_by_hand():
    timetable = in_order(DIAMOND, ["GPU:0", "GPU:1", "GPU:0", "GPU:0"], [0, 1, 2, 3])
    # 0 until 2; 1 gets its copy at 3, until 6, whose copy is there at 7; 2 until 6; 3 until 8.
    assert timetable.start == (0, 3, 2, 7)
    assert timetable.makespan == 8
    assert faults(DIAMOND, timetable) == []


def test_devices_that_pay_for_no_copies_exchange_tensors_for_nothing():
    cpus = Pool(devices=("CPU:0", "CPU:1"), work=(2.0, 3.0), pays_for_copies=False)
    task = problem([2.0, 3.0], [(0, 1)], 5.0, more_pools=[cpus])
    assert in_order(task, ["CPU:0", "CPU:1"], [0, 1]).makespan == 5
    assert in_order(task, ["CPU:0", "GPU:1"], [0, 1]).makespan == 10


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"start": (0, 2, 2, 7)}, "op 'op 1' starts before the output of 'op 0' is there"),
        ({"start": (0, 3, 1, 7)}, "'GPU:0' runs ops 'op 0' and 'op 2' at a time"),
        ({"start": (-1, 3, 2, 7)}, "op 'op 0' starts before 0"),
        ({"end": (2, 6, 6, 9)}, "op 'op 3' takes 1.0 on 'GPU:0', not 2.0"),
        ({"device_of": ("GPU:9",) * 4}, "there is no device 'GPU:9'"),
        ({"start": ()}, "not every op has one device, one start and one end"),
    ],
)
def test_a_fault_is_named(change, fault):
    timetable = in_order(DIAMOND, ["GPU:0", "GPU:1", "GPU:0", "GPU:0"], [0, 1, 2, 3])
    wrong = replace(timetable, **change)
    if change.get("start"):
        work = DIAMOND.pools[0].work
        wrong = replace(wrong, end=tuple(map(sum, zip(wrong.start, work, strict=True))))
    assert fault in faults(DIAMOND, wrong)


def test_faults_name_memory_groups_and_ops_without_kernel():
    full = problem([1.0, 1.0], size_bytes=[3, 3], capacity_bytes=5)
    both = in_order(full, ["GPU:0", "GPU:0"], [0, 1])
    assert faults(full, both) == ["device 'GPU:0' holds 6 bytes, more than 5"]
    torn = problem([1.0, 1.0], groups=[(0, 1)])
    apart = in_order(torn, ["GPU:0", "GPU:1"], [0, 1])
    assert faults(torn, apart) == ["ops 'op 0', 'op 1' are not on one device"]
    bare = problem([None])
    wrong = Timetable(device_of=("GPU:0",), start=(0.0,), end=(1.0,))
    assert faults(bare, wrong) == ["op 'op 0' cannot run on 'GPU:0'"]


@given(problems())
def test_one_device_gives_the_sum_of_op_times(task):
    work = task.pools[-1].work
    if None not in work:
        device = task.pools[-1].devices[0]
        timetable = in_order(task, [device] * len(work), Flow.of(task).order)
        assert timetable.makespan == sum(work)


def test_whole_times_have_a_unit_and_others_none():
    assert whole_unit(problem([4.0, 6.0], copy_time=10.0)) == 2
    assert whole_unit(problem([4.0, 6.5], copy_time=10.0)) is None
    assert whole_unit(problem([0.0], copy_time=0.0)) == 1


def test_bounds_by_hand():
    task = replace(DIAMOND, copy_time=(3.0,) * 4)
    # The longest chain is 2 + 4 + 1; all work is 10, 5 for each device. If 1 and 2 both run where 3
    # does, one after the other, it starts at 2 + 3 + 4. If 1 does not, at 2 + 3 + 3 or later.
    assert delay_bounds(task) == (9, 7, 7, 5)


def test_work_over_uneven_pools_is_divided_by_a_linear_program():
    slow = Pool(devices=("CPU:0",), work=(2.0, 8.0) * 2)
    task = problem([1.0, 2.0] * 2, devices=1, more_pools=[slow])
    # Short ops on the CPU take 4, long ones on the GPU take 4: nothing is left to divide better.
    assert delay_bounds(task)[0] == 4
    alike = Pool(devices=("CPU:0",), work=(1.5, 2.5) * 2)
    half = problem([1.5, 2.5] * 2, devices=1, more_pools=[alike])
    assert delay_bounds(half)[0] == pytest.approx(4)


def test_interval_bound_sees_work_that_is_due_at_one_time():
    # A chain of 1, 8, 1 and two more between its ends: 24 of work within 8 on two devices.
    task = problem([1.0, 8.0, 8.0, 8.0, 1.0], [(0, 1), (0, 2), (0, 3), (1, 4), (2, 4), (3, 4)])
    assert delay_bounds(task)[0] >= 1 + 24 / 2 + 1


def test_an_op_that_nothing_can_run_is_beyond_any_bound():
    assert delay_bounds(problem([None, 1.0]))[0] == float("inf")
