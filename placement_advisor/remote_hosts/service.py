"""The service that lends this host's devices to one analysis: what `advisor worker` runs.

Only the functions listed here can be called from elsewhere. One analysis at a time uses a host: two
would measure each other. A file in the user's cache folder is locked as long as one goes on, and
says whose it is; the kernel lets go of the lock when the process ends, however it does. A home that
several hosts share has a file for each, and so has each network of its own on one machine. Left
out: analyses of other users, and hosts where nothing can be written or locked.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import queue
import re
import socket
import threading
import time
import traceback
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placement_advisor.errors import AdvisorError, TestbedError
from placement_advisor.files.output import cache_folder, scratch_folder
from placement_advisor.files.untrusted import MisfitError
from placement_advisor.machine.this_machine import free_ports
from placement_advisor.processes import calls
from placement_advisor.processes.children import Child, ChildError, preload
from placement_advisor.remote_hosts import conversation, host_facts, relay
from placement_advisor.remote_hosts.host_facts import find_host_facts, own_versions, user_name
from placement_advisor.remote_hosts.host_files import ScratchFiles
from placement_advisor.tf.calls import mirrored, runner
from placement_advisor.tf.run import private_network

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Answering = Callable[[str, object], None]


def _name(function: Callable[..., Any]) -> tuple[str, str]:
    """Return the names by which a child finds a function: its module's and its own."""
    return function.__module__, function.__qualname__


CALLABLE = frozenset(
    _name(function)
    for function in (
        os.getpid,
        os.sched_setaffinity,
        free_ports,
        relay.start,
        relay.open_network,
        host_facts.network_place,
        host_facts.answer_at,
        host_facts.try_way,
        private_network.create,
        private_network.join,
        runner.serve,
        runner.start_profiler,
        runner.stop_profiler,
        mirrored.open_devices,
        mirrored.open_worker,
        mirrored.time_collectives,
        mirrored.prepare,
        mirrored.run_steps,
        mirrored.save_results,
        mirrored.run_marked_steps,
    )
)


# As the command looks after its own children.
_POLL_INTERVAL_S = 0.05


class HostedChild:
    """What is asked of it is done in order; it is stopped or closed while a call goes on, too."""

    def __init__(
        self, name: str, answer: Answering, told: Callable[[calls.CallFailure], None]
    ) -> None:
        """Fork a child in the background, and answer with its process id.

        If the child dies or takes too much memory between calls, that is ``told``.
        """
        self._name, self._told = name, told
        self._child: Child | None = None
        self._requests: queue.SimpleQueue[Callable[[Child], None]] = queue.SimpleQueue()
        self._is_over = False
        self._thread = threading.Thread(target=self._live, args=(answer,), daemon=True)
        self._thread.start()

    def call(self, answer: Answering, module: str, name: str, args: tuple[object, ...]) -> None:
        """Call a function of those that may be called."""
        if (module, name) not in CALLABLE:
            answer("raised", f"{module}.{name} may not be called from another host")
            return
        function: Any = calls.RemoteFunction(module, name)
        self._requests.put(lambda child: _answer_with(answer, partial(child.call, function, *args)))

    def stop(self, answer: Answering, cause: calls.FailureCause, message: str) -> None:
        """End the child as a failure for this cause, and answer with that."""

        def stop(child: Child) -> None:
            answer("returned", child.failure() or child.stop(cause, message))

        self._interrupt(cause, message)
        self._requests.put(stop)

    def close(self, answer: Answering) -> None:
        """End the child."""

        def close(child: Child) -> None:
            child.close()
            self._is_over = True
            answer("returned", None)

        self._interrupt(calls.FailureCause.CRASHED, f"{self._name} was closed")
        self._requests.put(close)

    def join(self, limit_s: float) -> None:
        """Wait until it has been closed."""
        self._thread.join(limit_s)

    def _interrupt(self, cause: calls.FailureCause, message: str) -> None:
        if self._child is not None:
            self._child.interrupt(cause, message)

    def _fork(self) -> int:
        self._child = Child(self._name)
        return self._child.pid

    def _live(self, answer: Answering) -> None:
        _answer_with(answer, self._fork)
        child = self._child
        if child is None:
            return
        has_told = False
        while not self._is_over:
            try:
                request = self._requests.get(timeout=_POLL_INTERVAL_S)
            except queue.Empty:
                failure = None if has_told else child.failure()
                if failure is not None:
                    has_told = True
                    self._told(failure)
            else:
                request(child)


def _answer_with(answer: Answering, do: Callable[[], object]) -> None:
    """Answer with what a function returns, or raises."""
    try:
        answer("returned", do())
    except AdvisorError as error:
        answer("raised", error)
    except ChildError as error:
        answer("raised", str(error))
    except Exception:
        answer("raised", traceback.format_exc())


# A child that is just being forked is not waited for: it ends with the fork server.
_CLOSE_LIMIT_S = 2.0


def serve(stream: conversation.PipeStream) -> None:
    """Serve one analysis, until its command ends the conversation or is not heard any more.

    Raises:
        AdvisorError: nobody asked for anything.
    """
    _Service(stream).run()


class _Service:
    def __init__(self, stream: conversation.PipeStream) -> None:
        # Who asks for this host; None at the end.
        self._askers: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._why = ""
        self._children: dict[int, HostedChild] = {}
        self._files: ScratchFiles | None = None
        # None at the end.
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._conversation = conversation.Conversation(
            stream,
            our_mark=conversation.WORKER_MARK,
            their_mark=conversation.COMMAND_MARK,
            heard=self._heard,
            ended=self._ended,
            patience_s=conversation.SILENCE_S,
        )

    def run(self) -> None:
        with scratch_folder() as scratch, contextlib.closing(self._conversation):
            self._conversation.start()
            self._conversation.send(("versions", own_versions()))
            asked_by = self._askers.get()
            if asked_by is None:
                raise AdvisorError(
                    f"no command has asked for this worker: {self._why}",
                    hint="`advisor analyze --hosts` starts it where it is needed",
                )
            try:
                with sole_use(asked_by):
                    self._serve(scratch)
            except AdvisorError as error:
                self._conversation.send(("refused", error))

    def _serve(self, scratch: Path) -> None:
        # Here, since the guard takes the end of the thread that starts it for ours.
        preload()
        threading.Thread(target=self._run_tasks, daemon=True).start()
        facts = find_host_facts()
        self._files = ScratchFiles(scratch)
        self._conversation.send(("opened", facts))
        while self._askers.get() is not None:
            pass
        for child in self._children.values():
            child.close(_nobody)
        deadline = time.monotonic() + _CLOSE_LIMIT_S
        for child in self._children.values():
            child.join(max(0.0, deadline - time.monotonic()))
        self._tasks.put(None)

    def _heard(self, message: object, came_ns: int) -> None:
        match message:
            case ("open", str(asked_by)):
                self._askers.put(asked_by)
            case ("ask", int(number), str(kind), tuple(args)) if self._files is not None:
                if (kind, args) == ("clock", ()):
                    self._answer(number, "returned", came_ns)
                else:
                    self._asked(partial(self._answer, number), kind, args, self._files)
            case _:
                raise MisfitError("a message that no command sends")

    def _asked(
        self, answer: Answering, kind: str, args: tuple[object, ...], files: ScratchFiles
    ) -> None:
        """Do what was asked, in a thread where it could take time: others are asked meanwhile."""
        match kind, args:
            case "fork", (int(number), str(name)):
                self._children[number] = HostedChild(name, answer, partial(self._tell, number))
            case "call", (int(number), str(module), str(name), tuple(its)):
                self._child(number).call(answer, module, name, its)
            case "stop", (int(number), calls.FailureCause() as cause, str(message)):
                self._child(number).stop(answer, cause, message)
            case "close", (int(number),):
                self._child(number).close(answer)
            case "folder", (str(name),):
                self._queue(answer, partial(files.new_folder, name))
            case "put", (int(number), tuple(parts), bytes(piece), bool(more)):
                self._queue(answer, partial(files.put, number, parts, piece, more))
            case "get", (str(path), int(offset)):
                self._queue(answer, partial(files.get, path, offset))
            case _:
                raise MisfitError("a question that no command asks")

    def _child(self, number: int) -> HostedChild:
        if number not in self._children:
            raise MisfitError(f"there is no child {number}")
        return self._children[number]

    def _queue(self, answer: Answering, do: Callable[[], object]) -> None:
        """Have one of the questions of files answered, one after the other."""
        self._tasks.put(partial(_answer_with, answer, do))

    def _run_tasks(self) -> None:
        while (task := self._tasks.get()) is not None:
            task()

    def _answer(self, number: int, outcome: str, value: object) -> None:
        try:
            self._conversation.send(("answer", number, outcome, value))
        except (TypeError, MisfitError) as error:
            self._conversation.send(("answer", number, "raised", str(error)))

    def _tell(self, number: int, failure: calls.CallFailure) -> None:
        self._conversation.send(("ended", number, failure))

    def _ended(self, why: str) -> None:
        self._why = why
        self._askers.put(None)


def _nobody(outcome: str, value: object) -> None:
    """Answer nobody: the conversation is over."""


_MOST_BYTES = 10_000


@contextlib.contextmanager
def sole_use(asked_by: str) -> Iterator[None]:
    """Keep other analyses off this host while the block runs; ``asked_by`` is who has it.

    Raises:
        TestbedError: there is one; the error says whose.
    """
    with contextlib.ExitStack() as stack:
        lock = _opened()
        if lock is not None:
            stack.callback(os.close, lock)
            if _is_taken(lock):
                raise _in_use(os.pread(lock, _MOST_BYTES, 0))
            _write(lock, asked_by)
            stack.callback(os.ftruncate, lock, 0)
        yield


def _opened() -> int | None:
    path = _lock_file()
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600)
    return None


def _lock_file() -> Path:
    name = re.sub(r"[^\w.-]", "_", socket.gethostname())
    network = Path("/proc/self/ns/net").stat().st_ino
    return cache_folder() / "placement-advisor" / "hosts" / f"{name}-{network}.lock"


def _is_taken(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # No locks on this file system.
        return False
    return False


def _write(lock: int, asked_by: str) -> None:
    since = f"since {datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    says = f"{user_name()} (process {os.getpid()}) {since}, from {asked_by}"
    with contextlib.suppress(OSError):  # The lock is what counts.
        os.ftruncate(lock, 0)
        os.pwrite(lock, says.encode(errors="replace"), 0)


def _in_use(says: bytes) -> TestbedError:
    hint = "wait until it has ended: a host serves one analysis at a time"
    # It says nothing if it has just begun, or just ended.
    whose = says.decode(errors="replace") or "another analysis"
    return TestbedError(f"in use by {whose}", hint=hint)
