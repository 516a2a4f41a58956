"""The command as a process of its own, a worker too: how it ends, what it shares with others."""

import json
import os
import pty
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest
from command_runs import ENDS_WITHIN_S, LAUNCH, LAUNCH_BRIEF, Command, Ran, run_here, wait_until

from placement_advisor.cli import app
from placement_advisor.remote_hosts import conversation

# The user's code prints in every way there is.
TALKATIVE = """
import os, subprocess, sys
print("from print"); print("from print to stderr", file=sys.stderr)
os.write(1, b"from the system\\n"); subprocess.run(["echo", "from another process"])
"""
BRIEF = ("--candidates", "towers", "--effort", "0.01")
FEW = ("--rounds", "5", "--steps", "1", *BRIEF)
MANY = ("--rounds", "10000", "--steps", "100", *BRIEF)


@pytest.fixture
def analyze(two_towers, tmp_path):
    """Analyses a model in a process of its own, of which nothing is left in the end."""

    @contextmanager
    def run(*words, model=two_towers, at="importing TensorFlow", after_s=0.0, launch=LAUNCH):
        output, temp = tmp_path / "out", tmp_path / "temp"
        words = ("analyze", str(model), "-o", str(output), *words)
        with Command(*words, temp=temp, launch=launch) as command:
            command.wait_for_line(at)
            time.sleep(after_s)
            yield command
            command.wait(timeout_s=ENDS_WITHIN_S)
            assert command.processes_left() == []
        if command.process.returncode != -signal.SIGKILL:
            assert not output.exists()
            assert list(temp.iterdir()) == []

    return run


def interrupt(command):
    """Interrupt it as a terminal does."""
    os.killpg(command.process.pid, signal.SIGINT)
    ran = command.wait(timeout_s=ENDS_WITHIN_S)
    assert (ran.code, ran.out) == (130, "")
    kept, last = ran.err.splitlines()[-2:]
    assert kept.startswith("advisor: nothing of this analysis is kept, timed rounds included; ")
    assert last == "advisor: interrupted"
    assert "Traceback" not in ran.err


# The first just after the start of the fork server, the others while TensorFlow is imported.
@pytest.mark.parametrize("after_s", [0.01, 0.03, 0.06, 2.0])
def test_ctrl_c_while_tensorflow_is_imported_ends_everything(analyze, after_s):
    with analyze(after_s=after_s) as command:
        interrupt(command)


def test_ctrl_c_in_the_users_endless_loop_ends_everything(analyze, write_model):
    with analyze(model=write_model("while True: pass\n"), at="running", after_s=0.3) as command:
        interrupt(command)


@pytest.mark.slow
def test_ctrl_c_between_steps_of_workers_ends_everything(analyze):
    with analyze(*MANY, at="timing", after_s=0.3) as command:
        assert len(command.processes()) >= 5  # It, the fork server, and at least three children.
        interrupt(command)


# What the user's code starts, and what it detaches from everything that started it.
BUSY = """
import os, subprocess, time
subprocess.Popen(["sleep", "600"])
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execlp("sleep", "sleep", "600")
    os._exit(0)
os.wait()
while True: pass
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_of_what_the_users_code_has_started(analyze, write_model, tmp_path, number):
    with analyze(model=write_model(BUSY), at="running") as command:
        assert wait_until(lambda: command.names().count("sleep") == 2), command.err
        command.process.send_signal(number)
        ran = command.wait()
    assert ran.code == (-signal.SIGKILL if number == signal.SIGKILL else 130)
    assert list((tmp_path / "temp").iterdir()) == []
    assert not list(tmp_path.glob("out/*"))


def test_a_terminal_that_is_closed_ends_everything(analyze):
    with analyze() as command:
        command.process.send_signal(signal.SIGHUP)
        assert command.wait(timeout_s=ENDS_WITHIN_S).code == 130


def test_a_command_under_nohup_goes_on_when_the_terminal_is_closed(analyze):
    nohup = f"import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN); {LAUNCH}"
    with analyze(launch=nohup) as command:
        command.process.send_signal(signal.SIGHUP)
        with pytest.raises(subprocess.TimeoutExpired):
            command.wait(timeout_s=1.0)
        command.process.kill()


@pytest.mark.parametrize("after_s", [0.0, 0.05, 0.2, 2.0])
def test_a_command_killed_while_tensorflow_is_imported_leaves_no_process(analyze, after_s):
    with analyze(after_s=after_s) as command:
        command.process.kill()


@pytest.mark.slow
def test_a_command_killed_between_steps_of_workers_leaves_no_process(analyze, tmp_path):
    with analyze(*MANY, at="timing", after_s=0.3) as command:
        command.process.kill()
    assert list((tmp_path / "temp").iterdir()) == []
    assert list((tmp_path / "out").iterdir()) == []


def test_two_runs_at_once_do_not_disturb_each_other(advisor, two_towers, tmp_path, monkeypatch):
    (tmp_path / "talkative.py").write_text(TALKATIVE + two_towers.read_text())
    monkeypatch.chdir(tmp_path)
    words, temp = ("analyze", "talkative.py", *FEW), tmp_path / "a"
    with Command(*words, "--json", temp=temp, cwd=tmp_path, launch=LAUNCH_BRIEF) as other:
        other.wait_for_line("running talkative.py")
        quiet = advisor(*words, "--quiet", "-o", "other")
        told = other.wait()
        assert other.processes_left() == []
    assert [*temp.iterdir()] == []
    assert (quiet.code, told.code) == (0, 0), quiet.err + told.err
    assert [c["failure"] for c in json.loads(told.out)["candidates"]] == [None] * 2
    assert quiet.out.startswith("Measured on ")
    for text in ("from print", "from the system", "from another process"):
        assert text not in quiet.out + told.out + told.err
    assert quiet.err == ""
    assert told.err.startswith("advisor: ")
    assert all(line.startswith("advisor: ") for line in told.err.splitlines())


def test_an_interruption_of_which_compiled_code_makes_another_error_is_one(monkeypatch):
    def read_a_profile():
        try:
            signal.raise_signal(signal.SIGTERM)
        except KeyboardInterrupt as interrupt:
            raise SystemError("<function> returned a result with an exception set") from interrupt

    monkeypatch.setattr(app, "app", read_a_profile)
    assert run_here() == Ran(code=130, out="", err="advisor: interrupted\n")


WORKER = [sys.executable, "-c", LAUNCH, "worker", "--stdio"]


def test_a_worker_that_nobody_speaks_to_says_so_and_ends_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    ran = subprocess.run(WORKER, input=b"", capture_output=True, check=False)
    assert [path.name for path in tmp_path.iterdir() if path.name != "cache"] == []
    assert ran.returncode == 2
    assert b"error: no command has asked for this worker: the connection ended" in ran.stderr


def test_on_its_output_a_worker_speaks_in_frames_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    pipe = subprocess.PIPE
    with subprocess.Popen(WORKER, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        asked = conversation.framed(conversation.encode(("open", "erika")))
        process.stdin.write(conversation.COMMAND_MARK + asked)
        process.stdin.flush()
        reader, heard = conversation.FrameReader(conversation.WORKER_MARK), []
        while len(heard) < 2:
            heard += map(conversation.decode, reader.feed(os.read(process.stdout.fileno(), 65_536)))
        process.stdin.close()
        assert process.stdout.read() in (b"", conversation.HEARTBEAT)
        assert process.stderr.read() == b""
    assert process.returncode == 0
    assert reader.skipped == ""
    assert [message[0] for message in heard] == ["versions", "opened"]


def test_it_takes_no_orders_from_a_terminal_or_without_being_told_where_from():
    ours, theirs = pty.openpty()
    for words, stdin in ((WORKER, theirs), (WORKER[:-1], subprocess.DEVNULL)):
        ran = subprocess.run(words, stdin=stdin, capture_output=True, check=False, timeout=600)
        assert ran.returncode == 2
        assert ran.stdout == b""
        assert b"error: worker: no command gives orders here" in ran.stderr
    for end in (ours, theirs):
        os.close(end)
