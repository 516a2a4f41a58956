"""The runner's calls, on logical CPUs; profiles and calibration also on workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from real_runs import needs_workers

from placement_advisor.graph.placement import placed_ops
from placement_advisor.machine.testbed_plan import TestbedKind, plan_testbed
from placement_advisor.testbed.testbed import STEP, ProfileFiles, Testbed
from placement_advisor.tf.answers import Prepared, RunFailure

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from traced_models import TracedModel

    from placement_advisor.machine.calibration import Calibration
    from placement_advisor.processes.children import Child

_RUNNER = "placement_advisor.tf.run.runner"
_DEVICES = {f"cpu:{i}": f"/job:localhost/replica:0/task:0/device:CPU:{i}" for i in range(2)}
_LIMIT_S = 120.0


@pytest.fixture
def model(traced: Callable[[str], TracedModel]) -> TracedModel:
    return traced("scoped_step")


@pytest.fixture
def runner(child: Child, model: TracedModel) -> Callable[..., Any]:
    """Return a function that calls the runner of the model on two logical CPUs."""

    def call(function: str, *args: Any) -> Any:
        return child.call(f"{_RUNNER}:{function}", *args, time_limit_s=_LIMIT_S)

    host = _DEVICES["cpu:0"]
    call("open_runner", "", _DEVICES, host, len(_DEVICES))
    call("open_program", STEP, str(model.bundle), model.graph)
    return call


def _everything_on(model: TracedModel, device: str) -> dict[str, str]:
    return {op.name: device for op in placed_ops(model.graph)}


def test_steps_are_timed_one_by_one(runner: Callable[..., Any], model: TracedModel) -> None:
    runner("prepare", "single", _everything_on(model, "cpu:0"), STEP)
    samples = runner("run_steps", "single", 0, 7)
    assert len(samples) == 7
    assert all(isinstance(sample, int) and sample > 0 for sample in samples)


def test_results_start_from_the_initial_state_whatever_ran_before(
    runner: Callable[..., Any], child: Child, model: TracedModel
) -> None:
    runner("prepare", "single", _everything_on(model, "cpu:0"), STEP)
    first = runner("results", "single", 2)
    runner("run_steps", "single", 1, 3)
    ran = child.call("runner_access:variable", "single", "steps_done", time_limit_s=_LIMIT_S)
    again = runner("results", "single", 2)
    after = child.call("runner_access:variable", "single", "steps_done", time_limit_s=_LIMIT_S)
    assert (ran, again.state["steps_done"], after) == (3, 2, 0)
    # The step's noise goes on, as the user's own would: only what needs none is equal.
    for name in ("steps_done", "label"):
        assert again.state[name] == first.state[name]


def test_two_candidates_do_not_share_state(
    runner: Callable[..., Any], child: Child, model: TracedModel
) -> None:
    for label in ("one", "other"):
        runner("prepare", label, _everything_on(model, "cpu:0"), STEP)
        runner("results", label, 1)
    runner("run_steps", "one", 0, 5)
    assert child.call("runner_access:variable", "other", "steps_done", time_limit_s=_LIMIT_S) == 0


def test_verify_compares_with_the_first_candidate(
    runner: Callable[..., Any], model: TracedModel
) -> None:
    for label, device in (("single", "cpu:0"), ("elsewhere", "cpu:1")):
        runner("prepare", label, _everything_on(model, device), STEP)
    assert runner("verify", "single", 3) is None
    found = runner("verify", "elsewhere", 3)
    assert (found.wrong, found.unverified, found.held_equal) == ("", (), False)
    assert found.relative_difference <= 1e-6


def test_verify_finds_a_wrong_result(
    runner: Callable[..., Any], child: Child, model: TracedModel
) -> None:
    runner("prepare", "single", _everything_on(model, "cpu:0"), STEP)
    assert runner("verify", "single", 3) is None
    child.call("runner_access:start_from_other_values", "head/kernel", time_limit_s=_LIMIT_S)
    runner("prepare", "wrong", _everything_on(model, "cpu:0"), STEP)
    found = runner("verify", "wrong", 3)
    assert found.relative_difference > 0.1
    assert found.wrong.startswith(("what ", "output "))


def test_an_op_apart_from_its_variable_is_refused_or_seen_to_have_moved(
    runner: Callable[..., Any], model: TracedModel
) -> None:
    apart = _everything_on(model, "cpu:0")
    read = next(op for op in model.graph.ops if op.kind == "ReadVariableOp")
    apart[read.name] = "cpu:1"
    prepared = runner("prepare", "apart", apart, STEP)
    if isinstance(prepared, Prepared):
        assert any(moved.startswith(f"{read.name}: ") for moved in prepared.moved_ops)
    else:
        assert isinstance(prepared, RunFailure)
        assert not prepared.out_of_memory


def test_a_device_that_is_not_there_is_a_failure(child: Child, model: TracedModel) -> None:
    nowhere = {"cpu:0": "/job:localhost/replica:0/task:0/device:CPU:7"}
    child.call(f"{_RUNNER}:open_runner", "", nowhere, nowhere["cpu:0"], 1, time_limit_s=_LIMIT_S)
    child.call(
        f"{_RUNNER}:open_program", STEP, str(model.bundle), model.graph, time_limit_s=_LIMIT_S
    )
    answer = child.call(
        f"{_RUNNER}:prepare", "lost", _everything_on(model, "cpu:0"), STEP, time_limit_s=_LIMIT_S
    )
    assert isinstance(answer, RunFailure)
    assert "CPU:7" in answer.message


def test_a_discarded_candidate_is_gone_and_can_be_prepared_again(
    runner: Callable[..., Any], model: TracedModel
) -> None:
    runner("prepare", "single", _everything_on(model, "cpu:0"), STEP)
    runner("discard", "single")
    runner("discard", "single")
    runner("prepare", "single", _everything_on(model, "cpu:1"), STEP)
    assert len(runner("run_steps", "single", 0, 1)) == 1


def test_a_bundle_that_is_saved_loads_equal(
    child: Child, traced: Callable[[str], TracedModel], tmp_path: Path
) -> None:
    for name in ("two_tower", "scoped_step"):
        again = tmp_path / name
        again.mkdir()
        bundle = str(traced(name).bundle)
        same_graph, different = child.call(
            "graph_defs:saved_and_loaded", bundle, str(again), time_limit_s=_LIMIT_S
        )
        assert same_graph
        assert different == []


@needs_workers
def test_workers_are_calibrated_and_profiled(
    traced: Callable[[str], TracedModel], tmp_path: Path
) -> None:
    plan = plan_testbed(TestbedKind.WORKERS, 2)
    model = traced("two_tower")
    testbed = Testbed(plan, scratch=tmp_path)
    testbed.add_program(STEP, model.bundle, model.graph)
    testbed.start()
    try:
        calibration = testbed.call("calibrate", testbed.worker_ids, time_limit_s=_LIMIT_S)
        _check_calibration(calibration)
        device_of = _everything_on(model, "worker:1")
        testbed.call("prepare", "one", device_of, STEP, time_limit_s=_LIMIT_S)
        files = testbed.profile("one", 2, time_limit_s=_LIMIT_S)
        assert isinstance(files, ProfileFiles), files
        assert set(files.devices) == {"worker:0", "worker:1"}
        for path in (files.client, *files.devices.values()):
            assert path.stat().st_size > 0
    finally:
        testbed.close()


def _check_calibration(calibration: Calibration) -> None:
    ends = ("worker:0", "worker:1")
    assert set(calibration.links) == {ends, ends[::-1]}
    assert set(calibration.both_ways) == {ends}
    assert set(calibration.reference_ns) == set(calibration.reference_p90) == set(ends)
    assert calibration.step_overhead_ns > 0
    small, *_, large = calibration.links[ends]
    assert small.size_bytes <= 1024
    assert large.size_bytes >= 1_000_000
    assert small.copy_ns > 0
    # Measured in any minute, busy or quiet: megabytes take longer than a packet, at both ends too.
    assert large.copy_ns > 2 * small.copy_ns
    assert small.send_ns is not None
    assert small.receive_ns is not None
    assert large.send_ns is not None
    assert large.receive_ns is not None
    assert large.send_ns > small.send_ns
    assert large.receive_ns > small.receive_ns
    assert min(calibration.reference_p90.values()) >= 1


def test_texts_and_truths_come_out_as_arrays(
    runner: Callable[..., Any], model: TracedModel
) -> None:
    runner("prepare", "single", _everything_on(model, "cpu:0"), STEP)
    state = runner("results", "single", 2).state
    assert state["label"] == b"2"
    assert state["seen_large"].dtype == np.bool_


def test_a_calibration_that_tensorflow_aborts_is_made_once_more(child: Child) -> None:
    def calibrated(*failures: str) -> Any:
        return child.call("runner_access:calibrate", *failures, time_limit_s=_LIMIT_S)

    assert calibrated("AbortedError") == "measured"
    again = calibrated("AbortedError", "AbortedError")
    assert isinstance(again, RunFailure)
    assert "received twice" in again.message
    assert isinstance(calibrated("UnavailableError"), RunFailure)


@pytest.mark.parametrize("function", ["time_collectives", "open_mirrored_worker"])
def test_what_tensorflow_refuses_a_mirrored_step_is_an_answer(child: Child, function: str) -> None:
    answer = child.call(f"runner_access:{function}", "UnavailableError", time_limit_s=_LIMIT_S)
    assert isinstance(answer, RunFailure)
    assert "connection reset" in answer.message
