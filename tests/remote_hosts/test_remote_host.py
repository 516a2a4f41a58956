import math
import os
import platform
import shlex
import signal
import socket
import sys
import time
from importlib.metadata import version
from pathlib import Path

import psutil
import pytest
from command_runs import HANGS_AFTER_S, MARK, Command, processes_marked, wait_until
from light_hosts import HERE, LAUNCH, environment, light_host, service_of

from placement_advisor import __version__
from placement_advisor.errors import AdvisorError, TestbedError
from placement_advisor.machine.clock_range import range_of_pings
from placement_advisor.machine.this_machine import usable_cores
from placement_advisor.processes.calls import FailureCause
from placement_advisor.remote_hosts import remote_host
from placement_advisor.remote_hosts.conversation import COMMAND_MARK, encode, framed
from placement_advisor.remote_hosts.host_files import HostLostError
from placement_advisor.remote_hosts.remote_host import LaunchedService, open_hosts

# The service's own process and what it starts is out of reach of whoever ends the launcher, as that
# of another host is.
ELSEWHERE = "setsid --wait"


def test_a_host_says_what_it_is(host):
    facts = host.facts
    assert facts.host_name == socket.gethostname()
    assert host.versions == {
        "advisor": __version__,
        "tensorflow": version("tensorflow"),
        "python": platform.python_version(),
    }
    assert facts.cores == usable_cores()
    assert facts.available_memory_bytes > 0
    found = range_of_pings(host.pings(), time.time_ns())
    assert found.low_ns <= 0 <= found.high_ns


def test_files_go_there_and_come_back(host, tmp_path):
    sent = {"model.py": b"x = 1\n", "data/large": os.urandom(1_000_000), "data/none": b""}
    for name, content in sent.items():
        (tmp_path / "sent" / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / "sent" / name).write_bytes(content)
    file = host.put(tmp_path / "sent" / "model.py")
    assert file.endswith("/model.py")
    host.get(file, tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == b"x = 1\n"
    folder = host.put(tmp_path / "sent")
    for name, content in sent.items():
        host.get(f"{folder}/{name}", tmp_path / "back")
        assert (tmp_path / "back").read_bytes() == content
    with pytest.raises(AdvisorError, match="host b: /etc/passwd does not lie in the folder of"):
        host.get("/etc/passwd", tmp_path / "got")
    (tmp_path / "folder").mkdir()
    for name in ("folder", "file"):
        with pytest.raises(AdvisorError, match=f"{name}: no file to send to host b"):
            host.put(tmp_path / name)


def test_what_children_write_into_a_new_folder_can_be_had(host, tmp_path):
    folder = host.new_folder("profile")
    with host.child("b:0") as child:
        child.call(exec, f"open({folder + '/found'!r}, 'w').write('12')")
    host.get(f"{folder}/found", tmp_path / "got")
    assert (tmp_path / "got").read_text() == "12"


def test_any_command_that_runs_another_one_is_a_launcher_whatever_it_prints_first(tmp_path):
    before, banner = "bash -c 'exec \"$@\"' --", "Welcome to b!\nYou have mail.\n"
    with light_host(tmp_path, before=before, banner=banner) as light:
        assert light.host.child("b:0").call(math.factorial, 5) == 120
    assert light.all_ended()


def test_closing_a_host_leaves_nothing_of_it(tmp_path):
    with light_host(tmp_path) as light:
        child = light.host.child("b:0")
        child.call(eval, "__import__('subprocess').Popen(['sleep', '600']).pid")
        begun = child.start(time.sleep, 600)
        folder = light.host.new_folder("profile")
        assert len(light.processes()) >= 5
    assert light.all_ended()
    assert not Path(folder).exists()
    failure = begun.wait()
    assert failure.message == "host b was closed"


def test_a_service_that_is_killed_is_lost_with_all_its_children(tmp_path):
    with light_host(tmp_path, before=ELSEWHERE) as light:
        one, other = light.host.child("b:0"), light.host.child("b:1")
        begun = one.start(time.sleep, 600)
        os.kill(service_of(other), signal.SIGKILL)
        failure = begun.wait()
        assert failure.cause is FailureCause.CRASHED
        assert failure.child_ended
        assert failure.message.startswith("host b is lost: `setsid --wait ")
        assert failure.message.endswith("advisor worker --stdio` ended with status 9")
        assert failure.output_tail.startswith("setsid: child ")
        assert other.failure(within_s=HANGS_AFTER_S) == failure
        assert one.call(math.factorial, 3) == failure
        with pytest.raises(HostLostError, match="host b is lost"):
            light.host.child("b:2")
        with pytest.raises(HostLostError, match="host b is lost"):
            light.host.pings()
        assert light.all_ended()


@pytest.mark.usefixtures("soon_silent")
def test_a_service_that_hangs_is_lost_and_ends_when_it_goes_on(tmp_path):
    with light_host(tmp_path, before=ELSEWHERE, silence_s=2.0) as light:
        child = light.host.child("b:0")
        service = service_of(child)
        begun = child.start(time.sleep, 600)
        os.kill(service, signal.SIGSTOP)
        try:
            failure = begun.wait()
        finally:
            assert psutil.pid_exists(service)
            os.kill(service, signal.SIGCONT)
        assert failure.message == "host b is lost: nothing was heard for 2 s"
        assert light.all_ended()


def test_a_service_that_hears_nothing_ends_by_itself(tmp_path):
    with environment(tmp_path, silence_s=1.0) as mark:
        service = LaunchedService(shlex.split(f"{ELSEWHERE} {LAUNCH} advisor worker --stdio"))
        service.stream.write(COMMAND_MARK + framed(encode(("open", "nobody"))))
        said = b""
        while b"opened" not in said:
            said += service.stream.read(None)
        assert wait_until(lambda: not processes_marked(mark), 20.0)
        service.wait()
        service.stream.close()


# The command's part.
COMMAND = f"""
import sys, time
sys.path.insert(0, {str(HERE)!r})
from light_hosts import LAUNCH
from placement_advisor.remote_hosts.remote_host import open_hosts
with open_hosts(["b"], launch="setsid --wait " + LAUNCH) as (host,):
    child = host.child("b:0")
    child.start(time.sleep, 600)
    print("running", file=sys.stderr, flush=True)
    time.sleep(600)
"""


def test_nothing_is_left_of_a_host_whose_command_is_killed(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with Command(temp=tmp_path / "temp", launch=COMMAND, path=(HERE.parent,)) as command:
        command.wait_for_line("running")
        assert len(command.processes()) >= 6
        command.process.kill()
        assert command.processes_left() == []
        assert list((tmp_path / "temp").iterdir()) == []


@pytest.mark.slow
@pytest.mark.usefixtures("soon_silent")
def test_a_line_of_10_kb_a_second_raises_no_false_alarm(tmp_path):
    relay = shlex.join([sys.executable, str(HERE / "slow_relay.py"), "10000"])
    (tmp_path / "file").write_bytes(os.urandom(20_000))
    with light_host(tmp_path / "cache", before=relay, silence_s=2.0) as light:
        child = light.host.child("b:0")
        # Each takes longer than either side may be silent.
        assert child.call(eval, "'x' * 25_000") == "x" * 25_000
        path = light.host.put(tmp_path / "file")
        light.host.get(path, tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == (tmp_path / "file").read_bytes()


def test_a_second_analysis_is_told_who_uses_the_host(tmp_path):
    with light_host(tmp_path) as light:
        with pytest.raises(TestbedError) as error, light_host(tmp_path, name="c"):
            pass
        service = service_of(light.host.child("b:0"))
    who = rf"in use by \w+ \(process {service}\) since 20[-0-9]+ [:0-9]+ UTC"
    where = rf"from \w+ on {socket.gethostname()} \(process {os.getpid()}\)"
    assert error.match(rf"host c: {who}, {where}")
    assert error.value.hint is not None
    with light_host(tmp_path, name="c"):  # It has ended.
        pass


ADVISOR = f"this machine placement-advisor {__version__}"
TENSORFLOW = f"this machine TensorFlow {version('tensorflow')}"


@pytest.mark.parametrize(
    ("package", "there", "problem"),
    [
        ("advisor", "0.0.9", f"placement-advisor 0.0.9, {ADVISOR}"),
        ("tensorflow", "2.18.0", f"TensorFlow 2.18.0, {TENSORFLOW}"),
        ("tensorflow", None, f"no TensorFlow, {TENSORFLOW}"),
    ],
)
def test_a_host_of_another_version_is_one_clear_error(tmp_path, package, there, problem):
    with pytest.raises(TestbedError) as error, light_host(tmp_path, **{package: there}):
        pass
    assert error.value.message == f"host b has {problem}"


FAILS = "bash -c 'echo Hello; echo No route to {host}. >&2; exit 255'"
WAITS = "bash -c 'printf Password: >&2; sleep 600'"


@pytest.mark.parametrize(
    ("launch", "start", "end", "hint"),
    [
        (
            FAILS,
            f"host b has no worker: `{FAILS.format(host='b')} advisor worker --stdio` ended with "
            "status 255\nIt last printed:\n",
            "No route to b.\nInstead of a worker spoke:\nHello",
            "see whether it starts alone: bash -c ",
        ),
        (
            WAITS,
            f"host b: `{WAITS} advisor",
            "started no worker within 2 s\nIt last printed:\nPassword:",
            "nobody can type a password here",
        ),
        (
            "bash -c yes",
            "host b has no worker: what came cannot be understood: 64,000 bytes came, and none of ",
            "",
            "",
        ),
    ],
)
def test_a_launcher_that_starts_no_worker_is_shown(tmp_path, monkeypatch, launch, start, end, hint):
    monkeypatch.setattr(remote_host, "START_LIMIT_S", 2.0)
    with environment(tmp_path) as mark:
        with pytest.raises(TestbedError) as raised, open_hosts(["b"], launch=launch):
            pass
        assert wait_until(lambda: not processes_marked(mark), 10.0)
    error = raised.value
    assert error.message.startswith(start)
    assert end in error.message
    assert hint in (error.hint or "")
    assert len(error.message) < 5_000


@pytest.mark.parametrize(
    ("launch", "problem"),
    [
        ("nossh {host}", "--launch 'nossh {host}': no program 'nossh' here"),
        ("ssh '{host}", '--launch "ssh \'{host}": No closing quotation'),
        (" ", "--launch: no command"),
    ],
)
def test_what_is_no_launcher_is_refused(launch, problem):
    with pytest.raises(TestbedError) as error, open_hosts(["b"], launch=launch):
        pass
    assert error.value.message == problem
    assert error.value.hint is not None


def test_one_host_that_does_not_start_ends_the_others(tmp_path):
    launch = f"bash -c '[ {{host}} = a ] && exec \"$@\"' -- {LAUNCH}"
    with environment(tmp_path) as mark:
        both = open_hosts(["a", "b"], launch=launch)
        with pytest.raises(TestbedError, match="host b has no worker"), both:
            pass
        assert wait_until(lambda: not processes_marked(mark), 10.0)


def test_this_machine_needs_no_launcher(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv(MARK, "localhost")
    with open_hosts(["localhost"], launch="nossh {host}") as (host,):
        assert host.facts.host_name == socket.gethostname()
    assert wait_until(lambda: not processes_marked("localhost"), 10.0)
