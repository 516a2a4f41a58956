"""Spans as arrays against spans as sets of moments."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from placement_advisor.profile.spans import NO_SPANS, Spans, length, length_before, outside, union

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
    found = union([spans(one), spans(other)])
    assert is_disjoint(found)
    assert moments(found) == moments(spans(one)) | moments(spans(other))
    assert length(found) == len(moments(found))


@given(SPANS, SPANS)
def test_outside_is_what_the_cover_leaves(one: Drawn, other: Drawn):
    some, cover = union([spans(one)]), union([spans(other)])
    found = outside(some, cover)
    assert is_disjoint(found)
    assert moments(found) == moments(some) - moments(cover)


@given(SPANS, st.lists(st.integers(-3, 50), max_size=6))
def test_lengths_before_moments(drawn: Drawn, wanted: list[int]):
    some = union([spans(drawn)])
    found = length_before(some, np.array(wanted, np.int64))
    assert found.tolist() == [sum(m < w for m in moments(some)) for w in wanted]


def test_nothing_has_no_length():
    assert union([]) == NO_SPANS
    assert length(outside(NO_SPANS, NO_SPANS)) == 0
