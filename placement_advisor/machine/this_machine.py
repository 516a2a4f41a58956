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
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

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
# The kernel counts CPU time in steps of 10 ms.
_SAMPLE_S = 0.3
_PROC = Path("/proc")
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


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherWork:
    """How many cores other processes use now, and which of them uses most, None if none is seen."""

    cores: float
    busiest: str | None = None

    def __str__(self) -> str:
        return f"{self.cores:.1f} cores" + (f", most by {self.busiest}" if self.busiest else "")


class _Process(NamedTuple):
    name: str
    parent: int
    ticks: int
    cpu: int


def other_work() -> OtherWork:
    """Watch for 0.3 s what runs on the CPUs of this process, besides it and its descendants.

    Under a quota only processes that are seen count: what others do elsewhere takes none of it.
    """
    busy_before, before, begun_s = _busy_ticks(), _processes(), time.monotonic()
    time.sleep(_SAMPLE_S)
    busy, after, ended_s = _busy_ticks(), _processes(), time.monotonic()
    per_core = (ended_s - begun_s) * os.sysconf("SC_CLK_TCK")
    allowed, ours, others = os.sched_getaffinity(0), 0, {}
    for pid, process in after.items():
        ticks = process.ticks - (before[pid].ticks if pid in before else 0)
        if _descends(pid, after):
            ours += ticks
        elif ticks > 0 and process.cpu in allowed:
            others[pid] = ticks
    total = busy - busy_before - ours if quota_cores() is None else sum(others.values())
    top = max(others, key=others.__getitem__, default=None)
    return OtherWork(
        cores=max(total, 0) / per_core,
        busiest=None
        if top is None
        else f"{after[top].name} (process {top}, {others[top] / per_core:.0%} of a core)",
    )


def _busy_ticks() -> int:
    """Return the time that the CPUs of this process were busy. Source: proc_stat(5)."""
    allowed = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    lines = map(str.split, (_PROC / "stat").read_text().splitlines())
    counters = [[int(word) for word in words[1:9]] for words in lines if words[0] in allowed]
    return sum(sum(each) - each[3] - each[4] for each in counters)  # without idle and iowait


def _processes() -> dict[int, _Process]:
    """Return the processes that can be seen. Source: proc_pid_stat(5)."""
    found = {}
    for folder in _PROC.glob("[0-9]*"):
        try:
            start, _, rest = (folder / "stat").read_text(errors="replace").rpartition(")")
        except OSError:  # It has ended, or is hidden.
            continue
        words = rest.split()
        ticks = int(words[11]) + int(words[12])
        name = start.partition("(")[2]
        found[int(folder.name)] = _Process(name, int(words[1]), ticks, int(words[36]))
    return found


def _descends(pid: int, processes: dict[int, _Process]) -> bool:
    while pid in processes and pid != os.getpid():
        pid = processes[pid].parent
    return pid == os.getpid()


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
