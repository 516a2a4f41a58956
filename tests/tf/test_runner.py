"""The runner's calls, on logical CPUs; profiles and calibration also on workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from real_runs import needs_workers

from placement_advisor.graph.placement import placed_ops
from placement_advisor.machine.testbed_plan import TestbedKind, plan_testbed
from placement_advisor.processes.calls import CallFailure, FailureCause, RemoteModule
from placement_advisor.testbed.testbed import STEP, ProfileFiles, Testbed
from placement_advisor.tf.answers import Prepared
from placement_advisor.tf.calls import runner

if TYPE_CHECKING:
    from traced_models import TracedModel

    from placement_advisor.machine.calibration import Calibration

graph_defs = RemoteModule("graph_defs")
placed_step = RemoteModule("placement_advisor.tf.placed_step")
runner_access = RemoteModule("runner_access")
_DEVICES = {f"cpu:{i}": f"/job:localhost/replica:0/task:0/device:CPU:{i}" for i in range(2)}
_LIMIT_S = 600.0


@pytest.fixture
def model(traced):
    return traced("scoped_step")


@pytest.fixture
def call(child, model):
    """Return a function that calls the runner of the model on two logical CPUs."""
    call = child.call
    host = _DEVICES["cpu:0"]
    call(runner.open_runner, "", _DEVICES, host, len(_DEVICES))
    call(runner.open_program, STEP, str(model.bundle), model.graph, _LIMIT_S)
    return call


def _everything_on(model: TracedModel, device: str) -> dict[str, str]:
    return {op.name: device for op in placed_ops(model.graph)}


def test_steps_are_timed_one_by_one(call, model):
    call(runner.prepare, "single", _everything_on(model, "cpu:0"), STEP)
    samples = call(runner.run_steps, "single", 0, 7)
    assert len(samples) == 7
    assert all(isinstance(sample, int) and sample > 0 for sample in samples)


def test_results_start_from_the_initial_state_whatever_ran_before(call, child, model):
    call(runner.prepare, "single", _everything_on(model, "cpu:0"), STEP)
    first = call(runner.results, "single", 2)
    call(runner.run_steps, "single", 1, 3)
    ran = child.call(runner_access.variable, "single", "steps_done")
    again = call(runner.results, "single", 2)
    after = child.call(runner_access.variable, "single", "steps_done")
    assert (ran, again.state["steps_done"], after) == (3, 2, 0)
    # The step's noise goes on, as the user's own would: only what needs none is equal.
    for name in ("steps_done", "label"):
        assert again.state[name] == first.state[name]


def test_two_candidates_do_not_share_state(call, child, model):
    for label in ("one", "other"):
        call(runner.prepare, label, _everything_on(model, "cpu:0"), STEP)
        call(runner.results, label, 1)
    call(runner.run_steps, "one", 0, 5)
    assert child.call(runner_access.variable, "other", "steps_done") == 0


def test_verify_compares_with_the_first_candidate(call, model):
    for label, device in (("single", "cpu:0"), ("elsewhere", "cpu:1")):
        call(runner.prepare, label, _everything_on(model, device), STEP)
    assert call(runner.verify, "single", 3) is None
    found = call(runner.verify, "elsewhere", 3)
    assert (found.wrong, found.unverified, found.held_equal) == ("", (), False)
    assert found.relative_difference <= 1e-6


def test_verify_finds_a_wrong_result(call, child, model):
    call(runner.prepare, "single", _everything_on(model, "cpu:0"), STEP)
    assert call(runner.verify, "single", 3) is None
    child.call(runner_access.start_from_other_values, "head/kernel")
    call(runner.prepare, "wrong", _everything_on(model, "cpu:0"), STEP)
    found = call(runner.verify, "wrong", 3)
    assert found.relative_difference > 0.1
    assert found.wrong.startswith(("what ", "output "))


def test_an_op_apart_from_its_variable_is_refused_or_seen_to_have_moved(call, model):
    apart = _everything_on(model, "cpu:0")
    read = next(op for op in model.graph.ops if op.kind == "ReadVariableOp")
    apart[read.name] = "cpu:1"
    prepared = call(runner.prepare, "apart", apart, STEP)
    if isinstance(prepared, Prepared):
        assert any(moved.startswith(f"{read.name}: ") for moved in prepared.moved_ops)
    else:
        assert isinstance(prepared, CallFailure)
        assert prepared.cause is FailureCause.CRASHED


def test_a_device_that_is_not_there_is_a_failure(child, model):
    nowhere = {"cpu:0": "/job:localhost/replica:0/task:0/device:CPU:7"}
    child.call(runner.open_runner, "", nowhere, nowhere["cpu:0"], 1)
    program = STEP, str(model.bundle), model.graph, _LIMIT_S
    child.call(runner.open_program, *program)
    answer = child.call(runner.prepare, "lost", _everything_on(model, "cpu:0"), STEP)
    assert isinstance(answer, CallFailure)
    assert "CPU:7" in answer.message


def test_a_discarded_candidate_is_gone_and_can_be_prepared_again(call, model):
    call(runner.prepare, "single", _everything_on(model, "cpu:0"), STEP)
    call(runner.discard, "single")
    call(runner.discard, "single")
    call(runner.prepare, "single", _everything_on(model, "cpu:1"), STEP)
    assert len(call(runner.run_steps, "single", 0, 1)) == 1


def test_a_bundle_that_is_saved_loads_equal(child, traced, tmp_path):
    for name in ("two_tower", "scoped_step"):
        again = tmp_path / name
        again.mkdir()
        bundle = str(traced(name).bundle)
        same_graph, different = child.call(graph_defs.saved_and_loaded, bundle, str(again))
        assert same_graph
        assert different == []


@pytest.mark.slow
@needs_workers
def test_workers_are_calibrated_and_profiled(traced, tmp_path):
    plan = plan_testbed(TestbedKind.WORKERS, 2)
    model = traced("two_tower")
    testbed = Testbed(plan, scratch=tmp_path)
    testbed.add_program(STEP, model.bundle, model.graph)
    testbed.start()
    try:
        calibration = testbed.call(runner.calibrate, testbed.core_clocks)
        _check_calibration(calibration)
        device_of = _everything_on(model, "worker:1")
        testbed.prepare("one", device_of, STEP)
        files = testbed.profile("one", 2)
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


@pytest.mark.parametrize(
    ("sizes", "messages"),
    [
        ([4, 4, 4], [["0", "1"], ["2"]]),  # As few as hold them, in order.
        ([8, 1, 8], [["0"], ["1"], ["2"]]),
        ([1, 20, 1], [["0"], ["1"], ["2"]]),  # What is too large goes alone.
        ([], []),
    ],
)
def test_values_are_sent_in_few_messages(call, sizes, messages):
    values = {str(number): np.zeros(size, np.int8) for number, size in enumerate(sizes)}
    assert call(placed_step.in_messages, values, 8) == messages


def test_texts_and_truths_come_out_as_arrays(call, model):
    call(runner.prepare, "single", _everything_on(model, "cpu:0"), STEP)
    state = call(runner.results, "single", 2).state
    assert state["label"] == b"2"
    assert state["seen_large"].dtype == np.bool_


def test_a_calibration_that_tensorflow_aborts_is_made_once_more(child):
    def calibrated(*failures: str) -> Any:
        return child.call(runner_access.calibrate, *failures)

    assert calibrated("AbortedError") == "measured"
    again = calibrated("AbortedError", "AbortedError")
    assert isinstance(again, CallFailure)
    assert "received twice" in again.message
    assert isinstance(calibrated("UnavailableError"), CallFailure)


@pytest.mark.parametrize(("device", "pairs"), [("CPU", 1), ("GPU", 6)])
def test_logical_cpus_are_calibrated_as_one_pair_and_gpus_each_with_each(call, device, pairs):
    names = [f"/job:localhost/replica:0/task:0/device:{device}:{number}" for number in range(3)]
    assert len(set(call(runner_access.pairs_copied, *names))) == pairs


@pytest.mark.parametrize(
    "function", [runner_access.time_collectives, runner_access.open_mirrored_worker]
)
def test_what_tensorflow_refuses_a_mirrored_step_is_an_answer(child, function):
    answer = child.call(function, "UnavailableError")
    assert isinstance(answer, CallFailure)
    assert "connection reset" in answer.message
