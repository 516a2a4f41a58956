"""Answers of `advisor doctor`: what this machine or each host has, and what hinders an analysis."""

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
from placement_advisor.machine.machine_checks import State, check_all, next_command
from placement_advisor.machine.nvidia import Connection

if TYPE_CHECKING:
    from placement_advisor.analysis.host_doctor import HostExamined, HostsExamined
    from placement_advisor.machine import machine_checks as found
    from placement_advisor.machine.machine_facts import Facts, KeptFigures


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was looked at."""

    name: Text
    state: State
    finding: Text
    action: Text | None
    blocks: bool
    """`advisor analyze` cannot work."""

    @classmethod
    def of(cls, check: found.Check) -> Check:
        """Return it as it is published."""
        return like(cls, check)


@dataclass(frozen=True, slots=True, kw_only=True)
class Python:
    """Python."""

    version: Text
    wanted: Text | None
    """For the advisor; None if not a package."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unmet:
    """Who wants another version."""

    by: Text
    wanted: Text


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A package that the advisor needs."""

    name: Text
    version: Text | None
    """None if not installed."""
    wanted: Text | None
    """For the advisor."""
    unmet: Rows[Unmet]
    """By other packages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU."""

    index: Count
    """The driver's."""
    name: Text
    memory_bytes: Count | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPair:
    """How two GPUs are connected."""

    first: Count
    second: Count
    code: Text
    """NVIDIA's, such as `NV12`."""
    connection: Connection | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpus:
    """GPUs, as NVIDIA's tools tell."""

    visible: Count
    """To TensorFlow."""
    driver: Text | None
    problem: Text | None
    """Why nvidia-smi failed."""
    devices: Rows[Gpu]
    """By nvidia-smi."""
    pairs: Rows[GpuPair] | None
    cuda_packages: bool
    """cuDNN installed as a package."""
    admins_profile: bool | None
    """Only administrators may profile."""
    sys_admin: bool | None
    """CAP_SYS_ADMIN."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cores:
    """CPU cores."""

    usable: Count
    """Devices with one of their own."""
    machine: Count
    """Logical CPUs."""
    allowed: Count
    """Logical CPUs of this process."""
    physical: Count
    """Of the allowed."""
    quota: Count | None
    """Container's cores; None: no limit."""
    load: NotNegative
    """Mean of a minute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyTime:
    """A copy that was measured; None if it took no time."""

    size_bytes: Count
    copy_ns: int
    """Median over links."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Figures that are kept of a testbed."""

    testbed: Literal["gpus", "workers", "logical-cpus"]
    devices: Rows[Text]
    age_ns: Ns
    """Since written."""
    holds: bool
    """Used by analyses here."""
    small_copy: CopyTime | None
    large_copy: CopyTime | None
    step_overhead_ns: Ns
    """Beside ops."""
    quantum_ns: Ns
    """Busy with ops before copies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Doctor:
    """What the advisor found of this machine."""

    __pydantic_config__: ClassVar = STRICT

    schema_version: Literal[1]
    advisor_version: Text
    can_analyze: bool
    """Exit code 1 if not."""
    next: Text
    """Command or action."""
    checks: Filled[Check]
    python: Python
    packages: Rows[Package]
    """Installed or not."""
    tensorboard_profile_plugin: bool
    gpus: Gpus
    cores: Cores
    available_memory_bytes: Count
    """The container's limit applied."""
    private_network: bool
    """Workers can have one."""
    calibrations: Rows[Calibration]
    """Newest first."""

    @classmethod
    def of(cls, facts: Facts) -> Doctor:
        """Return it as it is published."""
        checks = check_all(facts)
        return like(
            cls,
            facts,
            schema_version=1,
            can_analyze=not any(check.blocks for check in checks),
            next=next_command(facts, checks),
            checks=tuple(map(Check.of, checks)),
            python=Python(version=facts.python_version, wanted=facts.wanted_python),
            packages=tuple(
                like(
                    Package,
                    package,
                    unmet=tuple(Unmet(by=asker, wanted=wanted) for asker, wanted in package.unmet),
                )
                for package in facts.packages
            ),
            tensorboard_profile_plugin=facts.has_profile_plugin,
            gpus=_gpus(facts),
            cores=like(Cores, facts.cores, load=facts.load),
            private_network=facts.has_private_network,
            calibrations=tuple(map(_calibration, facts.calibrations)),
        )


def _gpus(facts: Facts) -> Gpus:
    gpus, pairs = facts.gpus, facts.gpus.pairs
    return like(
        Gpus,
        gpus,
        visible=facts.visible_gpus,
        devices=tuple(like(Gpu, gpu) for gpu in gpus.devices),
        pairs=None if pairs is None else tuple(like(GpuPair, pair) for pair in pairs),
        cuda_packages=facts.has_cuda_libraries,
        sys_admin=facts.has_sys_admin,
    )


def _calibration(kept: KeptFigures) -> Calibration:
    small, large = (
        None if copy is None else CopyTime(size_bytes=copy[0], copy_ns=copy[1])
        for copy in (kept.small, kept.large)
    )
    return like(Calibration, kept, devices=tuple(kept.devices), small_copy=small, large_copy=large)


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
class HostLink:
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
    ways: Rows[HostLink]
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
                like(
                    HostLink, way, small_ns=way.tried.small_ns, large_passes=way.tried.large_passes
                )
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
