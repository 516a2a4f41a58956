import pytest

from placement_advisor.measurement.measurement import (
    WORTHWHILE_RATIO,
    Comparison,
    Interval,
    Verdict,
    compare,
    is_in_doubt,
    least_samples,
    overall_verdict,
)

Rounds = list[tuple[int, ...]]


def comparison_of(single, towers):
    result = compare("single", single, towers, among=1)
    assert result is not None
    return result


def between(low, high):
    ratio = Interval(median=(low + high) / 2, low=low, high=high)
    return Comparison(baseline="single", ratio=ratio, rounds=15)


def test_a_ratio_is_candidate_over_baseline_by_hand():
    result = comparison_of([(100, 110, 500)] * 8, [(50, 55, 60)] * 8)
    # Medians of a round: 110 and 55.
    assert (result.ratio.low, result.ratio.median, result.ratio.high) == (0.5, 0.5, 0.5)
    assert (result.baseline, result.rounds) == ("single", 8)
    assert result.verdict is Verdict.FASTER


def test_rounds_are_paired_so_a_slow_minute_cancels_out():
    slow_minutes = [1, 1, 10, 10, 3, 3, 2, 1]
    result = comparison_of(
        [(100 * slow,) for slow in slow_minutes], [(80 * slow,) for slow in slow_minutes]
    )
    assert result.ratio.low == result.ratio.high == 0.8


def test_too_few_rounds_are_not_compared_however_clear_they_are():
    for among in (1, 7):
        least = least_samples(among)
        slow, fast = [(100,)] * least, [(10,)] * least
        enough = compare("single", slow, fast, among=among)
        assert enough is not None
        assert enough.verdict is Verdict.FASTER
        assert compare("single", slow[1:], fast[1:], among=among) is None


def test_only_rounds_that_both_have_completed_are_compared():
    single = [(100,), (), *[(100,)] * 9]
    towers = [(50,), (1,), (), *[(50,)] * 7]
    result = comparison_of(single, towers)
    assert (result.rounds, result.ratio.median) == (8, 0.5)


@pytest.mark.parametrize(
    ("single", "towers"), [([], []), ([(100,)], []), ([(100,)], [()]), ([()], [(100,)])]
)
def test_runs_that_share_no_complete_round_are_not_compared(single, towers):
    assert compare("single", single, towers, among=1) is None


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
def test_only_an_interval_on_one_side_of_the_threshold_is_a_verdict(low, high, verdict):
    assert between(low, high).verdict is verdict


def test_rounds_that_disagree_are_inconclusive():
    single = [(100,)] * 20
    towers = [(70,), (130,)] * 10
    assert comparison_of(single, towers).verdict is Verdict.INCONCLUSIVE


FASTER, SLOWER, UNSURE = between(0.8, 0.9), between(1.0, 1.2), between(0.9, 1.0)


@pytest.mark.parametrize(
    ("comparisons", "verdict"),
    [
        ([SLOWER, FASTER, UNSURE], Verdict.FASTER),
        ([SLOWER, SLOWER], Verdict.SLOWER),
        ([SLOWER, UNSURE], Verdict.INCONCLUSIVE),
    ],
)
def test_one_faster_candidate_is_enough_and_one_unsure_keeps_from_rejecting_all(
    comparisons, verdict
):
    assert overall_verdict(comparisons) is verdict


@pytest.mark.parametrize(
    ("comparisons", "expected"),
    [
        ([FASTER, SLOWER, UNSURE], False),
        ([FASTER, between(0.6, 1.0)], True),  # It may be the better one.
        ([SLOWER, SLOWER], False),
        ([SLOWER, UNSURE], True),
        ([UNSURE], True),
    ],
)
def test_what_to_prefer_is_in_doubt_until_the_best_is_sure_or_all_are_rejected(
    comparisons, expected
):
    assert is_in_doubt(comparisons) is expected
