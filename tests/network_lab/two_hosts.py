"""Two hosts of a lab as those of one analysis, a core of this machine each.

The command runs on h0, which is its `localhost`; h1 is reached by a login over the cable.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from network_lab import remote_shell

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from network_lab.lab import Lab


class TwoHosts:
    """The first two hosts of a running lab, with logins to the second one until the lab ends."""

    def __init__(
        self, network: Lab, folder: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        """Let the second host wait for logins; what these start has this environment."""
        self._network = network
        here, there = network.hosts[:2]
        self._core, *_, core_there = sorted(os.sched_getaffinity(0))
        shell = [sys.executable, "-I", str(remote_shell.__file__), "serve", str(core_there)]
        server = network.run(there, shell, env=environment, stdout=subprocess.PIPE)
        assert server.stdout is not None
        server.stdout.readline()
        places = f"localhost:1@{network.address(here)},{there}:1@{network.address(there)}"
        self.options = ("--hosts", places, "--launch", remote_shell.launcher(folder))

    def run(self, *arguments: str, **options: Any) -> subprocess.Popen[Any]:
        """Start Python on the first host, with options of `subprocess.Popen`."""
        pinned = ("taskset", "-c", str(self._core), sys.executable)
        return self._network.run(self._network.hosts[0], [*pinned, *arguments], **options)
