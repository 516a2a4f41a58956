"""Spans as arrays against spans as sets of moments."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement_advisor.profile.device_trace import (
    NO_SPANS,
    Spans,
    span_shares,
    spans_length,
    spans_length_before,
    spans_outside,
    union_of_spans,
)

Drawn = list[tuple[int, int]]
SPANS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 8)), max_size=8)


def spans(drawn: Drawn) -> Spans:
    starts = np.array([start for start, _ in drawn], np.int64)
    return Spans(starts, starts + np.array([size for _, size in drawn], np.int64))


def moments(some: Spans) -> set[int]:
    return {
        moment
        for start, end in zip(some.start.tolist(), some.end.tolist(), strict=True)
        for moment in range(start, end)
    }


def is_disjoint(some: Spans) -> bool:
    return bool((some.end > some.start).all() and (some.start[1:] > some.end[:-1]).all())


@given(SPANS, SPANS)
def test_a_union_covers_what_any_covers_once(one: Drawn, other: Drawn):
    found = union_of_spans([spans(one), spans(other)])
    assert is_disjoint(found)
    assert moments(found) == moments(spans(one)) | moments(spans(other))
    assert spans_length(found) == len(moments(found))


@given(SPANS, SPANS)
def test_outside_is_what_the_cover_leaves(one: Drawn, other: Drawn):
    some, cover = union_of_spans([spans(one)]), union_of_spans([spans(other)])
    found = spans_outside(some, cover)
    assert is_disjoint(found)
    assert moments(found) == moments(some) - moments(cover)


@given(SPANS, st.lists(st.integers(-3, 50), max_size=6))
def test_lengths_before_moments(drawn: Drawn, wanted: list[int]):
    some = union_of_spans([spans(drawn)])
    found = spans_length_before(some, np.array(wanted, np.int64))
    assert found.tolist() == [sum(m < w for m in moments(some)) for w in wanted]


def test_nothing_has_no_length():
    assert union_of_spans([]) == NO_SPANS
    assert spans_length(spans_outside(NO_SPANS, NO_SPANS)) == 0


def test_two_spans_share_what_both_cover():
    of = Spans(np.array([0, 6]), np.array([10, 20]))
    # 0 to 6 is of the first alone, 6 to 8 of both; 20 lies in the gap of what is shared.
    assert span_shares(spans([(0, 8), (15, 1)]), of).tolist() == [7.0, 2.0]


@given(SPANS, SPANS)
def test_what_is_shared_adds_up_to_what_any_covers(one: Drawn, other: Drawn):
    some, those = union_of_spans([spans(one)]), spans(other)
    found = span_shares(some, those)
    assert len(found) == len(other)
    expected = [
        sum(
            1 / sum(start <= m < start + size for start, size in other)
            for m in moments(some) & moments(spans([each]))
        )
        for each in other
    ]
    assert found.tolist() == pytest.approx(expected)
