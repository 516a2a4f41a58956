"""Costs of collectives, from times that are made of known ones."""

import pytest
from placed_steps import pair

from placement_advisor.cost.collectives import CollectiveTimes, fit_collectives
from placement_advisor.machine.devices import CopyWork, Dispatch

SIZES = (4_096, 262_144, 2_097_152)


def times_of(launch_ns, hop_ns, ns_per_byte, replicas):
    def points(hops):
        return [(n, launch_ns + hops * hop_ns + ns_per_byte * n) for n in SIZES]

    return fit_collectives(
        points(2 * (replicas - 1)), points(replicas - 1), replicas=replicas, call_ns=800_000.4
    )


@pytest.mark.parametrize("replicas", [2, 3, 8])
def test_the_parts_of_a_collective_are_told_apart(replicas):
    found = times_of(900_000, 150_000, 1.8, replicas)
    assert found.launch_ns == pytest.approx(900_000, rel=1e-6)
    assert found.hop_ns == pytest.approx(150_000, rel=1e-6)
    assert found.ns_per_byte == pytest.approx(1.8)
    assert found.call_ns == 800_000


def test_gathers_that_seem_to_take_longer_than_reductions_leave_no_part_negative():
    found = fit_collectives(
        [(n, 500_000 + n) for n in SIZES], [(n, 700_000 + n) for n in SIZES], replicas=2, call_ns=0
    )
    assert found.hop_ns == 0
    assert found.launch_ns == pytest.approx(700_000, rel=1e-6)


def test_replicas_use_links_for_collectives_alone_and_start_by_themselves():
    work = CopyWork(per_copy_ns=5)
    dispatch = Dispatch(remote_start_ns=9)
    there = pair(latency_ns=1, channel="bus", work=work, dispatch=dispatch)
    times = CollectiveTimes(call_ns=3, launch_ns=4, hop_ns=2_000, ns_per_byte=0.5)
    found = times.on(there)
    for link in found.links:
        assert link.transfer_ns(1_000) == 2_000 + 500
        assert (link.sender, link.receiver, link.channel) == (CopyWork(), CopyWork(), "bus")
    assert found.dispatch == Dispatch(step_overhead_ns=3)
