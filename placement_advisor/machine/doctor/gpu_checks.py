"""Judges what was found of GPUs."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from placement_advisor.machine.doctor.finding import DEVICES, Check, State, several
from placement_advisor.machine.nvidia import Connection
from placement_advisor.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from placement_advisor.machine.doctor.facts import Facts
    from placement_advisor.machine.nvidia import GpuPair


def gpus(facts: Facts) -> Iterator[Check]:
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
    counts = [f"{several(facts.visible_gpus, 'GPU')} for TensorFlow to see"]
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


def gpu_links(facts: Facts) -> Iterator[Check]:
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
    by_way: dict[str, list[GpuPair]] = defaultdict(list)
    for pair in facts.gpus.pairs:
        by_way[_WAYS[pair.connection]].append(pair)
    finding = "; ".join(
        f"{way}: {', '.join(f'{pair.first}–{pair.second} {pair.code}' for pair in pairs)}"
        for way, pairs in by_way.items()
    )
    far = any(pair.connection is Connection.SOCKETS for pair in facts.gpus.pairs)
    near = any(pair.connection is not Connection.SOCKETS for pair in facts.gpus.pairs)
    yield Check(
        name="gpu links",
        state=State.NOTE if far else State.OK,
        finding=finding,
        action="pick GPUs of one socket with CUDA_VISIBLE_DEVICES" if far and near else None,
    )


_WAYS: dict[Connection | None, str] = {
    Connection.NVLINK: "NVLink",
    Connection.PCIE: "PCIe",
    Connection.SOCKETS: "across sockets",
    None: "unknown",
}


def gpu_profiles(facts: Facts) -> Iterator[Check]:
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
