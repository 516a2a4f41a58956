from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from command_runs import children_left
from real_runs import needs_private_network

from placement_advisor.errors import TestbedError
from placement_advisor.machine import this_machine
from placement_advisor.machine.testbed_plan import (
    HostLink,
    HostShare,
    TestbedKind,
    plan_hosts,
    plan_testbed,
)
from placement_advisor.machine.this_machine import core_slots, gpu_slots
from placement_advisor.processes.calls import CallFailure, FailureCause, RemoteModule
from placement_advisor.processes.children import ChildError
from placement_advisor.testbed import testbed as testbed_module
from placement_advisor.testbed.remote_launcher import RemoteLauncher, _RelayOfHost
from placement_advisor.testbed.testbed import ProcessLauncher, Testbed


@pytest.fixture
def two_cores(monkeypatch):
    monkeypatch.setattr(this_machine, "usable_cores", lambda: (0, 1))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


def test_devices_are_workers_on_cores_of_their_own_or_it_is_said_why_not(two_cores):
    plan = plan_testbed(None, 2)
    assert plan.kind is TestbedKind.WORKERS
    assert [device.name for device in plan.devices] == ["worker:0", "worker:1"]
    assert plan.slots == core_slots((0, 1))
    assert plan.stand_in
    assert plan.not_run is None
    plan = plan_testbed(None, 3)
    assert plan.kind is TestbedKind.NONE
    assert "3 devices need 3 cores" in plan.not_run
    assert "lets us use 2" in plan.not_run
    assert plan_testbed(TestbedKind.NONE, 2).not_run == "--testbed none: nothing was run"


def test_enough_gpus_are_preferred(two_cores, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert plan_testbed(None, 2).kind is TestbedKind.WORKERS
    with pytest.raises(TestbedError, match="2 devices asked for, 1 GPUs found"):
        plan_testbed(TestbedKind.GPUS, 2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    plan = plan_testbed(None, 2)
    assert plan.kind is TestbedKind.GPUS
    assert [device.name for device in plan.devices] == ["GPU:0", "GPU:1"]
    assert not plan.stand_in


class FakeChild:
    """Gives one answer, and says that it died if told so."""

    def __init__(self, name, answer, died=None):
        self.name, self.closed = name, False
        self._answer, self._died = answer, died

    def start(self, function, *args):
        return self

    def call(self, function, *args, **limits):
        return self.start(function, *args).wait(**limits)

    def wait(self, **_):
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer

    def failure(self, *, within_s=0.0):
        return self._died

    def close(self):
        self.closed = True


HOST = HostShare(name="a", address="10.0.0.1", slots=core_slots((0,)), fingerprint="", is_here=True)
RESET = CallFailure(cause=FailureCause.CRASHED, message="Connection reset by peer")
KILLED = CallFailure(
    cause=FailureCause.CRASHED, message="worker:1 was killed by SIGKILL", child_ended=True
)


def fake_testbed(client, *workers, scratch):
    testbed = Testbed(plan_testbed(TestbedKind.LOGICAL_CPUS, 2), scratch=scratch)
    testbed._client, testbed._workers = client, workers
    return testbed


@pytest.mark.parametrize("answer", [RESET, ChildError("client: Traceback ... UnavailableError")])
def test_a_broken_connection_is_the_death_of_the_worker_behind_it(answer, tmp_path):
    client = FakeChild("client", answer)
    workers = FakeChild("worker:0", None), FakeChild("worker:1", None, died=KILLED)
    testbed = fake_testbed(client, *workers, scratch=tmp_path)
    assert testbed.run_steps("single", 0, 1) == KILLED
    assert all(child.closed for child in (client, *workers))


@pytest.mark.parametrize(("hosts", "limit_s"), [((), 300), ((HOST,), 1_200)])
def test_over_a_network_a_step_may_take_as_long_as_elsewhere_all_of_them(hosts, limit_s, tmp_path):
    limits = []

    class Client(FakeChild):
        def wait(self, *, time_limit_s, **_):
            limits.append(time_limit_s)
            return [1, 2, 3, 4]

    testbed = fake_testbed(Client("client", None), scratch=tmp_path)
    testbed.plan = replace(testbed.plan, hosts=hosts)
    assert testbed.run_steps("single", 0, 4) == [1, 2, 3, 4]
    assert limits == [limit_s]


def test_what_fails_on_living_workers_leaves_the_testbed_up(tmp_path):
    refused = CallFailure(cause=FailureCause.CRASHED, message="no kernel")
    client, worker = FakeChild("client", refused), FakeChild("worker:0", None)
    testbed = fake_testbed(client, worker, scratch=tmp_path)
    assert testbed.run_steps("single", 0, 1) == refused
    assert (client.closed, worker.closed) == (False, False)
    client = FakeChild("client", ChildError("client: Traceback ... KeyError"))
    testbed = fake_testbed(client, worker, scratch=tmp_path)
    with pytest.raises(ChildError, match="KeyError"):
        testbed.run_steps("single", 0, 1)


@needs_private_network
def test_a_worker_that_does_not_start_is_named_and_nothing_is_left(
    fork_server, two_cores, tmp_path, monkeypatch
):
    monkeypatch.setattr(testbed_module, "runner", RemoteModule("failing_parts"))
    testbed = Testbed(plan_testbed(TestbedKind.WORKERS, 2), scratch=tmp_path)
    with pytest.raises(
        TestbedError, match=r"worker:\d did not start: worker:\d exited with status 5"
    ):
        testbed.start()
    assert testbed._children() == ()
    assert children_left() == []


def test_a_testbed_that_is_down_answers_so_until_it_is_started_anew(tmp_path):
    testbed = fake_testbed(FakeChild("client", KILLED), scratch=tmp_path)
    assert testbed.run_steps("single", 0, 1) == KILLED
    for answer in (testbed.run_steps("single", 0, 1), testbed.profile("single", 1)):
        assert answer.child_ended
        assert answer.message == "testbed logical-cpus: its processes have ended"


class CutOff(ProcessLauncher):
    """Two machines, the second of which is gone."""

    def fork(self, device, name):
        if device:
            raise TestbedError("host b is lost")
        self.forked = FakeChild(name, None)
        return self.forked


def test_what_has_started_ends_where_a_host_is_gone(tmp_path, monkeypatch):
    monkeypatch.setattr(testbed_module, "Child", lambda name: FakeChild(name, None))
    plan = plan_testbed(TestbedKind.LOGICAL_CPUS, 2)
    plan = replace(plan, kind=TestbedKind.WORKERS, slots=core_slots((0, 1)))
    site = CutOff(tmp_path, open_ports=True)
    testbed = Testbed(plan, scratch=tmp_path, site=site)
    with pytest.raises(TestbedError, match="host b is lost"):
        testbed.start()
    assert site.forked.closed
    assert not testbed.up


class Asked(FakeChild):
    """Keeps what it was asked for, with others."""

    def __init__(self, name, asked):
        super().__init__(name, None)
        self._asked = asked

    def start(self, function, *args):
        self._asked.append((function.__name__, args))
        return self


def test_gpus_of_hosts_are_tasks_that_see_one_each(tmp_path, monkeypatch):
    asked = []

    class TwoHosts(ProcessLauncher):
        def fork(self, device, name):
            return Asked(name, asked)

        def join(self, workers, client):
            return "localhost:20000", "localhost:20001"

    monkeypatch.setattr(testbed_module, "Child", lambda name: Asked(name, asked))
    first = replace(HOST, slots=gpu_slots(1))
    plan = plan_hosts((first, replace(first, name="b", is_here=False)), HostLink.TLS)
    testbed = Testbed(plan, scratch=tmp_path, site=TwoHosts(tmp_path, open_ports=True))
    testbed.start()
    task = "/job:worker/replica:0/task:{}/device:{}:0".format
    addresses = ("localhost:20000", "localhost:20001")
    gpus = {"a:0": task(0, "GPU"), "b:0": task(1, "GPU")}
    # The client has a core of nobody, so that it stays where it is.
    assert asked == [
        ("serve", (addresses, 0, *gpu_slots(1), ())),
        ("serve", (addresses, 1, *gpu_slots(1), ())),
        ("open_runner", ("grpc://localhost:20000", gpus, task(0, "CPU"), 0)),
    ]
    assert testbed.core_clocks == {}


class ProfiledClient(FakeChild):
    """Writes a profile at each call and answers with its file, as long as it lives."""

    def start(self, function, *args):
        if not isinstance(self._answer, CallFailure):
            folder = Path(args[-1])
            folder.mkdir(parents=True, exist_ok=True)
            written = folder / "vm.xplane.pb"
            written.write_text(function.__name__)
            self._answer = str(written)
        return self


def test_a_profile_outlives_a_second_one_that_fails(tmp_path):
    client = ProfiledClient("client", None)
    testbed = fake_testbed(client, scratch=tmp_path)
    files = testbed.profile("single", 3)
    client._answer = KILLED
    assert testbed.profile("single", 3) == KILLED
    assert files.client.exists()


@pytest.mark.parametrize(("lends_all", "carriers"), [(True, (7,)), (False, ())])
def test_a_relay_takes_the_core_of_devices_where_there_is_no_other(lends_all, carriers, tmp_path):
    a = replace(HOST, slots=core_slots((0, 1)))
    b = replace(HOST, name="b", is_here=False, lends_all=lends_all)
    plan = plan_hosts((a, b), HostLink.TLS)
    site = RemoteLauncher(plan, (), tmp_path)
    assert site.carriers(2) == ()  # None runs yet.
    site._relays[1] = _RelayOfHost(process=SimpleNamespace(pid=7), folder="", port=1)
    assert [site.carriers(device) for device in range(3)] == [(), (), carriers]
