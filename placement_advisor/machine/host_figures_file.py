"""Files that keep what was measured of hosts and of the ways between them.

Every part is kept by itself, under a fingerprint of what it depends on. A file that cannot be read
is as good as none, since measuring again is cheap.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from placement_advisor.files.foreign_json import (
    MisfitError,
    as_object,
    check_version,
    content,
    field,
    list_of,
    parse,
)
from placement_advisor.machine.calibration import (
    SCHEMA_VERSION,
    calibrations_folder,
    read_ratio,
)
from placement_advisor.machine.copy_timings import (
    read_at_once,
    read_both_ways,
    read_copies,
    read_time,
)
from placement_advisor.machine.fingerprints import host_fingerprint, route_fingerprint
from placement_advisor.machine.host_figures import HostFigures, Reach, RouteFigures, Way

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from placement_advisor.machine.testbed_plan import HostShare, TestbedPlan

T = TypeVar("T")


def keep_host(figures: HostFigures, plan: TestbedPlan, host: HostShare) -> Path:
    """Keep the figures of a host for runs to come; return their file.

    Raises:
        OSError: the cache directory cannot be written.
    """
    return _keep(figures, host_fingerprint(plan, host))


def keep_route(figures: RouteFigures, plan: TestbedPlan, one: HostShare, other: HostShare) -> Path:
    """Keep the figures of the ways between two hosts for runs to come; return their file.

    Raises:
        OSError: the cache directory cannot be written.
    """
    return _keep(figures, route_fingerprint(plan, one, other))


def kept_host(plan: TestbedPlan, host: HostShare) -> HostFigures | None:
    """Return the figures of a host that were kept, None if there are none."""
    found = _kept(host_fingerprint(plan, host), _host)
    has_pair, drives = len(host.slots) > 1, host == plan.hosts[0]
    is_whole = (
        found is not None
        and len(found.reference_ns) == len(host.slots)
        and (found.within is not None) == has_pair
        and (found.step_overhead_ns is not None) == drives
        and (found.reach is not None) == (drives and has_pair)
    )
    return found if is_whole else None


def kept_route(plan: TestbedPlan, one: HostShare, other: HostShare) -> RouteFigures | None:
    """Return the figures of the ways between two hosts that were kept, None if there are none."""
    found = _kept(route_fingerprint(plan, one, other), _route)
    is_whole = found is not None and (found.reach is not None) == (one == plan.hosts[0])
    return found if is_whole else None


def figures_file(name: str) -> Path:
    """Return where figures of that name are kept."""
    return figures_folder() / f"{name}.json"


def figures_folder() -> Path:
    """Return the folder that keeps figures of hosts."""
    return calibrations_folder() / "hosts"


def _keep(figures: HostFigures | RouteFigures, name: str) -> Path:
    path = figures_file(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {"schema_version": SCHEMA_VERSION, **asdict(figures)}
    partly = path.with_suffix(f".{os.getpid()}")
    partly.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    partly.replace(path)
    return path


def _host(value: object) -> HostFigures:
    document = as_object(value)
    reference_ns = field(document, "reference_ns", partial(list_of, read_time))
    reference_p90 = field(document, "reference_p90", partial(list_of, read_ratio))
    if not reference_ns or len(reference_ns) != len(reference_p90):
        raise MisfitError("the figures are of different devices")
    return HostFigures(
        reference_ns=reference_ns,
        reference_p90=reference_p90,
        op_ns=field(document, "op_ns", read_time),
        within=field(document, "within", partial(_or_none, _way)),
        step_overhead_ns=field(document, "step_overhead_ns", partial(_or_none, read_time)),
        reach=field(document, "reach", partial(_or_none, _reach)),
    )


def _route(value: object) -> RouteFigures:
    document = as_object(value)
    return RouteFigures(
        way=field(document, "way", _way),
        at_once_there=field(document, "at_once_there", partial(_or_none, read_at_once)),
        at_once_back=field(document, "at_once_back", partial(_or_none, read_at_once)),
        reach=field(document, "reach", partial(_or_none, _reach)),
    )


def _kept(name: str, read: Callable[[object], T]) -> T | None:
    try:
        document = as_object(parse(content(figures_file(name))))
        check_version(document, SCHEMA_VERSION)
        return read(document)
    except MisfitError:
        return None


def _way(value: object) -> Way:
    way = as_object(value)
    return Way(
        there=field(way, "there", read_copies),
        back=field(way, "back", read_copies),
        both_ways=field(way, "both_ways", read_both_ways),
    )


def _reach(value: object) -> Reach:
    reach = as_object(value)
    return Reach(
        partition_overhead_ns=field(reach, "partition_overhead_ns", read_time),
        remote_ns=field(reach, "remote_ns", read_time),
        quantum_ns=field(reach, "quantum_ns", read_time),
        wake_ns=field(reach, "wake_ns", read_time),
    )


def _or_none(read: Callable[[object], T], value: object) -> T | None:
    return None if value is None else read(value)
