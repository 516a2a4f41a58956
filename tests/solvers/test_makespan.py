from __future__ import annotations

import math
import random
from dataclasses import replace

import numpy as np
import pytest
from delay_problems import least_by_trying, problem, problems
from hypothesis import example, given, settings
from small_dags import drawn_dag, least_makespan_of
from timetable_faults import faults

from placement_advisor.solvers.effort import Effort
from placement_advisor.solvers.fiddle_file import read_fiddle
from placement_advisor.solvers.makespan.delay_bounds import delay_bounds
from placement_advisor.solvers.makespan.delays import Flow, Timetable, by_start, in_order
from placement_advisor.solvers.makespan.exact_makespan import makespan_below
from placement_advisor.solvers.makespan.local_order import local_order
from placement_advisor.solvers.makespan.makespan import fast_timetable, least_makespan
from placement_advisor.solvers.makespan.op_windows import surely_together, windows_below
from placement_advisor.solvers.problem import Pool, Problem

EFFORT = Effort(units=2.0)


def timetable_of(task, found):
    work = [task.pool_of[device].work[op] for op, device in enumerate(found.device_of)]
    end = tuple(map(sum, zip(found.start, work, strict=True)))
    return Timetable(device_of=found.device_of, start=found.start, end=end)


def test_a_cheap_copy_pays_by_hand():
    # 0 until 2, then 1 there until 12 and 2 elsewhere from 3 until 13.
    task = problem([2.0, 10.0, 10.0], [(0, 1), (0, 2)], 1.0)
    found = least_makespan(task, EFFORT)
    assert (found.objective_value, found.lower_bound, found.is_proven) == (13, 13, True)
    assert len(set(found.device_of)) == 2


def test_one_device_is_proved_where_copies_are_dear():
    task = problem([2.0, 10.0, 10.0, 1.0], [(0, 1), (0, 2), (1, 3), (2, 3)], 20.0, devices=16)
    found = least_makespan(task, EFFORT)
    assert (found.objective_value, found.is_proven) == (23, True)
    assert len(set(found.device_of)) == 1


def test_of_equally_good_placements_one_device_comes_first():
    found = least_makespan(problem([3.0, 4.0], [(0, 1)], 0.0), EFFORT)
    assert len(set(found.device_of)) == 1


def test_no_ops_take_no_time():
    found = least_makespan(problem([]), EFFORT)
    assert (found.objective_value, found.device_of, found.is_proven) == (0, (), True)


def test_a_single_op_goes_where_it_is_fastest():
    cpu = Pool(devices=("CPU:0",), work=(2.0,))
    found = least_makespan(problem([5.0], more_pools=[cpu]), EFFORT)
    assert (found.objective_value, found.device_of, found.is_proven) == (2, ("CPU:0",), True)


def test_a_time_far_above_all_others_is_no_choice():
    # In units of the least time it is a number of 98 digits.
    gpu = Pool(devices=("GPU:0",), work=(1e-92, 0.0), pays_for_copies=True)
    cpu = Pool(devices=("CPU:0",), work=(0.0, 1.0))
    task = Problem(
        ops=("op 0", "op 1"),
        edges=(),
        copy_time=(0.0, 0.0),
        size_bytes=(0, 0),
        backward=frozenset(),
        groups=((0, 1),),
        pools=(gpu, cpu),
    )
    found = least_makespan(task, EFFORT)
    assert found.is_proven
    assert found.objective_value == 1e-92


@pytest.mark.parametrize(
    "task",
    [
        problem([None, 1.0]),
        problem([1.0], size_bytes=[2], capacity_bytes=1),
        problem([1.0] * 3, size_bytes=[2] * 3, capacity_bytes=3),
        problem([1.0, 1.0], size_bytes=[2, 2], capacity_bytes=3, groups=[(0, 1)]),
        problem(
            [1.0, None],
            groups=[(0, 1)],
            more_pools=[Pool(devices=("CPU:0",), work=(None, 1.0))],
        ),
    ],
    ids=["no kernel", "op too big", "three halves", "group too big", "group torn by kernels"],
)
def test_what_cannot_be_placed_is_proved_to_be_so(task):
    found = least_makespan(task, EFFORT)
    assert (found.device_of, found.lower_bound, found.is_proven) == (None, math.inf, True)


def test_memory_that_list_placements_fill_badly_is_filled():
    # By rank the two small ones go apart, and the two large ones with them: only 3 + 3 = 2 + 2 + 2.
    task = problem([5.0, 4.0, 3.0, 2.0, 1.0], size_bytes=[2, 2, 2, 3, 3], capacity_bytes=6)
    found = least_makespan(task, EFFORT)
    assert faults(task, timetable_of(task, found)) == []
    assert (found.objective_value, found.is_proven) == (12, True)


def test_the_clock_may_end_the_search_and_what_was_found_by_then_is_returned():
    rng = random.Random(5)
    edges = [(i, j) for j in range(60) for i in range(j) if rng.random() < 0.05]
    times = [float(rng.randint(1, 1000)) for _ in range(60)]
    task = problem(times, edges, times[::-1], devices=4)
    found = least_makespan(task, Effort(units=100.0, time_limit_s=0.01))
    assert faults(task, timetable_of(task, found)) == []
    assert found.stopped_by == "clock"
    assert not found.is_proven
    assert 0 < found.lower_bound < found.objective_value


def test_a_graph_too_large_for_a_proof_gets_a_timetable_and_a_bound():
    rng = random.Random(5)
    edges = [(rng.randrange(j), j) for j in range(1, 3000)]
    task = problem([float(rng.randint(1, 9)) for _ in range(3000)], edges, 50.0, devices=4)
    found = least_makespan(task, Effort(units=1.0))
    assert faults(task, timetable_of(task, found)) == []
    assert found.stopped_by == "size" or found.is_proven
    assert found.lower_bound <= found.objective_value


# An op of no time that another device waits for, behind a long one in the order of the ops.
HURRIED = Problem(
    ops=("long", "brief", "reader"),
    edges=((1, 2),),
    copy_time=(0.0,) * 3,
    size_bytes=(0,) * 3,
    backward=frozenset(),
    groups=((0, 1), (2,)),
    pools=(Pool(devices=("CPU:0", "CPU:1"), work=(1.0, 0.0, 1.0), pays_for_copies=False),),
)


@settings(deadline=None, max_examples=60)
@example(HURRIED)
@given(problems())
def test_the_least_makespan_is_that_of_trying_everything(task):
    found = least_makespan(task, EFFORT)
    least = least_by_trying(task)
    assert found.is_proven
    assert found.lower_bound <= least
    if math.isinf(least):
        assert found.objective_value is None
    else:
        assert found.objective_value == least
        assert faults(task, timetable_of(task, found)) == []


# What fits nowhere, and a copy that takes the least time that floats have.
NEXT_TO_NOTHING = Problem(
    ops=("op",),
    edges=(),
    copy_time=(5e-324,),
    size_bytes=(1,),
    backward=frozenset(),
    groups=((0,),),
    pools=(Pool(devices=("GPU:0",), work=(0.0,), capacity_bytes=0, pays_for_copies=True),),
)


@settings(deadline=None, max_examples=40)
@example(NEXT_TO_NOTHING)
@given(problems(most_ops=5, whole=False))
def test_times_that_are_no_whole_numbers_are_proved_to_a_millionth(task):
    found = least_makespan(task, EFFORT)
    least = least_by_trying(task)
    assert found.is_proven
    assert found.lower_bound <= least * (1 + 1e-9)
    if not math.isinf(least):
        assert least * (1 - 1e-9) <= found.objective_value <= least * (1 + 2e-6)
        assert faults(task, timetable_of(task, found)) == []


def test_an_op_that_cannot_run_where_it_takes_next_to_nothing_is_proved() -> None:
    task = Problem(
        ops=("op",), edges=(), copy_time=(0.0,), size_bytes=(1,),
        backward=frozenset(), groups=((0,),),
        pools=(
            Pool(devices=("GPU:0",), work=(1e-87,), capacity_bytes=0, pays_for_copies=True),
            Pool(devices=("CPU:0",), work=(1.0,), capacity_bytes=None, pays_for_copies=False),
        ),
    )  # fmt: skip
    found = least_makespan(task, EFFORT)
    assert found.is_proven
    assert found.objective_value == 1.0


@settings(deadline=None, max_examples=40)
@given(problems())
def test_no_bound_is_above_the_least_makespan(task):
    assert delay_bounds(task)[0] <= least_by_trying(task)


@settings(deadline=None, max_examples=40)
@given(problems())
def test_windows_refute_no_makespan_that_is_possible(task):
    least = least_by_trying(task)
    if math.isinf(least):
        return
    work = np.array(
        [
            min(time for time in times if time is not None)
            for times in zip(*_times(task), strict=True)
        ]
    )
    copies = np.zeros(len(work)) if _is_free(task) else np.array(task.copy_time)
    found = windows_below(work, copies, Flow.of(task), surely_together(task), least)
    assert found is not None


def _times(task: Problem) -> list[tuple[float | None, ...]]:
    return [pool.work for pool in task.pools]


def _is_free(task: Problem) -> bool:
    return not all(pool.pays_for_copies for pool in task.pools)


@settings(deadline=None, max_examples=40)
@given(problems())
def test_the_exact_search_alone_finds_the_least_makespan(task):
    least = least_by_trying(task)
    limit = 1_000.0
    found = makespan_below(task, limit, EFFORT)
    if math.isinf(least):
        assert (found.device_of, found.lower_bound) == (None, limit)
    else:
        assert in_order(task, found.device_of, found.order).makespan == least
        assert found.lower_bound == least
        if least:
            assert makespan_below(task, least, EFFORT).lower_bound == least


@settings(deadline=None, max_examples=40)
@given(problems())
def test_the_local_search_gives_a_valid_timetable_that_is_no_worse(task):
    start = fast_timetable(task, units=0.0, seed=0)
    if start is not None:
        found = local_order(task, [start], units=0.002, seed=3)
        assert faults(task, found) == []
        assert found.makespan <= start.makespan


def random_dag(ops: int, ratio: float, devices: int, seed: int) -> Problem:
    rng = random.Random(seed)
    edges = [(i, j) for j in range(ops) for i in range(j) if rng.random() < 2.5 / ops]
    work = [float(rng.randint(1, 100)) for _ in range(ops)]
    copies = [float(rng.randint(1, round(100 * ratio) + 1)) for _ in range(ops)]
    return problem(work, edges, copies, devices=devices)


def test_equal_seeds_and_units_give_equal_answers():
    task = random_dag(30, 1.0, 4, 1)
    effort = Effort(units=0.5, seed=7)
    assert least_makespan(task, effort) == least_makespan(task, effort)
    assert fast_timetable(task, units=0.02, seed=1) == fast_timetable(task, units=0.02, seed=1)


def agrees_with_trying(ops: int, ratio: float, devices: int, seed: int) -> bool:
    """Compare with trying everything; return whether one device is best."""
    task = random_dag(ops, ratio, devices, seed)
    found = least_makespan(task, EFFORT)
    least = least_by_trying(task)
    assert (found.objective_value, found.lower_bound, found.is_proven) == (least, least, True)
    alone = least == sum(task.pools[0].work)
    assert (len(set(found.device_of)) == 1) == alone
    return alone


def test_one_device_is_found_best_where_it_is_and_only_there():
    verdicts = [
        agrees_with_trying(ops, ratio, devices, seed)
        for ops in (5, 7, 8, 9)
        for ratio in (0.1, 1.0, 10.0)
        for devices in (2, 4)
        for seed in range(2)
    ]
    assert any(verdicts)
    assert not all(verdicts)


@pytest.mark.campaign
@pytest.mark.parametrize("ops", [8, 9])
@pytest.mark.parametrize("ratio", [0.1, 1.0, 10.0])
def test_one_device_is_found_best_on_more_graphs_too(ops, ratio):
    for devices in (2, 3, 8):
        for seed in range(50):
            agrees_with_trying(ops, ratio, devices, seed)


def test_a_bound_is_kept_when_the_effort_runs_out():
    task = replace(random_dag(40, 1.0, 4, 3))
    found = least_makespan(task, Effort(units=0.05))
    assert found.stopped_by in ("effort", "proof")
    assert found.lower_bound <= found.objective_value


def test_what_takes_no_time_does_not_wait_for_what_starts_with_it():
    # Op 2 takes no time, and is over at 2 on the first device: op 3 can start at 3 on the other.
    task = problem([2.0, 9.0, 0.0, 6.0], [(0, 2), (2, 3)], [50.0, 0.0, 1.0, 0.0])
    order = by_start([0.0, 2.0, 2.0, 3.0], [2.0, 11.0, 2.0, 9.0], Flow.of(task))
    found = in_order(task, ["GPU:0", "GPU:0", "GPU:0", "GPU:1"], order)
    assert found.start == (0, 2, 2, 3)


@pytest.mark.parametrize("seed", range(40))
def test_makespans_are_proved_where_each_edge_has_a_cost_of_its_own(seed):
    dag = drawn_dag(seed)
    found = least_makespan(read_fiddle(dag.document()), Effort(units=5.0))
    least = least_makespan_of(dag)
    assert (found.objective_value, found.lower_bound, found.is_proven) == (least, least, True)
