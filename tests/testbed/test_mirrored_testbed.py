"""A mirrored step on children that answer as told; `test_analyze_mirrored` has real ones."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from placement_advisor.machine.testbed_plan import TestbedKind
from placement_advisor.machine.this_machine import core_slots
from placement_advisor.measurement.verification import SEEDS, Verification
from placement_advisor.processes.calls import CallFailure, FailureCause
from placement_advisor.testbed import testbed
from placement_advisor.testbed.mirrored_testbed import MirroredTestbed
from placement_advisor.testbed.testbed import ProfileFiles
from placement_advisor.tf.answers import Prepared
from placement_advisor.tf.load.model_source import ModelSource

KILLED = CallFailure(
    cause=FailureCause.CRASHED, message="mirrored-worker:1 was killed by SIGKILL", child_ended=True
)
LATE = CallFailure(cause=FailureCause.TIMED_OUT, message="late", child_ended=True)
REFUSED = CallFailure(cause=FailureCause.CRASHED, message="connection reset")
RIGHT = Verification(steps=4, variables=1, relative_difference=1e-7)
PREPARED = Prepared(moved_ops=(), crossings=(), unexchanged=("mean", "w"))


class FakeChild:
    """Notes what it is asked and answers as told, the first time otherwise where so told."""

    pid = 1

    def __init__(self, name):
        self.name = name

    def start(self, function, *args):
        asked = function.__name__
        self.log.append((self.name, asked))
        if asked == "start_profiler":
            self.profile = Path(args[0]) / "vm.xplane.pb"
            self.profile.write_text("")
        if asked == "save_results":
            Path(args[1]).write_text(str(args[3]))

        def wait(**_):
            self.log.append((self.name, f"{asked} done"))
            written = str(self.profile) if asked == "stop_profiler" else None
            return self.once.pop((self.name, asked), self.answers.get(asked, written))

        return SimpleNamespace(wait=wait)

    def failure(self, *, within_s):
        return KILLED if self.name == self.died else None

    def close(self):
        self.log.append((self.name, "closed"))


@pytest.fixture
def child(monkeypatch):
    made = type("Made", (FakeChild,), {"log": [], "once": {}, "found": {}, "died": ""})
    made.answers = {"prepare": PREPARED, "run_steps": [600, 610], "time_collectives": "times"}
    monkeypatch.setattr(testbed, "Child", made)
    return made


@pytest.fixture
def bench(child, tmp_path):
    """Two processes that have started; `compare` finds results right."""
    devices = tuple(SimpleNamespace(name=f"worker:{i}", kind="CPU") for i in range(2))
    known = {"kind": TestbedKind.WORKERS, "slots": core_slots((0, 1))}
    plan = SimpleNamespace(devices=devices, open_ports=True, hosts=(), **known)
    machine = testbed.ProcessLauncher(tmp_path, open_ports=True)

    def call(function, program, paths, seed, **_):
        assert (function.__name__, program) == ("compare", "batch")
        assert all(Path(path).read_text() == str(seed) for path in paths)
        return child.found.get(seed, RIGHT)

    beside = SimpleNamespace(plan=plan, call=call, site=machine, end_if_dead=lambda: None)
    how = {"captured": None, "program": "batch", "draws": False, "statistics": ("mean",)}
    source = ModelSource(path="model.py", time_limit_s=1.0)
    made = MirroredTestbed(beside, source, tmp_path, {}, **how)
    assert made.start() == "times"
    child.log.clear()
    return made


def test_all_are_asked_before_one_is_waited_for_and_compared_on_the_testbed(bench, child, tmp_path):
    assert bench.run_steps("mirrored", 0, 2) == [600, 610]
    assert child.log == [
        ("mirrored-worker:0", "run_steps"),
        ("mirrored-worker:1", "run_steps"),
        ("mirrored-worker:0", "run_steps done"),
        ("mirrored-worker:1", "run_steps done"),
    ]
    prepared = bench.prepare("mirrored", {}, "batch")
    assert prepared.unexchanged == ("w",)
    assert bench.verify("mirrored", 4) == RIGHT
    assert list(tmp_path.glob("*.results")) == []
    files = bench.profile("mirrored", 3)
    assert set(files.devices) == {"worker:0", "worker:1"}
    assert files.devices["worker:0"] == files.client != files.devices["worker:1"]


def test_results_are_wrong_that_are_so_from_wherever_they_begin(bench, child):
    wrong = replace(RIGHT, wrong="what was added to variable 'w'")
    first, second = SEEDS
    child.found |= {None: wrong, first: wrong}
    assert bench.verify("mirrored", 4) == RIGHT
    child.found[second] = wrong
    assert bench.verify("mirrored", 4) == wrong


@pytest.mark.parametrize("answer", [KILLED, REFUSED])
def test_a_failure_ends_all_and_is_the_answer_to_all_that_follows(bench, child, answer):
    child.once["mirrored-worker:0", "run_steps"] = answer
    assert bench.run_steps("mirrored", 0, 2) == answer
    assert child.log[-2:] == [("mirrored-worker:0", "closed"), ("mirrored-worker:1", "closed")]
    child.log.clear()
    assert bench.run_steps("mirrored", 0, 2) == answer
    assert bench.verify("mirrored", 4) == answer
    assert child.log == []


def test_a_broken_connection_is_the_death_of_the_process_behind_it_also_at_the_start(bench, child):
    child.once["mirrored-worker:0", "run_steps"], child.died = REFUSED, "mirrored-worker:1"
    assert bench.run_steps("mirrored", 0, 2) == KILLED


def test_a_profiler_that_takes_its_process_down_is_tried_once_more_on_new_ones(bench, child):
    child.once["mirrored-worker:1", "stop_profiler"] = KILLED
    assert isinstance(bench.profile("mirrored", 3), ProfileFiles)
    asked = [what for name, what in child.log if name == "mirrored-worker:0" and "done" not in what]
    stages = ["start_profiler", "run_marked_steps", "stop_profiler"]
    assert asked == [*stages, "closed", "open_worker", "prepare", "run_steps", *stages]


@pytest.mark.parametrize("answer", [LATE, REFUSED])
def test_a_profile_that_fails_otherwise_is_not_tried_again(bench, child, answer):
    child.once["mirrored-worker:1", "run_marked_steps"] = answer
    assert bench.profile("mirrored", 3) == answer
    assert ("mirrored-worker:0", "open_worker") not in child.log


def test_why_it_did_not_start_is_the_answer_to_all_that_follows(bench, child):
    child.once["mirrored-worker:1", "open_worker"] = REFUSED
    assert bench.start() is None
    answer = bench.prepare("mirrored", {}, "batch")
    assert answer.message == "mirrored-worker:1 did not start: connection reset"
