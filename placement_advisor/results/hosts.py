"""What `advisor doctor --hosts` answers: what each host has, and whether they reach one another."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from annotated_types import Ge, Le, MinLen

from placement_advisor import __version__
from placement_advisor.analysis.host_doctor import (
    all_checks,
    between_checks,
    host_checks,
    next_step,
)
from placement_advisor.files.contract import (
    STRICT,
    Count,
    NotNegative,
    Ns,
    Positive,
    Rows,
    Text,
    like,
)
from placement_advisor.results.doctor import Check

if TYPE_CHECKING:
    from placement_advisor.analysis.host_doctor import HostExamined, HostsExamined


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """What it said of itself; None if it did not answer."""

    advisor: Text | None
    """Version of placement-advisor there."""
    tensorflow: Text | None
    """Version of TensorFlow there; None if there is none."""
    python: Text | None
    """Version of Python there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """How far a host's clock is ahead of this machine's."""

    offset_ns: int
    """The middle of what is possible; negative if it is behind."""
    uncertainty_ns: Ns
    """How far the truth may be from that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A host."""

    name: Text
    """Its name, as in --hosts."""
    devices: Positive
    """How many devices are asked for."""
    address: Text
    """Where the other hosts are to reach it."""
    port: Annotated[int, Ge(1), Le(65535)] | None
    """Where `advisor worker --listen` waits there; None if it is started."""
    answered_ns: Ns | None
    """How long it took until a worker there answered; None if none did."""
    versions: Versions | None
    cores: Count | None
    """How many devices can have a core of their own there."""
    available_memory_bytes: Count | None
    """Free memory there."""
    load: NotNegative | None
    """How many processes wanted to run there, on average in the last minute."""
    clock: Clock | None
    """None if it was set while it was read, or not reached."""
    interface: Text | None
    """The interface there that has the address; None if none has."""
    mtu_bytes: Count | None
    """The largest frame of that interface."""
    private_network: bool | None
    """Whether workers can have a network of their own there."""
    checks: Annotated[Rows[Check], MinLen(1)]
    """Findings about this host, in a fixed order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """What one host can send another."""

    source: Text
    """Which host sent; `this machine` is the command's own, where that lends no devices."""
    target: Text
    """Which host answered."""
    small_ns: Ns | None
    """The least time that a small message and its answer took; None if none came."""
    large_passes: bool
    """Whether a message of many frames arrived too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hosts:
    """What the advisor found of several hosts."""

    __pydantic_config__: ClassVar = STRICT

    schema_version: Annotated[int, Ge(1), Le(1)]
    advisor_version: Text
    """Version of placement-advisor that looked."""
    can_analyze: bool
    """Whether `advisor analyze` can work on these hosts; the exit code is 1 if not."""
    next: Text
    """What to type or to do next."""
    link: Literal["tls", "direct"]
    """How hosts reach one another."""
    hosts: Rows[Host]
    """The hosts, in the order of --hosts."""
    ways: Rows[Way]
    """What was tried between them, as an analysis uses it; empty if too few of them work."""
    checks: Rows[Check]
    """Findings about what lies between hosts."""

    @classmethod
    def of(cls, found: HostsExamined) -> Hosts:
        """Return it as it is published."""
        return cls(
            schema_version=1,
            advisor_version=__version__,
            can_analyze=not any(check.blocks for check in all_checks(found)),
            next=next_step(found),
            link=found.link.value,
            hosts=tuple(
                _host(host, tuple(map(Check.of, host_checks(host, found.link))))
                for host in found.hosts
            ),
            ways=tuple(
                like(Way, way, small_ns=way.tried.small_ns, large_passes=way.tried.large_passes)
                for way in found.ways
            ),
            checks=tuple(map(Check.of, between_checks(found))),
        )


def _host(host: HostExamined, checks: tuple[Check, ...]) -> Host:
    facts, clock, place, request = host.facts, host.clock, host.place, host.request
    return like(
        Host,
        host,
        name=request.name,
        devices=request.devices,
        port=request.port,
        versions=_versions(host.versions),
        cores=None if facts is None else len(facts.cores),
        available_memory_bytes=None if facts is None else facts.available_memory_bytes,
        load=None if place is None else place.load,
        clock=None if clock is None else like(Clock, clock),
        interface=None if place is None else place.interface,
        mtu_bytes=None if place is None else place.mtu_bytes,
        private_network=None if place is None else place.has_private_network,
        checks=checks,
    )


def _versions(told: object) -> Versions | None:
    """Return what a host said of itself, which may be of any version and say anything."""
    if not isinstance(told, dict):
        return None
    found = {field.name: told.get(field.name) for field in fields(Versions)}
    return Versions(
        **{name: value if isinstance(value, str) else None for name, value in found.items()}
    )
