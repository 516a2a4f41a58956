"""Files that keep what was measured of hosts and of the ways between them.

Every part is kept by itself, under a fingerprint of what it depends on. A file that cannot be read
is as good as none, since measuring again is cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from placement_advisor.files.contract import read
from placement_advisor.files.foreign_json import MisfitError
from placement_advisor.machine.calibration import calibrations_folder, keep
from placement_advisor.machine.fingerprints import host_fingerprint, route_fingerprint
from placement_advisor.machine.host_figures import HostFigures, RouteFigures

if TYPE_CHECKING:
    from pathlib import Path

    from placement_advisor.machine.testbed_plan import HostShare, TestbedPlan

T = TypeVar("T")


def keep_host(figures: HostFigures, plan: TestbedPlan, host: HostShare) -> Path:
    """Keep the figures of a host for runs to come; return their file.

    Raises:
        OSError: the cache directory cannot be written.
    """
    return keep(figures, figures_file(host_fingerprint(plan, host)))


def keep_route(figures: RouteFigures, plan: TestbedPlan, one: HostShare, other: HostShare) -> Path:
    """Keep the figures of the ways between two hosts for runs to come; return their file.

    Raises:
        OSError: the cache directory cannot be written.
    """
    return keep(figures, figures_file(route_fingerprint(plan, one, other)))


def kept_host(plan: TestbedPlan, host: HostShare) -> HostFigures | None:
    """Return the figures of a host that were kept, None if there are none."""
    found = _kept(HostFigures, host_fingerprint(plan, host))
    has_pair, drives = len(host.slots) > 1, host == plan.hosts[0]
    is_whole = (
        found is not None
        and len(found.reference_ns) == len(found.reference_p90) == len(host.slots)
        and (found.within is not None) == has_pair
        and (found.step_overhead_ns is not None) == drives
        and (found.reach is not None) == (drives and has_pair)
    )
    return found if is_whole else None


def kept_route(plan: TestbedPlan, one: HostShare, other: HostShare) -> RouteFigures | None:
    """Return the figures of the ways between two hosts that were kept, None if there are none."""
    found = _kept(RouteFigures, route_fingerprint(plan, one, other))
    is_whole = found is not None and (found.reach is not None) == (one == plan.hosts[0])
    return found if is_whole else None


def figures_file(name: str) -> Path:
    """Return where figures of that name are kept."""
    return figures_folder() / f"{name}.json"


def figures_folder() -> Path:
    """Return the folder that keeps figures of hosts."""
    return calibrations_folder() / "hosts"


def _kept(kind: type[T], name: str) -> T | None:
    try:
        return read(kind, figures_file(name))
    except MisfitError:
        return None
