"""The hosts of an analysis: named by the user or the environment, connected, made a testbed.

The user's words are those of Horovod and of MPI: ``a:2,b:2``, and ``a slots=2`` on a line of a
file. An address behind them, ``a:2@10.0.0.5``, is where other hosts reach this one, if not by its
name.

`--hosts slurm` and `--hosts tf-config` read Slurm's variables or TF_CONFIG with TensorFlow's
cluster resolvers, in a child; a host has as many devices as it has tasks. Ports are left out:
those are of TensorFlow's servers. All devices of one analysis are of one kind: GPUs if every host
has enough, cores if none has any. With both kinds a split would gain what the faster kind gains.
"""

from __future__ import annotations

import ipaddress
import os
import re
import socket
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from placement_advisor.errors import AdvisorError, TestbedError
from placement_advisor.files import untrusted
from placement_advisor.files.untrusted import shown
from placement_advisor.machine import testbed_plan
from placement_advisor.machine.this_machine import VISIBLE_GPUS, Slot, core_slots, digest, gpu_slots
from placement_advisor.processes import calls
from placement_advisor.processes.children import Child, preload
from placement_advisor.remote_hosts import remote_host
from placement_advisor.remote_hosts.remote_host import LOCALHOST
from placement_advisor.testbed.remote_launcher import RemoteLauncher
from placement_advisor.tf.calls import native_step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from contextlib import ExitStack
    from pathlib import Path

    from placement_advisor.remote_hosts.host_facts import HostFacts
    from placement_advisor.testbed.benchmark import ProgressReporter


# Judgement: a line for each host of the largest machine takes less.
_MOST_BYTES = 1_000_000
# More than any machine has; a port number is taken for a count else.
_MOST_DEVICES = 1_024
# What no launcher takes for an option, and what `ssh` and device names can hold.
_NAME = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"
_HOST = re.compile(rf"(?P<name>{_NAME}):(?P<count>[0-9]{{1,9}})(@(?P<where>[][A-Za-z0-9_.:%-]+))?")
# Without brackets, what has more than one colon is an IPv6 address.
_WHERE = re.compile(
    r"\[(?P<bracketed>[A-Za-z0-9.:%_-]+)\]|(?P<plain>[A-Za-z0-9_.%-]+)"
    r"|(?P<bare>[A-Za-z0-9_.:%-]*:[A-Za-z0-9_.:%-]*:[A-Za-z0-9_.:%-]*)"
)
_LINE = re.compile(rf"(?P<name>{_NAME})\s+slots\s*=\s*(?P<count>[0-9]{{1,9}})(?P<where>)")
_FORM = "write it as NAME:DEVICES, as in a:2 or a:2@10.0.0.5"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRequest:
    """A host, how many devices of it are asked for, and its address if that is not its name."""

    name: str
    devices: int
    address: str | None = None

    @property
    def words(self) -> str:
        """The host as `parse_hosts` reads it."""
        where = "" if self.address is None else f"@[{self.address}]"
        return f"{self.name}:{self.devices}{where}"


def parse_hosts(words: str) -> tuple[HostRequest, ...]:
    """Read the words of ``--hosts``, as in ``a:2,b:2``.

    Raises:
        AdvisorError: they name no hosts, one twice, or no devices.
    """
    return _distinct(_host(f"--hosts {words}", word.strip(), _HOST) for word in words.split(","))


def read_hostfile(path: Path) -> tuple[HostRequest, ...]:
    """Read a file with a host on each line: ``a slots=2`` or ``a:2``; ``#`` begins a comment.

    Raises:
        AdvisorError: it cannot be read, names no hosts, one twice, or no devices.
    """
    try:
        text = untrusted.read_plain(path, _MOST_BYTES).decode()
    except OSError as error:
        raise AdvisorError(f"--hostfile {path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise AdvisorError(f"--hostfile {path}: not a text file") from None
    lines = ((i, line.partition("#")[0].strip()) for i, line in enumerate(text.splitlines(), 1))
    found = _distinct(
        _host(f"--hostfile {path}, line {number}", line, _LINE, _HOST)
        for number, line in lines
        if line
    )
    if not found:
        raise AdvisorError(f"--hostfile {path}: names no host", hint="write lines as a slots=2")
    return found


def _host(where: str, words: str, *forms: re.Pattern[str]) -> HostRequest:
    found = next(filter(None, (form.fullmatch(words) for form in forms)), None)
    if found is None:
        raise AdvisorError(
            f"{where}: {shown(words)} is not a host with a number of devices", hint=_hint(words)
        )
    count = int(found["count"])
    if not 1 <= count <= _MOST_DEVICES:
        raise AdvisorError(
            f"{where}: {found['name']} cannot have {count} devices",
            hint=f"ask for 1 to {_MOST_DEVICES:,} of each host",
        )
    address = _address(where, found["where"]) if found["where"] else None
    return HostRequest(name=found["name"], devices=count, address=address)


def _address(where: str, words: str) -> str:
    found = _WHERE.fullmatch(words)
    if found is None:
        raise AdvisorError(
            f"{where}: {shown(words)} is no address",
            hint="as in 10.0.0.5, 2001:db8::5 or [2001:db8::5], without a port",
        )
    return found["bracketed"] or found["plain"] or found["bare"]


def _hint(words: str) -> str:
    if "@" in words.partition(":")[0]:
        return f"{_FORM}; whom to log in as is said by --launch 'ssh ME@{{host}}'"
    return _FORM


def _distinct(hosts: Iterable[HostRequest]) -> tuple[HostRequest, ...]:
    found = tuple(hosts)
    names = [host.name for host in found]
    for name in names:
        if names.count(name) > 1:
            raise AdvisorError(
                f"host {name} is named twice", hint="ask for all of its devices at once"
            )
    return found


# On this machine, where no launcher starts it, the variable goes before the command.
_HIDE_GPUS = (
    f"for cores, start advisor on each host with {VISIBLE_GPUS}= before it, as does "
    f"--launch 'ssh {{host}} env {VISIBLE_GPUS}='"
)
_FEWEST_DEVICES = 2


def uses_gpus(asked: Mapping[HostRequest, HostFacts]) -> bool:
    """Return whether devices of hosts are GPUs; else they are cores.

    Raises:
        TestbedError: some have GPUs, and not all have as many as they are asked for.
    """
    if not any(facts.visible_gpus for facts in asked.values()):
        return False
    if all(facts.visible_gpus >= request.devices for request, facts in asked.items()):
        return True
    each = ", ".join(
        f"{request.name} has {facts.visible_gpus or 'none'} for {request.devices}"
        for request, facts in asked.items()
    )
    there = {
        request.name: min(request.devices, facts.visible_gpus)
        for request, facts in asked.items()
        if facts.visible_gpus
    }
    hint = _HIDE_GPUS
    if sum(there.values()) >= _FEWEST_DEVICES:
        words = ",".join(f"{name}:{count}" for name, count in there.items())
        hint = f"for GPUs that are there, --hosts {words}; {hint}"
    raise TestbedError(
        f"--hosts: devices are GPUs on all hosts, or cores on all; of GPUs {each}", hint=hint
    )


def host_slots(request: HostRequest, facts: HostFacts, *, gpus: bool) -> tuple[Slot, ...]:
    """Return what a host lends, GPUs of which it has enough or cores.

    Raises:
        TestbedError: it has too few cores.
    """
    if gpus:
        return gpu_slots(request.devices)
    if request.devices > len(facts.cores):
        raise TestbedError(
            f"host {request.name}: {request.devices} devices need a core of their own each; it "
            f"lets us use {len(facts.cores)}",
            hint=f"--hosts {request.name}:{len(facts.cores)}",
        )
    return core_slots(facts.cores[: request.devices])


_ANY_PORT = 9
_LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostOptions:
    """Hosts to run on: which, how a command is started there, and how they reach one another."""

    requests: tuple[HostRequest, ...]
    launch: str
    link: testbed_plan.HostLink

    @property
    def words(self) -> str:
        """Hosts and devices as ``--hosts`` takes them."""
        return ",".join(request.words for request in self.requests)

    @property
    def device_count(self) -> int:
        """How many devices they are asked for."""
        return sum(request.devices for request in self.requests)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectedHosts:
    """Hosts that answer, and the testbed of what they lend."""

    hosts: tuple[remote_host.RemoteHost, ...]
    plan: testbed_plan.TestbedPlan

    @property
    def lost(self) -> str | None:
        """Why one of them cannot be asked any more, None if all can."""
        return remote_host.lost_among(self.hosts)

    def when_lost(self, tell: Callable[[str], object]) -> None:
        """Have somebody told, in another thread, when one of them is lost; at once if one is."""
        for host in self.hosts:
            host.when_lost(tell)

    def site(self, scratch: Path, stack: ExitStack) -> RemoteLauncher:
        """Return where processes of the testbed run; its relays end with the stack."""
        site = RemoteLauncher(self.plan, self.hosts, scratch)
        stack.callback(site.close)
        return site


def connect(asked: HostOptions, stack: ExitStack, watcher: ProgressReporter) -> ConnectedHosts:
    """Start `advisor worker` on all hosts at once; they end with the stack.

    Raises:
        TestbedError: a host does not answer, has another version, is in use, or has too few
            devices.
    """
    addresses = addresses_of(asked.requests)
    watcher.working("starting hosts", 0, 1)
    names = [request.name for request in asked.requests]
    hosts = stack.enter_context(remote_host.open_hosts(names, launch=asked.launch))
    facts = [host.facts for host in hosts]
    gpus = uses_gpus(dict(zip(asked.requests, facts, strict=True)))
    shares = tuple(
        host_share(request, its, address, host_slots(request, its, gpus=gpus))
        for request, its, address in zip(asked.requests, facts, addresses, strict=True)
    )
    away_ns = None
    if not shares[0].is_here:
        away_ns = min(ping.answered_ns - ping.asked_ns for ping in hosts[0].pings())
    plan = testbed_plan.plan_hosts(shares, asked.link, away_ns)
    for warning in plan.warnings:
        watcher.note(f"warning: {warning}")
    return ConnectedHosts(hosts=hosts, plan=plan)


def host_share(
    request: HostRequest, facts: HostFacts, address: str, slots: tuple[Slot, ...]
) -> testbed_plan.HostShare:
    """Return what a host lends if these are its slots."""
    gpus = None if slots[0].is_core else facts.gpus
    fingerprint = facts.fingerprint
    if gpus is not None:
        fingerprint = digest((fingerprint, str(gpus.driver), *(gpu.name for gpu in gpus.devices)))
    return testbed_plan.HostShare(
        name=request.name,
        address=address,
        slots=slots,
        fingerprint=fingerprint,
        is_here=request.name == LOCALHOST,
        lends_all=slots == core_slots(facts.cores),
        gpus=gpus,
    )


def addresses_of(requests: tuple[HostRequest, ...]) -> list[str]:
    """Return where hosts reach one another, found from here before anything is started.

    Raises:
        TestbedError: a name leads nowhere, or to this machine alone.
    """
    others = [request for request in requests if request.name != LOCALHOST]
    found = {request.name: request.address or _resolved_address(request.name) for request in others}
    for request in requests:
        if request.name == LOCALHOST:
            seen_from = found[others[0].name] if others else _LOOPBACK
            found[request.name] = request.address or _own_address(seen_from)
    return [found[request.name] for request in requests]


def _resolved_address(name: str) -> str:
    hint = f"say where the other hosts reach it: --hosts {name}:1@ADDRESS"
    try:
        address = str(socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)[0][4][0])
    except OSError as error:
        raise TestbedError(f"host {name}: no address is known here: {error}", hint=hint) from None
    if ipaddress.ip_address(address.partition("%")[0]).is_loopback:
        raise TestbedError(
            f"host {name}: its name leads to this machine ({address})",
            hint=f"{hint}; this machine is called {LOCALHOST}",
        )
    return address


def _own_address(seen_from: str) -> str:
    """Return the address of this machine from which packets to another one set out."""
    family = socket.AF_INET6 if ":" in seen_from else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((seen_from, _ANY_PORT))  # Of a datagram socket: nothing is sent.
        except OSError as error:
            raise TestbedError(
                f"host {LOCALHOST}: no way from here to {seen_from}: {error}",
                hint=f"say where the other hosts reach it: --hosts {LOCALHOST}:1@ADDRESS",
            ) from None
        return str(probe.getsockname()[0])


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


class HostSource(StrEnum):
    """What names hosts, as ``--hosts`` takes it."""

    SLURM = "slurm"
    TF_CONFIG = "tf-config"


def hosts_from_environment(source: HostSource) -> tuple[HostRequest, ...]:
    """Return the hosts that the environment names.

    Raises:
        AdvisorError: it names none, or what it says cannot be read.
    """
    resolve: Callable[..., list[str]] = native_step.tf_config_tasks
    given: object = os.environ.get(_TF_CONFIG)
    if source is HostSource.SLURM:
        resolve, given = native_step.slurm_tasks, slurm_variables(os.environ)
    elif given is None:
        raise AdvisorError(
            f"--hosts {source}: {_TF_CONFIG} is not set",
            hint="TensorFlow's cluster resolver reads it: "
            '\'{"cluster": {"worker": ["a:2222", "b:2222"]}}\'',
        )
    preload()
    with Child("cluster resolver") as child:
        answer = child.call(resolve, given, time_limit_s=_LIMIT_S)
    return requests_of_tasks(source, calls.expect(answer, _resolver_error))


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


def requests_of_tasks(source: HostSource, tasks: Sequence[str]) -> tuple[HostRequest, ...]:
    """Return a host for each name or address among ``host:port``, with its tasks as devices.

    Raises:
        AdvisorError: there are no tasks, or one is on no host.
    """
    counts = Counter(_host_of_task(task) for task in tasks)
    if not counts:
        raise AdvisorError(f"--hosts {source}: no task that computes", hint="name workers there")
    requests = []
    for name, count in counts.items():
        if is_this_machine(name):
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


def is_this_machine(name: str) -> bool:
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


def _host_of_task(task: str) -> str:
    return task.rpartition(":")[0].strip("[]") or task


def _outer_address(name: str) -> str | None:
    """Return the address by which this machine is named, if others can reach it there."""
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return None
    return None if address.is_loopback else name


def _resolver_error(failure: calls.CallFailure) -> AdvisorError:
    return AdvisorError(f"the environment cannot be read: {failure.message}")
