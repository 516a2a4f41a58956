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
    fit = wanted is None or machine_facts.fits(facts.python_version, wanted)
    yield Check(
        name="python",
        state=State.OK if fit else State.PROBLEM,
        finding=facts.python_version if fit else f"{facts.python_version}; {wanted} is wanted",
        action=None if fit else f"install placement-advisor with a Python {wanted}",
    )


def _packages(facts: machine_facts.Facts) -> Iterator[Check]:
    well = [package for package in facts.packages if package.version and not package.unmet]
    if well:
        finding = ", ".join(f"{package.name} {package.version}" for package in well)
        yield Check(name="packages", state=State.OK, finding=finding)
    for package in facts.packages:
        if package.version is None:
            yield Check(
                name=package.name,
                state=State.PROBLEM,
                finding="is not installed",
                action=f"pip install '{package.name}{package.wanted or ''}'",
                blocks=package.name in machine_facts.NEEDED,
            )
        elif package.unmet:
            wanted = [package.wanted, *(unmet.wanted for unmet in package.unmet)]
            all_wanted = ",".join(dict.fromkeys(filter(None, wanted)))
            askers = [f"{unmet.by} wants {unmet.wanted}" for unmet in package.unmet]
            yield Check(
                name=package.name,
                state=State.PROBLEM,
                finding=f"{package.version}; {'; '.join(askers)}",
                action=f"pip install '{package.name}{all_wanted}', then pip check",
            )


def _profile_plugin(facts: machine_facts.Facts) -> Iterator[Check]:
    if facts.has_profile_plugin:
        yield Check(name="profile tab", state=State.OK, finding="TensorBoard has its plugin")
        return
    yield Check(
        name="profile tab",
        state=State.PROBLEM,
        finding="TensorBoard has no plugin for profiles, so the Profile tab stays away",
        action="pip install --force-reinstall --no-deps tensorboard-plugin-profile xprof",
    )


def _gpus(facts: machine_facts.Facts) -> Iterator[Check]:
    """Say which there are, and whether TensorFlow sees them."""
    found = facts.gpus
    if found.problem is not None:
        yield Check(
            name="gpus",
            state=State.PROBLEM,
            finding=f"nvidia-smi cannot ask the driver: {found.problem}",
            action="repair the driver; in a container, start it with --gpus all",
        )
        return
    if not found.devices and not facts.visible_gpus:
        yield Check(
            name="gpus",
            state=State.NOTE,
            finding="none here: CPU cores stand in for them",
            action="predict for others with --hardware, such as 2xV100-NVLink",
        )
        return
    counts = [f"{counted(facts.visible_gpus, 'GPU')} for TensorFlow to see"]
    for name in dict.fromkeys(gpu.name for gpu in found.devices):
        alike = [gpu for gpu in found.devices if gpu.name == name]
        counts.append(f"{len(alike)} × {name}, {format_bytes(alike[0].memory_bytes)} each")
    if found.driver is not None:
        counts.append(f"driver {found.driver}")
    few = facts.visible_gpus < DEVICES
    is_hidden = facts.visible_gpus < len(found.devices)
    too_few = "a split needs two: without them, CPU cores stand in"
    yield Check(
        name="gpus",
        state=State.NOTE if few or is_hidden or not found.devices else State.OK,
        finding="; ".join(counts),
        action="CUDA_VISIBLE_DEVICES hides the rest" if is_hidden else too_few if few else None,
    )
    if not facts.has_cuda_libraries:
        yield Check(
            name="cuda",
            state=State.NOTE,
            finding="cuDNN is not installed as a package; TensorFlow needs it on the system",
            action="if TensorFlow finds no GPU: pip install 'tensorflow[and-cuda]'",
        )


def _gpu_links(facts: machine_facts.Facts) -> Iterator[Check]:
    """Say what lies between each two of them."""
    if len(facts.gpus.devices) < DEVICES:
        return
    if facts.gpus.pairs is None:
        yield Check(
            name="gpu links",
            state=State.NOTE,
            finding="nvidia-smi topo -m does not say what lies between the GPUs",
        )
        return
    by_way: dict[str, list[nvidia.GpuPair]] = defaultdict(list)
    for pair in facts.gpus.pairs:
        by_way[_WAYS[pair.connection]].append(pair)
    finding = "; ".join(
        f"{way}: {', '.join(f'{pair.first}–{pair.second} {pair.code}' for pair in pairs)}"
        for way, pairs in by_way.items()
    )
    far = any(pair.connection is nvidia.Connection.SOCKETS for pair in facts.gpus.pairs)
    near = any(pair.connection is not nvidia.Connection.SOCKETS for pair in facts.gpus.pairs)
    yield Check(
        name="gpu links",
        state=State.NOTE if far else State.OK,
        finding=finding,
        action="pick GPUs of one socket with CUDA_VISIBLE_DEVICES" if far and near else None,
    )


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
        yield Check(name="gpu profiles", state=State.OK, finding="CUPTI may profile")
    elif facts.gpus.admins_profile is None or is_admin is None:
        yield Check(
            name="gpu profiles",
            state=State.NOTE,
            finding="the system does not say whether CUPTI may profile",
        )
    else:
        yield Check(
            name="gpu profiles",
            state=State.PROBLEM,
            finding="the driver lets only administrators profile (RmProfilingAdminOnly), and this "
            "process has no CAP_SYS_ADMIN",
            action="start the container with --cap-add SYS_ADMIN, or load the driver with "
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
        yield Check(name="cores", state=State.OK, finding=finding)
        return
    has_gpus = facts.visible_gpus >= DEVICES
    yield Check(
        name="cores",
        state=State.NOTE if has_gpus else State.PROBLEM,
        finding=f"{finding}; a split over CPU stand-ins needs two",
        action="give this process more cores (taskset, docker --cpus); until then, candidates are "
        "simulated only",
    )


def _load(facts: machine_facts.Facts) -> Iterator[Check]:
    yield load_check(facts.load, facts.cores.usable, DEVICES)


def load_check(load: this_machine.OtherWork, usable_cores: int, devices: int) -> Check:
    """Judge what other processes do where so many cores are to be devices."""
    cores = max(usable_cores, 1)
    finding = f"other work uses {load}; {counted(cores, 'core')} here"
    if not this_machine.is_busy(load.cores, cores, devices):
        return Check(name="load", state=State.OK, finding=finding)
    return Check(
        name="load",
        state=State.NOTE,
        finding=f"{finding}: times will vary",
        action="wait, or close it, before you calibrate or analyse",
    )


def _memory(facts: machine_facts.Facts) -> Iterator[Check]:
    yield memory_check(facts.available_memory_bytes)


def memory_check(free: int) -> Check:
    """Judge how many bytes are free."""
    if free >= _GOOD_MEMORY_BYTES:
        return Check(name="memory", state=State.OK, finding=f"{format_bytes(free)} free")
    blocks = free < _LEAST_MEMORY_BYTES
    return Check(
        name="memory",
        state=State.PROBLEM if blocks else State.NOTE,
        finding=f"{format_bytes(free)} free"
        + ("; TensorFlow alone takes 600 MB" if blocks else "; enough for small models only"),
        action="free some memory, or raise the container's limit",
        blocks=blocks,
    )


def _network(facts: machine_facts.Facts) -> Iterator[Check]:
    if facts.has_private_network:
        finding = "workers run in a private network that nothing else reaches"
        yield Check(name="network", state=State.OK, finding=finding)
        return
    yield Check(
        name="network",
        state=State.PROBLEM,
        finding="no private network can be made: no workers run, since TensorFlow's listen on "
        "every interface without authentication",
        action=f"{ALLOW_NETWORKS}, or, where no stranger reaches this machine, --open-ports",
    )


def _calibrations(facts: machine_facts.Facts) -> Iterator[Check]:
    if not facts.calibrations:
        yield Check(
            name="calibration",
            state=State.NOTE,
            finding="none is kept yet",
            action=f"`{_CALIBRATE}`; else the first analysis measures",
        )
    for kept in facts.calibrations:
        if kept.holds:
            yield Check(
                name="calibration",
                state=State.OK,
                finding=f"{kept.testbed}, {len(kept.devices)} devices, {_age(kept.age_ns)} old: "
                f"{_figures(kept)}",
            )
    stale = [kept for kept in facts.calibrations if not kept.holds]
    if stale:
        yield Check(
            name="calibration",
            state=State.NOTE,
            finding=f"{len(stale)} of another system or TensorFlow, the newest of "
            f"{stale[0].testbed}, {_age(stale[0].age_ns)} old: not used",
            action=None
            if len(stale) < len(facts.calibrations)
            else f"`{_CALIBRATE}` measures anew",
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
