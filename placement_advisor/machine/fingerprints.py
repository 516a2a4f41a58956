"""Which figures compare: those of testbeds with equal fingerprints."""

from __future__ import annotations

import os
from importlib.metadata import version
from itertools import combinations
from typing import TYPE_CHECKING

from placement_advisor.machine.calibration import SCHEMA_VERSION
from placement_advisor.machine.this_machine import digest, fingerprint

if TYPE_CHECKING:
    from placement_advisor.machine.testbed_plan import HostShare, TestbedPlan


def testbed_fingerprint(plan: TestbedPlan) -> str:
    """Return a hash of all that figures of this testbed depend on; others do not compare.

    Raises:
        PackageNotFoundError: there is no TensorFlow.
    """
    devices = (device.name for device in plan.devices)
    hosts = (host.fingerprint for host in plan.hosts)
    link = () if plan.link is None else (plan.link.value,)
    return fingerprint((plan.kind.value, *devices, version("tensorflow"), *hosts, *link))


def calibration_fingerprint(plan: TestbedPlan) -> str:
    """Return the name under which a calibration is kept: the system's scheduler matters to it.

    Of several hosts none is kept as a whole: it is made of parts, which this names together.

    Raises:
        PackageNotFoundError: there is no TensorFlow.
    """
    if plan.hosts:
        routes = (route_fingerprint(plan, *pair) for pair in combinations(plan.hosts, 2))
        return digest((*(host_fingerprint(plan, host) for host in plan.hosts), *routes))
    return fingerprint((testbed_fingerprint(plan), os.uname().release, str(SCHEMA_VERSION)))


def host_fingerprint(plan: TestbedPlan, host: HostShare) -> str:
    """Return the name under which figures of one of several hosts are kept.

    What the first host takes to drive steps depends on this machine too. Names of hosts are no
    part of it: a user may call them whatever he likes.

    Raises:
        PackageNotFoundError: there is no TensorFlow.
    """
    of = ("host", *_of(plan), host.fingerprint, host.address, str(len(host.slots)))
    return fingerprint(of) if host == plan.hosts[0] else digest(of)


def route_fingerprint(plan: TestbedPlan, one: HostShare, other: HostShare) -> str:
    """Return the name under which figures of the ways between two of several hosts are kept.

    Raises:
        PackageNotFoundError: there is no TensorFlow.
    """
    ends = [(h.fingerprint, h.address, f"{len(h.slots) > 1} {h.lends_all}") for h in (one, other)]
    drives = str(one == plan.hosts[0])
    return digest(("route", *_of(plan), *ends[0], *ends[1], drives))


def _of(plan: TestbedPlan) -> tuple[str, ...]:
    return str(plan.link), version("tensorflow"), str(SCHEMA_VERSION)
