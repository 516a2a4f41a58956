"""What `advisor doctor --hosts` found as the public contract of ``advisor doctor --hosts --json``.

Times are integer nanoseconds, sizes integer bytes. Null means not known, or does not apply.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from placement_advisor import __version__
from placement_advisor.analysis.host_checks import (
    all_checks,
    between_checks,
    host_checks,
    next_step,
)
from placement_advisor.report.doctor_json import check_as_json

if TYPE_CHECKING:
    from placement_advisor.analysis.examine_hosts import HostExamined, HostsExamined

SCHEMA_VERSION = 1
_VERSIONS = ("advisor", "tensorflow", "python")


def hosts_as_json(found: HostsExamined) -> dict[str, Any]:
    """Return the content, valid against ``load_schema("hosts")``."""
    return {
        "schema_version": SCHEMA_VERSION,
        "advisor_version": __version__,
        "can_analyze": not any(check.blocks for check in all_checks(found)),
        "next": next_step(found),
        "link": found.link.value,
        "hosts": [
            {
                **_host(host),
                "checks": [check_as_json(check) for check in host_checks(host, found.link)],
            }
            for host in found.hosts
        ],
        "ways": [
            {
                "source": way.source,
                "target": way.target,
                "small_ns": way.tried.small_ns,
                "large_passes": way.tried.large_passes,
            }
            for way in found.ways
        ],
        "checks": [check_as_json(check) for check in between_checks(found)],
    }


def _host(host: HostExamined) -> dict[str, Any]:
    facts, clock, place = host.facts, host.clock, host.place
    return {
        "name": host.request.name,
        "devices": host.request.devices,
        "address": host.address,
        "port": host.request.port,
        "answered_ns": host.answered_ns,
        "versions": _versions(host.versions),
        "cores": None if facts is None else len(facts.cores),
        "available_memory_bytes": None if facts is None else facts.available_memory_bytes,
        "load": None if place is None else place.load,
        "clock": None
        if clock is None
        else {"offset_ns": clock.offset_ns, "uncertainty_ns": clock.uncertainty_ns},
        "interface": None if place is None else place.interface,
        "mtu_bytes": None if place is None else place.mtu_bytes,
        "private_network": None if place is None else place.has_private_network,
    }


def _versions(told: object) -> dict[str, str | None] | None:
    """Return what a host said of itself, which may be of any version and say anything."""
    if not isinstance(told, dict):
        return None
    found = {name: told.get(name) for name in _VERSIONS}
    return {name: value if isinstance(value, str) else None for name, value in found.items()}
