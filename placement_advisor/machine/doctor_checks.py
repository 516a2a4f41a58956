"""Judges the facts of a machine: what is well, what is wrong, and what to do about it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from placement_advisor.machine import machine_facts, nvidia, this_machine
from placement_advisor.units import NS_PER_S, counted, format_bytes, format_ns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


# A split needs two.
DEVICES = 2
# TensorFlow itself takes 0.6 GB, and no child may take more than four fifths of what is free.
_LEAST_MEMORY_BYTES = 750_000_000
# The largest sample model takes 3 GB in two workers and a client.
_GOOD_MEMORY_BYTES = 4_000_000_000
_DAY_S = 24 * 60 * 60
ALLOW_NETWORKS = (
    "let users make namespaces (kernel.unprivileged_userns_clone=1 or "
    "kernel.apparmor_restrict_unprivileged_userns=0; docker: --cap-add SYS_ADMIN)"
)
_ANALYZE = "advisor analyze MODEL.py"
_CALIBRATE = "advisor calibrate"


class State(StrEnum):
    """How grave a finding is."""

    OK = "ok"
    NOTE = "note"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One finding. ``action`` is what to do about it; ``blocks`` that nothing works before."""

    name: str
    state: State
    finding: str
    action: str | None = None
    blocks: bool = False


def ok(name: str, finding: str) -> Check:
    """Return a finding of what is well."""
    return Check(name=name, state=State.OK, finding=finding)


def note(name: str, finding: str, action: str | None = None) -> Check:
    """Return a finding that a user should know."""
    return Check(name=name, state=State.NOTE, finding=finding, action=action)


def problem(name: str, finding: str, action: str | None, *, blocks: bool = False) -> Check:
    """Return a finding of what is wrong."""
    return Check(name=name, state=State.PROBLEM, finding=finding, action=action, blocks=blocks)


def check_all(facts: machine_facts.Facts) -> tuple[Check, ...]:
    """Return all findings, in a fixed order."""
    return tuple(check for rule in _RULES for check in rule(facts))


def next_command(facts: machine_facts.Facts, checks: tuple[Check, ...]) -> str:
    """Return what to type next."""
    for check in checks:
        if check.blocks and check.action:
            return check.action
    if _has_workers_alone(facts) and not facts.has_private_network:
        return f"{_ANALYZE} --no-run"
    is_measured = any(kept.holds for kept in facts.calibrations)
    return _ANALYZE if is_measured or not _can_run(facts) else _CALIBRATE


def _can_run(facts: machine_facts.Facts) -> bool:
    return max(facts.visible_gpus, facts.cores.usable) >= DEVICES


def _has_workers_alone(facts: machine_facts.Facts) -> bool:
    return facts.visible_gpus < DEVICES <= facts.cores.usable


def _python(facts: machine_facts.Facts) -> Iterator[Check]:
    wanted = facts.wanted_python
    if wanted is None or machine_facts.fits(facts.python_version, wanted):
        yield ok("python", facts.python_version)
    else:
        finding = f"{facts.python_version}; {wanted} is wanted"
        yield problem("python", finding, f"install placement-advisor with a Python {wanted}")


def _packages(facts: machine_facts.Facts) -> Iterator[Check]:
    well = [package for package in facts.packages if package.version and not package.unmet]
    if well:
        finding = ", ".join(f"{package.name} {package.version}" for package in well)
        yield ok("packages", finding)
    for package in facts.packages:
        if package.version is None:
            action = f"pip install '{package.name}{package.wanted or ''}'"
            is_needed = package.name in machine_facts.NEEDED
            yield problem(package.name, "is not installed", action, blocks=is_needed)
        elif package.unmet:
            wanted = [package.wanted, *(unmet.wanted for unmet in package.unmet)]
            all_wanted = ",".join(dict.fromkeys(filter(None, wanted)))
            askers = [f"{unmet.by} wants {unmet.wanted}" for unmet in package.unmet]
            finding = f"{package.version}; {'; '.join(askers)}"
            action = f"pip install '{package.name}{all_wanted}', then pip check"
            yield problem(package.name, finding, action)


def _profile_plugin(facts: machine_facts.Facts) -> Iterator[Check]:
    if facts.has_profile_plugin:
        yield ok("profile tab", "TensorBoard has its plugin")
        return
    yield problem(
        "profile tab",
        "TensorBoard has no plugin for profiles, so the Profile tab stays away",
        "pip install --force-reinstall --no-deps tensorboard-plugin-profile xprof",
    )


def _gpus(facts: machine_facts.Facts) -> Iterator[Check]:
    """Say which there are, and whether TensorFlow sees them."""
    found = facts.gpus
    if found.problem is not None:
        yield problem(
            "gpus",
            f"nvidia-smi cannot ask the driver: {found.problem}",
            "repair the driver; in a container, start it with --gpus all",
        )
        return
    if not found.devices and not facts.visible_gpus:
        action = "predict for others with --hardware, such as 2xV100-NVLink"
        yield note("gpus", "none here: CPU cores stand in for them", action)
        return
    counts = [f"{counted(facts.visible_gpus, 'GPU')} for TensorFlow to see"]
    for name in dict.fromkeys(gpu.name for gpu in found.devices):
        alike = [gpu for gpu in found.devices if gpu.name == name]
        counts.append(f"{len(alike)} × {name}, {format_bytes(alike[0].memory_bytes)} each")
    if found.driver is not None:
        counts.append(f"driver {found.driver}")
    finding = "; ".join(counts)
    if facts.visible_gpus < len(found.devices):
        yield note("gpus", finding, "CUDA_VISIBLE_DEVICES hides the rest")
    elif facts.visible_gpus < DEVICES:
        yield note("gpus", finding, "a split needs two: without them, CPU cores stand in")
    else:
        yield ok("gpus", finding) if found.devices else note("gpus", finding)
    if not facts.has_cuda_libraries:
        yield note(
            "cuda",
            "cuDNN is not installed as a package; TensorFlow needs it on the system",
            "if TensorFlow finds no GPU: pip install 'tensorflow[and-cuda]'",
        )


def _gpu_links(facts: machine_facts.Facts) -> Iterator[Check]:
    """Say what lies between each two of them."""
    if len(facts.gpus.devices) < DEVICES:
        return
    if facts.gpus.pairs is None:
        yield note("gpu links", "nvidia-smi topo -m does not say what lies between the GPUs")
        return
    by_way: dict[str, list[nvidia.GpuPair]] = defaultdict(list)
    for pair in facts.gpus.pairs:
        by_way[_WAYS[pair.connection]].append(pair)
    finding = "; ".join(
        f"{way}: {', '.join(f'{pair.first}–{pair.second} {pair.code}' for pair in pairs)}"
        for way, pairs in by_way.items()
    )
    if _WAYS[nvidia.Connection.SOCKETS] not in by_way:
        yield ok("gpu links", finding)
        return
    some_are_near = len(by_way) > 1
    action = "pick GPUs of one socket with CUDA_VISIBLE_DEVICES" if some_are_near else None
    yield note("gpu links", finding, action)


_WAYS: dict[nvidia.Connection | None, str] = {
    nvidia.Connection.NVLINK: "NVLink",
    nvidia.Connection.PCIE: "PCIe",
    nvidia.Connection.SOCKETS: "across sockets",
    None: "unknown",
}


def _gpu_profiles(facts: machine_facts.Facts) -> Iterator[Check]:
    """Say whether copies between them can be profiled."""
    if not facts.gpus.devices:
        return
    is_admin = facts.has_sys_admin
    if facts.gpus.admins_profile is False or is_admin:
        yield ok("gpu profiles", "CUPTI may profile")
    elif facts.gpus.admins_profile is None or is_admin is None:
        yield note("gpu profiles", "the system does not say whether CUPTI may profile")
    else:
        yield problem(
            "gpu profiles",
            "the driver lets only administrators profile (RmProfilingAdminOnly), and this "
            "process has no CAP_SYS_ADMIN",
            "start the container with --cap-add SYS_ADMIN, or load the driver with "
            "NVreg_RestrictProfilingToAdminUsers=0; meanwhile: --testbed workers",
        )


def _cores(facts: machine_facts.Facts) -> Iterator[Check]:
    cores = facts.cores
    finding = f"{counted(cores.usable, 'core')} for devices, one each"
    reasons = []
    if cores.allowed < cores.machine:
        reasons.append(f"affinity allows {cores.allowed} of {cores.machine} CPUs")
    if cores.physical < cores.allowed:
        reasons.append(f"{cores.allowed} CPUs are threads of {cores.physical} cores")
    if cores.quota is not None and cores.quota < cores.physical:
        reasons.append(f"the container's quota is {cores.quota}")
    if reasons:
        finding += f": {', '.join(reasons)}"
    if cores.usable >= DEVICES:
        yield ok("cores", finding)
        return
    finding += "; a split over CPU stand-ins needs two"
    action = (
        "give this process more cores (taskset, docker --cpus); until then, candidates are "
        "simulated only"
    )
    has_gpus = facts.visible_gpus >= DEVICES
    yield note("cores", finding, action) if has_gpus else problem("cores", finding, action)


def _load(facts: machine_facts.Facts) -> Iterator[Check]:
    yield load_check(facts.load, facts.cores.usable, DEVICES)


def load_check(load: this_machine.OtherWork, usable_cores: int, devices: int) -> Check:
    """Judge what other processes do where so many cores are to be devices."""
    cores = max(usable_cores, 1)
    finding = f"other work uses {load}; {counted(cores, 'core')} here"
    if not this_machine.is_busy(load.cores, cores, devices):
        return ok("load", finding)
    action = "wait, or close it, before you calibrate or analyse"
    return note("load", f"{finding}: times will vary", action)


def _memory(facts: machine_facts.Facts) -> Iterator[Check]:
    yield memory_check(facts.available_memory_bytes)


def memory_check(free: int) -> Check:
    """Judge how many bytes are free."""
    finding = f"{format_bytes(free)} free"
    action = "free some memory, or raise the container's limit"
    if free >= _GOOD_MEMORY_BYTES:
        return ok("memory", finding)
    if free >= _LEAST_MEMORY_BYTES:
        return note("memory", f"{finding}; enough for small models only", action)
    return problem("memory", f"{finding}; TensorFlow alone takes 600 MB", action, blocks=True)


def _network(facts: machine_facts.Facts) -> Iterator[Check]:
    if facts.has_private_network:
        yield ok("network", "workers run in a private network that nothing else reaches")
        return
    yield problem(
        "network",
        "no private network can be made: no workers run, since TensorFlow's listen on "
        "every interface without authentication",
        f"{ALLOW_NETWORKS}, or, where no stranger reaches this machine, --open-ports",
    )


def _calibrations(facts: machine_facts.Facts) -> Iterator[Check]:
    if not facts.calibrations:
        action = f"`{_CALIBRATE}`; else the first analysis measures"
        yield note("calibration", "none is kept yet", action)
    for kept in facts.calibrations:
        if kept.holds:
            of = f"{kept.testbed}, {len(kept.devices)} devices, {_age(kept.age_ns)} old"
            yield ok("calibration", f"{of}: {_figures(kept)}")
    stale = [kept for kept in facts.calibrations if not kept.holds]
    if stale:
        are_all = len(stale) == len(facts.calibrations)
        yield note(
            "calibration",
            f"{len(stale)} of another system or TensorFlow, the newest of "
            f"{stale[0].testbed}, {_age(stale[0].age_ns)} old: not used",
            f"`{_CALIBRATE}` measures anew" if are_all else None,
        )


def _figures(kept: machine_facts.KeptFigures) -> str:
    copies = [
        f"{format_bytes(copy.size_bytes)} in {format_ns(copy.copy_ns)}"
        for copy in filter(None, (kept.small_copy, kept.large_copy))
    ]
    figures = [f"copies {', '.join(copies)}"] if copies else []
    figures.append(f"step overhead {format_ns(kept.step_overhead_ns)}")
    if kept.quantum_ns:
        figures.append(f"busy for {format_ns(kept.quantum_ns)} before copies")
    return "; ".join(figures)


def _age(age_ns: int) -> str:
    seconds = age_ns // NS_PER_S
    for size, unit in ((_DAY_S, "day"), (60 * 60, "hour"), (60, "minute")):
        if seconds >= size:
            return counted(seconds // size, unit)
    return "less than a minute"


_RULES: tuple[Callable[[machine_facts.Facts], Iterator[Check]], ...] = (
    _python,
    _packages,
    _profile_plugin,
    _gpus,
    _gpu_links,
    _gpu_profiles,
    _cores,
    _load,
    _memory,
    _network,
    _calibrations,
)
