"""What this machine offers a process: cores, GPUs, ports, capabilities; read without TensorFlow."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


# CUDA reads it when a process first uses a GPU: numbers or names of GPUs, parted by commas.
VISIBLE_GPUS = "CUDA_VISIBLE_DEVICES"
# Starting Python takes 0.1 s; anything near is a hang.
_LIMIT_S = 20.0
_SYS_ADMIN_BIT = 21
_PROBE = "from placement_advisor.tf.run.private_network import create\ncreate()"
# A step that has half a core less than it should is timed wrong, whichever candidate it is of.
_BUSY_LOAD = 0.5
CPU, GPU = "CPU", "GPU"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cores:
    """Logical CPUs of the machine and of this process, their physical cores, and a quota.

    ``quota`` is how many whole cores a container may use, None if that is not limited.
    """

    machine: int
    allowed: int
    physical: int
    quota: int | None

    @property
    def usable(self) -> int:
        """Return how many devices can have a core of their own."""
        return self.physical if self.quota is None else min(self.physical, self.quota)


def find_cores() -> Cores:
    """Count the cores."""
    allowed = len(os.sched_getaffinity(0))
    return Cores(
        machine=os.cpu_count() or allowed,
        allowed=allowed,
        physical=len(physical_cores()),
        quota=quota_cores(),
    )


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


def load_average() -> float:
    """Return how many processes wanted to run on average in the last minute."""
    return os.getloadavg()[0]


def is_busy(load: float, cores: int, devices: int) -> bool:
    """Return whether a load leaves so many devices too little of so many cores to be timed on.

    What the devices leave over may be busy.
    """
    return load - max(cores - devices, 0) >= _BUSY_LOAD


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """A core by the system's number, or a GPU by its place among those that are visible there.

    ``kind`` is that of the device which it makes, as of `Device`.
    """

    kind: str
    number: int

    @property
    def is_core(self) -> bool:
        """Whether it is a core."""
        return self.kind == CPU


def core_slots(cores: Iterable[int]) -> tuple[Slot, ...]:
    """Return a slot for each of these cores."""
    return tuple(Slot(kind=CPU, number=core) for core in cores)


def gpu_slots(count: int) -> tuple[Slot, ...]:
    """Return a slot for each of the first GPUs that are visible."""
    return tuple(Slot(kind=GPU, number=number) for number in range(count))


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


def can_have_private_network() -> bool:
    """Return whether a process can have a network of its own; one tries, and ends with it."""
    try:
        ran = subprocess.run(
            [sys.executable, "-P", "-c", _PROBE], capture_output=True, timeout=_LIMIT_S, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return ran.returncode == 0


def parse_sys_admin(status: str) -> bool | None:
    """Return whether a process has CAP_SYS_ADMIN by its /proc status, None if that is not said.

    Source: capabilities(7), proc_pid_status(5).
    """
    found = re.search(r"^CapEff:\s*([0-9a-f]+)", status, re.MULTILINE)
    return None if found is None else bool(int(found[1], 16) >> _SYS_ADMIN_BIT & 1)


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
