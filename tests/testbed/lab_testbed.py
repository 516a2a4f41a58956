"""A testbed over two hosts of a lab, run on the first of them: does what lines of JSON ask.

`lab_testbed.py HOSTS LAUNCH`: it says "null" when its processes run, and answers each function's
name with what that returns, or with the message of what went wrong.
"""

import contextlib
import json
import sys
import tempfile
from pathlib import Path

from placement_advisor.analysis.hosts import HostOptions, connect, parse_hosts
from placement_advisor.errors import AdvisorError
from placement_advisor.machine.testbed_plan import HostLink
from placement_advisor.processes.calls import CallFailure
from placement_advisor.processes.children import preload
from placement_advisor.testbed.benchmark import SilentProgress
from placement_advisor.testbed.remote_launcher import RemoteLauncher
from placement_advisor.testbed.testbed import Testbed
from placement_advisor.tf.calls import runner


class Asked:
    """What can be asked for."""

    def __init__(self, testbed):
        self._testbed = testbed

    def start(self):
        """Start the testbed, unless it runs."""
        self._testbed.start()

    def processes(self):
        """Return process ids by name, those of relays too."""
        running = (*self._testbed._children(), *self._testbed.site.relays)
        return {each.name: each.pid for each in running}

    def copy(self):
        """Time copies between both hosts, which takes some seconds."""
        one, other = (host.device_names for host in self._testbed.plan.hosts)
        return self._testbed.call(
            runner.calibrate_route, one, other, self._testbed.core_clocks, True
        )

    def devices(self):
        """Return which devices compute."""
        found = self._testbed.call(runner.speed)
        return found if isinstance(found, CallFailure) else sorted(found)


def _answer(asked, name):
    try:
        found = getattr(asked, name)()
    except AdvisorError as error:
        return error.message
    return found.message if isinstance(found, CallFailure) else found


def _main(words, launch):
    with tempfile.TemporaryDirectory() as scratch, contextlib.ExitStack() as stack:
        preload()
        asked = HostOptions(requests=parse_hosts(words), launch=launch, link=HostLink.TLS)
        connected = connect(asked, stack, SilentProgress())
        site = RemoteLauncher(connected.plan, connected.hosts, Path(scratch))
        stack.callback(site.close)
        testbed = Testbed(connected.plan, scratch=Path(scratch), site=site)
        stack.callback(testbed.close)
        print(json.dumps(_answer(Asked(testbed), "start")), flush=True)
        for line in sys.stdin:
            print(json.dumps(_answer(Asked(testbed), line.strip())), flush=True)


if __name__ == "__main__":
    _main(*sys.argv[1:])
