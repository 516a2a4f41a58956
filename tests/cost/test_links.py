from itertools import permutations

import pytest

from placement_advisor.cost.links import (
    ASSUMED_LATENCY_NS,
    MAX_BANDWIDTH_BYTES_PER_S,
    assumed_cluster,
    fit_link,
)
from placement_advisor.errors import TestbedError
from placement_advisor.machine.devices import Basis


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
