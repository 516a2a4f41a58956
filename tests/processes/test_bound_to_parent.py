import subprocess
import sys

import psutil
from command_runs import wait_until

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
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
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
