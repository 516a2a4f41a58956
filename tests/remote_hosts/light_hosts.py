"""Starts workers without TensorFlow on this machine, in place of other hosts."""

import contextlib
import json
import os
import shlex
import sys
import uuid
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import light_worker
from command_runs import MARK, processes_marked, wait_until

from placement_advisor.remote_hosts.remote_host import RemoteHost, open_hosts

HERE = Path(__file__).parent
LAUNCH = shlex.join([sys.executable, str(HERE / "light_worker.py")])


@dataclass(frozen=True, kw_only=True)
class LightHost:
    """A host, and what of it runs here."""

    host: RemoteHost
    mark: str

    def processes(self):
        return processes_marked(self.mark)

    def all_ended(self):
        return wait_until(lambda: not self.processes(), 10.0)


@contextlib.contextmanager
def environment(cache, **changes):
    """Let what is started have its own lock file, a mark, which is given, and some changes."""
    mark = uuid.uuid4().hex
    ours = {"XDG_CACHE_HOME": str(cache), MARK: mark, light_worker.CHANGES: json.dumps(changes)}
    with mock.patch.dict(os.environ, ours):
        yield mark


@contextlib.contextmanager
def light_host(cache, *, before="", name="b", **changes):
    """Give a host that is started by other words ``before``; see `light_worker` for changes."""
    with (
        environment(cache, **changes) as mark,
        open_hosts([name], launch=f"{before} {LAUNCH}") as (host,),
    ):
        yield LightHost(host=host, mark=mark)


def service_of(child):
    """Return the process id of the service that has a child."""
    return child.call(eval, "__import__('multiprocessing').parent_process().pid")
