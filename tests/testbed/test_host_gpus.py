"""Analyses over hosts that pretend to have a GPU each: which devices they take, what is said."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_runs import LAUNCH
from network_lab.lab import lab, refusal
from network_lab.two_hosts import TwoHosts

HIDING = "env CUDA_VISIBLE_DEVICES="


@pytest.fixture
def hosts(tmp_path):
    if (reason := refusal()) is not None:
        pytest.skip(reason)
    if any(Path("/dev").glob("nvidia[0-9]*")):
        pytest.skip("a GPU is here, which TensorFlow may find")
    programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "0", "PATH": programs}
    with lab(hosts=2) as network:
        yield TwoHosts(network, tmp_path, environment)


def refused(hosts, model, launch):
    """Return what an analysis says that cannot run, on one line."""
    words = ("analyze", str(model), "--hosts", hosts.words, "--launch", launch)
    command = hosts.run("-c", LAUNCH, *words, stderr=subprocess.PIPE)
    _, said = command.communicate()
    assert command.returncode == 2, said
    assert "Traceback" not in said
    return " ".join(said.split())


def test_gpus_that_are_hidden_on_one_host_or_not_found_are_one_error(hosts, two_towers):
    said = refused(hosts, two_towers, hosts.launch)
    assert "error: host localhost: TensorFlow finds no GPU, though the system has some" in said
    assert "CUDA_VISIBLE_DEVICES= before `advisor`" in said
    said = refused(hosts, two_towers, f"{hosts.launch} {HIDING}")
    assert "of GPUs localhost has 1 for 1, h1 has none for 1" in said
    assert HIDING in said
