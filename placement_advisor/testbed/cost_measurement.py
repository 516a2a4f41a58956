"""A testbed is calibrated once, and a model's ops are measured by one run on its first device.

Calibrations are cached. Hosts are calibrated one by one, and the links between every two of them,
so that a further host costs only itself and its links. The run of the model is profiled, which
gives the time of every op; steps without the profiler give the time of the whole. What the step
takes beyond its ops is shared out evenly as launch overhead, up to what an executor may need.
Beyond that, op times are scaled to the step.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError
from itertools import combinations
from typing import TYPE_CHECKING, TypeVar, TypeVarTuple

from placement_advisor.candidates import references
from placement_advisor.candidates.batch_split.mirrored_graph import FAMILY as MIRRORED
from placement_advisor.candidates.batch_split.mirrored_graph import is_pack
from placement_advisor.candidates.batch_split.plan import share_folder
from placement_advisor.cost.links import calibrated_cluster, fit_link
from placement_advisor.cost.measured_costs import (
    dispatch_overhead_ns,
    measured_costs,
    ns_per_byte,
    with_members,
)
from placement_advisor.cost.table import CostBasis, CostTable, OpCost
from placement_advisor.errors import BatchSplitError, TestbedError
from placement_advisor.files.contract import Ns
from placement_advisor.graph.op import Role
from placement_advisor.machine import calibration as calibrations
from placement_advisor.machine import host_figures
from placement_advisor.machine.cluster_file import ClusterText
from placement_advisor.processes.calls import CallFailure
from placement_advisor.tf.calls import runner

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from placement_advisor.candidates.batch_split.split_graph import SplitGraph
    from placement_advisor.cost.collectives import CollectiveTimes
    from placement_advisor.machine.testbed_plan import HostShare, TestbedPlan
    from placement_advisor.testbed.benchmark import Benchmark, BenchmarkEntry, ProgressReporter
    from placement_advisor.testbed.testbed import Testbed
    from placement_advisor.tf.answers import Traced, TracedSplit


_Arguments = TypeVarTuple("_Arguments")
_Returned = TypeVar("_Returned")

# Each takes half a minute, and a few minutes over the slowest network; anything near is a hang.
_LIMIT_S = 900.0
# Of the sizes that were measured the largest that is copied in that time tells most, soon.
_PROBED_NS = 50_000_000
# Judgement: what a few copies take is uncertain by less, and predictions are in doubt by as much.
_CHANGED = 1.5
# What copies between busy cores wander by.
_NOISE_NS = 500_000


def calibration_of_hosts(
    testbed: Testbed, watcher: ProgressReporter, *, anew: bool
) -> calibrations.Calibration:
    """Return the calibration of a running testbed of hosts; the first of them drives its steps.

    Raises:
        TestbedError: measuring failed.
    """
    plan = testbed.plan
    pairs = list(combinations(plan.hosts, 2))
    total = len(plan.hosts) + len(pairs)
    figures: dict[str, host_figures.HostFigures] = {}
    for host in plan.hosts:
        kept = None if anew else host_figures.kept_host(plan, host)
        if kept is None:
            watcher.working(f"calibrating {host.name}", len(figures), total)
            kept = _measure_host(testbed, host)
        figures[host.name] = kept
    routes: dict[tuple[str, str], host_figures.RouteFigures] = {}
    for one, other in pairs:
        known = None if anew else host_figures.kept_route(plan, one, other)
        if known is None or not _still_holds(testbed, one, other, known.way):
            what = f"calibrating {one.name} ↔ {other.name}"
            watcher.working(what, len(figures) + len(routes), total)
            known = _measure_route(testbed, one, other)
        routes[one.name, other.name] = known
    return host_figures.over_hosts(plan.hosts, figures, routes)


def has_host_calibrations(plan: TestbedPlan) -> bool:
    """Return whether all calibrations of such a testbed of hosts are kept."""
    return all(host_figures.kept_host(plan, host) for host in plan.hosts) and all(
        host_figures.kept_route(plan, *pair) for pair in combinations(plan.hosts, 2)
    )


def _measure_host(testbed: Testbed, host: HostShare) -> host_figures.HostFigures:
    drives = host == testbed.plan.hosts[0]
    found = _measured(
        testbed,
        f"calibration of {host.name}",
        runner.calibrate_host,
        host.device_names,
        testbed.core_clocks,
        drives,
    )
    if found.within is not None:
        _check(found.within, *host.device_names[:2])
    if max(found.reference_p90) < calibrations.UNSTEADY_P90:
        with suppress(OSError):  # Without a cache it is measured again next time.
            host_figures.keep_host(found, testbed.plan, host)
    return found


def _measure_route(testbed: Testbed, one: HostShare, other: HostShare) -> host_figures.RouteFigures:
    drives = one == testbed.plan.hosts[0]
    ends = one.device_names, other.device_names
    what = f"calibration of {one.name} ↔ {other.name}"
    found = _measured(testbed, what, runner.calibrate_route, *ends, testbed.core_clocks, drives)
    _check(found.way, one.name, other.name)
    with suppress(OSError):
        host_figures.keep_route(found, testbed.plan, one, other)
    return found


def _still_holds(testbed: Testbed, one: HostShare, other: HostShare, way: host_figures.Way) -> bool:
    """Return whether a few copies still take about as long: networks change without notice."""
    back_ns = {copy.size_bytes: copy.copy_ns for copy in way.back}
    known = [
        (there.size_bytes, there.copy_ns, back_ns[there.size_bytes])
        for there in way.there
        if there.size_bytes in back_ns
    ]
    short = [each for each in known if max(each[1:]) <= _PROBED_NS]
    size_bytes, *before_ns = max(short or known[:1])
    ends = one.device_names, other.device_names
    what = f"calibration of {one.name} ↔ {other.name}"
    now_ns = _measured(testbed, what, runner.probe_route, *ends, size_bytes)
    return all(
        (now <= before * _CHANGED and before <= now * _CHANGED) or abs(now - before) < _NOISE_NS
        for before, now in zip(before_ns, now_ns, strict=True)
    )


def _check(way: host_figures.Way, one: str, other: str) -> None:
    """Check that links can be fitted; a calibration without would fail every later analysis."""
    for source, target, copies in ((one, other, way.there), (other, one, way.back)):
        fit_link(source, target, [(copy.size_bytes, copy.copy_ns) for copy in copies])


def _measured(
    testbed: Testbed,
    what: str,
    function: Callable[[*_Arguments], _Returned | CallFailure],
    *args: *_Arguments,
    time_limit_s: float = _LIMIT_S,
) -> _Returned:
    """Return what a function of the runner measures.

    Raises:
        TestbedError: it failed; ``what`` says what is measured.
    """
    answer = testbed.call(function, *args, time_limit_s=time_limit_s)
    if isinstance(answer, CallFailure):
        raise TestbedError(f"testbed {testbed.plan.kind}: {what} failed: {answer.message}")
    return answer


# Cost tables of several graphs, by the family of their placements.
SplitCosts = dict[str, CostTable]
# What launches an op is charged at most; what a step takes beyond that makes its ops longer in
# proportion, as caches do. Judgement: the step of deep_chain, 1,283 ops of next to no work, took
# 2.4 µs beside each on a quiet machine when this was set; on a busy one
# `launches`, before 0.2 showed 3.1 and 5.1 µs.
MAX_DISPATCH_NS = 3_000
# Two devices take 20 s, half of it for their links in both directions; anything near is a hang.
_CALIBRATION_LIMIT_S = 300.0
_LINKS_LIMIT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CostMeasurement:
    """The costs of a model's ops, and the cluster that they hold for."""

    costs: CostTable
    cluster: ClusterText
    step_overhead_ns: Ns


def calibration_of(
    testbed: Testbed, watcher: ProgressReporter, *, anew: bool = False
) -> calibrations.Calibration:
    """Return the calibration of a running testbed: the cached one, else a new one, which is cached.

    Raises:
        TestbedError: measuring failed.
    """
    if testbed.plan.hosts:
        return calibration_of_hosts(testbed, watcher, anew=anew)
    name = calibrations.calibration_fingerprint(testbed.plan)
    known = None if anew else calibrations.stored_calibration(name)
    if known is not None:
        return known
    watcher.working("calibrating the testbed", 0, 1)
    limit_s = _CALIBRATION_LIMIT_S + _LINKS_LIMIT_S * math.comb(len(testbed.plan.devices), 2)
    calibration = _measured(
        testbed, "calibration", runner.calibrate, testbed.core_clocks, time_limit_s=limit_s
    )
    # What no link can be fitted to is not kept: it would fail every analysis from now on.
    calibrated_cluster(testbed.plan.devices, calibration)
    if max(calibration.reference_p90.values()) < calibrations.UNSTEADY_P90:
        with suppress(OSError):  # Without a cache it is measured again next time.
            calibration.save(name, testbed=testbed.plan.kind.value)
    return calibration


def has_calibration(plan: TestbedPlan) -> bool:
    """Whether a calibration of such a testbed is kept."""
    with suppress(PackageNotFoundError):  # Without TensorFlow; its import says so in better words.
        if plan.hosts:
            return has_host_calibrations(plan)
        return (
            calibrations.stored_calibration(calibrations.calibration_fingerprint(plan)) is not None
        )
    return False


def calibration_path(plan: TestbedPlan, calibration: calibrations.Calibration) -> Path | None:
    """Return the file that keeps a calibration, or the folder of its parts; None if none does."""
    if plan.hosts:
        return host_figures.figures_folder() if has_host_calibrations(plan) else None
    name = calibrations.calibration_fingerprint(plan)
    return (
        calibrations.calibration_file(name)
        if calibrations.stored_calibration(name) == calibration
        else None
    )


def measure_costs(
    trial: Benchmark, plan: TestbedPlan, traced: Traced, calibration: calibrations.Calibration
) -> CostMeasurement:
    """Run the model on the first device of the testbed and return its costs.

    Raises:
        TestbedError: the model does not run there.
    """
    device = plan.devices[0].name
    entry = trial.enter(references.on_device(traced.graph, device))
    step_ns = trial.examine(entry)
    if step_ns is None or entry.profile is None:
        raise TestbedError(
            f"the model does not run on one device of testbed {plan.kind}: {_reason(entry)}"
        )
    calibration = calibration.at_speed(trial.speed() or calibration.reference_ns)
    costs = measured_costs(traced.graph, with_members(entry.profile.op_ns, traced.members))
    costs, launch_ns = with_launches(costs, step_ns - calibration.step_overhead_ns)
    cluster = calibrated_cluster(plan.devices, calibration, launch_overhead_ns=launch_ns)
    return CostMeasurement(
        costs=costs,
        cluster=cluster,
        step_overhead_ns=calibration.step_overhead_ns,
    )


def measure_shares(
    trial: Benchmark, traced: TracedSplit, costing: CostMeasurement
) -> dict[int, CostTable] | BatchSplitError:
    """Run each share of a batch on the first device; return what they cost, by their samples."""
    device = costing.cluster.devices[0]
    tables: dict[int, CostTable] = {}
    for samples, share in traced.shares.items():
        alone = replace(references.on_device(share.graph, device.name), label=f"{samples} samples")
        entry, step_ns = trial.probe(alone, share_folder(samples))
        if step_ns is None or entry.profile is None:
            return BatchSplitError(f"a share of {samples} samples does not run: {_reason(entry)}")
        costs = measured_costs(share.graph, with_members(entry.profile.op_ns, share.members))
        in_ops_ns = step_ns - costing.step_overhead_ns
        tables[samples] = _filling(costs, in_ops_ns, device.launch_overhead_ns)
    return tables


def split_costs(
    traced: TracedSplit,
    tables: Mapping[int, CostTable],
    costing: CostMeasurement,
    collectives: CollectiveTimes | None,
) -> tuple[SplitCosts, SplitCosts]:
    """Return what the graphs cost that split the batch, and those of weak scaling.

    ``tables`` have the costs of each share. What is shared costs what it does in the unsplit step.
    What joins shares has run nowhere yet; it costs for each byte what element by element ops were
    measured to cost. ``collectives`` says what it takes to get one going.
    """
    shares = [(share.graph, tables[samples]) for samples, share in traced.shares.items()]
    per_byte = ns_per_byte(shares)
    replicas = [tables[samples] for samples in traced.samples]
    wholes = [costing.costs] * len(replicas)

    def costs_of(graphs: Mapping[str, SplitGraph], tables: list[CostTable]) -> SplitCosts:
        found = {n: _split_costs(g, tables, costing.costs, per_byte) for n, g in graphs.items()}
        if collectives is not None and MIRRORED in graphs:
            launch_ns = collectives.launch_ns
            found[MIRRORED] = _with_launches(graphs[MIRRORED], found[MIRRORED], launch_ns)
        return found

    return costs_of(traced.graphs, replicas), costs_of(traced.weak, wholes)


def _with_launches(split: SplitGraph, costs: CostTable, launch_ns: int) -> CostTable:
    """Add to the costs the time that each device takes to start a collective."""
    launched = {
        op.name: OpCost(time_ns=costs.costs[op.name].time_ns + launch_ns, basis=CostBasis.MEASURED)
        for op in split.graph.ops
        if is_pack(op.name) and op.name not in split.source
    }
    return CostTable(costs={**costs.costs, **launched})


def _split_costs(
    split: SplitGraph, replicas: Sequence[CostTable], shared: CostTable, per_byte: float
) -> CostTable:
    found = {}
    for op in split.graph.ops:
        if op.name in split.source:
            replica, name = split.source[op.name]
            table = shared if replica is None else replicas[replica]
            if name in table.costs:
                found[op.name] = table.costs[name]
        elif op.role is not Role.CONSTANT:
            time_ns = round((op.bytes_accessed or 0) * per_byte)
            found[op.name] = OpCost(time_ns=time_ns, basis=CostBasis.GUESSED)
    return CostTable(costs=found)


def with_launches(costs: CostTable, in_ops_ns: int) -> tuple[CostTable, int]:
    """Scale op times so that ops and launches fill the step; return them and a launch's time."""
    overhead_ns = dispatch_overhead_ns(
        in_ops_ns=in_ops_ns, compute_ns=costs.total_ns, op_count=len(costs.costs)
    )
    launch_ns = min(overhead_ns, MAX_DISPATCH_NS)
    return _filling(costs, in_ops_ns, launch_ns), launch_ns


def _filling(costs: CostTable, in_ops_ns: int, launch_ns: int) -> CostTable:
    """Scale op times so that they fill a step together with their launches."""
    rest_ns = in_ops_ns - launch_ns * len(costs.costs)
    return costs.scaled(rest_ns / costs.total_ns) if rest_ns > 0 and costs.total_ns else costs


def _reason(entry: BenchmarkEntry) -> str:
    return entry.failure.message if entry.failure else "the profile shows no step"
