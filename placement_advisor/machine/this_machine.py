"""What this machine offers: cores, GPUs, ports. Read from the system, without TensorFlow."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import socket
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

# CUDA reads it when a process first uses a GPU: numbers or names of GPUs, parted by commas.
VISIBLE_GPUS = "CUDA_VISIBLE_DEVICES"


def usable_cores() -> tuple[int, ...]:
    """Return one logical CPU per physical core that this process may use, quota respected."""
    return physical_cores()[: quota_cores()]


def physical_cores() -> tuple[int, ...]:
    """Return one logical CPU per physical core on which this process may run."""
    cores: dict[tuple[str, str], int] = {}
    for cpu in sorted(os.sched_getaffinity(0)):
        topology = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology")
        try:
            key = (
                (topology / "physical_package_id").read_text(),
                (topology / "core_id").read_text(),
            )
        except OSError:
            key = ("", str(cpu))
        cores.setdefault(key, cpu)
    return tuple(cores.values())


def quota_cores() -> int | None:
    """Return the whole cores that a cgroup quota grants, None without one."""
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
    except (OSError, ValueError):
        folder = Path("/sys/fs/cgroup/cpu")
        try:
            quota = (folder / "cpu.cfs_quota_us").read_text().strip()
            period = (folder / "cpu.cfs_period_us").read_text().strip()
        except OSError:
            return None
    if quota in ("max", "-1"):
        return None
    return max(int(quota) // int(period), 1)


def visible_gpus() -> tuple[str, ...]:
    """Return what `VISIBLE_GPUS` calls the GPUs that TensorFlow may see, without loading it."""
    visible = os.environ.get(VISIBLE_GPUS)
    if visible is not None:
        return tuple(part for part in map(str.strip, visible.split(",")) if part not in ("", "-1"))
    there = (re.fullmatch(r"nvidia\d+", path.name) for path in Path("/dev").glob("nvidia*"))
    return tuple(map(str, range(sum(map(bool, there)))))


def gpu_count() -> int:
    """Count the GPUs that TensorFlow may see, without loading it."""
    return len(visible_gpus())


def free_ports(count: int) -> list[int]:
    """Return ports that are free now; another process can take them before they are used."""
    probes = [socket.socket() for _ in range(count)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    ports = [int(probe.getsockname()[1]) for probe in probes]
    for probe in probes:
        probe.close()
    return ports


def fingerprint(of: Sequence[str]) -> str:
    """Return a hash of this machine and of what else the figures depend on.

    Figures with different fingerprints do not compare.
    """
    return digest((platform.machine(), _processor(), str(len(os.sched_getaffinity(0))), *of))


def digest(of: Sequence[str]) -> str:
    """Return a hash of texts in their order."""
    return hashlib.sha256(json.dumps(list(of)).encode()).hexdigest()[:16]


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "unknown"
