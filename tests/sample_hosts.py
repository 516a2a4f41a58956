"""Figures of hosts, written by hand: a of two devices drives the steps, b has one, c two."""

from dataclasses import replace

from sample_calibration import copy, summary_of

from placement_advisor.machine.calibration import AtOnceTiming, BothWaysTiming
from placement_advisor.machine.host_figures import HostFigures, Reach, RouteFigures, Way, over_hosts
from placement_advisor.machine.testbed_plan import HostLink, HostShare, plan_hosts
from placement_advisor.machine.this_machine import core_slots


def share(name, count, *, is_here=False):
    return HostShare(
        name=name,
        address=f"10.0.0.{ord(name) - ord('a') + 1}",
        slots=core_slots(range(count)),
        fingerprint=f"machine {name}",
        is_here=is_here,
    )


A, B, C = share("a", 2, is_here=True), share("b", 1), share("c", 2)
TWO_HOSTS = plan_hosts((A, B), HostLink.TLS)
THREE_HOSTS = plan_hosts((A, B, C), HostLink.TLS)

_NEAR = (copy(1_000, 200_500), copy(1_000_000, 700_000))
WITHIN = Way(
    there=_NEAR,
    back=_NEAR,
    both_ways=BothWaysTiming(size_bytes=524_288, one_way_ns=400_000, both_ways_ns=640_000),
)


def over_network(latency_ns, ns_per_byte):
    return tuple(copy(size, latency_ns + ns_per_byte * size) for size in (1_000, 1_000_000))


# 5 ms each way, 100 MB/s there and half of it back.
WAY = Way(
    there=over_network(5_000_000, 10),
    back=over_network(5_000_000, 20),
    both_ways=BothWaysTiming(size_bytes=65_536, one_way_ns=983_000, both_ways_ns=1_000_000),
)
DRIVEN = Reach(
    partition_overhead_ns=80_000, remote_ns=400_000, quantum_ns=4_000_000, wake_ns=300_000
)
REACHED = Reach(partition_overhead_ns=90_000, remote_ns=10_000_001, quantum_ns=5_000_000, wake_ns=0)

FIRST = HostFigures(
    reference_ns=(250_000, 260_000),
    reference_p90=(1.02, 1.05),
    op_ns=1_100,
    within=WITHIN,
    step_overhead_ns=350_000,
    reach=DRIVEN,
)
_NONE = dict.fromkeys(("within", "step_overhead_ns", "reach"))
ALONE = HostFigures(reference_ns=(300_000,), reference_p90=(1.0,), op_ns=1_300, **_NONE)
_SLOWER = {"reference_ns": (500_000, 500_000), "reference_p90": (1.1, 1.1)}
OTHER = replace(ALONE, **_SLOWER, op_ns=2_200, within=WITHIN)
# What leaves a shares one wire, what leaves b does not.
ROUTE = RouteFigures(
    way=WAY,
    at_once_there=AtOnceTiming(size_bytes=65_536, one_pair_ns=650_000, two_pairs_ns=1_300_000),
    at_once_back=AtOnceTiming(size_bytes=65_536, one_pair_ns=650_000, two_pairs_ns=780_000),
    reach=REACHED,
)
SIDEWAYS = RouteFigures(way=WAY, at_once_there=None, at_once_back=None, reach=None)


def summary_of_hosts():
    """Return what the command would report of the first two hosts."""
    calibration = over_hosts(TWO_HOSTS.hosts, {"a": FIRST, "b": ALONE}, {("a", "b"): ROUTE})
    return replace(
        summary_of(calibration, TWO_HOSTS.devices),
        testbed=TWO_HOSTS.kind.value,
        description=TWO_HOSTS.description,
        kept_in="~/.cache/placement-advisor/calibrations/hosts",
        warnings=TWO_HOSTS.warnings,
        hosts=TWO_HOSTS.hosts,
        link=TWO_HOSTS.link,
    )
