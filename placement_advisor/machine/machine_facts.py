"""Finds out what `advisor doctor` judges: packages, cores, GPUs, calibrations.

It imports nothing that may be missing.
"""

from __future__ import annotations

import platform
import time
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Literal

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from placement_advisor import __version__
from placement_advisor.errors import TestbedError
from placement_advisor.files.contract import Count, Ns, Rows, Text
from placement_advisor.machine import this_machine
from placement_advisor.machine.calibration import calibration_fingerprint, kept_calibrations
from placement_advisor.machine.nvidia import Gpus, find_gpus
from placement_advisor.machine.testbed_plan import TestbedKind, plan_testbed
from placement_advisor.processes.children import available_memory_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from placement_advisor.machine.calibration import Calibration, CopyTiming, KeptCalibration
    from placement_advisor.machine.this_machine import Cores, OtherWork


ADVISOR = "placement-advisor"
# Analysis and reports need the first ones, TensorBoard the others.
NEEDED = ("tensorflow", "keras", "numba", "numpy", "networkx", "matplotlib", "protobuf")
VIEWERS = ("tensorboard", "tensorboard-plugin-profile", "xprof")
_PLUGINS = "tensorboard_plugins"
_KINDS = frozenset(kind.value for kind in TestbedKind if kind is not TestbedKind.NONE)


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
    """By the advisor."""
    unmet: Rows[Unmet]
    """What other packages want instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyTime:
    """A copy that was measured; None if it took no time."""

    size_bytes: Count
    copy_ns: int
    """Median over all links."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptFigures:
    """Figures that are kept of a testbed."""

    testbed: Literal["gpus", "workers", "logical-cpus"]
    devices: Rows[Text]
    age_ns: Ns
    """Since it was measured."""
    holds: bool
    """Whether analyses here use it."""
    small_copy: CopyTime | None
    large_copy: CopyTime | None
    step_overhead_ns: Ns
    """To start and end a step."""
    quantum_ns: Ns
    """How long ops hold up copies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """This machine, as far as the advisor depends on it.

    ``visible_gpus`` is how many TensorFlow may see, ``load`` what other processes do now. What is
    not known is None.
    """

    advisor_version: str
    python_version: str
    wanted_python: str | None
    packages: tuple[Package, ...]
    has_profile_plugin: bool
    has_cuda_libraries: bool
    visible_gpus: int
    gpus: Gpus
    has_sys_admin: bool | None
    cores: Cores
    load: OtherWork
    available_memory_bytes: int
    has_private_network: bool
    calibrations: tuple[KeptFigures, ...]


def examine() -> Facts:
    """Look at this machine; nothing is changed and nothing left behind."""
    now_ns = time.time_ns()
    return Facts(
        advisor_version=__version__,
        python_version=platform.python_version(),
        wanted_python=wanted_python(),
        packages=installed_packages(),
        has_profile_plugin=has_profile_plugin(),
        has_cuda_libraries=has_cuda_libraries(),
        visible_gpus=this_machine.gpu_count(),
        gpus=find_gpus(),
        has_sys_admin=this_machine.parse_sys_admin(Path("/proc/self/status").read_text()),
        cores=this_machine.find_cores(),
        load=this_machine.other_work(),
        available_memory_bytes=available_memory_bytes(),
        has_private_network=this_machine.can_have_private_network(),
        calibrations=tuple(
            _figures(kept, now_ns) for kept in kept_calibrations() if kept.testbed in _KINDS
        ),
    )


def _figures(kept: KeptCalibration, now_ns: int) -> KeptFigures:
    calibration = kept.calibration
    timings = [timing for timings in calibration.links.values() for timing in timings]
    sizes = sorted({timing.size_bytes for timing in timings})
    return KeptFigures(
        testbed=kept.testbed,  # type: ignore[arg-type]
        devices=tuple(calibration.reference_ns),
        age_ns=max(0, now_ns - kept.written_ns),
        holds=_holds(kept.testbed, calibration, kept.fingerprint),
        small_copy=_median_copy(timings, sizes[0]) if sizes else None,
        large_copy=_median_copy(timings, sizes[-1]) if sizes else None,
        step_overhead_ns=calibration.step_overhead_ns,
        quantum_ns=calibration.quantum_ns,
    )


def _median_copy(timings: list[CopyTiming], size_bytes: int) -> CopyTime | None:
    time_ns = round(median(t.copy_ns for t in timings if t.size_bytes == size_bytes))
    return CopyTime(size_bytes=size_bytes, copy_ns=time_ns) if time_ns > 0 else None


def _holds(testbed: str, calibration: Calibration, fingerprint: str) -> bool:
    """Return whether an analysis on that testbed would use the calibration."""
    with suppress(TestbedError, PackageNotFoundError):
        plan = plan_testbed(TestbedKind(testbed), len(calibration.reference_ns))
        return calibration_fingerprint(plan) == fingerprint
    return False


def installed_packages() -> tuple[Package, ...]:
    """Return the packages that matter, installed or not."""
    found = {name: _distribution(name) for name in (ADVISOR, *NEEDED, *VIEWERS)}
    versions = {name: each.version if each else None for name, each in found.items()}
    del versions[ADVISOR]
    requirements = {name: each.requires or () for name, each in found.items() if each}
    return packages(versions, requirements)


def packages(
    versions: Mapping[str, str | None], requirements: Mapping[str, Sequence[str]]
) -> tuple[Package, ...]:
    """Return each package with what the requirements of all of them ask of it."""
    asked: dict[str, dict[str, str]] = {name: {} for name in versions}
    for asker, lines in requirements.items():
        for line in lines:
            with suppress(InvalidRequirement):
                found = Requirement(line)
                name = canonicalize_name(found.name)
                # A marker says for which systems or extras the line holds.
                if found.marker is None and name in asked:
                    asked[name][asker] = str(found.specifier)
    return tuple(
        Package(
            name=name,
            version=version,
            wanted=asked[name].get(ADVISOR) or None,
            unmet=tuple(
                Unmet(by=asker, wanted=wanted)
                for asker, wanted in asked[name].items()
                if version is not None and not fits(version, wanted)
            ),
        )
        for name, version in versions.items()
    )


def wanted_python() -> str | None:
    """Return the versions of Python that the advisor wants, None if it is not installed."""
    found = _distribution(ADVISOR)
    return next(iter(found.metadata.get_all("Requires-Python") or ()), None) if found else None


def has_profile_plugin() -> bool:
    """Return whether TensorBoard will find a plugin for profiles."""
    return any(point.name == "profile" for point in metadata.entry_points(group=_PLUGINS))


def has_cuda_libraries() -> bool:
    """Return whether cuDNN is installed as a package; it may be on the system instead."""
    return any(map(_distribution, ("nvidia-cudnn-cu12", "nvidia-cudnn-cu13")))


def fits(version: str, wanted: str) -> bool:
    """Return whether a version is among those wanted; what is not of PEP 440 is taken as met.

    >>> fits("2.21.0", ">=2.21,<2.22"), fits("2.22.0rc1", "<2.22"), fits("3.0", "~=3.1")
    (True, False, False)
    """
    with suppress(InvalidSpecifier, InvalidVersion):
        return SpecifierSet(wanted).contains(Version(version), prereleases=True)
    return True


def _distribution(name: str) -> metadata.Distribution | None:
    with suppress(PackageNotFoundError):
        return metadata.distribution(name)
    return None
