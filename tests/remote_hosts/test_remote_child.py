import math
import operator
import os
import signal
import time

import psutil
import pytest
from command_runs import HANGS_AFTER_S, wait_until
from light_hosts import light_host

from placement_advisor.candidates import families
from placement_advisor.errors import AdvisorError
from placement_advisor.processes.calls import CallFailure, FailureCause
from placement_advisor.processes.children import Child, ChildError

# Keeps 400 MB while the child waits for further calls.
TAKE_MEMORY = """
import threading, time
def take():
    kept = []
    for _ in range(40):
        kept.append(bytes([1]) * 10_000_000)
        time.sleep(0.01)
    time.sleep(600)
threading.Thread(target=take, daemon=True).start()
"""


def test_a_child_answers_one_call_after_the_other_and_what_is_not_allowed_is_an_error_alone(child):
    assert child.call(os.getpid) == child.pid
    assert child.call(math.factorial, 30) == math.factorial(30)
    assert child.pid != os.getpid()
    with pytest.raises(AdvisorError, match="host b: unknown candidate 'diagonal'"):
        child.call(families.check_names, ("diagonal",))
    with pytest.raises(ChildError, match=r"host b: b:0: Traceback(.|\n)*ZeroDivisionError"):
        child.call(operator.truediv, 1, 0)
    assert child.call(math.factorial, 3) == 6
    with pytest.raises(ChildError, match=r"posix.system may not be called from another host"):
        child.call(os.system, "true")
    with pytest.raises(TypeError, match="cannot be sent to other hosts"):
        child.call(math.factorial, object())
    with pytest.raises(ChildError, match=r"host b: .* cannot be sent to other hosts"):
        child.call(eval, "{1, 2}")
    assert child.call(math.factorial, 3) == 6


def test_children_run_side_by_side_since_they_wait_for_each_other(host, tmp_path):
    awaited = tmp_path / "ready"
    wait = f"import os, time\nwhile not os.path.exists({str(awaited)!r}): time.sleep(0.01)"
    with host.child("b:0") as one, host.child("b:1") as other:
        begun = one.start(exec, wait)
        assert other.call(exec, f"open({str(awaited)!r}, 'w').close()") is None
        assert begun.wait(watch=(one, other)) is None


def test_a_child_that_exits_says_its_status_and_what_it_printed_last(child):
    child.call(print, "almost there")
    failure = child.call(os._exit, 3)
    assert failure == CallFailure(
        cause=FailureCause.CRASHED,
        message="b:0 exited with status 3",
        child_ended=True,
        output_tail="almost there\n",
    )
    assert child.call(math.factorial, 3) == failure
    assert child.failure() == failure


def test_a_call_past_its_time_limit_is_stopped_there(child):
    sleep = "exec(compile('import time; time.sleep(600)', 'model.py', 'exec'))"
    failure = child.call(exec, sleep, time_limit_s=0.3)
    assert failure.cause is FailureCause.TIMED_OUT
    assert failure.message == "b:0 gave no answer within 0.3 s"
    assert ("model.py", 1) in failure.stack
    assert not psutil.pid_exists(child.pid)


def test_the_host_tells_of_a_child_that_dies_between_calls(child):
    assert child.failure() is None
    os.kill(child.pid, signal.SIGKILL)
    failure = child.failure(within_s=HANGS_AFTER_S)
    assert failure.message == "b:0 was killed by SIGKILL"


def test_the_host_ends_a_child_that_takes_too_much_memory_between_calls(tmp_path):
    with light_host(tmp_path, memory_bytes=250_000_000) as light:
        child = light.host.child("b:0")
        assert child.call(exec, TAKE_MEMORY) is None
        failure = child.failure(within_s=HANGS_AFTER_S)
        assert failure.cause is FailureCause.OUT_OF_MEMORY
        assert failure.message == "b:0 used more than 0.2 GB of memory"
        assert not psutil.pid_exists(child.pid)


@pytest.mark.usefixtures("fork_server")
def test_children_here_and_there_watch_each_other(host):
    with Child("client") as client, host.child("b:0") as worker:
        assert client.start(math.factorial, 3).wait(watch=(worker,)) == 6
        assert worker.start(math.factorial, 3).wait(watch=(client,)) == 6
        begun = client.start(time.sleep, 600)
        os.kill(worker.pid, signal.SIGKILL)
        failure = begun.wait(watch=(worker,))
        assert failure.message == "b:0 was killed by SIGKILL"
    with Child("client") as client, host.child("b:0") as worker:
        begun = worker.start(time.sleep, 600)
        os.kill(client.pid, signal.SIGKILL)
        failure = begun.wait(watch=(client,))
        assert failure.message == "client was killed by SIGKILL"


def test_closing_a_child_ends_it_with_what_it_started_also_in_a_call(child):
    started = child.call(eval, "__import__('subprocess').Popen(['sleep', '600']).pid")
    assert psutil.pid_exists(started)
    child.start(time.sleep, 600)
    child.close()
    assert wait_until(lambda: not psutil.pid_exists(child.pid) and not psutil.pid_exists(started))
