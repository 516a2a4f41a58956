"""The runner's calls, on logical CPUs, workers, and pretended GPUs."""

import os
import time
from contextlib import closing

import numpy as np
import pytest
from real_runs import needs_workers
from recorded_profiles import crossing
from traced_models import trace

from placement_advisor.errors import TestbedError
from placement_advisor.machine.testbed_plan import TestbedKind, plan_testbed
from placement_advisor.machine.this_machine import core_slots, gpu_slots
from placement_advisor.processes.calls import CallFailure, FailureCause, RemoteModule
from placement_advisor.testbed import testbed as testbeds
from placement_advisor.testbed.testbed import STEP, ProfileFiles, Testbed
from placement_advisor.tf.answers import Prepared
from placement_advisor.tf.calls import runner
from placement_advisor.tf.step_limit import step_limit_s

graph_defs = RemoteModule("graph_defs")
placed_step = RemoteModule("placement_advisor.tf.placed_step")
runner_access = RemoteModule("runner_access")
written_files = RemoteModule("written_files")

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


def _everything_on(model, device):
    return {op.name: device for op in model.graph.placed_ops}


def test_steps_are_timed_one_by_one_and_results_start_from_the_initial_state(call, model, child):
    call(runner.prepare, "single", _everything_on(model, "cpu:0"), STEP)
    samples = call(runner.run_steps, "single", 0, 7)
    assert len(samples) == 7
    assert all(isinstance(sample, int) and sample > 0 for sample in samples)

    call(runner.prepare, "single", _everything_on(model, "cpu:0"), STEP)
    first = call(runner.results, "single", 2)
    assert first.state["label"] == b"2"
    assert first.state["seen_large"].dtype == np.bool_
    call(runner.run_steps, "single", 1, 3)
    ran = child.call(runner_access.variable, "single", "steps_done")
    again = call(runner.results, "single", 2)
    after = child.call(runner_access.variable, "single", "steps_done")
    assert (ran, again.state["steps_done"], after) == (3, 2, 0)
    # The step's noise goes on, as the user's own would: only what needs none is equal.
    for name in ("steps_done", "label"):
        assert again.state[name] == first.state[name]


def test_a_candidate_has_state_of_its_own_and_is_gone_when_discarded(call, child, model):
    for label in ("one", "other"):
        call(runner.prepare, label, _everything_on(model, "cpu:0"), STEP)
        call(runner.results, label, 1)
    call(runner.run_steps, "one", 0, 5)
    assert child.call(runner_access.variable, "other", "steps_done") == 0

    call(runner.prepare, "single", _everything_on(model, "cpu:0"), STEP)
    call(runner.discard, "single")
    call(runner.discard, "single")
    call(runner.prepare, "single", _everything_on(model, "cpu:1"), STEP)
    assert len(call(runner.run_steps, "single", 0, 1)) == 1


def test_verify_compares_with_the_first_candidate_and_finds_a_wrong_result(call, model, child):
    for label, device in (("single", "cpu:0"), ("elsewhere", "cpu:1")):
        call(runner.prepare, label, _everything_on(model, device), STEP)
    assert call(runner.verify, "single", 3) is None
    found = call(runner.verify, "elsewhere", 3)
    assert (found.wrong, found.unverified, found.held_equal) == ("", (), False)
    assert found.relative_difference <= 1e-6

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
        assert prepared.cause is FailureCause.CRASHED


def test_a_device_that_is_not_there_is_a_failure(child, model):
    nowhere = {"cpu:0": "/job:localhost/replica:0/task:0/device:CPU:7"}
    child.call(runner.open_runner, "", nowhere, nowhere["cpu:0"], 1)
    child.call(runner.open_program, STEP, str(model.bundle), model.graph, _LIMIT_S)
    answer = child.call(runner.prepare, "lost", _everything_on(model, "cpu:0"), STEP)
    assert "CPU:7" in answer.message


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


def _check_calibration(calibration):
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
def test_values_are_sent_in_few_messages(loader, sizes, messages):
    values = {str(number): np.zeros(size, np.int8) for number, size in enumerate(sizes)}
    assert loader.call(placed_step.in_messages, values, 8) == messages


def test_a_calibration_that_tensorflow_aborts_is_made_once_more(loader):
    def calibrated(*failures):
        return loader.call(runner_access.calibrate, *failures)

    assert calibrated("AbortedError") == "measured"
    assert "received twice" in calibrated("AbortedError", "AbortedError").message
    assert isinstance(calibrated("UnavailableError"), CallFailure)


@pytest.mark.parametrize(("device", "pairs"), [("CPU", 1), ("GPU", 6)])
def test_logical_cpus_are_calibrated_as_one_pair_and_gpus_each_with_each(call, device, pairs):
    names = [f"/job:localhost/replica:0/task:0/device:{device}:{number}" for number in range(3)]
    assert len(set(call(runner_access.pairs_copied, *names))) == pairs


def test_what_tensorflow_refuses_a_mirrored_step_is_an_answer(loader):
    for answer in loader.call(runner_access.mirrored_failures):
        assert (answer.cause, answer.child_ended) == (FailureCause.CRASHED, False)
        assert "connection reset" in answer.message
    assert loader.failure() is None


def test_each_device_has_its_own_copy_of_constants_and_inputs(loader):
    def placed(ops, device_of, **shapes):
        return loader.call(graph_defs.placed, ops, device_of, shapes)

    ops = "two = Const; unread = Const; a = Neg two; b = Mul two two:0; c = AddV2 a b"
    assert placed(ops, {"a": "d0", "b": "d1", "c": "d1"}) == {
        "two": ("Const", [], "d0"),
        "two/copy_0": ("Const", [], "d1"),
        "unread": ("Const", [], "host"),
        "a": ("Neg", ["two"], "d0"),
        "b": ("Mul", ["two/copy_0", "two/copy_0:0"], "d1"),
        "c": ("AddV2", ["a", "b"], "d1"),
    }

    assert placed("x = Placeholder; y = Neg x", {"x": "d1", "y": "d0"}, x=(2, 3)) == {
        "x": ("ReadVariableOp", ["x/resident"], "d1"),
        "x/resident": ("VarHandleOp", [], "d1"),
        "y": ("Neg", ["x"], "d0"),
    }


def test_moved_ops_are_those_that_stand_elsewhere_than_planned(loader):
    there = "/job:worker/replica:0/task:{}/device:CPU:0"
    planned = {"stays": there.format(0), "moves": there.format(1), "not_run": there.format(1)}
    executed = {"stays": there.format(0), "moves": there.format(0), "_send_1": there.format(1)}
    moved = loader.call(graph_defs.moved, executed, planned)
    assert moved == ("moves: task 1 CPU:0 → task 0 CPU:0",)


def test_what_goes_from_a_gpu_to_the_cpu_of_its_process_crosses_no_devices(loader):
    """Of two processes with a GPU each, one looks up ids on its CPU and both take them."""
    task = "/job:worker/replica:0/task:{}/device:{}:0".format

    def ends(target):
        return {"tensor_name": target, "send_device": task(0, "CPU"), "recv_device": target}

    found = loader.call(
        graph_defs.crossings,
        [
            [
                ("ids", "LookupTableFindV2", [], {}),
                ("here_send", "_Send", ["ids"], ends(task(0, "GPU"))),
                ("ids_send", "_Send", ["ids"], ends(task(1, "GPU"))),
                ("here_recv", "_Recv", [], ends(task(0, "GPU"))),
            ],
            [("ids_recv", "_Recv", [], ends(task(1, "GPU")))],
        ],
        {task(i, kind): f"{'ab'[i]}:0" for i in range(2) for kind in ("GPU", "CPU")},
        {("ids", 0): 8},
    )
    assert found == (crossing("ids", "a:0", "b:0", size_bytes=8),)


def test_crossings_tell_tensors_from_signals_and_leave_the_client_out(loader):
    def ends(tensor):
        return {"tensor_name": tensor, "send_device": "D0", "recv_device": "D1"}

    found = loader.call(
        graph_defs.crossings,
        [
            [
                ("split", "Split", [], {}),
                ("write", "AssignVariableOp", [], {}),
                ("write/_1", "Const", ["^write"], {}),
                ("write_send", "_Send", ["write/_1"], ends("edge_1_write")),
                ("split_send", "_Send", ["split:1"], ends("edge_2_split")),
                ("send_out", "_Send", ["split"], {**ends("split:0"), "client_terminated": "yes"}),
            ],
            [
                ("write_recv", "_Recv", [], ends("edge_1_write")),
                ("split_recv", "_HostRecv", [], ends("edge_2_split")),
            ],
        ],
        {"D0": "worker:0", "D1": "worker:1"},
        {("split", 0): 8, ("split", 1): 12},
    )
    assert found == (
        crossing("write", "worker:0", "worker:1", port=-1, size_bytes=0),
        crossing("split", "worker:0", "worker:1", port=1, size_bytes=12),
    )


_SAID = "a step did not end within 2 s: op 'taken' (QueueDequeueV2) waits for what nothing gives it"


@pytest.fixture
def waiting(child, tmp_path):
    path = tmp_path / "waiting.pb"
    child.call(written_files.write_waiting, str(path))
    return trace(path, tmp_path, run=False)


@pytest.mark.parametrize(
    "kind", [TestbedKind.LOGICAL_CPUS, pytest.param(TestbedKind.WORKERS, marks=needs_workers)]
)
def test_a_candidate_that_waits_for_ever_ends_at_its_limit(waiting, tmp_path, monkeypatch, kind):
    assert step_limit_s(waiting.graph) < 60
    monkeypatch.setattr(testbeds, "step_limit_s", lambda graph: 2.0)
    with closing(Testbed(plan_testbed(kind, 2), scratch=tmp_path)) as testbed:
        testbed.start()
        testbed.add_program(STEP, waiting.bundle, waiting.graph)
        device = testbed.plan.devices[0].name
        begun = time.monotonic()
        answer = testbed.prepare("single", _everything_on(waiting, device), STEP)
        assert (answer.cause, answer.message) == (FailureCause.TIMED_OUT, _SAID)
        assert time.monotonic() - begun < 60
        # Others go on in the same processes.
        assert testbed.up


def test_a_split_of_the_batch_that_waits_for_ever_is_refused(child, tmp_path):
    path = str(tmp_path / "waiting.pb")
    child.call(written_files.write_waiting, path)
    assert child.call(written_files.split, path, 2.0) == _SAID


FIRST, SECOND = gpu_slots(2)
(CORE,) = core_slots([min(os.sched_getaffinity(0))])


@pytest.mark.parametrize(
    ("slot", "visible", "seen"),
    [
        (SECOND, "0,1", "1"),
        (SECOND, "5, GPU-8932f937", "GPU-8932f937"),
        # Workers on cores must not take memory of GPUs that others use.
        (CORE, "0,1", ""),
    ],
)
def test_the_process_of_a_device_sees_its_gpu_alone(child, slot, visible, seen):
    found = child.call(runner_access.visible_to, slot, visible, "a physical device")
    assert found == seen


def test_a_gpu_that_tensorflow_does_not_find_is_an_error_with_a_way_out(child):
    with pytest.raises(TestbedError, match="TensorFlow finds no GPU, though") as raised:
        child.call(runner_access.visible_to, FIRST, "0")
    assert "CUDA_VISIBLE_DEVICES=" in str(raised.value.hint)


@pytest.mark.parametrize(("target", "seen"), [("grpc://localhost:20000", ""), ("", "0")])
def test_a_client_leaves_gpus_to_processes_of_devices(child, target, seen):
    found = child.call(runner_access.visible_to_client, target)
    assert found == seen


def test_copies_of_devices_that_are_no_cores_neither_wait_for_ops_nor_wake(child):
    found = child.call(runner_access.reach_without_core_clocks)
    assert (found.quantum_ns, found.wake_ns) == (0, 0)
