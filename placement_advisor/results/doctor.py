"""What `advisor doctor` answers: what this machine has, and what hinders an analysis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from annotated_types import Ge, Le, MinLen

from placement_advisor.files.contract import STRICT, Count, NotNegative, Ns, Rows, Text, like
from placement_advisor.machine.doctor.checks import check_all, next_command
from placement_advisor.machine.doctor.finding import State
from placement_advisor.machine.nvidia import Connection

if TYPE_CHECKING:
    from placement_advisor.machine.doctor import finding as found
    from placement_advisor.machine.doctor.facts import Facts, KeptFigures


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was looked at."""

    name: Text
    """What was looked at; several findings can be about one thing."""
    state: State
    """Well, worth knowing, or wrong."""
    finding: Text
    """What is the case."""
    action: Text | None
    """What to do about it; None if nothing is to be done."""
    blocks: bool
    """Whether `advisor analyze` cannot work before it is done."""

    @classmethod
    def of(cls, check: found.Check) -> Check:
        """Return it as it is published."""
        return like(cls, check)


@dataclass(frozen=True, slots=True, kw_only=True)
class Python:
    """Python."""

    version: Text
    """Its version."""
    wanted: Text | None
    """Versions that the advisor wants; None if it is not installed as a package."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unmet:
    """Who wants another version."""

    by: Text
    """Package that asks."""
    wanted: Text
    """Versions that it wants."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A package that the advisor needs."""

    name: Text
    """Name of the package."""
    version: Text | None
    """Its version; None if it is not installed."""
    wanted: Text | None
    """Versions that the advisor wants; None if it names none."""
    unmet: Rows[Unmet]
    """Who wants another version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU."""

    index: Count
    """The driver's number."""
    name: Text
    """Name of the card."""
    memory_bytes: Count | None
    """Its memory; None if not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPair:
    """How two GPUs are connected."""

    first: Count
    """Number of one GPU."""
    second: Count
    """Number of the other, the higher one."""
    code: Text
    """NVIDIA's code for what lies between them, such as `NV12` or `PHB`."""
    connection: Connection | None
    """What that means; None if not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpus:
    """GPUs, as NVIDIA's tools tell."""

    visible: Count
    """How many TensorFlow may see."""
    driver: Text | None
    """Version of the driver; None if not known."""
    problem: Text | None
    """Why nvidia-smi told nothing; None if it did, or is not there."""
    devices: Rows[Gpu]
    """What nvidia-smi lists."""
    pairs: Rows[GpuPair] | None
    """Each pair once; None if not known."""
    cuda_packages: bool
    """Whether cuDNN is installed as a package; it may be on the system instead."""
    admins_profile: bool | None
    """Whether the driver lets only administrators profile; None if not known."""
    sys_admin: bool | None
    """Whether this process has CAP_SYS_ADMIN; None if not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cores:
    """CPU cores."""

    usable: Count
    """How many devices can have one of their own."""
    machine: Count
    """Logical CPUs of the machine."""
    allowed: Count
    """Logical CPUs that this process may run on."""
    physical: Count
    """Physical cores that these belong to."""
    quota: Count | None
    """Whole cores that the container may use; None without a limit."""
    load: NotNegative
    """Processes that wanted to run, on average in the last minute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyTime:
    """Smallest copy that was measured; None if it took no time."""

    size_bytes: Count
    """Size of the tensor."""
    copy_ns: int
    """Time of the copy, median over links."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Figures that are kept of a testbed."""

    testbed: Literal["gpus", "workers", "logical-cpus"]
    """Sort of testbed."""
    devices: Rows[Text]
    """Its devices."""
    age_ns: Ns
    """Time since it was written."""
    holds: bool
    """Whether analyses here use it: machine, system and TensorFlow are as they were."""
    small_copy: CopyTime | None
    large_copy: CopyTime | None
    step_overhead_ns: Ns
    """What any step costs beside its ops."""
    quantum_ns: Ns
    """How long a busy device goes on with ops before it turns to copies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Doctor:
    """What the advisor found of this machine."""

    __pydantic_config__: ClassVar = STRICT

    schema_version: Annotated[int, Ge(1), Le(1)]
    advisor_version: Text
    """Version of placement-advisor that looked."""
    can_analyze: bool
    """Whether `advisor analyze` can work here; the exit code is 1 if not."""
    next: Text
    """What to type or to do next."""
    checks: Annotated[Rows[Check], MinLen(1)]
    """Findings, in a fixed order."""
    python: Python
    packages: Rows[Package]
    """Packages that matter, installed or not."""
    tensorboard_profile_plugin: bool
    """Whether TensorBoard finds a plugin for profiles."""
    gpus: Gpus
    cores: Cores
    available_memory_bytes: Count
    """Memory that is free, or what the container allows if that is less."""
    private_network: bool
    """Whether workers can have a network of their own."""
    calibrations: Rows[Calibration]
    """Calibrations on file, newest first."""

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
