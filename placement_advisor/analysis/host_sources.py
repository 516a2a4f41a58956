"""Hosts that the environment names: Slurm's variables, or TF_CONFIG.

TensorFlow's own cluster resolvers read them, in a child; a host has as many devices as it has
tasks. Left out: ports, which are those of TensorFlow's servers.
"""

from __future__ import annotations

import ipaddress
import os
import socket
from collections import Counter
from enum import StrEnum
from typing import TYPE_CHECKING

from placement_advisor.errors import AdvisorError
from placement_advisor.processes.calls import expect
from placement_advisor.processes.children import Child, preload
from placement_advisor.remote_hosts.host_requests import HostRequest, parse_hosts
from placement_advisor.remote_hosts.launched_service import LOCALHOST
from placement_advisor.tf.calls import cluster_tasks

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from placement_advisor.processes.calls import CallFailure

# The import of TensorFlow takes most of it.
_LIMIT_S = 120.0
_TF_CONFIG = "TF_CONFIG"
# What a step has, and what the job has instead: `salloc` and `sbatch` start programs of no step.
_SLURM = {
    "SLURM_STEP_NODELIST": "SLURM_JOB_NODELIST",
    "SLURM_STEP_TASKS_PER_NODE": "SLURM_TASKS_PER_NODE",
    "SLURM_STEP_NUM_TASKS": "SLURM_NTASKS",
}
# The number of this task among all; which one it is does not matter.
_RANK = "SLURM_PROCID"


class Source(StrEnum):
    """What names hosts, as ``--hosts`` takes it."""

    SLURM = "slurm"
    TF_CONFIG = "tf-config"


def hosts_of(source: Source) -> tuple[HostRequest, ...]:
    """Return the hosts that the environment names.

    Raises:
        AdvisorError: it names none, or what it says cannot be read.
    """
    if source is Source.SLURM:
        variables = slurm_variables(os.environ)
        preload()
        with Child("cluster resolver") as child:
            answer = child.call(cluster_tasks.slurm_tasks, variables, time_limit_s=_LIMIT_S)
    else:
        text = os.environ.get(_TF_CONFIG)
        if text is None:
            raise AdvisorError(
                f"--hosts {source}: {_TF_CONFIG} is not set",
                hint="TensorFlow's cluster resolver reads it: "
                '\'{"cluster": {"worker": ["a:2222", "b:2222"]}}\'',
            )
        preload()
        with Child("cluster resolver") as child:
            answer = child.call(cluster_tasks.tf_config_tasks, text, time_limit_s=_LIMIT_S)
    return requests_of_tasks(source, expect(answer, _failed))


def slurm_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that the resolver wants: those of the step, else those of the job.

    Raises:
        AdvisorError: there are none.
    """
    is_step = all(name in environment for name in _SLURM)
    found = {_RANK: environment.get(_RANK, "0")}
    for name, of_job in _SLURM.items():
        chosen = name if is_step else of_job
        if chosen not in environment:
            raise AdvisorError(
                f"--hosts slurm: {chosen} is not set",
                hint="run it within an allocation: `salloc -N2 --ntasks-per-node=2`; devices are "
                "tasks, so say how many",
            )
        found[name] = environment[chosen]
    return found


def requests_of_tasks(source: Source, tasks: Sequence[str]) -> tuple[HostRequest, ...]:
    """Return a host for each name or address among ``host:port``, with its tasks as devices.

    Raises:
        AdvisorError: there are no tasks, or one is on no host.
    """
    counts = Counter(_host(task) for task in tasks)
    if not counts:
        raise AdvisorError(f"--hosts {source}: no task that computes", hint="name workers there")
    requests = []
    for name, count in counts.items():
        if is_here(name):
            own = _outer_address(name)
            requests.append(HostRequest(name=LOCALHOST, devices=count, address=own))
        else:
            requests += parse_hosts(f"{name}:{count}")
    if [request.name for request in requests].count(LOCALHOST) > 1:
        raise AdvisorError(
            f"--hosts {source}: two of {', '.join(counts)} are this machine",
            hint="name it in one way",
        )
    return tuple(requests)


def is_here(name: str) -> bool:
    """Return whether this is this machine's own name, or an address that it has."""
    own = socket.gethostname()
    if name in (LOCALHOST, own, own.partition(".")[0]):
        return True
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    family = socket.AF_INET if isinstance(address, ipaddress.IPv4Address) else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((name, 0))  # Only to one's own.
        except OSError:
            return False
    return True


def _host(task: str) -> str:
    return task.rpartition(":")[0].strip("[]") or task


def _outer_address(name: str) -> str | None:
    """Return the address by which this machine is named, if others can reach it there."""
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return None
    return None if address.is_loopback else name


def _failed(failure: CallFailure) -> AdvisorError:
    return AdvisorError(f"the environment cannot be read: {failure.message}")
