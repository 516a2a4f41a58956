"""An analysis over a host on which a service waits, with TensorFlow on both."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from network_lab.lab import lab, refusal

from placement_advisor.remote_hosts.tls import new_secret

PORT = 7_600
ADVISOR = (sys.executable, "-P", "-m", "placement_advisor.cli.app")
LIMIT_S = 300
MODEL = Path(__file__).parents[2] / "sample_models" / "polynomial_fit.py"


def on(network, host, core, folder, *words):
    """Start the command on a host of the lab, on one core, with a cache of the host's own."""
    return network.run(
        host,
        ["taskset", "-c", str(core), *ADVISOR, *words],
        env={**os.environ, "XDG_CACHE_HOME": str(folder / f"cache-{host}")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.slow
def test_a_host_on_which_a_service_waits_runs_its_share_and_waits_on(tmp_path):
    if (reason := refusal()) is not None:
        pytest.skip(reason)
    secret = tmp_path / "hosts.pem"
    secret.write_bytes(new_secret(1))
    secret.chmod(0o600)
    cores = sorted(os.sched_getaffinity(0))
    with lab(hosts=2) as network:
        here, there = network.hosts
        place = f"{network.address(there)}:{PORT}"
        service = on(
            network,
            there,
            cores[-1],
            tmp_path,
            "worker",
            "--listen",
            place,
            "--secret",
            str(secret),
        )
        assert service.stdout.readline() == f"advisor: waiting at {place}\n"
        hosts = f"localhost:1@{network.address(here)},{there}:1@{place}"
        for output in (tmp_path / "first", tmp_path / "second"):
            words = ("analyze", str(MODEL), "-o", str(output))
            words += ("--candidates", "alternating", "--rounds", "4", "--refine", "0")
            words += ("--hosts", hosts, "--secret", str(secret))
            command = on(network, here, cores[0], tmp_path, *words)
            said, _ = command.communicate(timeout=LIMIT_S)
            assert command.returncode == 0, said
            analysis = json.loads((output / "analysis.json").read_text())
            (split,) = (c for c in analysis["candidates"] if c["name"] == "alternating")
            assert split["failure"] is None
            assert split["measured"]["verification"]["largest_difference"] < 1e-3
            used = {end for copy in split["measured"]["transfers"] for end in copy.values()}
            assert {"localhost:0", f"{there}:0"} <= used
        service.send_signal(signal.SIGINT)
        assert service.wait(timeout=30) == 130
