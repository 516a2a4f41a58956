"""What a step that calls Python costs, by a recording in the process that made it, by hand."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from op_graphs import chain

from placement_advisor.analysis import runs
from placement_advisor.analysis.runs import own_op_ns, own_process_plan, record_in_own_process
from placement_advisor.cost.table import CostBasis, CostSource
from placement_advisor.errors import ModelError
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.machine.testbed_plan import (
    HostLink,
    HostShare,
    TestbedKind,
    plan_hosts,
    plan_testbed,
)
from placement_advisor.machine.this_machine import core_slots
from placement_advisor.profile.recorded_ops import RecordedOp, RecordedProfile
from placement_advisor.testbed.benchmark import SilentProgress
from placement_advisor.tf.answers import OwnSteps

CALL = "`EagerPyFunc` at train.py:12"
US = 1_000


def step_graph() -> OpGraph:
    plain = chain("before", "python", "after")
    ops = [op._replace(kind="EagerPyFunc") if op.name == "python" else op for op in plain.ops]
    return OpGraph(ops, plain.edges)


def seen(name: str, kind: str, *step_us: int) -> RecordedOp:
    step_ns = tuple(time_us * US for time_us in step_us)
    return RecordedOp(name=name, kind=kind, on_device=True, step_ns=step_ns)


def recording(*ops: RecordedOp) -> RecordedProfile:
    return RecordedProfile(path="profile", ops=ops, anonymous_ns=0, copies={})


PROFILE = recording(
    seen("before", "MatMul", 300, 900, 200),
    seen("python", "EagerPyFunc", 400),
    seen("after", "MatMul", 200),
    seen("MatMul", "MatMul", 60),
    seen("Tanh", "Tanh", 40),
)


def test_what_python_runs_beside_the_graph_is_its_own_time() -> None:
    found = own_op_ns(step_graph(), PROFILE, {})
    assert found == {"before": 300 * US, "python": (400 + 60 + 40) * US, "after": 200 * US}


def test_a_call_within_a_loop_belongs_to_the_loop() -> None:
    graph = chain("while", "after")
    inside = recording(seen("call", "PyFunc", 70), seen("after", "MatMul", 200), seen("x", "X", 5))
    found = own_op_ns(graph, inside, {"while": frozenset({"call"})})
    assert found == {"while": 75 * US, "after": 200 * US}


def recorded(
    monkeypatch: pytest.MonkeyPatch, *step_us: int, gpus: int = 0
) -> tuple[runs.StepCosts, runs.RunResults] | None:
    """Return what is made of `PROFILE` and of steps that take so long."""
    monkeypatch.setattr(runs, "gpu_count", lambda: gpus)
    monkeypatch.setattr(runs, "read_recorded", lambda folder, shares_core: PROFILE)
    steps = OwnSteps(warmup_ns=(9_000 * US,), step_ns=tuple(each * US for each in step_us))
    loader: Any = SimpleNamespace(call=lambda *asked, time_limit_s: steps)
    subject: Any = SimpleNamespace(
        graph=step_graph(),
        plan=plan_testbed(TestbedKind.NONE, 2),
        traced=SimpleNamespace(members={}),
        options=SimpleNamespace(source=SimpleNamespace(time_limit_s=1.0)),
    )
    return record_in_own_process(subject, loader, Path("profile"), SilentProgress())


def test_op_times_launches_and_the_start_fill_the_step_that_was_timed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = recorded(monkeypatch, 1_400, 1_500, 2_000)
    assert found is not None
    prices, results = found
    table = prices.costs["worker:1"]
    # 1.5 ms are 0.4 to start it, as assumed, 3 launches of 3 µs, as much as one may take, and ops
    # of 1 ms, which are lengthened to 1.091.
    assert prices.cluster.dispatch.step_overhead_ns == 400 * US
    assert {device.launch_overhead_ns for device in prices.cluster.devices} == {3 * US}
    assert table.time_ns("python") == pytest.approx(500 * US * 1.091, abs=1)
    assert {cost.basis for cost in table.costs.values()} == {CostBasis.MEASURED}
    assert prices.source is CostSource.RECORDED
    alone = results.outcomes["single"].measured
    assert alone is not None
    assert (alone.warmup_ns, alone.step_ns) == ((9_000 * US,), (1_400 * US, 1_500 * US, 2_000 * US))


def test_a_step_that_starts_sooner_than_assumed_has_ops_as_recorded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = recorded(monkeypatch, 1_100)
    assert found is not None
    cluster, table = found[0].cluster, found[0].costs["worker:0"]
    assert cluster.dispatch.step_overhead_ns == 100 * US
    assert (cluster.devices[0].launch_overhead_ns, table.time_ns("python")) == (0, 500 * US)


def test_nothing_is_recorded_beside_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    assert recorded(monkeypatch, 1_500, gpus=2) is None
    plan = own_process_plan(plan_testbed(TestbedKind.LOGICAL_CPUS, 2), CALL)
    assert plan.not_run is not None
    assert plan.not_run.endswith("the process that made it; all times are assumed")


def test_the_plan_says_why_nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "gpu_count", lambda: 0)
    plan = own_process_plan(plan_testbed(TestbedKind.LOGICAL_CPUS, 2), CALL)
    assert (plan.kind, plan.slots) == (TestbedKind.NONE, ())
    assert plan.not_run == (
        "no candidate ran: `EagerPyFunc` at train.py:12 calls Python, which stays with the process "
        "that made it; op times were measured there"
    )


def test_no_host_is_given_such_a_step() -> None:
    host = HostShare(
        name="far", address="far", slots=core_slots([0, 1]), fingerprint="f", is_here=False
    )
    with pytest.raises(ModelError, match="no host can run this step: `EagerPyFunc`"):
        own_process_plan(plan_hosts((host,), HostLink.TLS), CALL)
