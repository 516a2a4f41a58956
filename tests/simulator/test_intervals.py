from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from placement_advisor.simulator.schedule import (
    interval_shares,
    intervals_length,
    intervals_length_outside,
    merged_intervals,
)

intervals = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 60)).map(sorted).map(tuple), max_size=6
)


def points(of_intervals) -> set[int]:
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
    assert all(
        0 <= share <= end - start
        for share, (start, end) in zip(found, given_intervals, strict=True)
    )
