from __future__ import annotations

import pytest

from placement_advisor.compare import MIN_ROUNDS, WORTHWHILE_RATIO, Comparison, Verdict, compare
from placement_advisor.measure import Interval, Measurement

Rounds = list[tuple[int, ...]]


def run_of(rounds: Rounds) -> Measurement:
    return Measurement(
        warmup_ns=(),
        rounds=tuple(rounds),
        moved_ops=(),
        max_relative_difference=None,
        profile=None,
        profile_run=None,
    )


def comparison_of(single: Rounds, towers: Rounds) -> Comparison:
    result = compare("single", "towers", run_of(single), run_of(towers))
    assert result is not None
    return result


def between(low: float, high: float, rounds: int = MIN_ROUNDS) -> Comparison:
    ratio = Interval(median=(low + high) / 2, low=low, high=high)
    return Comparison(baseline="single", candidate="towers", ratio=ratio, rounds=rounds)


def test_a_ratio_is_candidate_over_baseline_by_hand() -> None:
    result = comparison_of([(100, 110, 500)] * 5, [(50, 55, 60)] * 5)
    # Medians of a round: 110 and 55.
    assert (result.ratio.low, result.ratio.median, result.ratio.high) == (0.5, 0.5, 0.5)
    assert (result.baseline, result.candidate, result.rounds) == ("single", "towers", 5)
    assert result.verdict is Verdict.FASTER


def test_rounds_are_paired_so_a_slow_minute_cancels_out() -> None:
    slow_minutes = [1, 1, 10, 10, 3]
    result = comparison_of(
        [(100 * slow,) for slow in slow_minutes], [(80 * slow,) for slow in slow_minutes]
    )
    assert result.ratio.low == result.ratio.high == 0.8


def test_a_slower_candidate_is_slower() -> None:
    assert comparison_of([(100,)] * 5, [(150,)] * 5).verdict is Verdict.SLOWER


def test_equal_times_are_not_worth_a_split() -> None:
    assert comparison_of([(100,)] * 5, [(100,)] * 5).verdict is Verdict.SLOWER


def test_too_few_rounds_are_no_verdict_however_clear() -> None:
    assert comparison_of([(100,)] * 4, [(10,)] * 4).verdict is Verdict.INCONCLUSIVE


def test_a_failed_round_of_either_side_is_left_out() -> None:
    single: Rounds = [(100,), (), (100,), (100,), (100,), (100,), (100,)]
    towers: Rounds = [(50,), (1,), (), (50,), (50,), (50,), (50,)]
    result = comparison_of(single, towers)
    assert (result.rounds, result.ratio.median) == (5, 0.5)


def test_a_run_that_ended_early_is_compared_over_the_rounds_it_has() -> None:
    assert comparison_of([(100,)] * 9, [(50,)] * 6).rounds == 6


@pytest.mark.parametrize(
    ("single", "towers"), [([], []), ([(100,)], []), ([(100,)], [()]), ([()], [(100,)])]
)
def test_runs_that_share_no_complete_round_are_not_compared(single: Rounds, towers: Rounds) -> None:
    assert compare("single", "towers", run_of(single), run_of(towers)) is None


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (0.5, WORTHWHILE_RATIO - 0.001, Verdict.FASTER),
        (0.5, WORTHWHILE_RATIO, Verdict.INCONCLUSIVE),
        (0.9, 1.1, Verdict.INCONCLUSIVE),
        (WORTHWHILE_RATIO, 1.1, Verdict.INCONCLUSIVE),
        (WORTHWHILE_RATIO + 0.001, 1.1, Verdict.SLOWER),
    ],
)
def test_only_an_interval_on_one_side_of_the_threshold_is_a_verdict(
    low: float, high: float, verdict: Verdict
) -> None:
    assert between(low, high).verdict is verdict


def test_one_round_too_few_takes_the_verdict_away() -> None:
    assert between(0.4, 0.5, rounds=MIN_ROUNDS).verdict is Verdict.FASTER
    assert between(0.4, 0.5, rounds=MIN_ROUNDS - 1).verdict is Verdict.INCONCLUSIVE


def test_rounds_that_disagree_are_inconclusive() -> None:
    single: Rounds = [(100,)] * 6
    towers: Rounds = [(70,), (130,), (70,), (130,), (70,), (130,)]
    assert comparison_of(single, towers).verdict is Verdict.INCONCLUSIVE
