"""Two hosts of a lab as those of one analysis, a core of this machine each.

The command runs on h0, which is its `localhost`; h1 is reached by a login over the cable.
"""

import contextlib
import os
import subprocess
import sys

import psutil
from network_lab import remote_shell

_SERVE = "serve"


class TwoHosts:
    """The first two hosts of a running lab, with logins to the second one until the lab ends.

    ``words`` and ``launch`` are what the options ``--hosts`` and ``--launch`` take.
    """

    def __init__(self, network, folder, environment=None):
        """Let the second host wait for logins; all that is run on either has this environment."""
        self.network, self._environment = network, environment
        here, there = network.hosts[:2]
        cores = sorted(os.sched_getaffinity(0))
        self._core = cores[0]
        serving = network.run(
            there,
            [sys.executable, "-I", str(remote_shell.__file__), _SERVE, str(cores[-1])],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert serving.stdout.readline() == "ready\n"
        self.words = f"localhost:1@{network.address(here)},{there}:1@{network.address(there)}"
        self.launch = remote_shell.launcher(folder)

    @property
    def options(self):
        """The options that have an analysis run on both."""
        return "--hosts", self.words, "--launch", self.launch

    def run(self, *arguments, **options):
        """Start Python on the first host, on its core, with options of `subprocess.Popen`."""
        pinned = ("taskset", "-c", str(self._core), sys.executable)
        here, *_ = self.network.hosts
        words = [*pinned, *arguments]
        return self.network.run(here, words, env=self._environment, text=True, **options)

    def running(self, *hosts):
        """Return what runs on some hosts, on both if none is named, but for what serves logins."""
        found = {}
        hosts = hosts or self.network.hosts[:2]
        for pid in (pid for host in hosts for pid in self.network.processes(host)):
            with contextlib.suppress(psutil.Error):
                process = psutil.Process(pid)
                words = process.cmdline()
                is_over = process.status() == psutil.STATUS_ZOMBIE
                if words and not is_over and _SERVE not in words:
                    found[pid] = " ".join(words)
        return found
