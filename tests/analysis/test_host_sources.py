"""Which hosts Slurm's variables or TF_CONFIG name, and which devices hosts lend."""

from __future__ import annotations

import json
import socket
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from examined_hosts import host

from placement_advisor.analysis.hosts import (
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
from placement_advisor.machine.nvidia import Gpu, Gpus
from placement_advisor.machine.this_machine import core_slots, gpu_slots
from placement_advisor.remote_hosts.host_requests import HostRequest

if TYPE_CHECKING:
    from placement_advisor.remote_hosts.host_facts import HostFacts


STEP = {
    "SLURM_PROCID": "1",
    "SLURM_STEP_NODELIST": "n[1-2]",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
    "SLURM_STEP_NUM_TASKS": "4",
}
JOB = {
    "SLURM_JOB_NODELIST": "n[08-09],m5",
    "SLURM_TASKS_PER_NODE": "1(x2),3",
    "SLURM_NTASKS": "5",
}


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in (*STEP, *JOB, "TF_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def hosts(*found: tuple[str, int]) -> tuple[HostRequest, ...]:
    return tuple(HostRequest(name=name, devices=count) for name, count in found)


def test_a_host_has_as_many_devices_as_it_has_tasks() -> None:
    tasks = ["n1:8888", "n1:8889", "n2:8888"]
    assert requests_of_tasks(HostSource.SLURM, tasks) == hosts(("n1", 2), ("n2", 1))


def test_this_machine_among_them_needs_no_launcher() -> None:
    tasks = [f"{socket.gethostname()}:2222", "elsewhere.example.org:2222"]
    found = requests_of_tasks(HostSource.TF_CONFIG, tasks)
    assert found == hosts(("localhost", 1), ("elsewhere.example.org", 1))
    assert is_this_machine("127.0.0.1")
    assert not is_this_machine("192.0.2.7")


@pytest.mark.parametrize(
    ("tasks", "problem"),
    [
        ([], "no task that computes"),
        (["-oProxyCommand=reboot:1"], "is not a host"),
        (["localhost:1", "127.0.0.1:2"], "two of localhost, 127.0.0.1 are this machine"),
    ],
)
def test_tasks_on_no_host_are_refused(tasks: list[str], problem: str) -> None:
    with pytest.raises(AdvisorError, match=problem):
        requests_of_tasks(HostSource.TF_CONFIG, tasks)


def test_a_job_stands_in_for_a_step_that_there_is_not() -> None:
    assert slurm_variables(STEP) == STEP
    assert slurm_variables(STEP | JOB) == STEP
    assert slurm_variables(JOB) == {
        "SLURM_PROCID": "0",
        "SLURM_STEP_NODELIST": "n[08-09],m5",
        "SLURM_STEP_TASKS_PER_NODE": "1(x2),3",
        "SLURM_STEP_NUM_TASKS": "5",
    }


@pytest.mark.parametrize("name", JOB)
def test_a_variable_that_is_missing_is_named(name: str) -> None:
    with pytest.raises(AdvisorError, match=f"--hosts slurm: {name} is not set") as error:
        slurm_variables({key: value for key, value in JOB.items() if key != name})
    assert "salloc" in (error.value.hint or "")


def test_no_tf_config_is_told_before_anything_starts(environment: pytest.MonkeyPatch) -> None:
    with pytest.raises(AdvisorError, match="--hosts tf-config: TF_CONFIG is not set"):
        hosts_from_environment(HostSource.TF_CONFIG)


@pytest.mark.parametrize(
    ("variables", "found"),
    [
        (STEP, hosts(("n1", 2), ("n2", 2))),
        (JOB, hosts(("m5", 3), ("n08", 1), ("n09", 1))),
    ],
)
def test_the_resolver_reads_what_slurm_says(
    environment: pytest.MonkeyPatch, variables: dict[str, str], found: tuple[HostRequest, ...]
) -> None:
    for name, value in variables.items():
        environment.setenv(name, value)
    assert hosts_from_environment(HostSource.SLURM) == found


def test_lists_that_contradict_each_other_are_told(environment: pytest.MonkeyPatch) -> None:
    for name, value in (JOB | {"SLURM_NTASKS": "9"}).items():
        environment.setenv(name, value)
    with pytest.raises(AdvisorError, match="SLURM variables: Requested 9 tasks but only 5"):
        hosts_from_environment(HostSource.SLURM)


def test_tasks_that_compute_are_taken_from_tf_config(environment: pytest.MonkeyPatch) -> None:
    cluster = {
        "chief": ["a.example.org:2222"],
        "worker": ["b.example.org:2222", "b.example.org:2223"],
        "ps": ["c.example.org:2222"],
    }
    environment.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": {"type": "worker"}}))
    assert hosts_from_environment(HostSource.TF_CONFIG) == hosts(
        ("a.example.org", 1), ("b.example.org", 2)
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "TF_CONFIG: "),
        ("{", "TF_CONFIG: "),
        ("[]", "no task that computes"),
        ("{}", "no task that computes"),
        ('{"cluster": {"ps": ["a:1"]}}', "no task that computes"),
        ('{"cluster": {"worker": 5}}', "TF_CONFIG: "),
    ],
)
def test_what_the_resolver_cannot_read_is_told(
    environment: pytest.MonkeyPatch, text: str, problem: str
) -> None:
    environment.setenv("TF_CONFIG", text)
    with pytest.raises(AdvisorError, match=problem):
        hosts_from_environment(HostSource.TF_CONFIG)


GPUS = Gpus(devices=(Gpu(index=0, name="Tesla T4", memory_bytes=16 << 30),), driver="550.54.15")


def facts(visible_gpus: int, *, cores: int = 2) -> HostFacts:
    found = host("any", 1).facts
    assert found is not None
    gpus = GPUS if visible_gpus else Gpus()
    return replace(found, visible_gpus=visible_gpus, cores=tuple(range(cores)), gpus=gpus)


def asked(**hosts: tuple[int, int]) -> dict[HostRequest, HostFacts]:
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
def test_devices_are_gpus_where_all_hosts_have_enough_and_cores_where_none_has_any(
    hosts: dict[str, tuple[int, int]], gpus: bool
) -> None:
    assert uses_gpus(asked(**hosts)) is gpus


@pytest.mark.parametrize(
    ("hosts", "says", "there"),
    [
        ({"a": (2, 2), "b": (2, 0)}, "a has 2 for 2, b has none for 2", "--hosts a:2;"),
        ({"a": (2, 2), "b": (3, 1)}, "a has 2 for 2, b has 1 for 3", "--hosts a:2,b:1;"),
        ({"a": (4, 1), "b": (1, 0)}, "a has 1 for 4, b has none for 1", None),
    ],
)
def test_a_mixture_says_who_has_how_many_and_what_to_ask_for(
    hosts: dict[str, tuple[int, int]], says: str, there: str | None
) -> None:
    with pytest.raises(TestbedError) as raised:
        uses_gpus(asked(**hosts))
    assert raised.value.message == (
        f"--hosts: devices are GPUs on all hosts, or cores on all; of GPUs {says}"
    )
    hint = raised.value.hint
    assert hint is not None
    assert hint.endswith("--launch 'ssh {host} env CUDA_VISIBLE_DEVICES='")
    if there is None:  # One device has nothing to be split over.
        assert "for GPUs" not in hint
    else:
        assert there in hint


def test_a_host_lends_its_first_gpus_or_cores() -> None:
    request = HostRequest(name="a", devices=2)
    assert host_slots(request, facts(4, cores=1), gpus=True) == gpu_slots(2)
    assert host_slots(request, facts(0, cores=3), gpus=False) == core_slots((0, 1))
    with pytest.raises(TestbedError, match="2 devices need a core of their own each; it lets us"):
        host_slots(request, facts(0, cores=1), gpus=False)


def test_figures_of_gpus_are_not_taken_for_those_of_cores_or_of_other_gpus() -> None:
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
