"""What a testbed costs, and what a model's ops cost on it, measured by one run on one device.

Model: that run is profiled, which gives the time of every op; steps without the profiler give the
time of the whole. What the step takes beyond its ops is the executor's own, and is shared out
evenly as launch overhead, up to what an executor may need. Where the step is longer than that, or
shorter than its ops, the machine was slower or faster when it was profiled: then all ops are
lengthened or shortened alike. A calibration is brought to the speed that the machine has now.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import PackageNotFoundError
from typing import TYPE_CHECKING

from placement_advisor.candidates import single
from placement_advisor.candidates.batch_split.mirrored_graph import FAMILY as MIRRORED
from placement_advisor.candidates.batch_split.programs import share_folder
from placement_advisor.candidates.batch_split.ring import is_pack
from placement_advisor.cost.calibrated import calibrated_cluster
from placement_advisor.cost.measured_costs import (
    dispatch_overhead_ns,
    measured_costs,
    ns_per_byte,
    with_members,
)
from placement_advisor.cost.table import CostBasis, CostTable, OpCost
from placement_advisor.errors import BatchSplitError, TestbedError
from placement_advisor.files.contract import Ns
from placement_advisor.graph.op_graph import Role
from placement_advisor.machine.calibration import (
    UNSTEADY_P90,
    Calibration,
    calibration_file,
    stored_calibration,
)
from placement_advisor.machine.cluster_file import ClusterText
from placement_advisor.machine.fingerprints import calibration_fingerprint
from placement_advisor.machine.host_figures_file import figures_folder
from placement_advisor.processes.call_failure import expect
from placement_advisor.testbed.calibrate_hosts import are_calibrated, calibrated_hosts
from placement_advisor.tf.calls import runner

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from placement_advisor.candidates.batch_split.split_graph import SplitGraph
    from placement_advisor.cost.collectives import CollectiveTimes
    from placement_advisor.machine.testbed_plan import TestbedPlan
    from placement_advisor.processes.call_failure import CallFailure
    from placement_advisor.testbed.testbed import Testbed
    from placement_advisor.testbed.trial import Entry, Trial, Watcher
    from placement_advisor.tf.answers import Traced, TracedSplit

# What the ops of several graphs cost, by their families.
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
class Costing:
    """What a model's ops cost, and the cluster on which they do."""

    costs: CostTable
    cluster: ClusterText
    step_overhead_ns: Ns


def calibrated(testbed: Testbed, watcher: Watcher, *, anew: bool = False) -> Calibration:
    """Return the calibration of a running testbed: the one kept, else measured and kept.

    Raises:
        TestbedError: measuring failed.
    """
    if testbed.plan.hosts:
        return calibrated_hosts(testbed, watcher, anew=anew)
    name = calibration_fingerprint(testbed.plan)
    known = None if anew else stored_calibration(name)
    if known is not None:
        return known
    watcher.working("calibrating the testbed", 0, 1)
    limit_s = _CALIBRATION_LIMIT_S + _LINKS_LIMIT_S * math.comb(len(testbed.plan.devices), 2)
    answer = testbed.call(runner.calibrate, testbed.core_clocks, time_limit_s=limit_s)
    calibration = expect(answer, partial(_not_calibrated, testbed.plan))
    # What no link can be fitted to is not kept: it would fail every analysis from now on.
    calibrated_cluster(testbed.plan.devices, calibration)
    if max(calibration.reference_p90.values()) < UNSTEADY_P90:
        with suppress(OSError):  # Without a cache it is measured again next time.
            calibration.save(name, testbed=testbed.plan.kind.value)
    return calibration


def has_calibration(plan: TestbedPlan) -> bool:
    """Whether a calibration of such a testbed is kept."""
    with suppress(PackageNotFoundError):  # Without TensorFlow; its import says so in better words.
        if plan.hosts:
            return are_calibrated(plan)
        return stored_calibration(calibration_fingerprint(plan)) is not None
    return False


def where_kept(plan: TestbedPlan, calibration: Calibration) -> Path | None:
    """Return the file that keeps a calibration, or the folder of its parts; None if none does."""
    if plan.hosts:
        return figures_folder() if are_calibrated(plan) else None
    name = calibration_fingerprint(plan)
    return calibration_file(name) if stored_calibration(name) == calibration else None


def _not_calibrated(plan: TestbedPlan, failure: CallFailure) -> TestbedError:
    return TestbedError(f"testbed {plan.kind}: calibration failed: {failure.message}")


def measure_costs(
    trial: Trial, plan: TestbedPlan, traced: Traced, calibration: Calibration
) -> Costing:
    """Run the model on the first device of the testbed and return its costs.

    Raises:
        TestbedError: the model does not run there.
    """
    device = plan.devices[0].name
    entry = trial.enter(single.on_device(traced.graph, device))
    step_ns = trial.examine(entry)
    if step_ns is None or entry.profile is None:
        raise TestbedError(
            f"the model does not run on one device of testbed {plan.kind}: {_reason(entry)}"
        )
    calibration = calibration.at_speed(trial.speed() or calibration.reference_ns)
    costs = measured_costs(traced.graph, with_members(entry.profile.op_ns, traced.members))
    costs, launch_ns = with_launches(costs, step_ns - calibration.step_overhead_ns)
    cluster = calibrated_cluster(plan.devices, calibration, launch_overhead_ns=launch_ns)
    return Costing(
        costs=costs,
        cluster=cluster,
        step_overhead_ns=calibration.step_overhead_ns,
    )


def measure_shares(
    trial: Trial, traced: TracedSplit, costing: Costing
) -> dict[int, CostTable] | BatchSplitError:
    """Run each share of a batch on the first device; return what they cost, by their samples."""
    device = costing.cluster.devices[0]
    tables: dict[int, CostTable] = {}
    for samples, share in traced.shares.items():
        alone = replace(single.on_device(share.graph, device.name), label=f"{samples} samples")
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
    costing: Costing,
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
    """Return the costs with what it takes on every device to get a collective going."""
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
    """Return op times that fill the ops of a step together with launches, and what one takes."""
    overhead_ns = dispatch_overhead_ns(
        in_ops_ns=in_ops_ns, compute_ns=costs.total_ns, op_count=len(costs.costs)
    )
    launch_ns = min(overhead_ns, MAX_DISPATCH_NS)
    return _filling(costs, in_ops_ns, launch_ns), launch_ns


def _filling(costs: CostTable, in_ops_ns: int, launch_ns: int) -> CostTable:
    """Return op times that fill a step together with their launches."""
    rest_ns = in_ops_ns - launch_ns * len(costs.costs)
    return costs.scaled(rest_ns / costs.total_ns) if rest_ns > 0 and costs.total_ns else costs


def _reason(entry: Entry) -> str:
    return entry.failure.message if entry.failure else "the profile shows no step"
