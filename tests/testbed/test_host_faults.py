"""What dies, hangs or is cut off between two hosts, each really done, by real processes of both."""

import json
import os
import signal
import subprocess
import time

import lab_testbed
import pytest
from command_runs import LAUNCH, wait_until
from network_lab.lab import lab, refusal
from network_lab.two_hosts import TwoHosts

# A host's loss is known after 10 s, and what is left of it has ended then; the rest is for machines
# that do other things.
SOON_S = 20.0
# It takes twenty times as long to time all copies.
UNDER_WAY_S = 1.0


class OverBoth:
    def __init__(self, hosts):
        self._process = hosts.run(
            str(lab_testbed.__file__),
            *(hosts.words, hosts.launch),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self.answer() is None

    def ask(self, name):
        self._process.stdin.write(name + "\n")
        self._process.stdin.flush()

    def answer(self):
        return json.loads(self._process.stdout.readline())

    def do(self, name):
        self.ask(name)
        return self.answer()

    def end(self):
        """Let the command end by itself."""
        self._process.communicate()
        return self._process.returncode


@pytest.fixture
def hosts(tmp_path):
    reason = refusal()
    if reason is not None:
        pytest.skip(reason)
    with lab(hosts=2) as network:
        (tmp_path / "temp").mkdir()
        environment = {**os.environ, "TMPDIR": str(tmp_path / "temp")}
        yield TwoHosts(network, tmp_path, environment)


def left(hosts, folder):
    """Return what still runs on the hosts or lies about after a while."""

    def left():
        return [*hosts.running().values(), *(path.name for path in (folder / "temp").iterdir())]

    wait_until(lambda: not left(), SOON_S)
    return left()


def hit(testbed, name):
    """Kill a process while both hosts are at work."""
    pid = testbed.do("processes")[name]
    testbed.ask("copy")
    time.sleep(UNDER_WAY_S)
    os.kill(pid, signal.SIGKILL)


def test_what_dies_on_a_host_is_started_anew_and_a_host_that_is_lost_ends_all(hosts, tmp_path):
    testbed = OverBoth(hosts)
    for name in ("h1:0", "relay-h1"):
        hit(testbed, name)
        assert testbed.answer() == f"{name} was killed by SIGKILL"
        assert testbed.do("start") is None
        assert testbed.do("devices") == ["h1:0", "localhost:0"]
    testbed.ask("copy")
    time.sleep(UNDER_WAY_S)
    hosts.network.unplug("h1")
    begun_s = time.monotonic()
    lost = "host h1 is lost: nothing was heard for 8 s"
    assert [testbed.answer(), testbed.do("start"), testbed.do("devices")] == [lost] * 3
    assert time.monotonic() - begun_s < SOON_S
    assert testbed.end() == 0
    assert time.monotonic() - begun_s < 2 * SOON_S
    # The host has ended by itself: nobody can tell it to.
    assert left(hosts, tmp_path) == []


def analyze(hosts, model, err):
    words = ("analyze", str(model), *hosts.options, "-o", str(err.with_suffix(".out")))
    with err.open("w") as stderr:
        return hosts.run("-c", LAUNCH, *words, stderr=stderr)


@pytest.mark.parametrize(
    "number", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.slow)]
)
def test_a_second_analysis_is_told_who_uses_the_hosts_which_are_free_when_the_first_is_gone(
    hosts, two_towers, tmp_path, number
):
    first, second = tmp_path / "first", tmp_path / "second"
    one = analyze(hosts, two_towers, first)
    assert wait_until(lambda: "importing TensorFlow" in first.read_text())
    assert any("worker --stdio" in words for words in hosts.running("h1").values())
    assert analyze(hosts, two_towers, second).wait() == 2
    *_, error, hint = second.read_text().splitlines()
    assert error.startswith("advisor: error: host localhost: in use by ")
    assert error.endswith(f" on h0 (process {one.pid})")
    assert hint.startswith("advisor: hint: wait until it has ended")
    one.send_signal(number)
    assert one.wait() == (-number if number == signal.SIGKILL else 130)
    assert left(hosts, tmp_path) == []
    assert "Traceback" not in first.read_text()
