"""What a host is and has, as far as an analysis from elsewhere wants to know it."""

from __future__ import annotations

import os
import platform
import socket
import time
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from placement_advisor import __version__
from placement_advisor.machine.nvidia import find_gpus
from placement_advisor.machine.this_machine import fingerprint, gpu_count, usable_cores
from placement_advisor.processes.children import available_memory_bytes

if TYPE_CHECKING:
    from pathlib import Path

    from placement_advisor.machine.nvidia import Gpus


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """What a host says of itself when an analysis begins there.

    ``host_name`` is its own name for itself. ``cores`` has one logical CPU for each device that can
    have a core of its own. ``visible_gpus`` is how many TensorFlow may see, ``gpus`` what the
    driver's tools say. ``available_memory_bytes`` is what was free. ``fingerprint`` differs where
    the processor, the cores or the kernel do. ``time_ns`` is the host's clock, in ns since 1970.
    ``scratch`` is a folder there for this analysis, which goes when it ends. ``relay_folder`` is
    that of the relay by which control has come (`relay.py`), None where there is none yet.
    """

    host_name: str
    advisor_version: str
    tensorflow_version: str | None
    python_version: str
    cores: tuple[int, ...]
    visible_gpus: int
    gpus: Gpus
    available_memory_bytes: int
    fingerprint: str
    time_ns: int
    scratch: str
    relay_folder: str | None


def host_facts(scratch: Path, relay_folder: Path | None) -> HostFacts:
    """Find out about this machine, without TensorFlow."""
    return HostFacts(
        host_name=socket.gethostname(),
        advisor_version=__version__,
        tensorflow_version=tensorflow_version(),
        python_version=platform.python_version(),
        cores=usable_cores(),
        visible_gpus=gpu_count(),
        gpus=find_gpus(),
        available_memory_bytes=available_memory_bytes(),
        fingerprint=fingerprint((os.uname().release,)),
        time_ns=time.time_ns(),
        scratch=str(scratch),
        relay_folder=None if relay_folder is None else str(relay_folder),
    )


def tensorflow_version() -> str | None:
    """Return the version of TensorFlow that is installed here, None if there is none."""
    try:
        return version("tensorflow")
    except PackageNotFoundError:
        return None
