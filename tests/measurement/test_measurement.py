"""Intervals that one may look at after every sample, their verdicts, and figures of whole runs."""

from dataclasses import replace
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded_profiles import copied
from sample_values import measurement, step_profile

from placement_advisor.defaults import WORTHWHILE_RATIO
from placement_advisor.measurement.measurement import (
    STAKES,
    Comparison,
    InputTiming,
    Interval,
    SizeBasis,
    Verdict,
    bootstrap_median,
    compare,
    is_in_doubt,
    least_samples,
    median_interval,
    overall_verdict,
)


def test_the_fewest_samples_and_those_outside_by_hand():
    assert STAKES == 40
    assert least_samples() == 8
    assert median_interval([1.0] * 7) is None
    assert median_interval([3, 1, 2, 5, 4, 8, 6, 7]) is not None
    samples = [6.0, 7.0, 5.0, 8.0, 4.0, 9.0, 3.0, 10.0, 2.0, 11.0, 1.0, 12.0]
    found = median_interval(samples)
    assert (found.low, found.median, found.high) == (2.0, 6.5, 11.0)


def test_ends_allow_for_the_choice_among_candidates_and_no_outlier_moves_them():
    samples = [float(i % 2 * 100 + i) for i in range(60)]
    alone, among = median_interval(samples), median_interval(samples, among=7)
    assert among.low == alone.low
    assert among.high > alone.high
    samples = [1.0 + i % 7 / 100 for i in range(40)]
    wild = [1e9 if i % 20 == 0 else sample for i, sample in enumerate(samples)]
    found = median_interval(wild)
    assert found.high < 1.1


@given(st.lists(st.floats(0.01, 100), min_size=8, max_size=80), st.integers(1, 20))
def test_ends_are_samples_around_the_median_or_there_are_too_few(samples, among):
    found = median_interval(samples, among=among)
    assert (found is None) == (len(samples) < least_samples(among))
    if found is not None:
        assert found.low in samples
        assert found.high in samples
        assert found.low <= found.median <= found.high


def most_beyond(samples, stakes):
    """Return how many samples may lie on the wrong side of an end that is won, -1 if not even 0."""
    tail = 0
    for wrong in range(samples):
        tail += comb(samples + 1, wrong)
        if 2 ** (samples + 1) - tail < stakes * (samples + 1) * comb(samples, wrong):
            return wrong - 1
    return -1


def missed(looks, stakes):
    """Return the exact probability that an end is wrong at any of the first looks.

    Samples are independent and come from no distribution in particular: only their sides count.
    Paths on which the end has been wrong are taken out.
    """
    alive, gone = {0: 1.0}, 0.0
    for n in range(1, looks + 1):
        moved = {}
        for wrong, share in alive.items():
            for after in (wrong, wrong + 1):
                moved[after] = moved.get(after, 0.0) + share / 2
        most = most_beyond(n, stakes)
        gone += sum(share for wrong, share in moved.items() if wrong <= most)
        alive = {wrong: share for wrong, share in moved.items() if wrong > most}
    return gone


@pytest.mark.parametrize("among", [1, 7])
def test_an_end_keeps_its_error_over_three_hundred_looks(among):
    stakes = STAKES * among
    assert 0.4 / stakes < missed(300, stakes) <= 1 / stakes
    # The ends that are returned are those: as many samples lie outside.
    for samples in (15, 16, 40, 90):
        found = median_interval([float(i) for i in range(samples)], among=among)
        assert found.high == samples - 1 - most_beyond(samples, stakes)


def comparison_of(single, towers):
    return compare("single", single, towers, among=1)


def between(low, high):
    ratio = Interval(median=(low + high) / 2, low=low, high=high)
    return Comparison(baseline="single", ratio=ratio, rounds=15)


def test_ratios_are_candidate_over_baseline_of_paired_rounds_by_hand():
    result = comparison_of([(100, 110, 500)] * 8, [(50, 55, 60)] * 8)
    # Medians of a round: 110 and 55.
    assert (result.ratio.low, result.ratio.median, result.ratio.high) == (0.5, 0.5, 0.5)
    assert (result.baseline, result.rounds) == ("single", 8)
    assert result.verdict is Verdict.FASTER
    slow_minutes = [1, 1, 10, 10, 3, 3, 2, 1]
    result = comparison_of(*([(ns * slow,) for slow in slow_minutes] for ns in (100, 80)))
    assert result.ratio.low == result.ratio.high == 0.8
    result = comparison_of([(100,), (), *[(100,)] * 9], [(50,), (1,), (), *[(50,)] * 7])
    assert (result.rounds, result.ratio.median) == (8, 0.5)
    result = comparison_of([(100,)] * 20, [(70,), (130,)] * 10)
    assert result.verdict is Verdict.INCONCLUSIVE


def test_too_few_rounds_are_not_compared_however_clear_they_are():
    for among in (1, 7):
        least = least_samples(among)
        slow, fast = [(100,)] * least, [(10,)] * least
        enough = compare("single", slow, fast, among=among)
        assert enough.verdict is Verdict.FASTER
        assert compare("single", slow[1:], fast[1:], among=among) is None


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


FASTER, SLOWER, UNSURE = between(0.8, 0.9), between(1.0, 1.2), between(0.9, 1.0)


@pytest.mark.parametrize(
    ("comparisons", "verdict", "in_doubt"),
    [
        ([SLOWER, FASTER, UNSURE], Verdict.FASTER, False),
        ([FASTER, between(0.6, 1.0)], Verdict.FASTER, True),  # It may be the better one.
        ([SLOWER, SLOWER], Verdict.SLOWER, False),
        ([SLOWER, UNSURE], Verdict.INCONCLUSIVE, True),
        ([UNSURE], Verdict.INCONCLUSIVE, True),
    ],
)
def test_one_that_is_surely_faster_is_enough_and_one_unsure_keeps_from_rejecting_all(
    comparisons, verdict, in_doubt
):
    assert overall_verdict(comparisons) is verdict
    assert is_in_doubt(comparisons) is in_doubt


def profile(*sizes, step_ns=()):
    """Return the profile of steps that make two copies of each of these sizes."""
    once = (copied("a", "b", size, 100, 40, size and SizeBasis.PROFILE) for size in sizes)
    return step_profile(*step_ns, transfers=tuple(replace(each, count=2) for each in once))


def test_no_samples_have_no_median_and_many_have_the_textbook_interval():
    with pytest.raises(ValueError, match="no samples"):
        bootstrap_median([])
    interval = bootstrap_median([float(i) for i in range(1, 101)])
    assert interval.median == 50.5
    assert interval.low == pytest.approx(40, abs=2)
    assert interval.high == pytest.approx(61, abs=2)


@given(st.lists(st.floats(0.01, 1e6), min_size=1, max_size=30))
def test_the_interval_holds_the_median_and_lies_among_the_samples(samples):
    interval = bootstrap_median(samples)
    assert interval == bootstrap_median(samples)
    assert min(samples) <= interval.low <= interval.median <= interval.high <= max(samples)


def test_overheads_and_rates_are_those_of_all_batches_and_unknown_where_one_side_is_missing():
    run = measurement(((100, 100), (400,)), profile=profile(step_ns=(120, 130, 900)))
    assert run.profiler_overhead == 1.3
    assert replace(run, profile=None).profiler_overhead is None
    assert replace(run, profile=profile()).profiler_overhead is None
    assert replace(run, rounds=()).profiler_overhead is None
    timing = InputTiming(batch_ns=(500_000, 500_000, 29_000_000), transformations=())
    assert timing.samples_per_s(10) == 1_000


def test_transfers_add_up_and_one_unknown_size_makes_the_bytes_unknown():
    shown = profile(10, 20)
    assert (shown.transfer_ns, shown.transfer_count, shown.transfer_bytes) == (200, 4, 30)
    assert shown.size_basis is SizeBasis.PROFILE
    unknown = profile(10, None)
    assert (unknown.transfer_bytes, unknown.size_basis) == (None, None)
    assert (profile().transfer_bytes, profile().size_basis) == (0, None)
    first, second = shown.transfers
    by_shape = replace(second, size_basis=SizeBasis.SHAPES)
    assert replace(shown, transfers=(first, by_shape)).size_basis is SizeBasis.SHAPES
