"""Ratios -> whole samples."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement_advisor.candidates.batch_split.plan import shares_of
from placement_advisor.errors import BatchSplitError


def test_shares_are_in_proportion_and_what_rounding_leaves_goes_to_who_lost_most():
    assert shares_of(32, (1, 1)) == (16, 16)
    assert shares_of(10, (3, 2)) == (6, 4)
    # 3.75, 3.75 and 2.5: the two that lost three quarters get one more each.
    assert shares_of(10, (3, 3, 2)) == (4, 4, 2)
    assert shares_of(7, (1, 1)) == (4, 3)


def test_even_ratios_give_what_is_left_over_to_the_first():
    assert shares_of(32, (1, 1)) == (16, 16)
    assert shares_of(7, (1, 1, 1)) == (3, 2, 2)


@given(st.integers(1, 5000), st.lists(st.floats(0.05, 20), min_size=1, max_size=6))
def test_shares_make_up_the_batch_and_are_within_one_sample_of_their_part(
    batch: int, ratios: list[float]
):
    try:
        shares = shares_of(batch, ratios)
    except BatchSplitError:
        assert batch * min(ratios) / sum(ratios) < 1
        return
    assert sum(shares) == batch
    for share, ratio in zip(shares, ratios, strict=True):
        assert abs(share - batch * ratio / sum(ratios)) < 1


@pytest.mark.parametrize("ratio", [0, -1, float("nan"), float("inf")])
def test_a_ratio_that_is_no_positive_number_is_refused(ratio: float):
    with pytest.raises(BatchSplitError, match=f"{ratio:g} of 1:{ratio:g} is not a positive number"):
        shares_of(8, (1, ratio))


def test_a_share_of_no_sample_is_refused_with_its_device():
    with pytest.raises(BatchSplitError, match="share of device 1 in a batch of 8 rounds to no"):
        shares_of(8, (100, 1))


def test_a_batch_smaller_than_the_number_of_devices_is_refused():
    with pytest.raises(BatchSplitError, match="a batch of 2 has less than one sample for"):
        shares_of(2, (1, 1, 1))
