from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement_advisor.cost.links import (
    ASSUMED_LATENCY_NS,
    MAX_BANDWIDTH_BYTES_PER_S,
    assumed_cluster,
    fit_link,
)
from placement_advisor.errors import TestbedError
from placement_advisor.machine.devices import Basis


def residuals(link, samples):
    return [link.transfer_ns(size_bytes) / time_ns - 1 for size_bytes, time_ns in samples]


def test_two_samples_give_the_line_through_both_by_hand():
    # 100 ns and then 2 ns per byte, that is 0.5 GB/s.
    link = fit_link("a", "b", [(0, 100), (1_000, 2_100)])
    assert (link.source, link.target, link.basis) == ("a", "b", Basis.MEASURED)
    assert link.latency_ns == 100
    assert link.bandwidth_bytes_per_s == pytest.approx(0.5e9)


def test_no_fit_has_a_negative_latency_or_an_endless_bandwidth():
    # The exact line is 3 ns per byte, minus 100 ns.
    samples = [(100, 200), (1_000, 2_900)]
    link = fit_link("a", "b", samples)
    assert link.latency_ns == 0
    assert 2.0 <= 1e9 / link.bandwidth_bytes_per_s <= 2.9

    link = fit_link("a", "b", [(100, 2_000), (10_000, 1_000)])
    assert link.bandwidth_bytes_per_s == pytest.approx(MAX_BANDWIDTH_BYTES_PER_S)
    assert 1_000 <= link.latency_ns <= 2_000


@pytest.mark.parametrize("samples", [[], [(100, 5)], [(100, 5), (100, 7)], [(100, 5), (200, 0)]])
def test_fewer_than_two_usable_sizes_are_refused(samples):
    with pytest.raises(TestbedError, match="a → b"):
        fit_link("a", "b", samples)


@given(
    latency_ns=st.integers(1_000, 10**6),
    ns_per_kb=st.integers(10, 10**6),
    sizes=st.lists(st.integers(0, 2**24), min_size=2, max_size=8, unique=True),
)
def test_samples_on_a_line_give_that_line_back(latency_ns, ns_per_kb, sizes):
    samples = [(size, latency_ns + size * ns_per_kb // 1_000) for size in sizes]
    link = fit_link("a", "b", samples)
    # Times are whole ns, at least 1000 of them.
    assert all(abs(residual) < 0.003 for residual in residuals(link, samples))


@given(
    st.lists(
        st.tuples(st.integers(0, 2**30), st.integers(1, 10**10)),
        min_size=2,
        max_size=12,
        unique_by=lambda sample: sample[0],
    )
)
def test_any_fit_has_a_latency_and_a_bandwidth_that_can_be(samples):
    link = fit_link("a", "b", samples)
    assert link.latency_ns >= 0
    assert 0 < link.bandwidth_bytes_per_s <= MAX_BANDWIDTH_BYTES_PER_S * 1.000001


@given(
    st.lists(
        st.tuples(st.integers(0, 10**7), st.integers(1_000, 10**8)),
        min_size=3,
        max_size=8,
        unique_by=lambda sample: sample[0],
    ),
    st.sampled_from([0.5, 0.9, 1.1, 2.0]),
    st.sampled_from([0.5, 0.9, 1.1, 2.0]),
)
def test_no_other_allowed_line_has_smaller_squared_relative_errors(
    samples, latency_factor, slope_factor
):
    link = fit_link("a", "b", samples)
    slope = 1e9 / link.bandwidth_bytes_per_s

    def error(latency_ns, ns_per_byte):
        return sum(((latency_ns + ns_per_byte * size) / time - 1) ** 2 for size, time in samples)

    least_slope = 1e9 / MAX_BANDWIDTH_BYTES_PER_S
    other = error(link.latency_ns * latency_factor, max(slope * slope_factor, least_slope))
    # The latency is rounded to whole ns of at least 1000.
    assert error(link.latency_ns, slope) <= other + 0.01


def test_assumed_workers_are_linked_both_ways_and_say_that_they_are_assumed():
    cluster = assumed_cluster(3)
    names = cluster.device_names()
    assert names == ("worker:0", "worker:1", "worker:2")
    assert {(link.source, link.target) for link in cluster.links} == set(permutations(names, 2))
    assert {link.basis for link in cluster.links} == {Basis.ASSUMED}
    assert cluster.link("worker:0", "worker:2").transfer_ns(0) == ASSUMED_LATENCY_NS
    # Between idle ends the work of each is part of what the copy takes, whatever its size.
    for size_bytes in (0, 10**3, 10**6, 10**9):
        for link in cluster.links:
            for end in (link.sender, link.receiver):
                assert 0 < end.time_ns(size_bytes) <= link.transfer_ns(size_bytes)

    link = assumed_cluster(2).link("worker:0", "worker:1")
    # 0.15 ms, then 21 MB at 2.1 GB/s; of that 0.06 ms and 0.35 ns a byte for the core of each end.
    assert link.transfer_ns(21_000_000) == 150_000 + 10_000_000
    for end in (link.sender, link.receiver):
        assert end.time_ns(20_000_000) == 60_000 + 7_000_000
