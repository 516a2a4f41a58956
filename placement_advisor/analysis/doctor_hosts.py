"""`advisor doctor --hosts`: reaches every host, tries the network between them, and judges both.

The network is tried as an analysis uses it: a worker on each host, in the network that they will
share, by relays or directly. A failure is a part of the result.
"""

from __future__ import annotations

import platform
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from placement_advisor.analysis.hosts import addresses_of, host_share, uses_gpus
from placement_advisor.errors import AdvisorError, TestbedError
from placement_advisor.files.output import scratch_folder
from placement_advisor.machine import clock_range, doctor_checks
from placement_advisor.machine.doctor_checks import note, ok
from placement_advisor.machine.nvidia import common_name
from placement_advisor.machine.testbed_plan import HostLink, plan_hosts
from placement_advisor.machine.this_machine import core_slots
from placement_advisor.processes import calls
from placement_advisor.processes.children import Child, ChildError, preload
from placement_advisor.remote_hosts import host_facts
from placement_advisor.remote_hosts.host_facts import check_versions
from placement_advisor.remote_hosts.remote_host import LOCALHOST, RemoteHost
from placement_advisor.testbed.remote_launcher import RemoteLauncher
from placement_advisor.testbed.testbed import NotStartedError
from placement_advisor.units import NS_PER_S, counted, format_ns

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from placement_advisor.analysis.hosts import HostOptions, HostRequest
    from placement_advisor.remote_hosts.host_facts import HostFacts, NetworkPlace, WayTried
    from placement_advisor.testbed.benchmark import ProgressReporter


# The first child of a host waits for the import of TensorFlow, which may come by a slow disk.
_START_LIMIT_S = 180.0
# Longer than a try may take itself.
_TRY_LIMIT_S = 60.0
_LEAST_HOSTS = 2
THIS_MACHINE = "this machine"
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
    clock: clock_range.ClockRange | None = None
    place: NetworkPlace | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteResult:
    """What came of messages from one host to another, by their names."""

    source: str
    target: str
    tried: WayTried


@dataclass(slots=True, kw_only=True)
class HostsExamined:
    """All hosts, and the ways between them; ``problem`` is why these were not tried."""

    link: HostLink
    hosts: tuple[HostExamined, ...]
    ways: tuple[RouteResult, ...] = ()
    problem: AdvisorError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reached:
    """A host that has been opened, and its one worker."""

    examined: HostExamined
    host: RemoteHost
    worker: calls.Callee = field(repr=False)


def examine_hosts(asked: HostOptions, watcher: ProgressReporter) -> HostsExamined:
    """Reach all hosts at once and look at them; nothing is left on them.

    Raises:
        AdvisorError: an address is not known.
    """
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
        hosts = _reach(found, asked.launch, stack)
        watcher.working("starting a worker on each", 0, 1)
        reached = _start_workers(found, hosts)
        _read_networks(reached)
        usable = [each for each in reached if each.examined.problem is None]
        if len(usable) < _LEAST_HOSTS or not all(_has_network(found.link, each) for each in usable):
            return found
        watcher.working("testing the connections between them", 0, 1)
        try:
            found.ways = _try_routes(found.link, usable, scratch, stack)
        except NotStartedError as error:
            found.problem = _no_worker(error.failure)
        except AdvisorError as error:
            found.problem = error
    return found


def _reach(
    found: HostsExamined, launch: str, stack: ExitStack
) -> list[tuple[HostExamined, RemoteHost]]:
    begun = []
    for each in found.hosts:
        try:
            host = stack.enter_context(RemoteHost(each.request.name, launch))
        except AdvisorError as error:
            each.problem = error
            continue
        each.way = host.command
        begun.append((each, host))
    for _, host in begun:
        stack.callback(host.end)  # All of them, before any is waited for.
    opened = []
    for each, host in begun:
        try:
            host.open()
            opened.append((each, host))
            each.facts = host.facts
            each.clock = clock_range.range_of_pings(host.pings(), time.time_ns())
        except AdvisorError as error:
            each.problem = error
        each.versions, each.answered_ns = host.versions, host.answered_ns
    return [(each, host) for each, host in opened if each.problem is None]


def _start_workers(
    found: HostsExamined, hosts: list[tuple[HostExamined, RemoteHost]]
) -> list[_Reached]:
    """Fork a worker on each host, all at once."""
    if hosts and LOCALHOST not in [host.name for _, host in hosts]:
        preload()  # It goes on while those on the hosts start; here it would count as load.
    reached = []
    for each, host in hosts:
        try:
            worker = host.child(f"{host.name}:0")
        except AdvisorError as error:
            each.problem = error
            continue
        reached.append(_Reached(examined=each, host=host, worker=worker))
    return reached


def _read_networks(reached: list[_Reached]) -> None:
    """Find out about the network of each host, on all of them at once."""
    asked = [
        (each, each.worker.start(host_facts.network_place, each.examined.address))
        for each in reached
    ]
    for each, answer in asked:
        try:
            place = answer.wait(time_limit_s=_START_LIMIT_S)
            each.examined.place = calls.expect(place, _no_worker)
        except AdvisorError as error:
            each.examined.problem = error
        except ChildError as error:
            each.examined.problem = TestbedError(str(error))


def _try_routes(
    link: HostLink, reached: list[_Reached], scratch: Path, stack: ExitStack
) -> tuple[RouteResult, ...]:
    """Send messages from each host to each other one, and from the command to all.

    Raises:
        AdvisorError: a relay cannot listen, or a worker is lost.
    """
    shares = tuple(
        host_share(
            each.examined.request,
            each.host.facts,
            each.examined.address,
            core_slots(each.host.facts.cores[:1]),
        )
        for each in reached
    )
    plan = plan_hosts(shares, link)
    site = RemoteLauncher(plan, [each.host for each in reached], scratch)
    stack.callback(site.close)
    workers = [each.worker for each in reached]
    client = None if shares[0].is_here else stack.enter_context(Child("client"))
    joined = site.join(workers, client)
    places = [_host_and_port(address) for address in joined]
    for worker, place in zip(workers, places, strict=True):
        answering = worker.call(host_facts.answer_at, *place, time_limit_s=_TRY_LIMIT_S)
        calls.expect(answering, _no_worker)
    names = [share.name for share in shares]
    found = []
    for shift in range(1, len(workers)):
        targets = [(i + shift) % len(workers) for i in range(len(workers))]
        asked = [
            w.start(host_facts.try_way, *places[t]) for w, t in zip(workers, targets, strict=True)
        ]
        for source, target, answer in zip(names, targets, asked, strict=True):
            tried = calls.expect(answer.wait(time_limit_s=_TRY_LIMIT_S), _no_worker)
            found.append(RouteResult(source=source, target=names[target], tried=tried))
    if client is not None:
        for name, place in zip(names, places, strict=True):
            tried = calls.expect(
                client.call(host_facts.try_way, *place, time_limit_s=_TRY_LIMIT_S), _no_worker
            )
            found.append(RouteResult(source=THIS_MACHINE, target=name, tried=tried))
    return tuple(found)


def _host_and_port(address: str) -> tuple[str, int]:
    """Return where to connect for an address of a worker, which may be one of its network."""
    host, _, port = address.rpartition(":")
    return (_LOOPBACK if host == "localhost" else host.strip("[]")), int(port)


def _has_network(link: HostLink, each: _Reached) -> bool:
    place = each.examined.place
    return link is HostLink.DIRECT or (place is not None and place.has_private_network)


def _no_worker(failure: calls.CallFailure) -> TestbedError:
    tail = f"\n{failure.output_tail}" if failure.output_tail else ""
    return TestbedError(f"{failure.message}{tail}")


# Certificates are good from a day before they are made; see `tls.py`.
_MOST_APART_NS = 24 * 60 * 60 * NS_PER_S
NEXT_STEP = "advisor analyze MODEL.py, with these hosts"


def all_checks(found: HostsExamined) -> tuple[doctor_checks.Check, ...]:
    """Return all findings."""
    per_host = [check for host in found.hosts for check in host_checks(host, found.link)]
    return (*per_host, *between_checks(found))


def next_step(found: HostsExamined) -> str:
    """Return what to do next."""
    blocking = [check for check in all_checks(found) if check.blocks]
    actions = [check.action for check in blocking if check.action]
    return actions[0] if actions else "fix the problems" if blocking else NEXT_STEP


def host_checks(host: HostExamined, link: HostLink) -> Iterator[doctor_checks.Check]:
    """Yield the findings about one host, in a fixed order."""
    if host.answered_ns is None:
        yield _failed_check("reached", host.problem)
        return
    finding = f"in {format_ns(host.answered_ns)}, by `{host.way}`"
    yield ok("reached", finding)
    try:
        versions = check_versions(host.request.name, host.versions)
    except AdvisorError as error:
        yield _failed_check("versions", error)
        return
    if host.facts is not None:
        yield _version_check(versions)
        yield _device_check(host.facts, host.request.devices)
        if host.place is not None:
            cores = len(host.facts.cores)
            yield doctor_checks.load_check(host.place.load, cores, min(host.request.devices, cores))
        yield doctor_checks.memory_check(host.facts.available_memory_bytes)
        yield _clock_check(host, link)
    if host.place is not None:
        yield _address_check(host, host.place)
        yield _network_check(host.place, link)
    if host.problem is not None:
        yield _failed_check("use", host.problem)


def _failed_check(name: str, problem: AdvisorError | None) -> doctor_checks.Check:
    if problem is None:
        return _blocking(name, "it did not answer", None)
    return _blocking(name, problem.message, problem.hint)


def _blocking(name: str, finding: str, action: str | None) -> doctor_checks.Check:
    return doctor_checks.problem(name, finding, action, blocks=True)


def _version_check(versions: dict[str, object]) -> doctor_checks.Check:
    finding = f"advisor {versions['advisor']}, TensorFlow {versions['tensorflow']}, as here"
    python, own = versions.get("python"), platform.python_version()
    finding += f"; Python {python}"
    if python == own:
        return ok("versions", finding)
    return note("versions", f"{finding}, here {own}")


def _device_check(facts: HostFacts, devices: int) -> doctor_checks.Check:
    asked = f"{counted(devices, 'device')}, one each"
    if facts.visible_gpus:
        name = common_name(facts.gpus)
        called = "" if name is None else f" ({name})"
        gpus = counted(facts.visible_gpus, "GPU")
        untried = "untried, no analysis over hosts has run on GPUs so far"
        return note("devices", f"{gpus}{called} for {asked}: {untried}")
    usable = len(facts.cores)
    finding = f"{counted(usable, 'core')} for {asked}"
    if devices <= usable:
        return ok("devices", finding)
    action = f"ask for {usable} of that host, or give its service more cores"
    return _blocking("devices", finding, action)


def _clock_check(host: HostExamined, link: HostLink) -> doctor_checks.Check:
    clock = host.clock
    if clock is None:
        action = "profiles over hosts need a clock that never jumps: find what sets it"
        return note("clock", "was set while it was read", action)
    offset_ns = clock.offset_ns
    side = "ahead of" if offset_ns >= 0 else "behind"
    within = format_ns(clock.uncertainty_ns)
    finding = f"{format_ns(abs(offset_ns))} {side} this machine's clock, ± {within}"
    if abs(offset_ns) < _MOST_APART_NS or link is HostLink.DIRECT:
        return ok("clock", finding)
    finding += ": one host rejects the certificates of the other"
    return _blocking("clock", finding, "set the time of day, as by NTP")


def _address_check(host: HostExamined, place: NetworkPlace) -> doctor_checks.Check:
    if place.interface is not None:
        mtu = "" if place.mtu_bytes is None else f", MTU {place.mtu_bytes:,} bytes"
        return ok("address", f"{host.address} on {place.interface}{mtu}")
    finding = f"{host.address} is on no interface of that host"
    action = f"name one that it has: {host.request.name}:{host.request.devices}@ADDRESS"
    return _blocking("address", f"{finding}, so that nothing can listen there", action)


def _network_check(place: NetworkPlace, link: HostLink) -> doctor_checks.Check:
    if place.has_private_network:
        return ok("network", "workers can run in a private network that nothing else reaches")
    finding = "no private network can be made for workers"
    action = f"{doctor_checks.ALLOW_NETWORKS}, or, where you trust the network, --link direct"
    if link is HostLink.TLS:
        return _blocking("network", finding, action)
    return note("network", finding, action)


def between_checks(found: HostsExamined) -> Iterator[doctor_checks.Check]:
    """Yield the findings about what lies between hosts."""
    known = {host.request: host.facts for host in found.hosts if host.facts is not None}
    try:
        uses_gpus(known)
    except AdvisorError as error:
        yield _failed_check("devices", error)
    if found.problem is not None:
        yield _failed_check("ways", found.problem)
    address_of = {host.request.name: host.address for host in found.hosts}
    for way in found.ways:
        yield _route_check(way, address_of[way.target])
    mtu_of = {
        host.request.name: host.place.mtu_bytes
        for host in found.hosts
        if host.place is not None and host.place.mtu_bytes is not None
    }
    if len(mtu_of) < _LEAST_HOSTS:
        return
    if len(set(mtu_of.values())) == 1:
        (mtu_bytes,) = set(mtu_of.values())
        yield ok("MTU", f"{mtu_bytes:,} bytes on all of them")
        return
    finding = ", ".join(f"{mtu_bytes:,} bytes on {name}" for name, mtu_bytes in mtu_of.items())
    action = "give both interfaces the same one (`ip link set dev NAME mtu BYTES`)"
    yield note("MTU", f"{finding}: frames of one may not pass to the other", action)


def _route_check(way: RouteResult, address: str) -> doctor_checks.Check:
    name = f"{way.source} → {way.target}"
    small_ns = way.tried.small_ns
    if small_ns is None:
        action = f"see that no firewall is between, or name another address: {way.target}:1@ADDRESS"
        return _blocking(name, f"{way.target} is not reached at {address}", action)
    finding = f"a small message and its answer take {format_ns(small_ns)}"
    if way.tried.large_passes:
        return ok(name, finding)
    action = (
        "a smaller MTU than the interfaces have is on the way: lower theirs "
        "(`ip link set dev NAME mtu 1400`)"
    )
    return _blocking(name, f"{finding}, but large messages do not arrive", action)
