import json
import socket
from dataclasses import replace
from types import SimpleNamespace

import jsonschema
import pytest
from examined_hosts import host, two_hosts

from placement_advisor.analysis import doctor_hosts
from placement_advisor.analysis.doctor_hosts import RouteResult, all_checks, next_step
from placement_advisor.analysis.hosts import (
    HostRequest,
    HostSource,
    host_share,
    host_slots,
    hosts_from_environment,
    is_this_machine,
    requests_of_tasks,
    slurm_variables,
    uses_gpus,
)
from placement_advisor.errors import AdvisorError, TestbedError
from placement_advisor.files.contract import plain
from placement_advisor.machine.clock_range import ClockRange
from placement_advisor.machine.nvidia import Gpu, Gpus
from placement_advisor.machine.testbed_plan import HostLink
from placement_advisor.machine.this_machine import core_slots, gpu_slots
from placement_advisor.remote_hosts.host_facts import WayTried
from placement_advisor.report.doctor_text import render_hosts
from placement_advisor.results.contracts import load_schema
from placement_advisor.results.doctor import Hosts

DAY_NS = 24 * 60 * 60 * 10**9


def wrong(found):
    """Return what is not well, by its name; text and JSON of it keep what they promise."""
    content = json.loads(json.dumps(plain(Hosts.of(found)), allow_nan=False))
    jsonschema.Draft202012Validator(load_schema("hosts")).validate(content)
    checks = all_checks(found)
    assert content["can_analyze"] is not any(check.blocks for check in checks)
    assert max(map(len, render_hosts(found).splitlines())) <= 100
    return {check.name: check for check in checks if check.state != "ok"}


def change(found, host, part, **changes):
    """Have a host tell otherwise of its facts or its place."""
    each = found.hosts[host]
    setattr(each, part, replace(getattr(each, part), **changes))
    return found


@pytest.mark.parametrize(("names", "count"), [(("a", "b"), 1), (("a", "localhost"), 0)])
def test_no_import_of_the_commands_own_counts_as_load_of_this_machine(names, count, monkeypatch):
    begun = []
    monkeypatch.setattr(doctor_hosts, "preload", lambda: begun.append(1))
    hosts = [SimpleNamespace(name=name, child=str) for name in names]
    found = two_hosts()
    started = doctor_hosts._start_workers(found, [*zip(found.hosts, hosts, strict=True)])
    assert [each.worker for each in started] == [f"{name}:0" for name in names]
    assert len(begun) == count


def test_hosts_in_order_can_run_an_analysis():
    found = two_hosts()
    assert wrong(found) == {}
    text = render_hosts(found)
    assert "clock         200 µs ahead of this machine's clock, ± 50.0 µs" in text
    assert "a → b         a small message and its answer take 300 µs" in text
    assert text.endswith("next: advisor analyze MODEL.py, with these hosts\n")


def test_a_host_that_does_not_answer_says_why_and_nothing_else():
    found = two_hosts()
    found.hosts[1].answered_ns = None
    found.hosts[1].versions = found.hosts[1].facts = None
    found.hosts[1].problem = TestbedError("host b: no", hint="see whether `ssh b` works")
    found.ways = ()
    assert set(wrong(found)) == {"reached"}
    assert next_step(found) == "see whether `ssh b` works"
    text = render_hosts(found)
    assert "`advisor analyze` cannot work on these hosts" in text


@pytest.mark.parametrize("told", ["no worker", {"tensorflow": 5}, {}])
def test_a_host_of_another_version_may_say_anything(told):
    found = two_hosts()
    found.hosts[1].versions = told
    found.hosts[1].facts = found.hosts[1].place = None
    assert set(wrong(found)) == {"versions"}


def test_what_is_worth_a_note_blocks_nothing_and_too_few_cores_do():
    found = two_hosts()
    found.hosts[1].versions |= {"python": "3.10.1"}
    versions = wrong(found)["versions"]
    assert "Python 3.10.1, here " in versions.finding
    assert not versions.blocks
    devices = wrong(change(two_hosts(), 0, "facts", cores=(0,)))["devices"]
    assert devices.finding == "1 core for 2 devices, one each"
    assert devices.blocks
    found = two_hosts()
    found.hosts[1].clock = None
    assert not wrong(found)["clock"].blocks
    mtu = wrong(change(two_hosts(), 1, "place", mtu_bytes=9_000))["MTU"]
    assert mtu.finding.startswith("1,500 bytes on a, 9,000 bytes on b")
    assert not mtu.blocks
    found = two_hosts()
    found.hosts[0].facts = found.hosts[0].place = None
    found.hosts[0].problem = TestbedError("host a: in use by erika on c (process 7)")
    assert wrong(found)["use"].finding == "host a: in use by erika on c (process 7)"
    found = two_hosts()
    found.ways, found.problem = (), TestbedError("relay-b was killed")
    assert wrong(found)["ways"].finding == "relay-b was killed"


def with_gpus(found, *visible):
    """Return what is not well where hosts have so many GPUs that TensorFlow may see."""
    for number, count in enumerate(visible):
        cards = (Gpu(index=i, name="Tesla T4", memory_bytes=16 << 30) for i in range(count))
        change(found, number, "facts", visible_gpus=count, gpus=Gpus(devices=tuple(cards)))
    return wrong(found)


def test_gpus_are_untried_and_on_some_hosts_alone_no_devices():
    found = two_hosts()
    (devices,) = with_gpus(found, 2, 4).values()
    assert devices.finding.startswith("4 GPUs (Tesla T4) for 2 devices, one each: untried")
    assert not devices.blocks
    assert next_step(found) == "advisor analyze MODEL.py, with these hosts"
    found = two_hosts()
    devices = with_gpus(found, 2, 0)["devices"]
    assert devices.blocks
    assert "a has 2 for 2, b has none for 2" in devices.finding
    assert next_step(found) == devices.action


def test_clocks_a_day_apart_break_certificates_and_nothing_else():
    found = two_hosts()
    found.hosts[1].clock = ClockRange(low_ns=-2 * DAY_NS, high_ns=-2 * DAY_NS + 100_000)
    clock = wrong(found)["clock"]
    assert clock.blocks
    assert "behind this machine's" in clock.finding
    found.link = HostLink.DIRECT
    assert wrong(found) == {}


def test_only_relays_need_a_private_network_and_none_can_listen_at_an_address_elsewhere():
    found = change(two_hosts(), 1, "place", has_private_network=False)
    assert wrong(found)["network"].blocks
    found.link = HostLink.DIRECT
    assert not wrong(found)["network"].blocks
    address = wrong(change(two_hosts(), 1, "place", interface=None, mtu_bytes=None))["address"]
    assert address.blocks
    assert address.finding.startswith("10.0.0.2 is on no interface of that host")


@pytest.mark.parametrize(
    ("tried", "finding"),
    [
        (WayTried(small_ns=None, large_passes=False), "b is not reached at 10.0.0.2"),
        (WayTried(small_ns=300_000, large_passes=False), "but large messages do not arrive"),
    ],
)
def test_a_way_that_does_not_carry_names_both_ends(tried, finding):
    found = two_hosts()
    found.ways = (RouteResult(source="a", target="b", tried=tried),)
    way = wrong(found)["a → b"]
    assert finding in way.finding
    assert way.blocks


STEP = {
    "SLURM_PROCID": "1",
    "SLURM_STEP_NODELIST": "n[1-2]",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
    "SLURM_STEP_NUM_TASKS": "4",
}
NO_TASK, TOO_MANY = "no task that computes", "Requested 9 tasks but only 5"
JOB = {"SLURM_JOB_NODELIST": "n[08-09],m5", "SLURM_TASKS_PER_NODE": "1(x2),3", "SLURM_NTASKS": "5"}


@pytest.fixture
def environment(monkeypatch):
    for name in (*STEP, *JOB, "TF_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def hosts(*found):
    return tuple(HostRequest(name=name, devices=count) for name, count in found)


def test_hosts_have_as_many_devices_as_tasks_and_this_machine_needs_no_launcher():
    tasks = ["n1:8888", "n1:8889", "n2:8888"]
    assert requests_of_tasks(HostSource.SLURM, tasks) == hosts(("n1", 2), ("n2", 1))
    tasks = [f"{socket.gethostname()}:2222", "elsewhere.example.org:2222"]
    found = requests_of_tasks(HostSource.TF_CONFIG, tasks)
    assert found == hosts(("localhost", 1), ("elsewhere.example.org", 1))
    assert is_this_machine("127.0.0.1")
    assert not is_this_machine("192.0.2.7")
    assert slurm_variables(STEP) == STEP
    assert slurm_variables(STEP | JOB) == STEP
    assert slurm_variables(JOB) == {
        "SLURM_PROCID": "0",
        "SLURM_STEP_NODELIST": "n[08-09],m5",
        "SLURM_STEP_TASKS_PER_NODE": "1(x2),3",
        "SLURM_STEP_NUM_TASKS": "5",
    }


@pytest.mark.parametrize(
    ("tasks", "problem"),
    [
        ([], NO_TASK),
        (["-oProxyCommand=reboot:1"], "is not a host"),
        (["localhost:1", "127.0.0.1:2"], "two of localhost, 127.0.0.1 are this machine"),
    ],
)
def test_tasks_on_no_host_are_refused(tasks, problem):
    with pytest.raises(AdvisorError, match=problem):
        requests_of_tasks(HostSource.TF_CONFIG, tasks)


@pytest.mark.parametrize("name", JOB)
def test_a_variable_that_is_missing_is_named(name):
    with pytest.raises(AdvisorError, match=f"--hosts slurm: {name} is not set") as error:
        slurm_variables({key: value for key, value in JOB.items() if key != name})
    assert "salloc" in (error.value.hint or "")


CLUSTER = {"chief": ["n1:2222"], "worker": ["n2:2222", "n2:2223"], "ps": ["n3:2222"]}
TF_CONFIG = json.dumps({"cluster": CLUSTER, "task": {"type": "worker"}})


@pytest.mark.parametrize(
    ("source", "variables", "found"),
    [
        (HostSource.SLURM, STEP, hosts(("n1", 2), ("n2", 2))),
        (HostSource.SLURM, JOB, hosts(("m5", 3), ("n08", 1), ("n09", 1))),
        # Of a cluster, the tasks that compute.
        (HostSource.TF_CONFIG, {"TF_CONFIG": TF_CONFIG}, hosts(("n1", 1), ("n2", 2))),
    ],
)
def test_the_resolver_reads_what_the_environment_says(environment, source, variables, found):
    for name, value in variables.items():
        environment.setenv(name, value)
    assert hosts_from_environment(source) == found


@pytest.mark.parametrize(
    ("source", "variables", "problem"),
    [
        (HostSource.SLURM, JOB | {"SLURM_NTASKS": "9"}, f"SLURM variables: {TOO_MANY}"),
        (HostSource.TF_CONFIG, {}, "--hosts tf-config: TF_CONFIG is not set"),
        (HostSource.TF_CONFIG, {"TF_CONFIG": ""}, "TF_CONFIG: "),
        (HostSource.TF_CONFIG, {"TF_CONFIG": "{"}, "TF_CONFIG: "),
        (HostSource.TF_CONFIG, {"TF_CONFIG": "[]"}, NO_TASK),
        (HostSource.TF_CONFIG, {"TF_CONFIG": "{}"}, NO_TASK),
        (HostSource.TF_CONFIG, {"TF_CONFIG": '{"cluster": {"ps": ["a:1"]}}'}, NO_TASK),
        (HostSource.TF_CONFIG, {"TF_CONFIG": '{"cluster": {"worker": 5}}'}, "TF_CONFIG: "),
    ],
)
def test_what_the_resolver_cannot_read_is_told(environment, source, variables, problem):
    for name, value in variables.items():
        environment.setenv(name, value)
    with pytest.raises(AdvisorError, match=problem):
        hosts_from_environment(source)


GPUS = Gpus(devices=(Gpu(index=0, name="Tesla T4", memory_bytes=16 << 30),), driver="550.54.15")


def facts(visible_gpus, *, cores=2):
    found = host("any", 1).facts
    gpus = GPUS if visible_gpus else Gpus()
    return replace(found, visible_gpus=visible_gpus, cores=tuple(range(cores)), gpus=gpus)


def asked(**hosts):
    """Return hosts by name, as many devices as asked for and as many GPUs as visible of each."""
    return {
        HostRequest(name=name, devices=devices): facts(visible)
        for name, (devices, visible) in hosts.items()
    }


@pytest.mark.parametrize(
    ("hosts", "gpus"),
    [
        ({"a": (2, 0), "b": (1, 0)}, False),
        ({"a": (2, 2), "b": (1, 1)}, True),
        ({"a": (1, 8), "b": (1, 1)}, True),
    ],
)
def test_devices_are_gpus_where_all_hosts_have_enough_and_cores_where_none_has_any(hosts, gpus):
    assert uses_gpus(asked(**hosts)) is gpus


@pytest.mark.parametrize(
    ("hosts", "says", "there"),
    [
        ({"a": (2, 2), "b": (2, 0)}, "a has 2 for 2, b has none for 2", "--hosts a:2;"),
        ({"a": (2, 2), "b": (3, 1)}, "a has 2 for 2, b has 1 for 3", "--hosts a:2,b:1;"),
        ({"a": (4, 1), "b": (1, 0)}, "a has 1 for 4, b has none for 1", None),
    ],
)
def test_a_mixture_says_who_has_how_many_and_what_to_ask_for(hosts, says, there):
    with pytest.raises(TestbedError) as raised:
        uses_gpus(asked(**hosts))
    assert raised.value.message == (
        f"--hosts: devices are GPUs on all hosts, or cores on all; of GPUs {says}"
    )
    hint = raised.value.hint
    assert hint.endswith("--launch 'ssh {host} env CUDA_VISIBLE_DEVICES='")
    if there is None:  # One device has nothing to be split over.
        assert "for GPUs" not in hint
    else:
        assert there in hint


def test_a_host_lends_its_first_gpus_or_cores():
    request = HostRequest(name="a", devices=2)
    assert host_slots(request, facts(4, cores=1), gpus=True) == gpu_slots(2)
    assert host_slots(request, facts(0, cores=3), gpus=False) == core_slots((0, 1))
    with pytest.raises(TestbedError, match="2 devices need a core of their own each; it lets us"):
        host_slots(request, facts(0, cores=1), gpus=False)


def test_figures_of_gpus_are_not_taken_for_those_of_cores_or_of_other_gpus():
    request, on_gpus = HostRequest(name="a", devices=2), facts(2)
    other = replace(on_gpus, gpus=replace(GPUS, driver="560.35.03"))
    cores = host_share(request, on_gpus, "10.0.0.1", core_slots((0, 1)))
    cards = host_share(request, on_gpus, "10.0.0.1", gpu_slots(2))
    assert cores.fingerprint == on_gpus.fingerprint
    newer = host_share(request, other, "10.0.0.1", gpu_slots(2))
    assert len({cores.fingerprint, cards.fingerprint, newer.fingerprint}) == 3
    # A relay beside GPUs takes no device's core.
    assert cores.lends_all
    assert not cards.lends_all
    assert cards.gpus == GPUS
