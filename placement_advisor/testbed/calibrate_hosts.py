"""What a testbed of several hosts takes: what is kept of it, and the rest measured and kept.

Hosts are measured one by one, and the ways between every two of them: that is what is kept, so
that a further host costs no more than itself and its ways.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING

from placement_advisor.cost.links import fit_link
from placement_advisor.errors import TestbedError
from placement_advisor.machine.calibration import UNSTEADY_P90
from placement_advisor.machine.host_figures import over_hosts
from placement_advisor.machine.host_figures_file import (
    keep_host,
    keep_route,
    kept_host,
    kept_route,
)
from placement_advisor.processes.call_failure import expect
from placement_advisor.tf.calls import runner

if TYPE_CHECKING:
    from placement_advisor.machine.calibration import Calibration
    from placement_advisor.machine.host_figures import HostFigures, RouteFigures, Way
    from placement_advisor.machine.testbed_plan import HostShare, TestbedPlan
    from placement_advisor.processes.call_failure import CallFailure
    from placement_advisor.testbed.testbed import Testbed
    from placement_advisor.testbed.trial import Watcher

# Each takes half a minute, and a few minutes over the slowest network; anything near is a hang.
_LIMIT_S = 900.0
# Of the sizes that were measured the largest that is copied in that time tells most, soon.
_PROBED_NS = 50_000_000
# Judgement: what a few copies take is uncertain by less, and predictions are in doubt by as much.
_CHANGED = 1.5
# What copies between busy cores wander by.
_NOISE_NS = 500_000


def calibrated_hosts(testbed: Testbed, watcher: Watcher, *, anew: bool) -> Calibration:
    """Return the calibration of a running testbed of hosts; the first of them drives its steps.

    Raises:
        TestbedError: measuring failed.
    """
    plan = testbed.plan
    pairs = list(combinations(plan.hosts, 2))
    total = len(plan.hosts) + len(pairs)
    figures: dict[str, HostFigures] = {}
    for host in plan.hosts:
        kept = None if anew else kept_host(plan, host)
        if kept is None:
            watcher.working(f"calibrating {host.name}", len(figures), total)
            kept = _measure_host(testbed, host)
        figures[host.name] = kept
    routes: dict[tuple[str, str], RouteFigures] = {}
    for one, other in pairs:
        known = None if anew else kept_route(plan, one, other)
        if known is None or not _still_holds(testbed, one, other, known.way):
            what = f"calibrating {one.name} ↔ {other.name}"
            watcher.working(what, len(figures) + len(routes), total)
            known = _measure_route(testbed, one, other)
        routes[one.name, other.name] = known
    return over_hosts(plan.hosts, figures, routes)


def are_calibrated(plan: TestbedPlan) -> bool:
    """Whether all that such a testbed takes is kept."""
    return all(kept_host(plan, host) for host in plan.hosts) and all(
        kept_route(plan, *pair) for pair in combinations(plan.hosts, 2)
    )


def _measure_host(testbed: Testbed, host: HostShare) -> HostFigures:
    drives = host == testbed.plan.hosts[0]
    answer = testbed.call(
        runner.calibrate_host,
        host.device_names,
        testbed.core_clocks,
        drives,
        time_limit_s=_LIMIT_S,
    )
    found = expect(answer, partial(_not_calibrated, host.name))
    if found.within is not None:
        _check(found.within, *host.device_names[:2])
    if max(found.reference_p90) < UNSTEADY_P90:
        with suppress(OSError):  # Without a cache it is measured again next time.
            keep_host(found, testbed.plan, host)
    return found


def _measure_route(testbed: Testbed, one: HostShare, other: HostShare) -> RouteFigures:
    drives = one == testbed.plan.hosts[0]
    answer = testbed.call(
        runner.calibrate_route,
        one.device_names,
        other.device_names,
        testbed.core_clocks,
        drives,
        time_limit_s=_LIMIT_S,
    )
    found = expect(answer, partial(_not_calibrated, f"{one.name} ↔ {other.name}"))
    _check(found.way, one.name, other.name)
    with suppress(OSError):
        keep_route(found, testbed.plan, one, other)
    return found


def _still_holds(testbed: Testbed, one: HostShare, other: HostShare, way: Way) -> bool:
    """Whether a few copies take about what they took: networks change, and nothing tells of it."""
    back_ns = {copy.size_bytes: copy.copy_ns for copy in way.back}
    known = [
        (there.size_bytes, there.copy_ns, back_ns[there.size_bytes])
        for there in way.there
        if there.size_bytes in back_ns
    ]
    short = [each for each in known if max(each[1:]) <= _PROBED_NS]
    size_bytes, *before_ns = max(short or known[:1])
    answer = testbed.call(
        runner.probe_route,
        one.device_names,
        other.device_names,
        size_bytes,
        time_limit_s=_LIMIT_S,
    )
    now_ns = expect(answer, partial(_not_calibrated, f"{one.name} ↔ {other.name}"))
    return all(
        (now <= before * _CHANGED and before <= now * _CHANGED) or abs(now - before) < _NOISE_NS
        for before, now in zip(before_ns, now_ns, strict=True)
    )


def _check(way: Way, one: str, other: str) -> None:
    """Check that links can be fitted: what is kept without would fail every analysis to come."""
    for source, target, copies in ((one, other, way.there), (other, one, way.back)):
        fit_link(source, target, [(copy.size_bytes, copy.copy_ns) for copy in copies])


def _not_calibrated(what: str, failure: CallFailure) -> TestbedError:
    return TestbedError(f"testbed hosts: calibration of {what} failed: {failure.message}")
