import ctypes
import math
import operator
import os
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest
from command_runs import HANGS_AFTER_S, Command, Ran, wait_until

from placement_advisor.candidates import families
from placement_advisor.errors import AdvisorError
from placement_advisor.processes import children
from placement_advisor.processes.calls import CallFailure, FailureCause
from placement_advisor.processes.children import Child, ChildError

INTO_ALL = """
import contextlib, os
for descriptor in range(3, 1_000):
    with contextlib.suppress(OSError):
        os.write(descriptor, {junk!r})
"""


@pytest.fixture
def fork(fork_server, tmp_path):
    """Forks children, which end with the test."""
    forked = []

    def fork(name):
        forked.append(Child(name))
        return forked[-1]

    yield fork
    for child in forked:
        child.close()


@pytest.fixture
def child(fork):
    return fork("loader")


def test_a_child_answers_one_call_after_the_other_in_a_process_of_its_own(child):
    assert child.call(os.getpid) == child.pid
    assert child.call(math.factorial, 5) == 120
    assert child.pid != os.getpid()
    assert child.call(eval, "'tensorflow' in __import__('sys').modules")
    assert child.call(os.getenv, "PYTHONSAFEPATH") == os.environ.get("PYTHONSAFEPATH")
    assert child.call(os.getsid, 0) == child.pid
    assert child.call(os.fork) > 0
    assert [child.call(math.factorial, n) for n in (3, 4, 5)] == [6, 24, 120]
    child.call(exec, "import pickle; pickle.dumps = pickle.Pickler = None")
    assert child.call(math.factorial, 5) == 120


def test_errors_of_a_call_are_passed_on_and_cost_that_call_alone(child):
    with pytest.raises(AdvisorError, match="unknown candidate 'diagonal'"):
        child.call(families.check_names, ("diagonal",))
    with pytest.raises(ChildError, match=r"loader: Traceback(.|\n)*ZeroDivisionError"):
        child.call(operator.truediv, 1, 0)
    assert child.call(math.factorial, 3) == 6
    with pytest.raises(ChildError, match="pickle"):
        child.call(threading.Lock)
    assert child.call(math.factorial, 3) == 6


def test_a_full_disk_is_an_error_that_a_user_can_fix_also_in_the_words_of_tensorflow(child):
    stop = "raise __import__('tensorflow').errors.ResourceExhaustedError(None, None, '{}')"
    with pytest.raises(AdvisorError, match=r"temporary files cannot be written in .*: No space"):
        child.call(exec, stop.format("vm.xplane.pb; No space left on device"))
    with pytest.raises(ChildError, match="no more rows"):
        child.call(exec, stop.format("no more rows"))


def test_threads_that_start_children_leave_the_environment_as_it_was():
    before, first_is_in = dict(os.environ), threading.Event()

    def start(after, *, lasts_s):
        if after is not None:
            after.wait()
        with children._environment():
            first_is_in.set()
            time.sleep(lasts_s)

    with ThreadPoolExecutor() as pool:
        first = pool.submit(start, None, lasts_s=0.1)
        second = pool.submit(start, first_is_in, lasts_s=0.2)
    assert (first.result(), second.result()) == (None, None)
    assert dict(os.environ) == before


SLOWLY = "[(bytes([1]) * 50_000_000, __import__('time').sleep(0.01)) for _ in range(80)]"


@pytest.mark.parametrize(
    ("call", "limit_s", "cause", "message"),
    [
        ((ctypes.string_at, 0), None, FailureCause.CRASHED, "loader was killed by SIGSEGV"),
        ((os._exit, 3), None, FailureCause.CRASHED, "loader exited with status 3"),
        ((time.sleep, 60), 0.3, FailureCause.TIMED_OUT, "loader gave no answer within 0.3 s"),
        (
            (eval, SLOWLY),
            None,
            FailureCause.OUT_OF_MEMORY,
            "loader used more than 2.0 GB of memory",
        ),
        ((os.closerange, 0, 1_000), None, FailureCause.CRASHED, "loader exited with status 1"),
    ],
)
def test_a_child_that_dies_or_is_stopped_says_why_where_and_what_it_printed_last(
    fork, monkeypatch, call, limit_s, cause, message
):
    monkeypatch.setattr(children, "available_memory_bytes", lambda: 2_500_000_000)
    child = fork("loader")
    child.call(print, "almost there")
    limits = {} if limit_s is None else {"time_limit_s": limit_s}
    failure = child.call(*call, **limits)
    assert (failure.cause, failure.message) == (cause, message)
    assert failure.output_tail.startswith("almost there\n")
    assert not psutil.pid_exists(child.pid)
    in_ctypes = any(file.endswith("ctypes/__init__.py") for file, _ in failure.stack)
    assert in_ctypes == ("SIGSEGV" in message)


def test_where_a_child_was_is_waited_for_on_a_busy_machine(child):
    assert child.call(os.getpid) == child.pid
    os.kill(child.pid, signal.SIGSTOP)
    threading.Timer(0.6, os.kill, (child.pid, signal.SIGCONT)).start()
    assert child.call(os.getpid, time_limit_s=0.1).stack


@pytest.mark.parametrize(
    ("lasts_s", "limit_s", "how"), [(1.5, 60.0, "exited with status 3"), (60, 0.2, "hung up")]
)
def test_a_child_that_hangs_up_has_the_status_of_its_end(child, monkeypatch, lasts_s, limit_s, how):
    monkeypatch.setattr(children, "_EXIT_LIMIT_S", limit_s)
    hang_up = "import os, time; os.closerange(3, 1_000); time.sleep({}); os._exit(3)"
    assert child.call(exec, hang_up.format(lasts_s)).message == f"loader {how}"


def test_a_call_that_needs_another_child_ends_when_that_one_dies(fork):
    client, worker = fork("client"), fork("worker:1")
    begun = client.start(time.sleep, 60)
    os.kill(worker.pid, signal.SIGKILL)
    assert begun.wait(watch=(worker,)).message == "worker:1 was killed by SIGKILL"


def test_a_child_that_lives_has_no_failure_and_one_that_died_has_it_for_good(child):
    assert child.failure() is None
    os.kill(child.pid, signal.SIGKILL)
    failure = child.failure(within_s=HANGS_AFTER_S)
    assert failure.message == "loader was killed by SIGKILL"
    assert child.call(math.factorial, 3) == failure


def test_a_child_that_prints_without_end_costs_neither_memory_nor_disk(child, tmp_path):
    line = b"x" * 999_999 + b"\n"
    tracemalloc.start()
    try:
        child.call(exec, f"import os\nfor _ in range(300): os.write(1, {line!r})")
        child.call(print, "and out")
        failure = child.call(os._exit, 3)
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert failure.output_tail.endswith("x\nand out\n")
    assert most_bytes < 5_000_000
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 1_000_000


@pytest.mark.parametrize("junk", [b"hello, world", b"\0" * 12, b"\xff" * 12, b"\0\0\0\5nonsense"])
def test_junk_in_every_descriptor_is_a_failure_of_the_child(child, junk, capfd):
    failure = child.call(exec, INTO_ALL.format(junk=junk))
    assert failure.cause is FailureCause.CRASHED
    assert failure.message.startswith("loader ")
    assert capfd.readouterr().err == ""


# A process that no session, group or parent ties to who started it; it writes its id to a file.
DETACH = """
import os, sys
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        with open({file!r}, "w") as file:
            file.write(str(os.getpid()))
        os.execlp("sleep", "sleep", "600")
    os._exit(0)
os.wait()
"""


def detached_by(child, tmp_path):
    file = tmp_path / "detached"
    child.call(exec, DETACH.format(file=str(file)))
    assert wait_until(lambda: file.exists() and file.read_text() != "", 5.0)
    return int(file.read_text())


def test_closing_a_child_ends_what_it_has_detached(child, tmp_path):
    detached = detached_by(child, tmp_path)
    child.call(time.sleep, 0.1)
    assert psutil.pid_exists(detached)
    child.close()
    assert wait_until(lambda: not psutil.pid_exists(detached))


def test_what_a_child_that_dies_has_detached_ends_with_it_and_nothing_of_others(fork, tmp_path):
    (tmp_path / "other").mkdir()
    child, other = fork("loader"), fork("other")
    detached, of_other = detached_by(child, tmp_path), detached_by(other, tmp_path / "other")
    assert isinstance(child.call(os._exit, 3), CallFailure)
    assert wait_until(lambda: not psutil.pid_exists(detached))
    assert other.call(math.factorial, 3) == 6
    assert psutil.pid_exists(of_other)


# The command's part, with a fork server that imports nothing.
COMMAND = """
import os, sys, tempfile, time
from placement_advisor.processes import children
from placement_advisor.files.output import scratch_folder
children._PRELOADED = "light_preload"
with scratch_folder():
    children.preload()
    child = children.Child("loader")
    child.call(exec, sys.argv[2])
    child.call(os.spawnlp, 1, "sleep", "sleep", "600")
    child.call(tempfile.mkstemp)
    print("importing", file=sys.stderr, flush=True)
    if sys.argv[1] != "end":
        time.sleep(600)
"""


def test_a_command_that_ends_or_is_killed_leaves_no_process_and_no_file(tmp_path):
    """Its child has started one process and detached another."""
    (tmp_path / "light_preload.py").write_text(
        "from placement_advisor.processes import orphan_guard; orphan_guard.follow_the_command()"
    )
    detach = DETACH.format(file=str(tmp_path / "detached"))
    how = {"temp": tmp_path / "temp", "launch": COMMAND, "path": (tmp_path,)}
    with Command("end", detach, **how) as ended:
        assert ended.wait() == Ran(code=0, out="", err="importing\n")
        assert ended.processes_left() == []
    with Command("sleep", detach, **how) as killed:
        killed.wait_for_line("importing")
        # It, the guard, the fork server, the tracker of resources, the child and its two.
        assert wait_until(lambda: len(killed.processes()) == 7)
        killed.process.kill()
        assert killed.processes_left() == []
    assert list((tmp_path / "temp").iterdir()) == []


def test_the_memory_of_a_container_limits_its_children(tmp_path, monkeypatch):
    free = children.available_memory_bytes()
    monkeypatch.setattr(children, "_CGROUP_LIMITS", (tmp_path / "memory.max",))
    assert children.available_memory_bytes() == pytest.approx(free, rel=0.5)
    (tmp_path / "memory.max").write_text("max\n")
    assert children.available_memory_bytes() == pytest.approx(free, rel=0.5)
    (tmp_path / "memory.max").write_text("1000000\n")
    assert children.available_memory_bytes() == 1_000_000


BOUND = [sys.executable, "-P", "-m", "placement_advisor.processes.orphan_guard"]
# Starts a program, says its process id and ends when it is told to.
PARENT = f"""
import os, subprocess, sys
started = subprocess.Popen([*{BOUND!r}, str(os.getpid()), "sleep", "600"])
print(started.pid, flush=True)
sys.stdin.read()
os._exit(0)
"""


def test_a_program_ends_with_whoever_started_it():
    pipe = subprocess.PIPE
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdin=pipe, stdout=pipe)
    with parent:
        program = psutil.Process(int(parent.stdout.readline()))
        assert wait_until(lambda: program.name() == "sleep")
        parent.stdin.close()
        parent.wait()
        assert wait_until(lambda: not program.is_running())


def test_a_program_whose_starter_is_gone_already_does_not_begin():
    ran = subprocess.run([*BOUND, "1", "echo", "hello"], capture_output=True, check=False)
    assert ran.returncode == 1
    assert ran.stdout == b""
