"""Hosts before an analysis: each is reached and asked, and what lies between them is tried.

Ways are tried as an analysis uses them: a worker on each host, in the network that they will share,
by relays or directly. Whatever fails becomes a part of what was found.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from placement_advisor.analysis.hosts import addresses_of, share_of, waiting_services
from placement_advisor.errors import AdvisorError, TestbedError
from placement_advisor.files.own_folders import scratch_folder
from placement_advisor.machine.clock_range import range_of_pings
from placement_advisor.machine.slots import core_slots
from placement_advisor.machine.testbed_plan import HostLink, plan_hosts
from placement_advisor.processes.calls import expect
from placement_advisor.processes.children import Child, ChildError, preload
from placement_advisor.remote_hosts import probe
from placement_advisor.remote_hosts.remote_host import RemoteHost, way_to
from placement_advisor.remote_hosts.secret import read_secret
from placement_advisor.testbed.remote_launcher import RemoteLauncher

if TYPE_CHECKING:
    from pathlib import Path

    from placement_advisor.analysis.hosts import HostsAsked
    from placement_advisor.machine.clock_range import ClockRange
    from placement_advisor.processes.calls import Callee, CallFailure
    from placement_advisor.remote_hosts.host_facts import HostFacts
    from placement_advisor.remote_hosts.host_requests import HostRequest
    from placement_advisor.remote_hosts.probe import NetworkPlace, WayTried
    from placement_advisor.testbed.benchmark import ProgressReporter

# The first child of a host waits for the import of TensorFlow, which may come by a slow disk.
_START_LIMIT_S = 180.0
# Longer than a try may take itself.
_TRY_LIMIT_S = 60.0
_LEAST_HOSTS = 2
COMMAND = "this machine"
_LOOPBACK = "127.0.0.1"


@dataclass(slots=True, kw_only=True)
class HostExamined:
    """A host, and what is known of it: ``problem`` is why it is no more, None if nothing failed.

    ``way`` is what reaches it, ``versions`` what it said of itself first, ``answered_ns`` how long
    that took; ``clock`` is how far its clock is ahead of ours, None if it was set meanwhile.
    """

    request: HostRequest
    address: str
    way: str | None = None
    problem: AdvisorError | None = None
    versions: object = None
    answered_ns: int | None = None
    facts: HostFacts | None = None
    clock: ClockRange | None = None
    place: NetworkPlace | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Between:
    """What came of messages from one host to another, by their names."""

    source: str
    target: str
    tried: WayTried


@dataclass(slots=True, kw_only=True)
class HostsExamined:
    """All hosts, and the ways between them; ``problem`` is why these were not tried."""

    link: HostLink
    hosts: tuple[HostExamined, ...]
    ways: tuple[Between, ...] = ()
    problem: AdvisorError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reached:
    """A host that has been opened, and its one worker."""

    examined: HostExamined
    host: RemoteHost
    worker: Callee = field(repr=False)


def examine_hosts(asked: HostsAsked, watcher: ProgressReporter) -> HostsExamined:
    """Reach all hosts at once and look at them; nothing is left on them.

    Raises:
        AdvisorError: an address is not known, or the secret cannot be read.
    """
    secret = None if asked.secret is None else read_secret(asked.secret)
    found = HostsExamined(
        link=asked.link,
        hosts=tuple(
            HostExamined(request=request, address=address)
            for request, address in zip(asked.requests, addresses_of(asked.requests), strict=True)
        ),
    )
    with ExitStack() as stack:
        scratch = stack.enter_context(scratch_folder())
        watcher.working("reaching hosts", 0, 1)
        hosts = _reach(found, asked, secret, stack)
        watcher.working("starting a worker on each", 0, 1)
        reached = _start_workers(found, hosts)
        _look(reached)
        usable = [each for each in reached if each.examined.problem is None]
        if len(usable) < _LEAST_HOSTS or not all(_has_network(found.link, each) for each in usable):
            return found
        watcher.working("trying the ways between them", 0, 1)
        try:
            found.ways = _try_ways(found.link, usable, secret, scratch, stack)
        except AdvisorError as error:
            found.problem = error
    return found


def _reach(
    found: HostsExamined, asked: HostsAsked, secret: bytes | None, stack: ExitStack
) -> list[tuple[HostExamined, RemoteHost]]:
    waiting = waiting_services(asked.requests, secret)
    begun = []
    for each in found.hosts:
        name = each.request.name
        try:
            service = way_to(name, asked.launch, waiting.get(name))()
        except AdvisorError as error:
            each.problem = error
            continue
        each.way = service.command
        begun.append((each, stack.enter_context(RemoteHost(name, service))))
    for _, host in begun:
        stack.callback(host.end)  # All of them, before any is waited for.
    opened = []
    for each, host in begun:
        try:
            host.open()
            opened.append((each, host))
            each.facts = host.facts
            each.clock = range_of_pings(host.pings(), time.time_ns())
        except AdvisorError as error:
            each.problem = error
        each.versions, each.answered_ns = host.versions, host.answered_ns
    return [(each, host) for each, host in opened if each.problem is None]


def _start_workers(
    found: HostsExamined, hosts: list[tuple[HostExamined, RemoteHost]]
) -> list[_Reached]:
    """Fork a worker on each host, all at once."""
    if not hosts:
        return []
    if not _first_is_here(hosts[0][0]):
        preload()  # It goes on while those on the hosts start.
    reached = []
    for each, host in hosts:
        try:
            worker = host.child(f"{host.name}:0")
        except AdvisorError as error:
            each.problem = error
            continue
        reached.append(_Reached(examined=each, host=host, worker=worker))
    return reached


def _look(reached: list[_Reached]) -> None:
    """Find out about the network of each host, on all of them at once."""
    asked = [
        (each, each.worker.start(probe.network_place, each.examined.address)) for each in reached
    ]
    for each, answer in asked:
        try:
            place = answer.wait(time_limit_s=_START_LIMIT_S)
            each.examined.place = expect(place, _no_worker)
        except (AdvisorError, ChildError) as error:
            each.examined.problem = _told(error)


def _try_ways(
    link: HostLink,
    reached: list[_Reached],
    secret: bytes | None,
    scratch: Path,
    stack: ExitStack,
) -> tuple[Between, ...]:
    """Send messages from each host to each other one, and from the command to all.

    Raises:
        AdvisorError: a relay cannot listen, or a worker is lost.
    """
    shares = tuple(
        share_of(
            each.examined.request,
            each.host.facts,
            each.examined.address,
            core_slots(each.host.facts.cores[:1]),
        )
        for each in reached
    )
    plan = plan_hosts(shares, link)
    site = RemoteLauncher(plan, [each.host for each in reached], scratch, secret)
    stack.callback(site.close)
    workers = [each.worker for each in reached]
    client = None if shares[0].is_here else stack.enter_context(Child("client"))
    joined = site.join(workers, client, _not_started)
    places = [_place(address) for address in joined]
    for worker, place in zip(workers, places, strict=True):
        answering = worker.call(probe.answer_at, *place, time_limit_s=_TRY_LIMIT_S)
        expect(answering, _no_worker)
    names = [share.name for share in shares]
    found = []
    for shift in range(1, len(workers)):
        targets = [(i + shift) % len(workers) for i in range(len(workers))]
        asked = [w.start(probe.try_way, *places[t]) for w, t in zip(workers, targets, strict=True)]
        for source, target, answer in zip(names, targets, asked, strict=True):
            tried = expect(answer.wait(time_limit_s=_TRY_LIMIT_S), _no_worker)
            found.append(Between(source=source, target=names[target], tried=tried))
    if client is not None:
        for name, place in zip(names, places, strict=True):
            tried = expect(
                client.call(probe.try_way, *place, time_limit_s=_TRY_LIMIT_S), _no_worker
            )
            found.append(Between(source=COMMAND, target=name, tried=tried))
    return tuple(found)


def _place(address: str) -> tuple[str, int]:
    """Return where to connect for an address of a worker, which may be one of its network."""
    host, _, port = address.rpartition(":")
    return (_LOOPBACK if host == "localhost" else host.strip("[]")), int(port)


def _first_is_here(first: HostExamined) -> bool:
    return first.request.name == "localhost" and first.request.port is None


def _has_network(link: HostLink, each: _Reached) -> bool:
    place = each.examined.place
    return link is HostLink.DIRECT or (place is not None and place.has_private_network)


def _not_started(callee: Callee, failure: CallFailure) -> TestbedError:
    return _no_worker(failure)


def _no_worker(failure: CallFailure) -> TestbedError:
    tail = f"\n{failure.output_tail}" if failure.output_tail else ""
    return TestbedError(f"{failure.message}{tail}")


def _told(error: AdvisorError | ChildError) -> AdvisorError:
    return error if isinstance(error, AdvisorError) else TestbedError(str(error))
