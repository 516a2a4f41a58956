"""How hosts are measured: on known networks, and two local workers that stand for hosts."""

import os
import time

import pytest
from real_runs import needs_workers

from placement_advisor.machine.testbed_plan import TestbedKind, plan_testbed
from placement_advisor.processes.calls import RemoteModule
from placement_advisor.testbed.testbed import Testbed
from placement_advisor.tf.calls import runner

measured_hosts = RemoteModule("measured_hosts")
# ns for each byte.
_TEN_GBIT, _GBIT, _TEN_MBIT, _MODEM = 0.84, 8.4, 840.0, 84_000.0


def test_sizes_are_measured_until_they_take_too_long_but_two_at_least(loader):
    sizes = [size for size, _ in loader.call(measured_hosts.sizes_measured, 300_000, _TEN_GBIT)]
    assert sizes == [1 << 10, 1 << 16, 1 << 19, 1 << 22, 1 << 24, 1 << 26]
    # At a gigabit 64 MB would take 0.56 s, at ten megabits 4 MB would take 3.5 s.
    assert loader.call(measured_hosts.sizes_measured, 300_000, _GBIT)[-1][0] == 1 << 24
    assert loader.call(measured_hosts.sizes_measured, 300_000, _TEN_MBIT)[-1][0] == 1 << 19
    sizes = [size for size, _ in loader.call(measured_hosts.sizes_measured, 300_000_000, _MODEM)]
    assert sizes == [1 << 10, 1 << 16]


@pytest.mark.parametrize("one_way_ns", [100_000, 5_000_000, 100_000_000])
@pytest.mark.parametrize("ns_per_byte", [_TEN_GBIT, _GBIT, _TEN_MBIT])
def test_a_pass_one_way_takes_less_than_half_a_minute(loader, one_way_ns, ns_per_byte):
    whole_ns = 0.0
    for size_bytes, effort in loader.call(measured_hosts.sizes_measured, one_way_ns, ns_per_byte):
        steps = 2 + effort.rounds * (1 + effort.steps)
        fans = effort.copies or ()
        # A step that reaches a far device takes four messages, a round trip two for each.
        whole_ns += steps * 4 * one_way_ns * (2 + len(fans))
        whole_ns += steps * sum(effort.hops) * (2 * one_way_ns + ns_per_byte * size_bytes)
        whole_ns += steps * sum(fans) * ns_per_byte * size_bytes
    assert whole_ns < 30e9 + 500 * one_way_ns


def test_there_are_as_many_passes_as_there_is_time_for(loader):
    made = [loader.call(measured_hosts.passes_made, s) for s in (1.0, 6.0, 9.0, 11.0, 100.0)]
    assert made == [3, 3, 2, 1, 1]


def test_two_pairs_share_no_device_where_that_can_be(loader):
    assert loader.call(measured_hosts.second_pair, 1, 1) is None
    assert loader.call(measured_hosts.second_pair, 2, 1) == ("a:1", "b:0")
    assert loader.call(measured_hosts.second_pair, 1, 3) == ("a:0", "b:1")
    assert loader.call(measured_hosts.second_pair, 2, 2) == ("a:1", "b:1")


def test_an_op_reads_the_processor_time_of_its_process_and_of_what_carries_its_copies(loader):
    before_ns, read_ns, after_ns = loader.call(measured_hosts.own_reading, ())
    assert before_ns <= read_ns <= after_ns
    own_ns = time.process_time_ns()
    before_ns, read_ns, after_ns = loader.call(measured_hosts.own_reading, (os.getpid(),))
    assert own_ns < before_ns <= read_ns <= after_ns


@pytest.mark.slow
@needs_workers
def test_workers_are_measured_as_hosts(tmp_path):
    testbed = Testbed(plan_testbed(TestbedKind.WORKERS, 2), scratch=tmp_path)
    testbed.start()
    try:
        clocks, names = testbed.core_clocks, ("worker:0", "worker:1")
        assert set(clocks) == set(names)

        host = testbed.call(runner.calibrate_host, names, clocks, True)
        assert len(host.reference_ns) == len(host.reference_p90) == 2
        assert host.step_overhead_ns > 0
        assert host.within.there[-1].copy_ns > host.within.there[0].copy_ns

        route = testbed.call(runner.calibrate_route, names[:1], names[1:], clocks, True)
        for copies in (route.way.there, route.way.back):
            assert copies[-1].copy_ns > copies[0].copy_ns > 0
            assert copies[-1].size_bytes > copies[0].size_bytes
            assert copies[0].send_ns > 0
        assert route.at_once_there is None
        assert route.reach.remote_ns > 0
    finally:
        testbed.close()
