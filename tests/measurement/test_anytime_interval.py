"""Intervals that one may look at after every sample."""

import random
from itertools import pairwise
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement_advisor.measurement.measurement import STAKES, least_samples, median_interval

ratios = st.floats(min_value=0.01, max_value=100)


def test_eight_equal_signs_are_the_fewest_that_win_forty_by_hand():
    # The integral of 2 (2p)^8 from 1/2 to 1 is (2^9 - 1) / 9 = 56.8; that of 2 (2p)^7 is 31.9.
    assert STAKES == 40
    assert least_samples() == 8
    assert median_interval([1.0] * 7) is None
    assert median_interval([3, 1, 2, 5, 4, 8, 6, 7]) is not None


def test_of_twelve_samples_one_may_lie_outside_of_each_end_by_hand():
    # With one of twelve on the wrong side: (2^13 - 1 - 13) / (13 * 12) = 52.4, with two 9.5.
    samples = [6.0, 7.0, 5.0, 8.0, 4.0, 9.0, 3.0, 10.0, 2.0, 11.0, 1.0, 12.0]
    found = median_interval(samples)
    assert found is not None
    assert (found.low, found.median, found.high) == (2.0, 6.5, 11.0)


def test_the_upper_end_alone_allows_for_the_choice_among_candidates():
    samples = [float(i % 2 * 100 + i) for i in range(60)]
    alone, among = median_interval(samples), median_interval(samples, among=7)
    assert alone is not None
    assert among is not None
    assert among.low == alone.low
    assert among.high > alone.high


def test_no_outlier_moves_an_end_that_it_does_not_reach():
    samples = [1.0 + i % 7 / 100 for i in range(40)]
    wild = [1e9 if i % 20 == 0 else sample for i, sample in enumerate(samples)]
    found = median_interval(wild)
    assert found is not None
    assert found.high < 1.1


@given(st.lists(ratios, min_size=8, max_size=80), st.integers(1, 20))
def test_ends_are_samples_around_the_median_or_there_are_too_few(samples, among):
    found = median_interval(samples, among=among)
    assert (found is None) == (len(samples) < least_samples(among))
    if found is not None:
        assert found.low in samples
        assert found.high in samples
        assert found.low <= found.median <= found.high


@given(st.lists(ratios, min_size=20, max_size=60))
def test_more_candidates_never_narrow_an_interval(samples):
    ends = [
        found.high
        for among in range(1, 20)
        if (found := median_interval(samples, among=among)) is not None
    ]
    assert all(fewer <= more for fewer, more in pairwise(ends))


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
        assert found is not None
        assert found.high == samples - 1 - most_beyond(samples, stakes)


def test_the_interval_that_is_returned_keeps_that_error_at_every_look():
    chance, missed_low, missed_high, trials = random.Random(1), 0, 0, 400
    for _ in range(trials):
        samples = [chance.gauss(0, 1) ** 3 for _ in range(60)]
        looks = [median_interval(samples[:n]) for n in range(8, 61)]
        missed_low += any(look is not None and look.low > 0 for look in looks)
        missed_high += any(look is not None and look.high < 0 for look in looks)
    # One in forty each is 10; four standard deviations more are 22.
    assert missed_low <= 22
    assert missed_high <= 22
