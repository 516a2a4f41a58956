"""What was measured of hosts and of the routes between them, and the files that keep it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations, product
from typing import TYPE_CHECKING, ClassVar, TypeVar

from placement_advisor.files.contract import STRICT, NotNegative, Ns, Rows, read
from placement_advisor.files.untrusted import MisfitError
from placement_advisor.machine import calibration as calibrations

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from placement_advisor.machine.testbed_plan import HostShare, TestbedPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """What a step takes that its first device drives on another one.

    ``partition_overhead_ns`` is of the first device's time, ``remote_ns`` for the start of the
    other and the news of its end, ``quantum_ns`` how long ops keep that from copies, ``wake_ns``
    how much longer copies take to the other when it is asleep.
    """

    partition_overhead_ns: Ns
    remote_ns: Ns
    quantum_ns: Ns
    wake_ns: Ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """Copies between two devices, there and back, and both at once."""

    there: Rows[calibrations.CopyTiming]
    back: Rows[calibrations.CopyTiming]
    both_ways: calibrations.BothWaysTiming


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFigures:
    """What one host takes. ``reference_ns`` and ``reference_p90`` are in the order of its devices.

    ``within`` is between its first two devices, None if it has one. ``step_overhead_ns`` is of
    steps that its first device drives, ``reach`` for its second one; both are None of a host that
    drives none.
    """

    __pydantic_config__: ClassVar = STRICT

    reference_ns: Rows[Ns]
    reference_p90: Rows[NotNegative]
    op_ns: Ns
    within: Way | None
    step_overhead_ns: Ns | None
    reach: Reach | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteFigures:
    """What it takes from one host to another and back, by the first device of each.

    ``at_once_there`` and ``at_once_back`` are copies of two pairs of devices, None if neither host
    has two. ``reach`` is for the other host, None where the one drives no steps.
    """

    __pydantic_config__: ClassVar = STRICT

    way: Way
    at_once_there: calibrations.AtOnceTiming | None
    at_once_back: calibrations.AtOnceTiming | None
    reach: Reach | None


def over_hosts(
    hosts: Sequence[HostShare],
    figures: Mapping[str, HostFigures],
    routes: Mapping[tuple[str, str], RouteFigures],
) -> calibrations.Calibration:
    """Return what a testbed of several hosts takes.

    ``figures`` are by the host's name, ``routes`` by two names, in the order of ``hosts``.
    """
    names = {host.name: host.device_names for host in hosts}
    first, *further = hosts
    links: dict[tuple[str, str], tuple[calibrations.CopyTiming, ...]] = {}
    both_ways: dict[tuple[str, str], calibrations.BothWaysTiming] = {}
    at_once: dict[tuple[str, str], calibrations.AtOnceTiming] = {}
    for host, devices in names.items():
        within = figures[host].within
        if within is None:
            continue
        for i, j in permutations(range(len(devices)), 2):
            links[devices[i], devices[j]] = within.there if i < j else within.back
        both_ways[devices[0], devices[1]] = within.both_ways
    for (one, other), route in routes.items():
        for ends in product(names[one], names[other]):
            links[ends], links[ends[::-1]] = route.way.there, route.way.back
        both_ways[names[one][0], names[other][0]] = route.way.both_ways
        if route.at_once_there is not None and route.at_once_back is not None:
            at_once[one, other], at_once[other, one] = route.at_once_there, route.at_once_back
    far = {host.name: routes[first.name, host.name].reach for host in further}
    near = figures[first.name].reach
    known = next(reach for reach in (near, *far.values()) if reach is not None)
    reference_ns: dict[str, int] = {}
    reference_p90: dict[str, float] = {}
    for host, devices in names.items():
        reference_ns |= zip(devices, figures[host].reference_ns, strict=True)
        reference_p90 |= zip(devices, figures[host].reference_p90, strict=True)
    return calibrations.Calibration(
        links=links,
        both_ways=both_ways,
        step_overhead_ns=figures[first.name].step_overhead_ns or 0,
        partition_overhead_ns=known.partition_overhead_ns,
        remote_ns=0 if near is None else near.remote_ns,
        quantum_ns=known.quantum_ns,
        wake_ns=0 if near is None else near.wake_ns,
        op_ns=figures[first.name].op_ns,
        reference_ns=reference_ns,
        reference_p90=reference_p90,
        network=calibrations.Network(
            devices=names,
            remote_ns={name: reach.remote_ns for name, reach in far.items() if reach is not None},
            at_once=at_once,
        ),
    )


T = TypeVar("T")


def keep_host(figures: HostFigures, plan: TestbedPlan, host: HostShare) -> Path:
    """Keep the figures of a host for runs to come; return their file.

    Raises:
        OSError: the cache directory cannot be written.
    """
    return calibrations.keep(figures, figures_file(calibrations.host_fingerprint(plan, host)))


def keep_route(figures: RouteFigures, plan: TestbedPlan, one: HostShare, other: HostShare) -> Path:
    """Keep the figures of the ways between two hosts for runs to come; return their file.

    Raises:
        OSError: the cache directory cannot be written.
    """
    return calibrations.keep(
        figures, figures_file(calibrations.route_fingerprint(plan, one, other))
    )


def kept_host(plan: TestbedPlan, host: HostShare) -> HostFigures | None:
    """Return the figures of a host that were kept, None if there are none."""
    found = _kept(HostFigures, calibrations.host_fingerprint(plan, host))
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
    found = _kept(RouteFigures, calibrations.route_fingerprint(plan, one, other))
    is_whole = found is not None and (found.reach is not None) == (one == plan.hosts[0])
    return found if is_whole else None


def figures_file(name: str) -> Path:
    """Return where figures of that name are kept."""
    return figures_folder() / f"{name}.json"


def figures_folder() -> Path:
    """Return the folder that keeps figures of hosts."""
    return calibrations.calibrations_folder() / "hosts"


def _kept(kind: type[T], name: str) -> T | None:
    try:
        return read(kind, figures_file(name))
    except MisfitError:
        return None
