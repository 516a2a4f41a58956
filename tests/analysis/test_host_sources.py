"""Hosts that Slurm's variables or TF_CONFIG name, with environments that are made up."""

from __future__ import annotations

import json
import socket

import pytest

from placement_advisor.analysis.hosts import (
    HostSource,
    hosts_from_environment,
    is_this_machine,
    requests_of_tasks,
    slurm_variables,
)
from placement_advisor.errors import AdvisorError
from placement_advisor.remote_hosts.host_requests import HostRequest

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
