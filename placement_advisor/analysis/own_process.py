"""A step that calls Python: recorded where it was made, since it runs nowhere else.

A function of Python is registered in the process that traced the step, and no worker can call it.
So no candidate runs.

Model: the whole step, as it was traced, runs in that process on one core, a few times by the clock
and a few under the profiler. What it takes by the clock is `single` as measured. Ops cost what the
recording shows of them; to a call of Python belongs what it runs, ops of other graphs included.
What the step takes beside its ops starts it, up to what starting one is assumed to take, and
launches ops beyond that. Copies are assumed.

Left out: machines with GPUs, where nothing is recorded and all is assumed. What Python leaves to
threads of its own.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from statistics import median
from typing import TYPE_CHECKING

from placement_advisor.analysis.doubts import OWN_PROCESS_DOUBT
from placement_advisor.analysis.prices_elsewhere import Prices
from placement_advisor.analysis.run import Outcome, Results
from placement_advisor.analysis.traced_model import child_ended
from placement_advisor.cost.links import assumed_cluster
from placement_advisor.cost.measured_costs import measured_costs, with_members
from placement_advisor.cost.table import CostSource
from placement_advisor.defaults import BASELINE
from placement_advisor.errors import ModelError
from placement_advisor.machine.testbed_plan import TestbedKind
from placement_advisor.machine.this_machine import gpu_count, usable_cores
from placement_advisor.measurement.measurement import Measurement
from placement_advisor.processes.calls import expect
from placement_advisor.profile.recorded_costs import joined_ops
from placement_advisor.profile.recorded_ops import read_recorded
from placement_advisor.testbed.cost_measurement import with_launches
from placement_advisor.tf.answers import PYTHON_CALLS
from placement_advisor.tf.calls import as_is

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from placement_advisor.analysis.subject import Subject
    from placement_advisor.cost.table import CostTable
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.machine.devices import Cluster
    from placement_advisor.machine.testbed_plan import TestbedPlan
    from placement_advisor.processes.children import Child
    from placement_advisor.profile.recorded_ops import RecordedProfile
    from placement_advisor.testbed.benchmark import ProgressReporter


def own_plan(plan: TestbedPlan, call: str) -> TestbedPlan:
    """Return the plan for a step of which ``call`` calls Python: no candidate runs.

    Raises:
        ModelError: other hosts were to run it.
    """
    why = f"{call} calls Python, which stays with the process that made it"
    if plan.hosts:
        raise ModelError(
            f"no host can run this step: {why}",
            hint="leave out --hosts, or replace tf.py_function and tf.numpy_function by "
            "TensorFlow ops",
        )
    times = "op times were measured there" if _is_recorded() else "all times are assumed"
    return replace(
        plan,
        kind=TestbedKind.NONE,
        slots=(),
        open_ports=False,
        not_run=f"no candidate ran: {why}; {times}",
    )


def recorded_here(
    subject: Subject, loader: Child, folder: Path, watcher: ProgressReporter
) -> tuple[Prices, Results] | None:
    """Run the step in the process that has loaded it; return what it costs, and `single` as it ran.

    The profile goes into ``folder``. None where nothing is recorded, on machines with GPUs.

    Raises:
        ModelError: the step does not run.
    """
    if not _is_recorded():
        return None
    source, graph = subject.options.source, subject.graph
    watcher.working("measuring op times in the script's own process", 0, 1)
    core = usable_cores()[0]
    answer = loader.call(as_is.record, str(folder), core, time_limit_s=source.time_limit_s)
    steps = expect(answer, partial(child_ended, source, "running the step"))
    cluster = assumed_cluster(len(subject.plan.devices))
    op_ns = own_op_ns(graph, read_recorded(folder, shares_core=True), subject.traced.members)
    costs = measured_costs(graph, op_ns)
    costs, cluster = _filling(costs, cluster, round(median(steps.step_ns)))
    prices = Prices(
        cluster=cluster,
        costs=costs.everywhere(cluster),
        source=CostSource.RECORDED,
        doubt=OWN_PROCESS_DOUBT,
    )
    measured = Measurement(
        warmup_ns=steps.warmup_ns,
        rounds=(steps.step_ns,),
        moved_ops=(),
        verification=None,
        profile=None,
        profile_run=None,
    )
    alone = Outcome(measured=measured, comparison=None, failure=None, files=None)
    return prices, Results(outcomes={BASELINE: alone})


def own_op_ns(
    graph: OpGraph, recorded: RecordedProfile, members: Mapping[str, Collection[str]]
) -> dict[str, int]:
    """Return what each op of the graph took; ``members`` names the ops within loops.

    Ops that are not of the graph were run by Python: its calls have their time, by what each takes.
    """
    joined = joined_ops(graph, recorded, members)
    op_ns = {name: op.median_ns for name, op in joined}
    calls = [name for name, op in joined if op.kind in PYTHON_CALLS]
    others_ns = sum(op.median_ns for op in recorded.ops) - sum(op.median_ns for _, op in joined)
    calls_ns = sum(op_ns[name] for name in calls)
    for name in calls:
        op_ns[name] += others_ns * op_ns[name] // max(1, calls_ns)
    return with_members(op_ns, members)


def _is_recorded() -> bool:
    return gpu_count() == 0


def _filling(costs: CostTable, cluster: Cluster, step_ns: int) -> tuple[CostTable, Cluster]:
    """Return costs and a cluster by which a step on one device takes so long."""
    beside_ns = max(0, step_ns - costs.total_ns)
    start_ns = min(beside_ns, cluster.dispatch.step_overhead_ns)
    costs, launch_ns = with_launches(costs, step_ns - start_ns)
    return costs, replace(
        cluster,
        devices=tuple(replace(each, launch_overhead_ns=launch_ns) for each in cluster.devices),
        dispatch=replace(cluster.dispatch, step_overhead_ns=start_ns),
    )
