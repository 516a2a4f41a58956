"""Races of two placements: what their statistics say, and what a check makes of them."""

import random
from collections import Counter
from dataclasses import replace

import pytest

from placement_advisor.check.check_measured import (
    MAX_ROUNDS,
    ROUNDS,
    MeasuredCheck,
    Slowdown,
    SlowdownTest,
    slowdown_test,
    with_measured,
)
from placement_advisor.check.problem_codes import ModelResult, Place, Problem, ProblemCode, Status
from placement_advisor.measurement.measurement import Interval

STEP_NS = 20_000_000
TOLERANCE = 0.05
PASSED = ModelResult(
    model="ranker.py",
    placement="as-written",
    place=Place("pyproject.toml", 3),
    status=Status.PASSED,
)


def rounds(seed, *, slower=1.0, noise=0.05, count=15):
    """Return the step times of today's placement, and twice of the locked one.

    The machine is up to twice as slow for some rounds as for others.
    """
    chance = random.Random(seed)
    found = ([], [], [])
    for _ in range(count):
        machine = chance.uniform(1, 2)
        for runs, factor in zip(found, (slower, 1.0, 1.0), strict=True):
            steps = (machine * factor * chance.lognormvariate(0, noise) for _ in range(4))
            runs.append(tuple(round(STEP_NS * step) for step in steps))
    return found


def pace(seed, **drawn):
    """Return what a race says that is run until it tells."""
    runs = rounds(seed, count=MAX_ROUNDS, **drawn)
    for count in range(ROUNDS, MAX_ROUNDS):
        found = slowdown_test(*(run[:count] for run in runs), TOLERANCE)
        if found.pace is not Slowdown.CANNOT_TELL:
            break
    return found.pace


@pytest.mark.parametrize("noise", [0.01, 0.05, 0.2])
def test_the_same_placement_is_never_slower(noise):
    paces = [pace(seed, noise=noise) for seed in range(100)]
    assert Slowdown.SLOWER not in paces
    assert noise > 0.1 or set(paces) == {Slowdown.NO_SLOWER}


def test_a_placement_at_the_tolerance_itself_is_seldom_called_either():
    paces = Counter(pace(seed, slower=1 + TOLERANCE) for seed in range(100))
    # One race in twenty may be wrong, however many rounds it looked at.
    assert paces[Slowdown.SLOWER] + paces[Slowdown.NO_SLOWER] <= 5


@pytest.mark.parametrize("noise", [0.01, 0.05])
def test_a_placement_that_takes_a_sixth_longer_is_slower_though_the_machine_drifts(noise):
    paces = [pace(seed, slower=1.16, noise=noise) for seed in range(50)]
    assert paces.count(Slowdown.SLOWER) >= 49


def test_within_the_tolerance_or_in_noise_it_is_no_slower_or_cannot_be_told():
    assert slowdown_test(*rounds(1, slower=1.03, noise=0.005), TOLERANCE).pace is Slowdown.NO_SLOWER
    assert slowdown_test(*rounds(1, slower=1.08, noise=0.005), TOLERANCE).pace is Slowdown.SLOWER
    assert slowdown_test(*rounds(1, slower=1.08, noise=0.005), 0.1).pace is Slowdown.NO_SLOWER
    assert slowdown_test(*rounds(1, noise=0.3), TOLERANCE).pace is Slowdown.CANNOT_TELL
    today, locked, _ = rounds(2, slower=1.12, noise=0.01)
    again = [tuple(step * 5 // 4 for step in steps) for steps in locked]
    found = slowdown_test(today, locked, again, TOLERANCE)
    assert found.noise == pytest.approx(0.25, abs=0.01)
    assert found.pace is not Slowdown.SLOWER


def test_a_race_counts_complete_rounds_and_tells_by_how_much_longer_steps_are():
    today, locked, again = rounds(3)
    assert slowdown_test([], locked, again, TOLERANCE) is None
    assert slowdown_test(today[:7], locked, again, TOLERANCE) is None
    runs = today, locked, again
    for lacks in range(3):
        first = [() if place == lacks else run[0] for place, run in enumerate(runs)]
        one_more = ([each, *run] for each, run in zip(first, runs, strict=True))
        assert slowdown_test(*one_more, TOLERANCE).rounds == 15
    found = SlowdownTest(
        pace=Slowdown.SLOWER, ratio=Interval(median=1.12, low=1.05, high=1.2), noise=0.04, rounds=15
    )
    assert str(found) == (
        "steps +12 % against the locked placement (+5 % to +20 % in 15 rounds, noise 4 %)"
    )


SAME = SlowdownTest(
    pace=Slowdown.NO_SLOWER, ratio=Interval(median=1.0, low=0.99, high=1.01), noise=0.02, rounds=15
)
SLOWER = replace(SAME, pace=Slowdown.SLOWER, ratio=Interval(median=1.4, low=1.3, high=1.5))
UNCLEAR = replace(SAME, pace=Slowdown.CANNOT_TELL, ratio=Interval(median=1.1, low=0.9, high=1.3))


def on_workers(**found):
    return MeasuredCheck(devices="2 workers", **found)


@pytest.mark.parametrize(
    ("told", "status", "codes"),
    [
        (on_workers(first=SAME), Status.PASSED, []),
        (on_workers(first=SLOWER, second=SLOWER), Status.FAILED, [ProblemCode.MEASURED_SLOWER]),
        (on_workers(first=SLOWER, second=SAME), Status.INCONCLUSIVE, []),
        (on_workers(first=UNCLEAR), Status.INCONCLUSIVE, []),
        (on_workers(failure="it broke"), Status.FAILED, [ProblemCode.DOES_NOT_RUN]),
        (MeasuredCheck(devices="", unknown="8 devices need 8 cores"), Status.INCONCLUSIVE, []),
    ],
)
def test_a_check_fails_only_on_two_races_or_where_nothing_runs(told, status, codes):
    found = with_measured(PASSED, told)
    assert (found.status, [problem.code for problem in found.problems]) == (status, codes)
    assert found.problems or found.notes


def test_what_was_measured_never_makes_a_failed_check_pass():
    failed = replace(PASSED, status=Status.FAILED)
    for told in (SAME, UNCLEAR):
        assert with_measured(failed, on_workers(first=told)).status is Status.FAILED


def test_what_was_measured_of_layers_that_moved_is_an_effect_of_why_they_did():
    moved, other = (
        Problem(code=code, what="w", action="a")
        for code in (ProblemCode.SCOPE_CHANGED, ProblemCode.NO_KERNEL)
    )
    failed = replace(PASSED, status=Status.FAILED, problems=(other, moved))
    found = with_measured(failed, on_workers(first=SLOWER, second=SLOWER)).problems
    assert [problem.codes for problem in found] == [
        (ProblemCode.NO_KERNEL,),
        (ProblemCode.SCOPE_CHANGED, ProblemCode.MEASURED_SLOWER),
    ]
    assert "measured on 2 workers: " in found[1].effects[0].what
