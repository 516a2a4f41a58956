"""Child processes in which TensorFlow and the user's code run.

The command's own process never imports TensorFlow. A fork server imports it once, in the
background, and every child is forked from there with TensorFlow ready. A child answers calls one
after the other until it is closed. Whatever happens in it (a crash, a hang, too much memory, an
exit) comes back as a `CallFailure`; the command's process is never harmed. Of what children
print the end is kept, in memory alone.

No child outlives the command: the fork server dies with the command's guard (`orphan_guard.py`) and
each child with the fork server, by the kernel's parent-death signal. What a child has started,
detached processes too, ends with it.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import importlib
import multiprocessing
import os
import pickle
import re
import resource
import signal
import sys
import tempfile
import threading
import time
import traceback
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn, TypeVar, TypeVarTuple

from placement_advisor.errors import AdvisorError, full_disk
from placement_advisor.processes import calls, orphan_guard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.connection import Connection

_Arguments = TypeVarTuple("_Arguments")
_Returned = TypeVar("_Returned")

# A socket's path has 107 bytes at most (unix(7)), of which multiprocessing takes 32 below a folder,
# and 14 for a folder within that if the user's code uses it as well.
_LONGEST_FOLDER_BYTES = 61
_SHORT_FOLDER = "/tmp"
_PRELOADED = "placement_advisor.tf.preload"
_SAFE_PATH = "PYTHONSAFEPATH"
# Any text switches it on; this one tells that the user did not.
_OURS = "placement-advisor"
_NO_LEAKS = "ignore::UserWarning:multiprocessing.resource_tracker"
# Often enough to stop a runaway allocation (some GB/s) before the machine swaps.
_POLL_INTERVAL_S = 0.05
# Leave room for the rest of the machine.
_MEMORY_SHARE = 0.8
# What a container is allowed, in the second and the first version of control groups.
_CGROUP_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
_OUTPUT_TAIL_CHARS = 2_000
_CHUNK_BYTES = 65_536
# An answer begins with its length. Text that the user's code writes there says at least 538 MB; the
# graph of 210,000 ops has a tenth of that.
_LONGEST_ANSWER_BYTES = 500_000_000
_GRACE_S = 1.0
# On a busy machine a process that dies hangs up long before its status is known.
_EXIT_LIMIT_S = 10.0
# What was written before an answer is in the pipe already; its reader needs a moment.
_QUIET_S = 0.1
# The guard takes less, whatever it has to end.
_END_LIMIT_S, _END_POLL_S = 3.0, 0.005
# A stack is written in under a millisecond, once a busy machine lets the child begin.
_STACK_BEGINS_S, _STACK_GRACE_S = 3.0, 0.2
_STACK_SIGNAL = signal.SIGUSR1
# A process is started under another environment, and models are checked in threads.
_one_starts = threading.Lock()
_STACK_LINE = re.compile(r'  File "(?P<file>.+)", line (?P<line>\d+) in ')


class Child(calls.Callee):
    """A process forked from the fork server, which answers calls one after the other."""

    def __init__(self, name: str) -> None:
        """Fork a child. Of what it prints, the end is kept."""
        self.name = name
        self._memory_limit_bytes = round(available_memory_bytes() * _MEMORY_SHARE)
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([_PRELOADED])
        self._connection, theirs = context.Pipe()
        printed, output = context.Pipe(duplex=False)
        self._stacks, stacks = context.Pipe(duplex=False)
        self._process = context.Process(
            target=_serve, args=(theirs, output, stacks), name=name, daemon=True
        )
        with _environment(), _without_main_module():  # It may have to start the fork server.
            self._process.start()
        for end in (theirs, output, stacks):
            end.close()
        self._printed = Tail(printed)
        self._closed = False
        self._failed: calls.CallFailure | None = None
        self._interruption: tuple[calls.FailureCause, str] | None = None

    @property
    def pid(self) -> int:
        """Process id."""
        assert self._process.pid is not None
        return self._process.pid

    @property
    def printed(self) -> str:
        """The end of what it has printed so far."""
        return self._printed.text(wait_s=_QUIET_S)

    def start(
        self, function: Callable[[*_Arguments], _Returned], *args: *_Arguments
    ) -> calls.PendingCall[_Returned]:
        """Begin a call without waiting; its answer must be waited for before the next call."""
        # A broken pipe means that the child is gone; waiting says how.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            if self._failed is None:
                self._connection.send((function.__module__, function.__qualname__, args))
        return calls.PendingCall(self)

    def wait_for_answer(self, time_limit_s: float | None, watch: tuple[calls.Callee, ...]) -> Any:
        """Return the answer to the call that is under way; see `Pending.wait`."""
        if self._failed is not None:
            return self._failed
        deadline = None if time_limit_s is None else time.monotonic() + time_limit_s
        while not self._connection.poll(_POLL_INTERVAL_S):
            if not self._process.is_alive() and not self._connection.poll():
                return self._died()
            for other in watch:
                failure = other.failure()
                if failure is not None:
                    return failure
            if self._interruption is not None:
                return self.stop(*self._interruption)
            if deadline is not None and time.monotonic() > deadline:
                return self.stop(
                    calls.FailureCause.TIMED_OUT,
                    f"{self.name} gave no answer within {time_limit_s:g} s",
                )
            if self._takes_too_much():
                return self._failed
        try:
            answer = self._connection.recv_bytes(_LONGEST_ANSWER_BYTES)
        except (EOFError, ConnectionResetError):
            return self._died()
        except OSError as error:  # The length is none.
            return self._garbled(error)
        try:
            outcome, value = pickle.loads(answer)
        except Exception as error:  # Junk may be refused with any.
            return self._garbled(error)
        value = calls.redacted_answer(outcome, value)
        if outcome == "returned":
            return value
        if isinstance(value, AdvisorError):
            raise value
        raise full_disk(value) or ChildError(f"{self.name}: {value}")

    def failure(self, *, within_s: float = 0.0) -> calls.CallFailure | None:
        """Return how the child died, None if it still lives ``within_s`` seconds from now.

        One that has more memory than it may is ended.
        """
        if self._failed is not None:
            return self._failed
        self._process.join(within_s)
        if not self._process.is_alive():
            return self._died()
        return self._failed if self._takes_too_much() else None

    def interrupt(self, cause: calls.FailureCause, message: str) -> None:
        """Let the wait for an answer that goes on in another thread end as `stop` does."""
        self._interruption = cause, message

    def close(self) -> None:
        """End the child and everything that it started."""
        if self._closed:
            return
        self._closed = True
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self._process.join(_GRACE_S)
        _tell_guard(orphan_guard.LOOK)
        self._connection.close()

    def stop(self, cause: calls.FailureCause, message: str) -> calls.CallFailure:
        """End the child; return that as a failure, with what it printed and where it was."""
        if self._process.is_alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, _STACK_SIGNAL)
            self._stacks.poll(_STACK_BEGINS_S)
            self._process.join(_STACK_GRACE_S)
        self.close()
        self._failed = calls.CallFailure(
            cause=cause,
            message=message,
            child_ended=True,
            output_tail=self._printed.text(),
            stack=self._stack(),
        )
        return self._failed

    def _takes_too_much(self) -> bool:
        """Return whether the child had more memory than it may, and was ended for it."""
        if _resident_bytes(self.pid) <= self._memory_limit_bytes:
            return False
        limit = f"{self._memory_limit_bytes / 1e9:.1f} GB"
        self.stop(calls.FailureCause.OUT_OF_MEMORY, f"{self.name} used more than {limit} of memory")
        return True

    def _stack(self) -> tuple[tuple[str, int], ...]:
        text = ""
        if self._stacks.poll():
            text = os.read(self._stacks.fileno(), _CHUNK_BYTES).decode(errors="replace")
        return tuple((m["file"], int(m["line"])) for m in _STACK_LINE.finditer(text))

    def _died(self) -> calls.CallFailure:
        self._process.join(_EXIT_LIMIT_S)
        code = self._process.exitcode
        how = "hung up" if code is None else f"exited with status {code}"
        if code is not None and code < 0:
            how = f"was killed by {signal.Signals(-code).name}"
        return self.stop(calls.FailureCause.CRASHED, f"{self.name} {how}")

    def _garbled(self, error: Exception) -> calls.CallFailure:
        return self.stop(
            calls.FailureCause.CRASHED,
            f"{self.name} gave an answer that cannot be read ({type(error).__name__}: {error})",
        )


class Tail:
    """The end of what comes out of a pipe, which is emptied until nobody can write to it."""

    def __init__(self, pipe: Connection | IO[bytes]) -> None:
        """Begin to read; the pipe is closed in the end."""
        self._kept = b""
        self._thread = threading.Thread(target=self._drain, args=(pipe,), daemon=True)
        self._thread.start()

    def _drain(self, pipe: Connection | IO[bytes]) -> None:
        with pipe:
            while chunk := os.read(pipe.fileno(), _CHUNK_BYTES):
                self._kept = (self._kept + chunk)[-_CHUNK_BYTES:]

    def text(self, *, wait_s: float = _GRACE_S) -> str:
        """Return the last characters, waiting a moment for those that are under way.

        Secrets are taken out first: half of one would be known for none.
        """
        self._thread.join(wait_s)
        return calls.redacted(self._kept.decode(errors="replace"))[-_OUTPUT_TAIL_CHARS:]


class ChildError(RuntimeError):
    """An exception in a child that no user can cause, with the child's traceback."""


def preload() -> None:
    """Start the fork server, which begins to import TensorFlow in the background."""
    from multiprocessing import forkserver, resource_tracker

    orphan_guard.announce(_temporary_folder())
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([_PRELOADED])
    # It removes what users' code leaves behind when it is ended, and would warn of that.
    warnings = [*filter(None, [os.environ.get("PYTHONWARNINGS")]), _NO_LEAKS]
    with _environment(PYTHONWARNINGS=",".join(warnings)):
        resource_tracker.ensure_running()
    # A Ctrl-C while the fork server starts is the command's to handle: it has a session of its own
    # only once Python has started in it.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with _environment(), _without_main_module():
            forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    atexit.unregister(_end_fork_server)  # Once is enough, however often this is called.
    atexit.register(_end_fork_server)


def _temporary_folder() -> str:
    """Return multiprocessing's own folder, made where the path of a socket is not too long.

    It goes with the command, and what children write into it goes with it: TensorFlow leaves a file
    for each function that it translates (`__autograph_generated_file…`), users' code others.
    """
    from multiprocessing import util

    chosen = tempfile.tempdir
    if len(os.fsencode(tempfile.gettempdir())) > _LONGEST_FOLDER_BYTES:
        tempfile.tempdir = _SHORT_FOLDER
    try:
        return util.get_temp_dir()
    except OSError as error:
        raise AdvisorError(
            f"sockets cannot be made in {tempfile.tempdir}: {error.strerror}",
            hint=f"name a folder of at most {_LONGEST_FOLDER_BYTES} characters with TMPDIR",
        ) from None
    finally:
        tempfile.tempdir = chosen


def _end_fork_server() -> None:
    """End it before Python shuts down, which waits for processes that the fork server keeps."""
    pid = _tell_guard(signal.SIGTERM)
    deadline = time.monotonic() + _END_LIMIT_S
    with contextlib.suppress(ChildProcessError):
        while pid and os.waitpid(pid, os.WNOHANG) == (0, 0) and time.monotonic() < deadline:
            time.sleep(_END_POLL_S)


def _tell_guard(number: signal.Signals) -> int | None:
    """Send a signal to the process that Python took for the fork server when it started that."""
    from multiprocessing import forkserver

    pid: int | None = getattr(forkserver._forkserver, "_forkserver_pid", None)
    if pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
    return pid


def _serve(connection: Connection, output: Connection, stacks: Connection) -> None:
    """Answer calls until the other side hangs up. Runs in the child."""
    orphan_guard.die_with_parent()
    orphan_guard.adopt_orphans()
    command = multiprocessing.parent_process()
    if command is None or not command.is_alive():
        os._exit(1)  # The command was gone before the kernel knew.
    os.setsid()
    _leave_fork_server()
    if os.environ.get(_SAFE_PATH) == _OURS:
        del os.environ[_SAFE_PATH]  # What the user's own code starts is as it is without us.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError):  # Let the kernel end this process before the user's others.
        Path("/proc/self/oom_score_adj").write_text("900")
    for descriptor in (1, 2):
        os.dup2(output.fileno(), descriptor)
    output.close()
    for stream in (sys.stdout, sys.stderr):  # A crash must not take with it what was printed.
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    os.set_blocking(stacks.fileno(), False)  # Whoever writes a stack is not to wait for a reader.
    faulthandler.enable(stacks.fileno())
    faulthandler.register(_STACK_SIGNAL, stacks.fileno())
    sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115, PTH123 - open until the end
    global _calls
    _calls = _Calls(connection)
    _calls.answer_all()


def _leave_fork_server() -> None:
    """Close the pipe on which the fork server ends, whatever is written to it."""
    from multiprocessing import forkserver

    os.close(forkserver._forkserver._forkserver_alive_fd)  # type: ignore[attr-defined]
    forkserver._forkserver._forkserver_alive_fd = None  # type: ignore[attr-defined]


class _Calls:
    """Calls of a child, which one thread answers, one after the other."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._pid = os.getpid()
        self._pickled = pickle.dumps  # The user's code may put another one there.
        self._thread = threading.get_ident()

    def answer_all(self) -> NoReturn:
        """Answer calls until the other side hangs up."""
        while True:
            try:
                module, name, args = self._connection.recv()
            except (EOFError, ConnectionResetError):
                os._exit(0)
            self._answer(partial(_called, module, name, args))

    def go_on_within(self, answer: Callable[[], Any]) -> NoReturn:
        """Answer the call that is under way, and all that follow, from within it."""
        self._thread = threading.get_ident()
        self._answer(answer)
        self.answer_all()

    def _answer(self, function: Callable[[], Any]) -> None:
        try:
            outcome = "returned", function()
        except AdvisorError as error:
            outcome = "raised", error
        except Exception:
            outcome = "raised", traceback.format_exc()
        try:
            answer = self._pickled(outcome)
        except Exception:
            answer = self._pickled(("raised", traceback.format_exc()))
        if os.getpid() != self._pid:
            os._exit(0)  # A copy that the user's code has forked; the original answers.
        if threading.get_ident() != self._thread:  # Answered from within, by another thread.
            threading.Event().wait()
        self._connection.send_bytes(answer)


def _called(module: str, name: str, args: tuple[Any, ...]) -> Any:
    return getattr(importlib.import_module(module), name)(*args)


_calls: _Calls | None = None


def go_on_within(answer: Callable[[], Any]) -> NoReturn:
    """Answer the call that is under way with what ``answer`` returns, and go on from where this is.

    It never returns: the code that has called it stands still for as long as the child lives. Runs
    in a child.
    """
    assert _calls is not None, "there are calls in children alone"
    _calls.go_on_within(answer)


@contextlib.contextmanager
def _without_main_module() -> Any:
    """Keep multiprocessing from importing the command's main module again in each child."""
    main = sys.modules["__main__"]
    hidden = {name: main.__dict__[name] for name in ("__file__", "__spec__") if name in vars(main)}
    for name in hidden:
        setattr(main, name, None)
    try:
        yield
    finally:
        for name, value in hidden.items():
            setattr(main, name, value)


@contextlib.contextmanager
def _environment(**more: str) -> Iterator[None]:
    """Give a new interpreter a folder for temporary files that goes with this process.

    And keep it from taking modules out of the current folder (Python's `-P`), and from taking all
    memory of a GPU, which several children use. One thread at a time: each puts back what it has
    found.
    """
    with _one_starts:
        ours = {
            _SAFE_PATH: os.environ.get(_SAFE_PATH) or _OURS,
            "TMPDIR": _temporary_folder(),
            "TF_FORCE_GPU_ALLOW_GROWTH": "true",
            **more,
        }
        before = {name: os.environ.get(name) for name in ours}
        os.environ.update(ours)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value


def _resident_bytes(pid: int) -> int:
    with contextlib.suppress(OSError, ValueError, IndexError):
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    return 0


def available_memory_bytes() -> int:
    """Return what is free on the machine, or what a container allows if that is less."""
    meminfo = Path("/proc/meminfo").read_text()
    free = int(meminfo.partition("MemAvailable:")[2].split()[0]) * 1024
    for limit in _CGROUP_LIMITS:
        with contextlib.suppress(OSError, ValueError):  # No such file, or no limit ("max").
            free = min(free, int(limit.read_text()))
    return free
