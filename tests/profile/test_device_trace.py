"""Spans as arrays against spans as sets of moments, and every spelling of a copy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement_advisor.profile.copy_names import CopyKind, copied_bytes, copy_kind, destination
from placement_advisor.profile.device_trace import (
    Spans,
    span_shares,
    spans_length,
    spans_length_before,
    spans_outside,
    union_of_spans,
)

SPANS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 8)), max_size=8)


def spans(drawn):
    starts = np.array([start for start, _ in drawn], np.int64)
    return Spans(starts, starts + np.array([size for _, size in drawn], np.int64))


def moments(some):
    return {
        moment
        for start, end in zip(some.start.tolist(), some.end.tolist(), strict=True)
        for moment in range(start, end)
    }


def is_disjoint(some):
    return bool((some.end > some.start).all() and (some.start[1:] > some.end[:-1]).all())


@given(SPANS, SPANS)
def test_a_union_covers_what_any_covers_once(one, other):
    found = union_of_spans([spans(one), spans(other)])
    assert is_disjoint(found)
    assert moments(found) == moments(spans(one)) | moments(spans(other))
    assert spans_length(found) == len(moments(found))


@given(SPANS, SPANS)
def test_outside_is_what_the_cover_leaves(one, other):
    some, cover = union_of_spans([spans(one)]), union_of_spans([spans(other)])
    found = spans_outside(some, cover)
    assert is_disjoint(found)
    assert moments(found) == moments(some) - moments(cover)


@given(SPANS, st.lists(st.integers(-3, 50), max_size=6))
def test_lengths_before_moments(drawn, wanted):
    some = union_of_spans([spans(drawn)])
    found = spans_length_before(some, np.array(wanted, np.int64))
    assert found.tolist() == [sum(m < w for m in moments(some)) for w in wanted]


@given(SPANS, SPANS)
def test_what_is_shared_adds_up_to_what_any_covers(one, other):
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


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("MemcpyP2P", CopyKind.PEER),
        ("MEMCPYPtoP", CopyKind.PEER),
        ("Memcpy PtoP (Device -> Device)", CopyKind.PEER),
        ("[CUDA memcpy PtoP]", CopyKind.PEER),
        ("[CUDA memcpy Peer-to-Peer]", CopyKind.PEER),
        ("MemcpyH2D", CopyKind.HOST_TO_DEVICE),
        ("Memcpy HtoD (Pageable -> Device)", CopyKind.HOST_TO_DEVICE),
        ("CopyHostToDevice", CopyKind.HOST_TO_DEVICE),
        ("MemcpyD2H", CopyKind.DEVICE_TO_HOST),
        ("CopyDeviceToHost", CopyKind.DEVICE_TO_HOST),
        ("MemcpyD2D", CopyKind.DEVICE_TO_DEVICE),
        ("MEMCPYHToH", CopyKind.HOST_TO_HOST),
        ("ncclKernel_AllReduce_RING_LL_Sum_float", CopyKind.COLLECTIVE),
        ("MemcpyOther", CopyKind.UNCLASSIFIED),
        ("[CUDA memcpy HtoA]", CopyKind.UNCLASSIFIED),
        ("__amd_rocclr_copyBuffer.kd", CopyKind.UNCLASSIFIED),
        ("volta_sgemm_128x64_nn", None),
        ("Memset", None),
        ("void tensorflow::CopyKernel<float>(float*)", None),
    ],
)
def test_copies_are_known_by_all_their_names(name, kind):
    assert copy_kind(name) is kind


@pytest.mark.parametrize(
    ("details", "size_bytes", "target"),
    [
        ("kind_src:device kind_dst:device size:4096 dest:1 async:1", 4096, 1),
        ("kind:pageable size:8 dest:0 async:1", 8, 0),
        ("size:16 dest:3 async:0", 16, 3),
        ("kind:Unknown size:32", 32, None),
        ("num_bytes:64", 64, None),
        ("oversize:5 nodest:2", None, None),
        ("", None, None),
        # A number beyond what any copy has is none.
        (f"size:{2**53} dest:1", 2**53, 1),
        (f"size:{2**53 + 1} dest:{2**53 + 1}", None, None),
    ],
)
def test_bytes_and_destination_are_read_from_all_details(details, size_bytes, target):
    assert (copied_bytes(details), destination(details)) == (size_bytes, target)
