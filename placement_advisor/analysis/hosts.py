"""Hosts for an analysis: what was asked -> connections, and the testbed that they make."""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from placement_advisor.analysis.lent_devices import lend_gpus, lent_slots
from placement_advisor.errors import TestbedError
from placement_advisor.machine.slots import core_slots
from placement_advisor.machine.testbed_plan import HostShare, plan_hosts
from placement_advisor.machine.this_machine import digest
from placement_advisor.remote_hosts.launched_service import LOCALHOST
from placement_advisor.remote_hosts.listening_service import Waiting
from placement_advisor.remote_hosts.remote_host import lost_among, open_hosts
from placement_advisor.remote_hosts.secret import read_secret
from placement_advisor.testbed.remote_launcher import RemoteLauncher

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import ExitStack
    from pathlib import Path

    from placement_advisor.machine.slots import Slot
    from placement_advisor.machine.testbed_plan import HostLink, TestbedPlan
    from placement_advisor.remote_hosts.host_facts import HostFacts
    from placement_advisor.remote_hosts.host_requests import HostRequest
    from placement_advisor.remote_hosts.remote_host import RemoteHost
    from placement_advisor.testbed.benchmark import ProgressReporter

_ANY_PORT = 9
_LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostsAsked:
    """Hosts to run on: which, how a command is started there, and how they reach one another.

    ``secret`` is the file that services share which wait on some of them, None if none does.
    """

    requests: tuple[HostRequest, ...]
    launch: str
    link: HostLink
    secret: Path | None = None

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
    """Hosts that answer, and the testbed of what they lend.

    ``secret`` is what services share that wait on some of them, None if none does.
    """

    hosts: tuple[RemoteHost, ...]
    plan: TestbedPlan
    secret: bytes | None = field(repr=False)

    @property
    def lost(self) -> str | None:
        """Why one of them cannot be asked any more, None if all can."""
        return lost_among(self.hosts)

    def when_lost(self, tell: Callable[[str], object]) -> None:
        """Have somebody told, in another thread, when one of them is lost; at once if one is."""
        for host in self.hosts:
            host.when_lost(tell)

    def site(self, scratch: Path, stack: ExitStack) -> RemoteLauncher:
        """Return where processes of the testbed run; its relays end with the stack."""
        site = RemoteLauncher(self.plan, self.hosts, scratch, self.secret)
        stack.callback(site.close)
        return site


def connect(asked: HostsAsked, stack: ExitStack, watcher: ProgressReporter) -> ConnectedHosts:
    """Have `advisor worker` on all hosts at once; those that it starts end with the stack.

    Raises:
        TestbedError: a host does not answer, has another version, is in use, or has too few
            devices.
        AdvisorError: the secret of those that wait cannot be read.
    """
    secret = None if asked.secret is None else read_secret(asked.secret)
    addresses = addresses_of(asked.requests)
    watcher.working("starting hosts", 0, 1)
    names = [request.name for request in asked.requests]
    waiting = waiting_services(asked.requests, secret)
    hosts = stack.enter_context(open_hosts(names, launch=asked.launch, waiting=waiting))
    facts = [host.facts for host in hosts]
    gpus = lend_gpus(dict(zip(asked.requests, facts, strict=True)))
    shares = tuple(
        share_of(request, its, address, lent_slots(request, its, gpus=gpus))
        for request, its, address in zip(asked.requests, facts, addresses, strict=True)
    )
    away_ns = None
    if not shares[0].is_here:
        away_ns = min(ping.answered_ns - ping.asked_ns for ping in hosts[0].pings())
    plan = plan_hosts(shares, asked.link, away_ns)
    for warning in plan.warnings:
        watcher.note(f"warning: {warning}")
    return ConnectedHosts(hosts=hosts, plan=plan, secret=secret)


def waiting_services(requests: tuple[HostRequest, ...], secret: bytes | None) -> dict[str, Waiting]:
    """Return where services wait, by host; those of other hosts are to be started."""
    found = {}
    for request in requests:
        if request.port is not None:
            assert request.address is not None, "a port is one of an address"
            assert secret is not None, "options without a secret have been refused"
            found[request.name] = Waiting(address=request.address, port=request.port, secret=secret)
    return found


def share_of(
    request: HostRequest, facts: HostFacts, address: str, slots: tuple[Slot, ...]
) -> HostShare:
    """Return what a host lends if these are its slots."""
    gpus = None if slots[0].is_core else facts.gpus
    fingerprint = facts.fingerprint
    if gpus is not None:
        fingerprint = digest((fingerprint, str(gpus.driver), *(gpu.name for gpu in gpus.devices)))
    return HostShare(
        name=request.name,
        address=address,
        slots=slots,
        fingerprint=fingerprint,
        is_here=request.name == LOCALHOST and request.port is None,
        port=request.port,
        lends_all=slots == core_slots(facts.cores),
        gpus=gpus,
    )


def addresses_of(requests: tuple[HostRequest, ...]) -> list[str]:
    """Return where hosts reach one another, found from here before anything is started.

    Raises:
        TestbedError: a name leads nowhere, or to this machine alone.
    """
    others = [request for request in requests if request.name != LOCALHOST]
    found = {request.name: request.address or _resolved(request.name) for request in others}
    for request in requests:
        if request.name == LOCALHOST:
            seen_from = found[others[0].name] if others else _LOOPBACK
            found[request.name] = request.address or _own_address(seen_from)
    return [found[request.name] for request in requests]


def _resolved(name: str) -> str:
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
