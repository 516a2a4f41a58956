"""Finds out what `advisor doctor` judges. Imports nothing that may be missing: no TensorFlow."""

from __future__ import annotations

import platform
import time
from contextlib import suppress
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from placement_advisor import __version__
from placement_advisor.errors import TestbedError
from placement_advisor.machine.calibration import kept_calibrations
from placement_advisor.machine.doctor.facts import Facts, KeptFigures
from placement_advisor.machine.doctor.packages import (
    has_cuda_libraries,
    has_profile_plugin,
    installed_packages,
    wanted_python,
)
from placement_advisor.machine.fingerprints import calibration_fingerprint
from placement_advisor.machine.nvidia import find_gpus
from placement_advisor.machine.system import (
    can_have_private_network,
    find_cores,
    load_average,
    parse_sys_admin,
)
from placement_advisor.machine.testbed_plan import TestbedKind, plan_testbed
from placement_advisor.machine.this_machine import gpu_count
from placement_advisor.processes.children import available_memory_bytes

if TYPE_CHECKING:
    from placement_advisor.machine.calibration import Calibration, KeptCalibration
    from placement_advisor.machine.copy_timings import CopyTiming

_KINDS = frozenset(kind.value for kind in TestbedKind if kind is not TestbedKind.NONE)


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
        visible_gpus=gpu_count(),
        gpus=find_gpus(),
        has_sys_admin=parse_sys_admin(Path("/proc/self/status").read_text()),
        cores=find_cores(),
        load=load_average(),
        available_memory_bytes=available_memory_bytes(),
        has_private_network=can_have_private_network(),
        calibrations=tuple(
            _figures(kept, now_ns) for kept in kept_calibrations() if kept.testbed in _KINDS
        ),
    )


def _figures(kept: KeptCalibration, now_ns: int) -> KeptFigures:
    calibration = kept.calibration
    timings = [timing for timings in calibration.links.values() for timing in timings]
    sizes = sorted({timing.size_bytes for timing in timings})
    return KeptFigures(
        testbed=kept.testbed,
        devices=tuple(calibration.reference_ns),
        age_ns=max(0, now_ns - kept.written_ns),
        holds=_holds(kept.testbed, calibration, kept.fingerprint),
        small=_median_copy(timings, sizes[0]) if sizes else None,
        large=_median_copy(timings, sizes[-1]) if sizes else None,
        step_overhead_ns=calibration.step_overhead_ns,
        quantum_ns=calibration.quantum_ns,
    )


def _median_copy(timings: list[CopyTiming], size_bytes: int) -> tuple[int, int] | None:
    time_ns = round(median(t.copy_ns for t in timings if t.size_bytes == size_bytes))
    return (size_bytes, time_ns) if time_ns > 0 else None


def _holds(testbed: str, calibration: Calibration, fingerprint: str) -> bool:
    """Return whether an analysis on that testbed would use the calibration."""
    with suppress(TestbedError, PackageNotFoundError):
        plan = plan_testbed(TestbedKind(testbed), len(calibration.reference_ns))
        return calibration_fingerprint(plan) == fingerprint
    return False
