"""What was measured of hosts and of the ways between them, and a testbed put together from it.

Model: devices of one host are alike towards others, so that the way from one host to another is
measured between the first device of each, and within a host between its first two.

Left out: that devices of one host may differ towards others, such as those of two sockets with a
network card each.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations, product
from typing import TYPE_CHECKING, ClassVar

from placement_advisor.files.contract import STRICT, NotNegative, Ns, Rows
from placement_advisor.machine.calibration import Calibration, Network
from placement_advisor.machine.copy_timings import AtOnceTiming, BothWaysTiming, CopyTiming

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from placement_advisor.machine.testbed_plan import HostShare


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

    there: Rows[CopyTiming]
    back: Rows[CopyTiming]
    both_ways: BothWaysTiming


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
    at_once_there: AtOnceTiming | None
    at_once_back: AtOnceTiming | None
    reach: Reach | None


def over_hosts(
    hosts: Sequence[HostShare],
    figures: Mapping[str, HostFigures],
    routes: Mapping[tuple[str, str], RouteFigures],
) -> Calibration:
    """Return what a testbed of several hosts takes.

    ``figures`` are by the host's name, ``routes`` by two names, in the order of ``hosts``.
    """
    names = {host.name: host.device_names for host in hosts}
    first, *further = hosts
    links: dict[tuple[str, str], tuple[CopyTiming, ...]] = {}
    both_ways: dict[tuple[str, str], BothWaysTiming] = {}
    at_once: dict[tuple[str, str], AtOnceTiming] = {}
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
    return Calibration(
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
        network=Network(
            devices=names,
            remote_ns={name: reach.remote_ns for name, reach in far.items() if reach is not None},
            at_once=at_once,
        ),
    )
