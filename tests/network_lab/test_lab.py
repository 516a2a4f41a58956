"""Hosts of a lab: what they reach, at what rate and after what delay, and that they go."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from network_lab.lab import Lab

ECHO = Path(__file__).with_name("echo.py")
MS = 1_000_000
# The lab by the kernel's bridge, and by the switch in user space.
BRIDGE, SWITCH = {}, {"delay_ns": 0}
BOTH = pytest.mark.parametrize("options", [BRIDGE, SWITCH], ids=["bridge", "packet switch"])


def serve(network: Lab, host: str) -> None:
    server = network.run(host, [sys.executable, ECHO, "serve"], stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    assert server.stdout.readline() == "ready\n"


def sent_ns(network: Lab, source: str, target: str, size_bytes: int, times: int) -> list[int]:
    command = [sys.executable, str(ECHO), network.address(target), str(size_bytes), str(times)]
    return [int(line) for line in network.call(source, command).split()]


@BOTH
def test_every_host_reaches_every_other_one_by_name(network_lab, options):
    with network_lab(hosts=3, **options) as network:
        for host in network.hosts:
            serve(network, host)
        for source in network.hosts:
            for target in network.hosts:
                assert len(sent_ns(network, source, target, 100_000, 1)) == 1
            assert network.call(source, ["hostname"]) == f"{source}\n"
            found = network.call(source, [sys.executable, "-c", NAMES.format(network.hosts)])
            assert found.split() == ["10.77.0.1", "10.77.0.2", "10.77.0.3"]


NAMES = "import socket; [print(socket.gethostbyname(host)) for host in {}]"


def test_a_host_sees_no_network_but_its_own(network_lab):
    with network_lab() as network:
        names = "import socket; print(*sorted(name for _, name in socket.if_nameindex()))"
        assert network.call("h0", [sys.executable, "-c", names]).split() == ["eth0", "lo"]
        assert network.call("h0", ["ip", "route"]).splitlines() == [
            "10.77.0.0/24 dev eth0 proto kernel scope link src 10.77.0.1 "
        ]


def test_the_launcher_runs_commands_from_here_and_from_another_host(network_lab, tmp_path):
    with network_lab() as network:
        command = f"{network.launcher} {{host}}".format(host=network.address("h1")).split()
        from_here = subprocess.run(
            [*command, "pwd"], capture_output=True, text=True, check=True, cwd=tmp_path
        )
        assert from_here.stdout.strip() == str(tmp_path)
        assert network.call("h0", [*command, "hostname"]) == "h1\n"
        with pytest.raises(subprocess.CalledProcessError):
            network.call("h7", ["true"])


@BOTH
def test_a_host_without_its_cable_is_reached_again_once_it_is_back(network_lab, options, tmp_path):
    lines = tmp_path / "answered"
    with network_lab(**options) as network, lines.open("w") as file:
        serve(network, "h1")
        client = network.run("h0", [sys.executable, ECHO, "h1", "8", "1000000"], stdout=file)
        assert grows(lines)
        network.unplug("h1")
        assert any(not grows(lines, within_s=0.5) for _ in range(20))
        assert client.poll() is None
        network.plug_in("h1")
        assert grows(lines)


def grows(path: Path, within_s: float = 60.0) -> bool:
    before, until = path.stat().st_size, time.monotonic() + within_s
    while time.monotonic() < until:
        if path.stat().st_size > before:
            return True
        time.sleep(0.01)
    return False


def test_hosts_have_the_congestion_control_that_is_asked_for(network_lab):
    with network_lab() as network:
        systems = Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()
        assert network.congestion_control("h1") == systems
    with network_lab(congestion_control="reno") as network:
        assert {network.congestion_control(host) for host in network.hosts} == {"reno"}
        assert Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip() == systems


def test_a_bridge_has_no_delay_to_change(network_lab):
    with network_lab() as network, pytest.raises(ValueError, match="no delays"):
        network.shape(delay_ns=1)


def test_all_that_ran_on_hosts_ends_with_the_lab_whatever_happened(network_lab):
    ran: list[int] = []

    def fail_after(network: Lab) -> None:
        detached = "import os, subprocess; os.setsid(); os.fork(); print(os.getpid(), flush=True)"
        for then in ("sleep 600", "unshare --net sleep 600"):
            code = f"{detached}; subprocess.call({then!r}.split())"
            started = network.run(
                "h1", [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
            )
            assert started.stdout is not None
            assert started.stdout.readline() != started.stdout.readline()
        ran.extend(network.processes("h1"))
        assert network.processes("h0") == ()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), network_lab() as network:
        fail_after(network)
    assert len(ran) >= 4
    assert not [pid for pid in ran if alive(pid)]
    assert not Path(network.launcher).parent.exists()


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_lab_whose_owner_is_killed_ends_by_itself(network_lab, tmp_path):
    code = (
        "import os, signal, time; from network_lab.lab import lab\n"
        "with lab(delay_ns=0) as network:\n"
        "    print(*(network.pid(host) for host in network.hosts), flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)"
    )
    tests = str(Path(__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": tests, "TMPDIR": str(tmp_path)}
    killed = subprocess.run(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment
    )
    keepers = [int(pid) for pid in killed.stdout.split()]
    assert len(keepers) == 2
    until = time.monotonic() + 20
    while any(alive(pid) for pid in keepers) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(alive(pid) for pid in keepers)


UNPRIVILEGED = """
from network_lab.lab import lab, refusal
print(refusal())
if refusal() is None:
    for options in ({}, {"delay_ns": 0}):
        with lab(rate_bit_per_s=1e8, congestion_control="reno", **options) as network:
            network.unplug("h1")
            network.plug_in("h1")
            print(network.call("h0", [network.launcher, "h1", "cat", "/proc/self/uid_map"]).strip())
"""


def test_a_lab_needs_no_root_where_users_may_make_namespaces(network_lab):
    stranger = ["unshare", "--user", "--map-user=12345", "--map-group=12345"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run(
        [*stranger, sys.executable, "-c", UNPRIVILEGED],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    reason, *found = done.stdout.splitlines()
    if reason != "None":
        pytest.skip(reason)
    assert [line.split() for line in found] == [["0", "12345", "1"]] * 2


def test_tools_are_found_where_only_root_looks(network_lab, monkeypatch):
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    with network_lab(hosts=1, rate_bit_per_s=1e9) as network:
        assert "tbf" in network.call("h0", ["tc", "qdisc"])


def test_a_system_without_the_tools_has_no_lab_and_says_why(monkeypatch, tmp_path):
    from network_lab import namespaces
    from network_lab.lab import refusal

    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(namespaces, "SYSTEM_PATH", str(tmp_path))
    assert refusal.__wrapped__() == (
        "no ip or tc or unshare or nsenter or mount or hostname on this system"
    )


@pytest.mark.slow
@BOTH
def test_copies_take_what_the_rate_says(network_lab, options):
    with network_lab(rate_bit_per_s=50e6, congestion_control="reno", **options) as network:
        serve(network, "h1")
        slow_ns = median(sent_ns(network, "h0", "h1", 2_000_000, 3))
        network.shape(rate_bit_per_s=200e6)
        fast_ns = median(sent_ns(network, "h0", "h1", 2_000_000, 3))
        network.shape(rate_bit_per_s=None)
        free_ns = median(sent_ns(network, "h0", "h1", 2_000_000, 3))
    # 16 Mbit, and headers.
    assert 0.9 * 320 * MS < slow_ns < 1.5 * 320 * MS
    assert 0.9 * 80 * MS < fast_ns < 2 * 80 * MS
    assert free_ns < fast_ns


@pytest.mark.slow
def test_two_senders_share_the_cable_of_the_one_who_receives(network_lab):
    with network_lab(hosts=3, rate_bit_per_s=50e6, congestion_control="reno") as network:
        serve(network, "h2")
        both = [
            network.run(
                source,
                [sys.executable, ECHO, "h2", "2000000", "1"],
                stdout=subprocess.PIPE,
                text=True,
            )
            for source in ("h0", "h1")
        ]
        took_ns = [int(sender.communicate()[0]) for sender in both]
    # Each alone needs 320 ms.
    assert 0.9 * 640 * MS < max(took_ns) < 1.6 * 640 * MS


@pytest.mark.slow
def test_messages_take_the_delay_of_each_way(network_lab):
    with network_lab(delay_ns=10 * MS) as network:
        serve(network, "h1")
        equal_ns = min(sent_ns(network, "h0", "h1", 8, 20))
        network.shape("h1", delay_ns=50 * MS)
        longer_ns = min(sent_ns(network, "h0", "h1", 8, 20))
    assert 20 * MS <= equal_ns < 30 * MS
    assert 60 * MS <= longer_ns < 75 * MS
