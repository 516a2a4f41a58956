"""Hosts as an examination may find them, written by hand."""

from placement_advisor.analysis.doctor_hosts import HostExamined, HostsExamined, RouteResult
from placement_advisor.analysis.hosts import HostRequest
from placement_advisor.machine.clock_range import ClockRange
from placement_advisor.machine.nvidia import Gpus
from placement_advisor.machine.testbed_plan import HostLink
from placement_advisor.machine.this_machine import OtherWork
from placement_advisor.remote_hosts import host_facts


def host(name, number):
    """Return one in order, with two cores for two devices."""
    return HostExamined(
        request=HostRequest(name=name, devices=2),
        address=f"10.0.0.{number}",
        way=f"ssh {name} advisor worker --stdio",
        versions=host_facts.own_versions(),
        answered_ns=1_200_000_000,
        facts=host_facts.HostFacts(
            host_name=name,
            cores=(0, 1),
            visible_gpus=0,
            gpus=Gpus(),
            available_memory_bytes=8_000_000_000,
            fingerprint="0" * 16,
        ),
        clock=ClockRange(low_ns=150_000, high_ns=250_000),
        place=host_facts.NetworkPlace(
            interface="eth0", mtu_bytes=1_500, load=OtherWork(cores=0.25), has_private_network=True
        ),
    )


def two_hosts():
    """Return two that fit, 0.3 ms apart."""
    tried = host_facts.WayTried(small_ns=300_000, large_passes=True)
    return HostsExamined(
        link=HostLink.TLS,
        hosts=(host("a", 1), host("b", 2)),
        ways=(
            RouteResult(source="a", target="b", tried=tried),
            RouteResult(source="b", target="a", tried=tried),
        ),
    )
