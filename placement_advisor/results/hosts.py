"""What `advisor doctor --hosts` answers: what each host has, and whether they reach one another."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from annotated_types import Ge, Le

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
    Filled,
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
    tensorflow: Text | None
    python: Text | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """How far a host's clock is ahead of this machine's."""

    offset_ns: int
    """Ahead is positive."""
    uncertainty_ns: Ns
    """Either way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A host."""

    name: Text
    devices: Positive
    """Asked for."""
    address: Text
    """Reached by other hosts."""
    port: Annotated[int, Ge(1), Le(65535)] | None
    """Of `advisor worker --listen`; None: started."""
    answered_ns: Ns | None
    """Until a worker answered."""
    versions: Versions | None
    cores: Count | None
    """Usable one per device."""
    available_memory_bytes: Count | None
    load: NotNegative | None
    """Mean of a minute."""
    clock: Clock | None
    interface: Text | None
    """With that address."""
    mtu_bytes: Count | None
    """Largest frame."""
    private_network: bool | None
    """Workers can have one."""
    checks: Filled[Check]


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """What one host can send another."""

    source: Text
    """Or `this machine`."""
    target: Text
    small_ns: Ns | None
    """Least round trip."""
    large_passes: bool
    """Many frames arrived."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hosts:
    """What the advisor found of several hosts."""

    __pydantic_config__: ClassVar = STRICT

    schema_version: Literal[1]
    advisor_version: Text
    can_analyze: bool
    """Exit code 1 if not."""
    next: Text
    """Command or action."""
    link: Literal["tls", "direct"]
    hosts: Rows[Host]
    ways: Rows[Way]
    """Empty if too few work."""
    checks: Rows[Check]
    """Between hosts."""

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
