"""Lines through what was measured, and links that have such lines or are assumed."""

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement_advisor.cost.lines import relative_line
from placement_advisor.cost.links import (
    ASSUMED_LATENCY_NS,
    MAX_BANDWIDTH_BYTES_PER_S,
    assumed_cluster,
    fit_link,
)
from placement_advisor.errors import TestbedError
from placement_advisor.machine.devices import Basis


@pytest.mark.parametrize("points", [[], [(0, 5.0), (10, 0.0)], [(0, -1.0), (10, 25.0)]])
def test_a_line_needs_points_and_each_of_them_a_positive_time(points):
    with pytest.raises(ValueError, match="positive times"):
        relative_line(points)


SIZES = st.integers(0, 2**24)
FACTORS = st.sampled_from([0.5, 0.9, 1.1, 2.0])
LEAST = 1e-3


@given(st.floats(1, 1e6), st.floats(0, 1e3), st.lists(SIZES, min_size=2, max_size=8, unique=True))
def test_points_on_a_line_give_that_line_back(fixed, slope, sizes):
    points = [(size, fixed + slope * size) for size in sizes]
    found_fixed, found_slope = relative_line(points)
    for size, time in points:
        assert found_fixed + found_slope * size == pytest.approx(time, rel=1e-6)


@given(st.dictionaries(SIZES, st.integers(1, 10**10), min_size=2, max_size=12), FACTORS, FACTORS)
def test_no_part_is_below_its_least_and_no_other_line_has_smaller_errors(times, of_fixed, of_slope):
    points = list(times.items())

    def error(fixed, slope):
        return sum(((fixed + slope * size) / time - 1) ** 2 for size, time in points)

    fixed, slope = relative_line(points, least_slope=LEAST)
    assert fixed >= 0
    assert slope >= LEAST
    other = error(fixed * of_fixed, max(slope * of_slope, LEAST))
    assert error(fixed, slope) <= other * (1 + 1e-6) + 1e-6


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
