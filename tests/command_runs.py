"""Runs `advisor` for tests: in this process, or as a process of its own.

In this process the fork server lives on between runs, so TensorFlow is imported once for all of
them. Whatever a run starts is looked for afterwards: a child of the fork server, or a process with
the run's own mark in its environment.
"""

import contextlib
import io
import os
import signal
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass
from multiprocessing import forkserver
from pathlib import Path
from unittest import mock

import psutil

import placement_advisor
from placement_advisor import defaults
from placement_advisor.cli.app import main

_ROOT = Path(placement_advisor.__file__).parents[1]
MARK = "ADVISOR_TEST_RUN"
LAUNCH = "import sys; sys.argv[0] = 'advisor'; from placement_advisor.cli.app import main; main()"
# Only what hangs takes longer, also on a machine that does other things.
HANGS_AFTER_S = 600.0
# The import of TensorFlow takes longer: what waits for it has not ended at once.
ENDS_WITHIN_S = 10.0
# While a process becomes its program, Linux shows it without an environment, and so without a mark.
_STARTS_WITHIN_S = 0.1
# As few as tell a clear loss among three candidates; a verdict in doubt would take 90.
FEW_ROUNDS = 12
# What `few_rounds` and the fixtures for all tests do in this process.
LAUNCH_BRIEF = (
    "from placement_advisor import defaults; "
    "from placement_advisor.testbed import cost_measurement; "
    f"defaults.MAX_ROUNDS, cost_measurement.UNSTEADY_P90 = {FEW_ROUNDS}, float('inf'); "
    f"{LAUNCH}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What a run answered."""

    code: int
    out: str
    err: str


def run_here(*words):
    """Run the command in this process."""
    out, err = io.StringIO(), io.StringIO()
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    handlers = {number: signal.getsignal(number) for number in numbers}
    code = 0
    try:
        with (
            mock.patch.object(sys, "argv", ["advisor", *words]),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    return Ran(code=code, out=out.getvalue(), err=err.getvalue())


@contextlib.contextmanager
def few_rounds(most=FEW_ROUNDS):
    """Have runs in this process add no rounds beyond a few, also where the verdict is in doubt."""
    with mock.patch.object(defaults, "MAX_ROUNDS", most):
        yield


def children_left():
    """Return the children of the fork server that do not end soon."""
    pid = getattr(forkserver._forkserver, "_forkserver_pid", None)
    if pid is None:
        return []
    guard = psutil.Process(pid)

    def of_commands():
        server = guard.children()[:1]  # None at first; what the guard adopts comes behind it.
        return [each for each in guard.children(recursive=True) if each not in server]

    return _left(of_commands)


class Command:
    """The command as its installed script runs it, in a process and a session of its own."""

    def __init__(self, *words, temp, cwd=None, launch=LAUNCH, path=(), before=None):
        """Start it, or another program; its temporary files go to ``temp``, modules to ``path``.

        What it does ``before`` it keeps. A closed terminal ends it, also where it does not end us.
        """

        def begin():
            signal.signal(signal.SIGHUP, signal.SIG_DFL)
            if before is not None:
                before()

        self._mark = uuid.uuid4().hex
        temp.mkdir(exist_ok=True)
        self._err = temp.with_name(f"{temp.name}-stderr")
        self._out = temp.with_name(f"{temp.name}-stdout")
        with self._out.open("w") as out, self._err.open("w") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-c", launch, *words],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                cwd=cwd,
                start_new_session=True,
                preexec_fn=begin,
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(map(str, (_ROOT, *path))),
                    "TMPDIR": str(temp),
                    MARK: self._mark,
                },
            )

    def wait_for_line(self, text, *, timeout_s=HANGS_AFTER_S):
        """Wait until stderr holds a text."""
        wait_until(lambda: text in self.err or self.process.poll() is not None, timeout_s)
        assert text in self.err, f"{text!r} never came:\n{self.err}"

    def wait(self, *, timeout_s=HANGS_AFTER_S):
        """Wait for the end."""
        return Ran(code=self.process.wait(timeout_s), out=self.out, err=self.err)

    @property
    def err(self):
        """What it has said on stderr."""
        return self._err.read_text()

    @property
    def out(self):
        """What it has said on stdout."""
        return self._out.read_text()

    def processes(self):
        """Return every process of this run, wherever it stands in the tree."""
        return processes_marked(self._mark)

    def names(self):
        """Return the names of its processes."""
        found = []
        for process in self.processes():
            with contextlib.suppress(psutil.Error):  # It has ended meanwhile.
                found.append(process.name())
        return found

    def processes_left(self):
        """Return the processes that do not end soon."""
        return _left(self.processes)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                process.kill()
        self.process.wait()


def processes_marked(mark):
    """Return the processes that run with a mark in their environment."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            running = process.status() != psutil.STATUS_ZOMBIE
            if running and process.environ().get(MARK) == mark:
                found.append(process)
    return found


def wait_until(holds, timeout_s=HANGS_AFTER_S):
    """Wait until something holds; return whether it did in time."""
    deadline = time.monotonic() + timeout_s
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def _left(processes):
    def gone():
        if processes():
            return False
        time.sleep(_STARTS_WITHIN_S)
        return not processes()

    return [] if wait_until(gone, ENDS_WITHIN_S) else processes()
