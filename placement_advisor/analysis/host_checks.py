"""Judges what was found of hosts: what is well, what to know, what is wrong and what helps."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

from placement_advisor.analysis.lent_devices import lend_gpus
from placement_advisor.errors import AdvisorError
from placement_advisor.machine.doctor.checks import ALLOW_NETWORKS, load_check, memory_check
from placement_advisor.machine.doctor.finding import Check, State, several
from placement_advisor.machine.nvidia import common_name
from placement_advisor.machine.testbed_plan import HostLink
from placement_advisor.remote_hosts.versions import check_versions
from placement_advisor.units import NS_PER_S, format_ns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from placement_advisor.analysis.examine_hosts import Between, HostExamined, HostsExamined
    from placement_advisor.remote_hosts.host_facts import HostFacts
    from placement_advisor.remote_hosts.probe import NetworkPlace

# Certificates are good from a day before they are made; see `secret.py`.
_MOST_APART_NS = 24 * 60 * 60 * NS_PER_S
_HOSTS_OF_A_WAY = 2
NEXT = "advisor analyze MODEL.py, with these hosts"


def host_checks(host: HostExamined, link: HostLink) -> tuple[Check, ...]:
    """Return the findings about one host, in a fixed order."""
    return tuple(_of_host(host, link))


def between_checks(found: HostsExamined) -> tuple[Check, ...]:
    """Return the findings about what lies between hosts."""
    return tuple(_between(found))


def all_checks(found: HostsExamined) -> tuple[Check, ...]:
    """Return all findings."""
    per_host = [check for host in found.hosts for check in host_checks(host, found.link)]
    return (*per_host, *between_checks(found))


def next_step(found: HostsExamined) -> str:
    """Return what to do next."""
    blocking = [check for check in all_checks(found) if check.blocks]
    actions = [check.action for check in blocking if check.action]
    return actions[0] if actions else "repair what is a problem" if blocking else NEXT


def _of_host(host: HostExamined, link: HostLink) -> Iterator[Check]:
    if host.answered_ns is None:
        yield _failed("reached", host.problem)
        return
    finding = f"in {format_ns(host.answered_ns)}, by `{host.way}`"
    yield Check(name="reached", state=State.OK, finding=finding)
    try:
        check_versions(host.request.name, host.versions)
    except AdvisorError as error:
        yield _failed("versions", error)
        return
    if host.facts is not None:
        yield _versions(host.facts)
        yield _devices(host.facts, host.request.devices)
        if host.place is not None:
            cores = len(host.facts.cores)
            yield load_check(host.place.load, cores, min(host.request.devices, cores))
        yield memory_check(host.facts.available_memory_bytes)
        yield _clock(host, link)
    if host.place is not None:
        yield _address(host, host.place, link)
        yield _network(host.place, link)
    if host.problem is not None:
        yield _failed("use", host.problem)


def _failed(name: str, problem: AdvisorError | None) -> Check:
    message, hint = ("it did not answer", None) if problem is None else _parts(problem)
    return Check(name=name, state=State.PROBLEM, finding=message, action=hint, blocks=True)


def _parts(problem: AdvisorError) -> tuple[str, str | None]:
    return problem.message, problem.hint


def _versions(facts: HostFacts) -> Check:
    finding = f"advisor {facts.advisor_version}, TensorFlow {facts.tensorflow_version}, as here"
    own = platform.python_version()
    same = facts.python_version == own
    return Check(
        name="versions",
        state=State.OK if same else State.NOTE,
        finding=f"{finding}; Python {facts.python_version}" + ("" if same else f", here {own}"),
    )


def _devices(facts: HostFacts, devices: int) -> Check:
    asked = f"{several(devices, 'device')}, one each"
    if facts.visible_gpus:
        name = common_name(facts.gpus)
        called = "" if name is None else f" ({name})"
        return Check(
            name="devices",
            state=State.NOTE,
            finding=f"{several(facts.visible_gpus, 'GPU')}{called} for {asked}: untried, no "
            "analysis over hosts has run on GPUs so far",
        )
    usable = len(facts.cores)
    finding = f"{several(usable, 'core')} for {asked}"
    if devices <= usable:
        return Check(name="devices", state=State.OK, finding=finding)
    return Check(
        name="devices",
        state=State.PROBLEM,
        finding=finding,
        action=f"ask for {usable} of that host, or give its service more cores",
        blocks=True,
    )


def _clock(host: HostExamined, link: HostLink) -> Check:
    clock = host.clock
    if clock is None:
        return Check(
            name="clock",
            state=State.NOTE,
            finding="was set while it was read",
            action="profiles over hosts need clocks that only run: see what sets it",
        )
    offset_ns = clock.offset_ns
    side = "ahead of this machine's" if offset_ns >= 0 else "behind this machine's"
    finding = f"{format_ns(abs(offset_ns))} {side}, ± {format_ns(clock.uncertainty_ns)}"
    if abs(offset_ns) < _MOST_APART_NS or link is HostLink.DIRECT:
        return Check(name="clock", state=State.OK, finding=finding)
    return Check(
        name="clock",
        state=State.PROBLEM,
        finding=f"{finding}: certificates of one host are not good on the other",
        action="set the time of day, as by NTP",
        blocks=True,
    )


def _address(host: HostExamined, place: NetworkPlace, link: HostLink) -> Check:
    if place.interface is not None:
        mtu = "" if place.mtu_bytes is None else f", MTU {place.mtu_bytes:,} bytes"
        finding = f"{host.address} on {place.interface}{mtu}"
        return Check(name="address", state=State.OK, finding=finding)
    finding = f"{host.address} is on no interface of that host"
    if host.request.port is not None:
        return Check(name="address", state=State.NOTE, finding=f"{finding}: something leads there")
    return Check(
        name="address",
        state=State.PROBLEM,
        finding=f"{finding}, so that nothing can listen there",
        action=f"name one that it has: {host.request.name}:{host.request.devices}@ADDRESS",
        blocks=True,
    )


def _network(place: NetworkPlace, link: HostLink) -> Check:
    if place.has_private_network:
        finding = "workers can run in one of their own, out of reach"
        return Check(name="network", state=State.OK, finding=finding)
    return Check(
        name="network",
        state=State.PROBLEM if link is HostLink.TLS else State.NOTE,
        finding="no private one can be made for workers",
        action=f"{ALLOW_NETWORKS}, or, where you trust the network, --link direct",
        blocks=link is HostLink.TLS,
    )


def _between(found: HostsExamined) -> Iterator[Check]:
    known = {host.request: host.facts for host in found.hosts if host.facts is not None}
    try:
        lend_gpus(known)
    except AdvisorError as error:
        yield _failed("devices", error)
    if found.problem is not None:
        yield _failed("ways", found.problem)
    address_of = {host.request.name: host.address for host in found.hosts}
    for way in found.ways:
        yield _way(way, address_of[way.target])
    mtu_of = {
        host.request.name: host.place.mtu_bytes
        for host in found.hosts
        if host.place is not None and host.place.mtu_bytes is not None
    }
    if len(mtu_of) < _HOSTS_OF_A_WAY:
        return
    if len(set(mtu_of.values())) == 1:
        (mtu_bytes,) = set(mtu_of.values())
        yield Check(name="MTU", state=State.OK, finding=f"{mtu_bytes:,} bytes on all of them")
        return
    finding = ", ".join(f"{mtu_bytes:,} bytes on {name}" for name, mtu_bytes in mtu_of.items())
    yield Check(
        name="MTU",
        state=State.NOTE,
        finding=f"{finding}: frames of one may not pass to the other",
        action="give both interfaces the same one (`ip link set dev NAME mtu BYTES`)",
    )


def _way(way: Between, address: str) -> Check:
    name = f"{way.source} → {way.target}"
    small_ns = way.tried.small_ns
    if small_ns is None:
        return Check(
            name=name,
            state=State.PROBLEM,
            finding=f"{way.target} is not reached at {address}",
            action="see that no firewall is between, or name another address: "
            f"{way.target}:1@ADDRESS",
            blocks=True,
        )
    finding = f"a small message and its answer take {format_ns(small_ns)}"
    if way.tried.large_passes:
        return Check(name=name, state=State.OK, finding=finding)
    return Check(
        name=name,
        state=State.PROBLEM,
        finding=f"{finding}, but large ones do not arrive",
        action="a smaller MTU than the interfaces have is on the way: lower theirs "
        "(`ip link set dev NAME mtu 1400`)",
        blocks=True,
    )
