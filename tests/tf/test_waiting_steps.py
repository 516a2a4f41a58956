"""A step that waits for ever ends at its limit, and its error names the op that waits."""

from __future__ import annotations

import time

import pytest
from real_runs import needs_workers
from traced_models import trace

from placement_advisor.graph.placement import placed_ops
from placement_advisor.graph.step_limit import step_limit_s
from placement_advisor.machine.testbed_plan import TestbedKind, plan_testbed
from placement_advisor.processes.calls import CallFailure, FailureCause, RemoteModule
from placement_advisor.processes.children import Child
from placement_advisor.testbed import testbed as testbeds
from placement_advisor.testbed.testbed import STEP, Testbed

waiting_files = RemoteModule("waiting_files")
_SAID = "a step did not end within 2 s: op 'taken' (QueueDequeueV2) waits for what nothing gives it"


@pytest.fixture
def waiting(tmp_path):
    path = tmp_path / "waiting.pb"
    with Child("writer") as writer:
        writer.call(waiting_files.write, str(path))
    return trace(path, tmp_path, run=False)


@pytest.mark.parametrize(
    "kind",
    [TestbedKind.LOGICAL_CPUS, pytest.param(TestbedKind.WORKERS, marks=needs_workers)],
)
def test_a_candidate_that_waits_for_ever_ends_at_its_limit(waiting, tmp_path, monkeypatch, kind):
    assert step_limit_s(waiting.graph) < 60
    monkeypatch.setattr(testbeds, "step_limit_s", lambda graph: 2.0)
    testbed = Testbed(plan_testbed(kind, 2), scratch=tmp_path)
    try:
        testbed.start()
        testbed.add_program(STEP, waiting.bundle, waiting.graph)
        device = testbed.plan.devices[0].name
        begun = time.monotonic()
        answer = testbed.prepare(
            "single", {op.name: device for op in placed_ops(waiting.graph)}, STEP
        )
        assert isinstance(answer, CallFailure)
        assert (answer.cause, answer.message) == (FailureCause.TIMED_OUT, _SAID)
        assert time.monotonic() - begun < 60
        # Others go on in the same processes.
        assert testbed.up
    finally:
        testbed.close()


def test_a_split_of_the_batch_that_waits_for_ever_is_refused(tmp_path):
    path = tmp_path / "waiting.pb"
    with Child("loader") as loader:
        loader.call(waiting_files.write, str(path))
        said = loader.call(waiting_files.split, str(path), 2.0)
    assert said == _SAID
