"""`advisor doctor --hosts` between hosts of the lab, whose children have no TensorFlow.

What it tries is the site of an analysis: workers in private networks, joined by relays.
"""

import json
import os
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import jsonschema
import pytest
from light_worker import CHANGES
from network_lab.lab import Lab

from placement_advisor.results.contracts import load_schema

HERE = Path(__file__).parent
_LIMIT_S = 120


@dataclass(frozen=True, kw_only=True)
class Desk:
    """Where the command runs: a host of the lab."""

    network: Lab
    folder: Path
    host: str = "h0"

    def environment(self, host):
        return {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "XDG_CACHE_HOME": str(self.folder / f"cache-{host}"),
        }

    def launch(self, **changes):
        """Return a launcher that starts a light worker on a host, with a lock file of its own."""
        return shlex.join(
            [
                *(self.network.launcher, "{host}", "env"),
                f"XDG_CACHE_HOME={self.folder}/cache-{{host}}",
                f"{CHANGES}={json.dumps(changes)}",
                *(sys.executable, str(HERE / "light_worker.py")),
            ]
        )

    def doctor(self, *words, launch=None):
        command = (sys.executable, "-P", str(HERE / "light_command.py"), "doctor")
        launched = ("--launch", launch or self.launch())
        return subprocess.run(
            [self.network.launcher, self.host, *command, *map(str, words), *launched],
            env=self.environment("desk"),
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            check=False,
        )

    def told(self, *words, launch=None):
        ran = self.doctor(*words, "--json", launch=launch)
        assert ran.stdout, ran.stderr
        content = json.loads(ran.stdout)
        jsonschema.Draft202012Validator(load_schema("hosts")).validate(content)
        assert ran.returncode == (0 if content["can_analyze"] else 1)
        return content


@pytest.fixture
def desk(network, tmp_path):
    return Desk(network=network, folder=tmp_path)


def problems(content):
    checks = [check for host in content["hosts"] for check in host["checks"]]
    return {c["name"]: c["finding"] for c in (*checks, *content["checks"]) if c["blocks"]}


def ways(content):
    assert all(way["small_ns"] and way["large_passes"] for way in content["ways"])
    return {(way["source"], way["target"]) for way in content["ways"]}


def test_two_hosts_reach_one_another_also_without_tls(desk):
    content = desk.told("--hosts", "localhost:1,h1:1")
    assert problems(content) == {}
    assert ways(content) == {("localhost", "h1"), ("h1", "localhost")}
    here, there = content["hosts"]
    assert (here["address"], there["address"]) == ("10.77.0.1", "10.77.0.2")
    assert (there["interface"], there["mtu_bytes"]) == ("eth0", 1_500)
    assert abs(there["clock"]["offset_ns"]) <= there["clock"]["uncertainty_ns"]
    assert there["private_network"] is True
    assert desk.network.processes("h1") == ()
    content = desk.told("--hosts", "localhost:1,h1:1", "--link", "direct")
    assert problems(content) == {}
    assert ways(content) == {("localhost", "h1"), ("h1", "localhost")}


def test_a_command_elsewhere_reaches_them_too_and_says_so_in_words(desk):
    ran = desk.doctor("--hosts", "h1:1,h2:1")
    assert ran.returncode == 0, (ran.stdout, ran.stderr)
    assert "host h1, 10.77.0.2" in ran.stdout
    assert "this machine → h2" in ran.stdout
    assert ran.stdout.endswith("next: advisor analyze MODEL.py, with these hosts\n")


def test_an_address_that_a_host_does_not_have_is_told(desk):
    content = desk.told("--hosts", "localhost:1,h1:1@10.77.0.77")
    found = problems(content)
    assert found["address"].startswith("10.77.0.77 is on no interface of that host")
    assert "cannot listen at 10.77.0.77" in found["ways"]


@pytest.mark.slow
def test_a_firewall_between_hosts_is_found(desk):
    """A route that leads nowhere: control comes by the launcher, data does not come."""
    desk.network.call("h1", ["ip", "route", "add", "blackhole", "10.77.0.1/32"])
    try:
        content = desk.told("--hosts", "localhost:1,h1:1")
    finally:
        desk.network.call("h1", ["ip", "route", "del", "blackhole", "10.77.0.1/32"])
    assert problems(content)["localhost → h1"] == "h1 is not reached at 10.77.0.2"
    assert content["can_analyze"] is False
