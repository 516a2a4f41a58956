"""`advisor worker --listen` as a user starts it, on hosts of the lab."""

import os
import re
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from agent import Agent
from command_runs import run_here, wait_until

LIGHT = str(Path(__file__).with_name("light_worker.py"))
PORT = 7_000


@pytest.fixture
def secret(new_secret_file):
    return new_secret_file("hosts.pem")


class Service:
    """A service on the first host, whose children have no TensorFlow."""

    def __init__(self, network, folder, *words):
        self.temp = folder / "temp"
        self.temp.mkdir()
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "TMPDIR": str(self.temp),
            "XDG_CACHE_HOME": str(folder / "cache"),
        }
        self.process = network.run(
            "h0",
            [sys.executable, "-P", LIGHT, "advisor", "worker", *words],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )

    def line(self):
        """Return what it says next."""
        return self.process.stderr.readline().strip()

    def end(self):
        """Return its exit code and what else it says."""
        _, said = self.process.communicate(timeout=30)
        return self.process.returncode, said


@pytest.fixture
def service(network, tmp_path, secret):
    place = f"{network.address('h0')}:{PORT}"
    started = Service(network, tmp_path, "--listen", place, "--secret", secret)
    assert started.line() == f"advisor: waiting at {place}"
    yield started
    started.process.kill()
    started.end()


@contextmanager
def opened(network, host, secret, address=None):
    """Take the service's host from another one; what that answers."""
    agent = Agent(network, host)
    yield agent, agent.do("open_host", address or network.address("h0"), PORT, secret.read_text())
    agent.end()


def test_a_service_lends_its_host_to_one_analysis_after_the_other(network, service, secret):
    for host in ("h1", "h2"):
        with opened(network, host, secret) as (agent, facts):
            assert facts[0] == "h0", facts
            assert Path(facts[1], "doors").is_socket()
            assert agent.do("factorial_there", 5) == 120
            agent.do("close_host")


def test_a_second_analysis_is_told_who_uses_the_host_and_one_port_is_open(network, service, secret):
    with opened(network, "h1", secret) as (first, facts):
        assert facts[0] == "h0", facts
        with opened(network, "h2", secret) as (_, said):
            assert said.startswith("TestbedError: host far: in use by "), said
            assert "on h1" in said
        assert first.do("factorial_there", 5) == 120
        watcher = Agent(network, "h0")
        assert watcher.do("listening_ports") == [f"{network.address('h0')}:{PORT}"]
        watcher.end()


def test_a_command_that_is_killed_frees_the_host(network, service, secret):
    with opened(network, "h1", secret) as (first, _):
        assert first.do("factorial_there", 5) == 120
    for _ in range(100):
        with opened(network, "h2", secret) as (second, facts):
            if facts[0] == "h0":
                assert second.do("factorial_there", 5) == 120
                break
        time.sleep(0.1)
    assert facts[0] == "h0", facts


@pytest.mark.parametrize("signal", ["SIGTERM", "SIGKILL"])
def test_a_service_that_is_ended_leaves_nothing_behind(network, service, secret, signal):
    def left():
        return [*network.processes("h0"), *service.temp.iterdir()]

    with opened(network, "h1", secret) as (agent, _):
        assert agent.do("factorial_there", 5) == 120
        lines = {pid: Path(f"/proc/{pid}/cmdline").read_text() for pid in network.processes("h0")}
        (own,) = (pid for pid, line in lines.items() if LIGHT in line)
        subprocess.run(["kill", f"-{signal}", str(own)], check=True)
        service.end()
        assert wait_until(lambda: not left(), 10.0), left()
        said = agent.do("factorial_there", 5)
        assert "lost" in said, said


def test_a_relay_that_dies_ends_its_service_with_a_word(network, service):
    (relay,) = re.findall(r"pid=(\d+)", network.call("h0", ["ss", "-Htlnp"]))
    subprocess.run(["kill", "-KILL", relay], check=True)
    code, said = service.end()
    assert code == 2
    assert "the relay has ended" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("", "say one of --stdio, --listen and --new-secret"),
        ("--stdio --listen a:1", "say one of --stdio, --listen and --new-secret"),
        ("--stdio --everywhere", "--secret and --everywhere belong to --listen"),
        ("--listen node:7000", "no --secret, so anyone could run programs as you"),
        ("--listen node --secret SECRET", "'node' is no address with a port"),
        ("--listen :7000 --secret SECRET", "':7000' is no address with a port"),
        ("--listen 0.0.0.0:7000 --secret SECRET", "0.0.0.0 means every network"),
        ("--listen [::]:7000 --secret SECRET", ":: means every network"),
        ("--listen 192.0.2.7:7000 --secret nowhere.pem", "nowhere.pem: No such file"),
    ],
)
def test_what_could_open_more_than_was_meant_is_refused(secret, words, said):
    ran = run_here("worker", *(str(secret) if w == "SECRET" else w for w in words.split()))
    assert ran.code == 2
    assert ran.err.startswith("advisor: error: ")
    assert said in ran.err


def test_an_address_of_another_host_is_told(network, tmp_path, secret):
    code, said = Service(network, tmp_path, "--listen", "10.77.0.2:7000", "--secret", secret).end()
    assert code == 2
    assert "advisor: error: cannot listen at 10.77.0.2 port 7000: Cannot assign" in said


@pytest.mark.parametrize(
    ("place", "more", "host", "address"),
    [
        # Everywhere, where it is said twice.
        (f"0.0.0.0:{PORT}", ("--everywhere",), "h1", None),
        (f"[::1]:{PORT}", (), "h0", "::1"),
    ],
)
def test_an_address_may_be_every_one_or_one_of_ipv6(
    network, tmp_path, secret, place, more, host, address
):
    service = Service(network, tmp_path, "--listen", place, *more, "--secret", secret)
    assert service.line() == f"advisor: waiting at {place}"
    with opened(network, host, secret, address) as (agent, facts):
        assert facts[0] == "h0", facts
        assert agent.do("factorial_there", 5) == 120
    service.process.kill()
    service.end()


def test_a_new_secret_is_made_once(tmp_path):
    path = tmp_path / "made.pem"
    ran = run_here("worker", "--new-secret", str(path))
    assert ran.code == 0, ran.err
    assert ran.err.startswith(f"advisor: {path} is made.")
    assert path.stat().st_mode & 0o777 == 0o600
    again = run_here("worker", "--new-secret", str(path))
    assert again.code == 2
    assert "exists already" in again.err
