"""What `advisor doctor` found as the public contract of ``advisor doctor --json``.

Times are integer nanoseconds, sizes integer bytes. Null means not known, or does not apply.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from placement_advisor.machine.doctor.checks import check_all, next_command

if TYPE_CHECKING:
    from placement_advisor.machine.doctor.facts import Facts, KeptFigures
    from placement_advisor.machine.doctor.finding import Check

SCHEMA_VERSION = 1


def doctor_as_json(facts: Facts) -> dict[str, Any]:
    """Return the content, valid against ``load_schema("doctor")``."""
    checks = check_all(facts)
    return {
        "schema_version": SCHEMA_VERSION,
        "advisor_version": facts.advisor_version,
        "can_analyze": not any(check.blocks for check in checks),
        "next": next_command(facts, checks),
        "checks": [check_as_json(check) for check in checks],
        "python": {"version": facts.python_version, "wanted": facts.wanted_python},
        "packages": [
            {
                "name": package.name,
                "version": package.version,
                "wanted": package.wanted,
                "unmet": [{"by": asker, "wanted": wanted} for asker, wanted in package.unmet],
            }
            for package in facts.packages
        ],
        "tensorboard_profile_plugin": facts.has_profile_plugin,
        "gpus": _gpus(facts),
        "cores": {
            "usable": facts.cores.usable,
            "machine": facts.cores.machine,
            "allowed": facts.cores.allowed,
            "physical": facts.cores.physical,
            "quota": facts.cores.quota,
            "load": facts.load,
        },
        "available_memory_bytes": facts.available_memory_bytes,
        "private_network": facts.has_private_network,
        "calibrations": [_calibration(kept) for kept in facts.calibrations],
    }


def check_as_json(check: Check) -> dict[str, Any]:
    """Return one finding."""
    return {
        "name": check.name,
        "state": check.state.value,
        "finding": check.finding,
        "action": check.action,
        "blocks": check.blocks,
    }


def _gpus(facts: Facts) -> dict[str, Any]:
    gpus = facts.gpus
    return {
        "visible": facts.visible_gpus,
        "driver": gpus.driver,
        "problem": gpus.problem,
        "devices": [
            {"index": gpu.index, "name": gpu.name, "memory_bytes": gpu.memory_bytes}
            for gpu in gpus.devices
        ],
        "pairs": None
        if gpus.pairs is None
        else [
            {
                "first": pair.first,
                "second": pair.second,
                "code": pair.code,
                "connection": None if pair.connection is None else pair.connection.value,
            }
            for pair in gpus.pairs
        ],
        "cuda_packages": facts.has_cuda_libraries,
        "admins_profile": gpus.admins_profile,
        "sys_admin": facts.has_sys_admin,
    }


def _calibration(kept: KeptFigures) -> dict[str, Any]:
    return {
        "testbed": kept.testbed,
        "devices": list(kept.devices),
        "age_ns": kept.age_ns,
        "holds": kept.holds,
        "small_copy": _copy(kept.small),
        "large_copy": _copy(kept.large),
        "step_overhead_ns": kept.step_overhead_ns,
        "quantum_ns": kept.quantum_ns,
    }


def _copy(copy: tuple[int, int] | None) -> dict[str, int] | None:
    return None if copy is None else {"size_bytes": copy[0], "copy_ns": copy[1]}
