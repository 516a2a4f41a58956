"""Answers of `advisor doctor`: what this machine or each host has, and what hinders an analysis."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, ClassVar, Literal

from placement_advisor import __version__
from placement_advisor.analysis import doctor_hosts
from placement_advisor.files import contract
from placement_advisor.machine.doctor_checks import State, check_all, next_command
from placement_advisor.machine.machine_facts import Facts, KeptFigures, Package
from placement_advisor.machine.nvidia import Gpu, GpuPair

if TYPE_CHECKING:
    from collections.abc import Sequence

    from placement_advisor.machine import doctor_checks


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was looked at."""

    name: contract.Text
    state: State
    finding: contract.Text
    action: contract.Text | None
    blocks: bool
    """`advisor analyze` cannot work with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Python:
    """Python."""

    version: contract.Text
    wanted: contract.Text | None
    """By the advisor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpus:
    """GPUs, as NVIDIA's tools tell."""

    visible: contract.Count
    """Seen by TensorFlow."""
    driver: contract.Text | None
    problem: contract.Text | None
    """Why nvidia-smi failed."""
    devices: contract.Rows[Gpu]
    """As nvidia-smi lists them."""
    pairs: contract.Rows[GpuPair] | None
    cuda_packages: bool
    """cuDNN is installed as a package."""
    admins_profile: bool | None
    """Only administrators may profile."""
    sys_admin: bool | None
    """The process has CAP_SYS_ADMIN."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cores:
    """CPU cores."""

    usable: contract.Count
    """Enough for so many devices."""
    machine: contract.Count
    """Logical CPUs."""
    allowed: contract.Count
    """Logical CPUs that this process may use."""
    physical: contract.Count
    """Cores of the allowed CPUs."""
    quota: contract.Count | None
    """Limit of the container."""
    load: contract.NotNegative
    """Cores that other processes use now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Doctor:
    """What the advisor found of this machine."""

    __pydantic_config__: ClassVar = contract.STRICT

    schema_version: Literal[1]
    advisor_version: contract.Text
    can_analyze: bool
    """Else the exit code is 1."""
    next: contract.Text
    """What to run or do next."""
    checks: contract.Filled[Check]
    python: Python
    packages: contract.Rows[Package]
    """Installed or not."""
    tensorboard_profile_plugin: bool
    gpus: Gpus
    cores: Cores
    available_memory_bytes: contract.Count
    """Within the limit of the container."""
    private_network: bool
    """Workers can have one."""
    calibrations: contract.Rows[KeptFigures]
    """Newest first."""

    @classmethod
    def of(cls, facts: Facts) -> Doctor:
        """Return it as it is published."""
        checks = check_all(facts)
        return contract.like(
            cls,
            facts,
            can_analyze=not any(check.blocks for check in checks),
            next=next_command(facts, checks),
            checks=checks,
            python=Python(version=facts.python_version, wanted=facts.wanted_python),
            tensorboard_profile_plugin=facts.has_profile_plugin,
            gpus=contract.like(
                Gpus,
                facts.gpus,
                visible=facts.visible_gpus,
                cuda_packages=facts.has_cuda_libraries,
                sys_admin=facts.has_sys_admin,
            ),
            cores=contract.like(Cores, facts.cores, load=facts.load.cores),
            private_network=facts.has_private_network,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """What it said of itself; None if it did not answer."""

    advisor: contract.Text | None
    tensorflow: contract.Text | None
    python: contract.Text | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """How far a host's clock is ahead of this machine's."""

    offset_ns: int
    """Positive if it is ahead."""
    uncertainty_ns: contract.Ns
    """In both directions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A host."""

    name: contract.Text
    devices: contract.Positive
    """As many as asked for."""
    address: contract.Text
    """Where other hosts reach it."""
    answered_ns: contract.Ns | None
    """Until a worker answered."""
    versions: Versions | None
    cores: contract.Count | None
    """Enough for so many devices."""
    available_memory_bytes: contract.Count | None
    load: contract.NotNegative | None
    """Cores that other processes use now."""
    clock: Clock | None
    interface: contract.Text | None
    """Network interface with that address."""
    mtu_bytes: contract.Count | None
    """Largest frame."""
    private_network: bool | None
    """Workers can have one."""
    checks: contract.Filled[Check]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLink:
    """What one host can send another."""

    source: contract.Text
    """Or `this machine`."""
    target: contract.Text
    small_ns: contract.Ns | None
    """Shortest round trip."""
    large_passes: bool
    """A large message arrived."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hosts:
    """What the advisor found of several hosts."""

    __pydantic_config__: ClassVar = contract.STRICT

    schema_version: Literal[2]
    advisor_version: contract.Text
    can_analyze: bool
    """Else the exit code is 1."""
    next: contract.Text
    """What to run or do next."""
    link: Literal["tls", "direct"]
    hosts: contract.Rows[Host]
    ways: contract.Rows[HostLink]
    """Empty if fewer than two hosts work."""
    checks: contract.Rows[Check]
    """Between hosts."""

    @classmethod
    def of(cls, found: doctor_hosts.HostsExamined) -> Hosts:
        """Return it as it is published."""
        return contract.like(
            cls,
            found,
            advisor_version=__version__,
            can_analyze=not any(check.blocks for check in doctor_hosts.all_checks(found)),
            next=doctor_hosts.next_step(found),
            hosts=[
                _host(host, tuple(doctor_hosts.host_checks(host, found.link)))
                for host in found.hosts
            ],
            ways=[contract.like(HostLink, way, way.tried) for way in found.ways],
            checks=tuple(doctor_hosts.between_checks(found)),
        )


def _host(host: doctor_hosts.HostExamined, checks: Sequence[doctor_checks.Check]) -> Host:
    facts, place = host.facts, host.place
    return contract.like(
        Host,
        host,
        host.request,
        facts,
        place,
        versions=_versions(host.versions),
        cores=facts and len(facts.cores),
        load=place and place.load.cores,
        private_network=place and place.has_private_network,
        checks=checks,
    )


def _versions(said: object) -> Versions | None:
    """Return what a host says of itself; its version may be any, and so may its answer."""
    if not isinstance(said, dict):
        return None
    known = {name: value for name, value in said.items() if isinstance(value, str)}
    return Versions(**{field.name: known.get(field.name) for field in fields(Versions)})
