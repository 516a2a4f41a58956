from dataclasses import replace

import pytest
from placed_steps import wired
from sample_calibration import DEVICES, W0, W1, WORKERS
from sample_hosts import ALONE, DRIVEN, FIRST, ROUTE, TWO_HOSTS

from placement_advisor.cost.links import calibrated_cluster
from placement_advisor.machine.calibration import AtOnceTiming, BothWaysTiming, CopyTiming
from placement_advisor.machine.devices import NO_COPY_WORK
from placement_advisor.machine.host_figures import over_hosts


def calibrated(*timings):
    """Return the first link of two workers, of which only these copies were measured."""
    calibration = replace(WORKERS, links={(W0, W1): timings}, both_ways={})
    return calibrated_cluster(DEVICES, calibration).link(W0, W1)


def test_a_copy_of_a_size_that_was_measured_takes_what_was_measured():
    times_ns = {1_000: 170_000, 64_000: 160_000, 4_000_000: 2_000_000, 64_000_000: 40_000_000}
    timings = tuple(
        CopyTiming(size_bytes=size, copy_ns=time_ns, send_ns=1, receive_ns=1)
        for size, time_ns in times_ns.items()
    )
    lost = CopyTiming(size_bytes=500_000, copy_ns=-5, send_ns=1, receive_ns=1)
    link = calibrated(*timings, lost)
    # No copy is faster than one that is smaller.
    times_ns[64_000] = 170_000
    assert {size: link.transfer_ns(size) for size in times_ns} == times_ns


def test_an_end_whose_core_was_never_seen_to_work_has_no_copy_work():
    link = calibrated(
        CopyTiming(size_bytes=1_000, copy_ns=5_000, send_ns=60, receive_ns=None),
        CopyTiming(size_bytes=3_000, copy_ns=9_000, send_ns=80, receive_ns=None),
    )
    # 50 ns and 0.01 ns a byte.
    assert link.sender.time_ns(2_000) == 70
    assert link.receiver == NO_COPY_WORK


def over_network(**changes):
    """Return the cluster of two hosts, of which copies of two pairs at once are not known."""
    route = replace(ROUTE, **{"at_once_there": None, "at_once_back": None} | changes)
    calibration = over_hosts(TWO_HOSTS.hosts, {"a": FIRST, "b": ALONE}, {("a", "b"): route})
    return calibrated_cluster(TWO_HOSTS.devices, calibration)


def test_devices_of_other_hosts_begin_and_are_asked_by_messages_and_share_a_wire():
    cluster = over_network()
    # One of the first host takes 400 µs to start and to be heard of, one of the other 10 ms.
    reached = [
        (d.name, cluster.remote_start_ns(d), cluster.remote_end_ns(d)) for d in cluster.devices
    ]
    assert reached[1:] == [("a:1", 200_000, 200_000), ("b:0", 5_000_000, 5_000_000)]

    there, near = cluster.link("a:1", "b:0"), cluster.link("a:0", "a:1")
    assert there.latency_ns == pytest.approx(5_000_000, rel=1e-3)
    assert there.request_ns == cluster.link("b:0", "a:1").latency_ns
    assert there.channel == cluster.link("a:0", "b:0").channel is not None
    assert there.channel != cluster.link("b:0", "a:0").channel
    assert (near.request_ns, near.channel) == (0, None)
    # Copies between hosts were measured between ends that sleep.
    assert (near.wake_ns, there.wake_ns) == (DRIVEN.wake_ns, 0)


@pytest.mark.parametrize(("one_way_ns", "expected"), [(250_000, 4e9), (-1, None), (0, None)])
def test_copies_that_follow_each_other_between_hosts_go_as_fast_as_many_did(one_way_ns, expected):
    both_ways = BothWaysTiming(size_bytes=1_000_000, one_way_ns=one_way_ns, both_ways_ns=1)
    cluster = over_network(way=replace(ROUTE.way, both_ways=both_ways))
    assert cluster.link("a:1", "b:0").stream_bytes_per_s == expected
    assert cluster.link("b:0", "a:1").stream_bytes_per_s == expected
    # Within a host copies are mostly work.
    assert cluster.link("a:0", "a:1").stream_bytes_per_s is None


def test_pairs_that_do_not_hinder_each_other_have_wires_of_their_own():
    free = AtOnceTiming(size_bytes=1, one_pair_ns=100, two_pairs_ns=140)
    taken = AtOnceTiming(size_bytes=1, one_pair_ns=100, two_pairs_ns=160)
    hidden = AtOnceTiming(size_bytes=1, one_pair_ns=-100, two_pairs_ns=160)
    cluster = over_network(at_once_there=free, at_once_back=taken)
    assert cluster.link("a:0", "b:0").channel is None
    assert cluster.link("b:0", "a:0").channel is not None
    cluster = over_network(at_once_there=hidden, at_once_back=free)
    assert cluster.link("a:0", "b:0").channel is not None


def test_a_step_over_two_hosts_waits_for_messages_by_hand():
    cluster = over_network()
    link = cluster.link("a:0", "b:0")
    step = wired({"x": ("a:0", 1_000, 1_000), "y": ("b:0", 1_000)}, "x -> y", cluster)
    (copy,) = step.simulate().transfers
    # b begins after 5 ms; its request is another 5 ms on its way, and so is the tensor.
    assert copy.start_ns == 5_000_000 + link.latency_ns
    assert copy.end_ns == copy.start_ns + link.transfer_ns(1_000)
