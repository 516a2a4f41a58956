"""The command as a process of its own: how it ends, and what it shares with others."""

import json
import os
import signal
import subprocess
import time
from contextlib import contextmanager
from functools import partial

import pytest
from command_runs import ENDS_WITHIN_S, LAUNCH, LAUNCH_BRIEF, Command, Ran, run_here, wait_until

from placement_advisor.cli import app

# The user's code prints in every way there is.
TALKATIVE = """
import os, subprocess, sys
print("from print"); print("from print to stderr", file=sys.stderr)
os.write(1, b"from the system\\n"); subprocess.run(["echo", "from another process"])
"""
BRIEF = ("--candidates", "towers", "--effort", "0.05")
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


@pytest.fixture(scope="module")
def at_once(tmp_path_factory, two_towers):
    """Two runs at the same time: one that answers in JSON, and a quiet one."""
    folder = tmp_path_factory.mktemp("at_once")
    model = folder / "talkative.py"
    model.write_text(TALKATIVE + two_towers.read_text())
    run = partial(Command, "analyze", model.name, *FEW, cwd=folder, launch=LAUNCH_BRIEF)
    with (
        run("--json", temp=folder / "a") as one,
        run("--quiet", "-o", "other", temp=folder / "b") as other,
    ):
        answers = one.wait(), other.wait()
        assert wait_until(lambda: not one.processes() and not other.processes(), ENDS_WITHIN_S)
    assert [*(folder / "a").iterdir(), *(folder / "b").iterdir()] == []
    return answers


def test_two_runs_at_once_do_not_disturb_each_other_and_say_nothing_but_what_they_do(at_once):
    assert [ran.code for ran in at_once] == [0, 0], at_once[0].err + at_once[1].err
    analysis = json.loads(at_once[0].out)
    assert [c["failure"] for c in analysis["candidates"]] == [None] * 2
    assert at_once[1].out.startswith("Measured on ")
    json.loads(at_once[0].out)
    for ran in at_once:
        assert "from print" not in ran.out + ran.err
        assert "from the system" not in ran.out + ran.err
        assert "from another process" not in ran.out + ran.err
    assert at_once[1].err == ""
    assert at_once[0].err != ""
    assert all(line.startswith("advisor: ") for line in at_once[0].err.splitlines())


def test_an_interruption_of_which_compiled_code_makes_another_error_is_one(monkeypatch):
    def read_a_profile():
        try:
            signal.raise_signal(signal.SIGTERM)
        except KeyboardInterrupt as interrupt:
            raise SystemError("<function> returned a result with an exception set") from interrupt

    monkeypatch.setattr(app, "app", read_a_profile)
    assert run_here() == Ran(code=130, out="", err="advisor: interrupted\n")
