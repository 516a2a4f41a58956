from __future__ import annotations

import pytest
from delay_problems import problem, problems
from hypothesis import given
from timetable_faults import faults

from placement_advisor.solvers.makespan.etf import etf
from placement_advisor.solvers.makespan.heft import heft
from placement_advisor.solvers.makespan.msct import favourite_children, msct
from placement_advisor.solvers.problem import Pool

ALL = pytest.mark.parametrize("place", [heft, etf, msct])


@ALL
@given(task=problems())
def test_any_timetable_of_a_list_placement_is_valid(place, task):
    timetable = place(task)
    if timetable is not None:
        assert faults(task, timetable) == []


@ALL
def test_independent_ops_are_spread(place):
    assert place(problem([3.0, 3.0])).makespan == 3


@ALL
def test_no_ops_give_an_empty_timetable(place):
    assert place(problem([])).makespan == 0


@ALL
def test_what_does_not_fit_gives_nothing(place):
    assert place(problem([1.0], size_bytes=[2], capacity_bytes=1)) is None


@ALL
def test_an_op_goes_to_the_only_device_that_can_run_it(place):
    cpu = Pool(devices=("CPU:0",), work=(9.0, 9.0))
    assert place(problem([None, 1.0], [(0, 1)], more_pools=[cpu])).device_of[0] == "CPU:0"


def test_heft_fills_a_gap_by_hand():
    # 0 and 3 make a long chain with a copy between groups; 2 fits into the gap before 3.
    task = problem([1.0, 4.0, 2.0, 1.0], [(0, 3), (1, 3)], 0.0, devices=2)
    timetable = heft(task)
    # 1 until 4 on GPU:0; 0 until 1 and 2 until 3 on GPU:1, or 3 at 4.
    assert timetable.makespan == 5
    assert timetable.start[2] < timetable.start[3]


def test_etf_takes_the_op_that_can_start_earliest():
    # 1 waits for 0 or, elsewhere, for its copy; 2 can start at once on the other device.
    timetable = etf(problem([2.0, 2.0, 1.0], [(0, 1)], 3.0))
    assert timetable.device_of == ("GPU:0", "GPU:0", "GPU:1")
    assert timetable.makespan == 4


def test_each_op_has_one_favourite_child_and_is_one_of_one():
    # 0 feeds 1 and 2; the way by 2 is longer, so 2 is the favourite; 3 favours neither of those.
    task = problem([1.0, 1.0, 5.0, 1.0], [(0, 1), (0, 2), (3, 2)], 2.0)
    assert favourite_children(task) == {0: 2}


def test_msct_keeps_the_device_for_the_favourite():
    # After 0, both 1 and 2 could start there at 1. 2 has the longer way, and 1 waits.
    task = problem([1.0, 1.0, 5.0], [(0, 1), (0, 2)], 2.0)
    timetable = msct(task)
    assert timetable.start[2] == 1
    assert timetable.device_of[2] == timetable.device_of[0]
