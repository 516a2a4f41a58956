"""What the system lets this process have: cores, capabilities, a network of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass

from placement_advisor.machine.this_machine import physical_cores, quota_cores

# Starting Python takes 0.1 s; anything near is a hang.
_LIMIT_S = 20.0
_SYS_ADMIN_BIT = 21
_PROBE = "from placement_advisor.tf.run.private_network import create\ncreate()"


# A step that has half a core less than it should is timed wrong, whichever candidate it is of.
_BUSY_LOAD = 0.5


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


def load_average() -> float:
    """Return how many processes wanted to run on average in the last minute."""
    return os.getloadavg()[0]


def is_busy(load: float, cores: int, devices: int) -> bool:
    """Return whether a load leaves so many devices too little of so many cores to be timed on.

    What the devices leave over may be busy.
    """
    return load - max(cores - devices, 0) >= _BUSY_LOAD


def parse_sys_admin(status: str) -> bool | None:
    """Return whether a process has CAP_SYS_ADMIN by its /proc status, None if that is not said.

    Source: capabilities(7), proc_pid_status(5).
    """
    found = re.search(r"^CapEff:\s*([0-9a-f]+)", status, re.MULTILINE)
    return None if found is None else bool(int(found[1], 16) >> _SYS_ADMIN_BIT & 1)


def can_have_private_network() -> bool:
    """Return whether a process can have a network of its own; one tries, and ends with it."""
    try:
        ran = subprocess.run(
            [sys.executable, "-P", "-c", _PROBE], capture_output=True, timeout=_LIMIT_S, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return ran.returncode == 0
