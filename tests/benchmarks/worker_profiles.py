"""A model on one worker of the `workers` testbed: what ran there in a step, and how long.

The run is the one by which `advisor analyze` measures costs. Ops of which the profile shows several
runs in a step (those in loops) have the time of all of them.
"""

import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from model_tracing import called

from placement_advisor.candidates.references import on_device
from placement_advisor.graph.op import Op
from placement_advisor.machine.testbed_plan import TestbedKind, plan_testbed
from placement_advisor.processes.calls import RemoteModule
from placement_advisor.processes.children import Child
from placement_advisor.profile.steps import OP_EVENT, host_lines
from placement_advisor.profile.xplane import read_planes
from placement_advisor.testbed.benchmark import PROFILED_STEPS, Benchmark, SilentProgress
from placement_advisor.testbed.testbed import STEP, Testbed
from placement_advisor.tf.answers import Traced
from placement_advisor.tf.calls import tracer
from placement_advisor.tf.load.model_source import ModelSource

loop_ops = RemoteModule("loop_ops")


@dataclass(frozen=True, slots=True, kw_only=True)
class Executed:
    """An op as it ran: its kind may be another than in the graph. Times and runs are of a step."""

    kind: str
    runs: int
    time_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiled:
    """A traced model with the ops within its loops, and what ran, by name."""

    traced: Traced
    within: Sequence[Op]
    executed: Mapping[str, Executed]


def profiled(path, profiles):
    """Run a model on one worker and profile it, so many times.

    Each op has the shortest of the medians of the profiles, since other work on the machine only
    ever adds.
    """
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        bundle = scratch / "bundle"
        bundle.mkdir()
        with Child("loader") as loader:
            called(loader, tracer.load_workload, ModelSource(path=str(path)))
            traced, within = called(loader, loop_ops.trace, str(path), str(bundle))
        plan = plan_testbed(TestbedKind.WORKERS, 1)
        testbed = Testbed(plan, scratch=scratch)
        testbed.add_program(STEP, bundle, traced.graph)
        try:
            testbed.start()
            executed = _executed(testbed, traced.graph, profiles)
        finally:
            testbed.close()
    return Profiled(traced=traced, within=within, executed=executed)


def _executed(testbed, graph, profiles):
    trial = Benchmark(testbed, steps=1, watcher=SilentProgress())
    entry = trial.enter(on_device(graph, testbed.plan.devices[0].name))
    shortest = {}
    for _ in range(profiles):
        trial.settle(entry)
        if entry.failure is None:
            trial.profile(entry)
        if entry.failure is not None or entry.profile is None:
            raise SystemExit(f"nothing was profiled: {entry.failure}")
        for op, time_ns in entry.profile.op_ns.items():
            shortest[op] = min(time_ns, shortest.get(op, time_ns))
    assert entry.files is not None
    events = _events(entry.files)
    kinds = dict(events)
    runs = Counter(name for name, _ in events)
    return {
        op: Executed(kind=kinds[op], runs=max(1, round(runs[op] / PROFILED_STEPS)), time_ns=time_ns)
        for op, time_ns in shortest.items()
        if op in kinds
    }


def _events(files):
    """Return name and kind of every op event of a profile."""
    return [
        (match.group(1), match.group(2))
        for path in files.devices.values()
        for line in host_lines(read_planes(path))
        for event in line.events
        if (match := OP_EVENT.fullmatch(event.name))
    ]
