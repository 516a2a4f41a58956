"""The least largest load, against brute force."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from bert_graphs import bert_document
from hypothesis import HealthCheck, given, settings
from inception_graphs import inception_document
from load_problems import brute_force, chain, fits, is_contiguous, load_problems

from placement_advisor.solvers.conflict import find_conflict
from placement_advisor.solvers.effort import Effort, Stop
from placement_advisor.solvers.fiddle_file import read_fiddle
from placement_advisor.solvers.problem import Pool, Problem
from placement_advisor.solvers.throughput.covering_bound import covering_bound
from placement_advisor.solvers.throughput.cut_along_order import best_along
from placement_advisor.solvers.throughput.exact_load import load_below
from placement_advisor.solvers.throughput.loads import largest_load
from placement_advisor.solvers.throughput.local_load import locally_best
from placement_advisor.solvers.throughput.max_load import MaxLoad, max_load

EFFORT = Effort(units=4.0)
# Every example solves integer programs, which takes up to a second on a busy machine.
solving = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def never() -> bool:
    return False


def by_group(problem: Problem, found: MaxLoad) -> tuple[str, ...]:
    assert found.device_of is not None
    for group in problem.groups:
        assert len({found.device_of[op] for op in group}) == 1
    return tuple(found.device_of[group[0]] for group in problem.groups)


def test_a_chain_is_cut_where_the_larger_load_is_least() -> None:
    # 2 3 | 6 costs 7, 2 | 3 6 costs 10, all on one device 11.
    found = max_load(chain(2.0, 3.0, 6.0), EFFORT, contiguous=True)
    assert (found.objective_value, found.is_proven, found.stopped_by) == (7.0, True, Stop.PROOF)
    assert found.lower_bound == pytest.approx(7.0, rel=1e-6)


def test_without_contiguity_a_device_may_take_both_ends() -> None:
    problem = chain(3.0, 6.0, 3.0, copy_time=0.25)
    # 3 | 6 3, with one copy.
    assert max_load(problem, EFFORT, contiguous=True).objective_value == 9.25
    # 3 3 | 6, with two copies on either device.
    assert max_load(problem, EFFORT, contiguous=False).objective_value == 6.5


def test_where_copies_are_dear_one_device_is_best() -> None:
    found = max_load(chain(1.0, 1.0, copy_time=5.0), EFFORT, contiguous=False)
    assert (found.objective_value, found.is_proven) == (2.0, True)


def test_where_nothing_fits_that_is_proved() -> None:
    problem = chain(1.0, 1.0)
    tight = replace(problem.pools[0], capacity_bytes=0)
    found = max_load(replace(problem, pools=(tight,)), EFFORT, contiguous=False)
    assert (found.device_of, found.objective_value) == (None, None)
    assert found.is_proven
    assert math.isinf(found.lower_bound)


@pytest.mark.parametrize("contiguous", [pytest.param(True, marks=pytest.mark.slow), False])
@solving
@given(problem=load_problems())
def test_the_best_of_all_placements_is_found_and_proved(contiguous: bool, problem: Problem) -> None:
    best = brute_force(problem, contiguous=contiguous)
    found = max_load(problem, EFFORT, contiguous=contiguous)
    assert found.is_proven
    assert found.stopped_by is Stop.PROOF
    if best is None:
        assert found.device_of is None
        return
    assert found.objective_value == pytest.approx(best)
    assert found.lower_bound <= best
    device_of = by_group(problem, found)
    assert fits(problem, device_of)
    assert largest_load(problem, device_of) == pytest.approx(best)
    assert is_contiguous(problem, device_of) or not contiguous


@solving
@given(problem=load_problems())
def test_conflicts_are_named_only_where_nothing_is_possible(problem: Problem) -> None:
    conflict = find_conflict(problem)
    possible = brute_force(problem, contiguous=False) is not None
    assert (conflict is None) == possible
    if conflict is None:
        return
    # Without any one of the ops, with its group, the others are possible.
    for op in conflict.ops:
        number = problem.ops.index(op)
        kept = [problem.ops.index(name) for name in conflict.ops if name != op]
        groups = [tuple(each for each in group if each in kept) for group in problem.groups]
        if len(problem.groups[problem.group_of[number]]) > 1:
            continue
        rest = _only(problem, [group for group in groups if group])
        assert brute_force(rest, contiguous=False) is not None


def _only(problem: Problem, groups: list[tuple[int, ...]]) -> Problem:
    """Return the problem with some groups alone; other ops need nothing and run anywhere."""
    kept = {op for group in groups for op in group}
    pools = tuple(
        replace(pool, work=tuple(w if i in kept else 0.0 for i, w in enumerate(pool.work)))
        for pool in problem.pools
    )
    sizes = tuple(size if i in kept else 0 for i, size in enumerate(problem.size_bytes))
    others = [(i,) for i in range(len(problem.ops)) if i not in kept]
    return replace(problem, groups=(*groups, *others), pools=pools, size_bytes=sizes)


@solving
@given(problem=load_problems())
def test_a_cut_of_one_order_is_contiguous_and_fits(problem: Problem) -> None:
    alone = replace(problem, groups=tuple((op,) for op in range(len(problem.ops))))
    device_of = best_along(alone, range(len(problem.ops)))
    if device_of is not None:
        assert fits(alone, device_of)
        stretches = [a for a, b in zip(device_of, (*device_of[1:], ""), strict=True) if a != b]
        assert len(stretches) == len(set(stretches))


@solving
@given(problem=load_problems())
def test_the_covering_bound_never_exceeds_the_best(problem: Problem) -> None:
    best = brute_force(problem, contiguous=False)
    if best:
        bound, _ = covering_bound(problem, 0.0, best, units=2.0, is_over=never)
        assert bound <= best


def test_the_covering_bound_counts_the_copies_that_every_device_has_to_make() -> None:
    # 4 equal ops in a chain on 2 devices: work alone says 2, but either device has a cut, of 1.
    problem = chain(1.0, 1.0, 1.0, 1.0)
    bound, _ = covering_bound(problem, 2.0, 3.0, units=4.0, is_over=never)
    assert bound == pytest.approx(3.0, rel=1e-3)


@pytest.mark.slow
def test_a_short_search_over_layers_with_branches_ends_near_a_long_one() -> None:
    problem = read_fiddle(inception_document(10, seed=11))
    found = max_load(problem, EFFORT, contiguous=False)
    assert found.objective_value is not None
    assert found.objective_value <= 52.9102 * 1.0015  # what 100 units of local search find


def test_the_covering_bound_comes_near_a_load_that_it_cannot_prove() -> None:
    problem = read_fiddle(inception_document(10, seed=11))
    bound, _ = covering_bound(problem, 0.0, 52.9465, units=5.0, is_over=never)
    assert 52.9102 * 0.98 <= bound <= 52.9102


@solving
@given(problem=load_problems())
def test_local_search_keeps_to_the_limits_and_is_no_worse_than_its_start(problem: Problem) -> None:
    start = next((d for d in [best_along(problem, range(len(problem.groups)))] if d), None)
    if start is None:
        return
    found, _ = locally_best(problem, start, units=0.01, is_over=never, seed=1)
    assert fits(problem, found)
    assert largest_load(problem, found) <= largest_load(problem, start) + 1e-9


def test_equal_seeds_and_units_give_equal_answers() -> None:
    problem = replace(
        chain(*(1.0 + i * 7 % 5 for i in range(24)), copy_time=0.75, devices=4),
        edges=tuple(
            sorted({(i * i % 23, 23) for i in range(1, 23)} | {(i, i + 1) for i in range(22)})
        ),
    )
    effort = Effort(units=1.0, seed=5)
    first, again = (max_load(problem, effort, contiguous=False) for _ in range(2))
    assert first == again


def test_a_time_limit_ends_the_search_and_is_named() -> None:
    problem = chain(*(1.0 + i * 37 % 11 for i in range(120)), copy_time=0.3, devices=7)
    effort = Effort(units=math.inf, time_limit_s=0.2)
    found = max_load(problem, effort, contiguous=False)
    assert found.device_of is not None
    assert found.stopped_by in (Stop.CLOCK, Stop.PROOF)
    assert found.lower_bound <= found.objective_value


def test_a_solver_that_denies_a_placement_that_is_known_is_not_believed() -> None:
    problem = chain(2.0, 3.0)
    found = load_below(problem, 3.5, EFFORT, least=1.0, hint=("d0", "d0"))
    assert (found.device_of, found.lower_bound, found.stopped_by) == (None, 1.0, Stop.SOLVER)


@pytest.mark.parametrize(
    ("problem", "ops", "reason"),
    [
        (
            replace(chain(1.0, 1.0), pools=(Pool(devices=("d0",), work=(1.0, None)),)),
            ("op1",),
            "no device can run it",
        ),
        (
            replace(
                chain(1.0, 1.0, 1.0),
                groups=((0, 1, 2),),
                pools=(
                    Pool(devices=("a",), work=(1.0, 1.0, None)),
                    Pool(devices=("b",), work=(None, 1.0, 1.0)),
                ),
            ),
            ("op0", "op2"),
            "they have to stay together, and no device can run all of them",
        ),
        (
            # Three of size 3 into two rooms of 4; the small one is not to blame.
            replace(
                chain(1.0, 1.0, 1.0, 1.0),
                size_bytes=(3, 1, 3, 3),
                pools=(Pool(devices=("a", "b"), work=(1.0,) * 4, capacity_bytes=4),),
            ),
            ("op0", "op2", "op3"),
            "they need 9 bytes and do not fit the 8 of all devices together",
        ),
    ],
)
def test_the_fewest_ops_of_a_conflict_are_named(
    problem: Problem, ops: tuple[str, ...], reason: str
) -> None:
    conflict = find_conflict(problem)
    assert conflict is not None
    assert (conflict.ops, conflict.reason) == (ops, reason)


@pytest.mark.parametrize(
    ("seed", "accelerators", "memory_share"), [(0, 6, 1.3), (2, 6, 4.0), (2, 8, 1.3)]
)
def test_a_pipeline_of_twelve_layers_of_bert_is_found(
    seed: int, accelerators: int, memory_share: float
) -> None:
    # Presolve of CP-SAT 9.15 called these infeasible.
    problem = read_fiddle(
        bert_document(12, accelerators=accelerators, memory_share=memory_share, seed=seed)
    )
    found = max_load(problem, Effort(units=1.0), contiguous=True)
    assert found.objective_value is not None
    assert 0 < found.lower_bound <= found.objective_value
    assert found.stopped_by is not Stop.SOLVER


def test_what_is_proved_of_many_small_ops_is_proved_to_a_millionth() -> None:
    # Rounding each of 1,500 loads to a part in 1e8 of the limit would lose more than that.
    problem = chain(*(1.0 + i / 3 for i in range(12)), *(1e-6 / (3 + i) for i in range(1500)))
    found = max_load(problem, EFFORT, contiguous=True)
    assert found.is_proven == (found.stopped_by is Stop.PROOF)
    assert found.is_proven
