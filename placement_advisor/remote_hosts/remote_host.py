"""A host that lends its devices, seen from the command: its service, facts, children and files."""

from __future__ import annotations

import contextlib
import itertools
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple

from placement_advisor import defaults
from placement_advisor.errors import AdvisorError, TestbedError
from placement_advisor.files.untrusted import MisfitError
from placement_advisor.machine.clock_range import Ping
from placement_advisor.processes import calls
from placement_advisor.processes.children import Tail
from placement_advisor.remote_hosts import conversation, host_files
from placement_advisor.remote_hosts.host_facts import HostFacts, check_versions, user_name
from placement_advisor.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path
    from typing import Self


_Arguments = TypeVarTuple("_Arguments")
_Returned = TypeVar("_Returned")

# As a local child is looked after.
_POLL_INTERVAL_S = 0.05
# A child is ended within a second there; a host that takes longer has other trouble.
_END_LIMIT_S = 5.0


class RemoteChild(calls.Callee):
    """A process that a host's service has forked; the service watches its life and its memory."""

    def __init__(self, name: str, number: int, questions: host_files.Questions) -> None:
        """Fork it, as number so and so of this host's children.

        Raises:
            HostLostError: the host is gone.
        """
        self.name = name
        self._number, self._questions = number, questions
        self._call: Future[host_files.Answer] | None = None
        self._failed: calls.CallFailure | None = None
        self._has_failed = threading.Event()
        self._closed = False
        self._pid: int = questions.ask("fork", number, name).result().value

    @property
    def pid(self) -> int:
        """Process id there."""
        return self._pid

    def start(
        self, function: Callable[[*_Arguments], _Returned], *args: *_Arguments
    ) -> calls.PendingCall[_Returned]:
        """Begin a call without waiting; its answer must be waited for before the next call."""
        if self._failed is None:
            names = function.__module__, function.__qualname__
            self._call = self._questions.ask("call", self._number, *names, args)
        return calls.PendingCall(self)

    def wait_for_answer(self, time_limit_s: float | None, watch: tuple[calls.Callee, ...]) -> Any:
        """Return the answer to the call that is under way; see `Pending.wait`."""
        deadline = None if time_limit_s is None else time.monotonic() + time_limit_s
        while self._failed is None:
            assert self._call is not None, "start comes first"
            try:
                answer = self._call.result(_POLL_INTERVAL_S).value
            except TimeoutError:
                answer = None
            except host_files.HostLostError as lost:
                return self.fail(_crash(lost.message))
            else:
                if isinstance(answer, calls.CallFailure) and answer.child_ended:
                    return self.fail(answer)
                return answer
            for other in watch:
                failure = other.failure()
                if failure is not None:
                    return failure
            if deadline is not None and time.monotonic() > deadline:
                return self._stop(
                    calls.FailureCause.TIMED_OUT,
                    f"{self.name} gave no answer within {time_limit_s:g} s",
                )
        return self._failed

    def failure(self, *, within_s: float = 0.0) -> calls.CallFailure | None:
        """Return how it died, as far as its host has told ``within_s`` seconds from now."""
        self._has_failed.wait(within_s)
        return self._failed

    def fail(self, failure: calls.CallFailure) -> calls.CallFailure:
        """Take how it died; return how it died first. Called in other threads as well."""
        if self._failed is None:
            self._failed = failure
            self._has_failed.set()
        return self._failed

    def close(self) -> None:
        """End the process and everything that it started."""
        if self._closed:
            return
        self._closed = True
        with contextlib.suppress(host_files.HostLostError, TimeoutError):
            self._questions.ask("close", self._number).result(_END_LIMIT_S)

    def _stop(self, cause: calls.FailureCause, message: str) -> calls.CallFailure:
        try:
            asked = self._questions.ask("stop", self._number, cause, message)
            failure = asked.result(_END_LIMIT_S).value
        except host_files.HostLostError as lost:
            failure = _crash(lost.message)
        except TimeoutError:
            failure = calls.CallFailure(cause=cause, message=message, child_ended=True)
        return self.fail(failure)


def _crash(message: str) -> calls.CallFailure:
    return calls.CallFailure(cause=calls.FailureCause.CRASHED, message=message, child_ended=True)


LOCALHOST = "localhost"
_SERVICE = ("worker", "--stdio")
# For what it printed last to get here; processes that it has left may hold the pipe for ever.
_LAST_WORDS_S = 0.5
# The service ends its children within a second, ssh itself a moment after that.
_END_GRACE_S = 5.0


def service_command(host: str, launch: str) -> list[str]:
    """Return what starts the service on a host: the words of ``launch``, then `advisor worker`.

    ``{host}`` stands for the host's name. This machine needs no launcher.

    Raises:
        TestbedError: there are no such words, or no such program.
    """
    if host == LOCALHOST:
        return [sys.executable, "-P", "-m", "placement_advisor.cli.app", *_SERVICE]
    try:
        words = [word.replace("{host}", host) for word in shlex.split(launch)]
    except ValueError as error:
        raise TestbedError(f"--launch {launch!r}: {error}", hint=_hint()) from None
    if not words:
        raise TestbedError("--launch: no command", hint=_hint())
    if shutil.which(words[0]) is None:
        raise TestbedError(f"--launch {launch!r}: no program {words[0]!r} here", hint=_hint())
    return [*words, "advisor", *_SERVICE]


class LaunchedService:
    """The service's standard streams, and the process on this machine that they go through."""

    def __init__(self, command: list[str]) -> None:
        """Start it.

        Raises:
            TestbedError: the system refuses.
        """
        self.command = shlex.join(command)
        theirs, ours = os.pipe()
        incoming, outgoing = os.pipe()
        started: Future[subprocess.Popen[bytes]] = Future()
        # The kernel takes the end of the thread that starts a process for the end of its parent.
        self._thread = threading.Thread(
            target=_run, args=(command, theirs, outgoing, started), daemon=True
        )
        self._thread.start()
        try:
            self._process = started.result()
        except OSError as refusal:
            os.close(ours)
            os.close(incoming)
            raise TestbedError(f"{self.command}: {refusal}") from None
        finally:
            os.close(theirs)
            os.close(outgoing)
        assert self._process.stderr is not None
        self._printed = Tail(self._process.stderr)
        self.stream: conversation.PipeStream = conversation.PipeStream(incoming, ours)

    def account(self, *, wait_s: float) -> str:
        """Return how the command ended, in words; empty if it runs for so long."""
        try:
            code = self._process.wait(wait_s)
        except subprocess.TimeoutExpired:
            return ""
        if code < 0:
            return f"`{self.command}` was killed by {signal.Signals(-code).name}"
        return f"`{self.command}` ended with status {code}"

    def said(self) -> str:
        """Return what the command said last; all of it, if it has ended."""
        return self._printed.text(wait_s=0.0 if self._process.poll() is None else _LAST_WORDS_S)

    def kill(self) -> None:
        """End the command at once, and whatever it has started in its session."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def wait(self) -> None:
        """Wait for the command, whose input has ended, and end it if it does not."""
        self._thread.join(_END_GRACE_S)
        self.kill()
        self._thread.join(_END_GRACE_S)


def _run(
    command: list[str], theirs: int, outgoing: int, started: Future[subprocess.Popen[bytes]]
) -> None:
    bound = [sys.executable, "-P", "-m", "placement_advisor.processes.orphan_guard"]
    try:
        # In a session of its own there is no terminal where ssh could wait for a password, and no
        # Ctrl-C before we have taken leave.
        process = subprocess.Popen(
            [*bound, str(os.getpid()), *command],
            stdin=theirs,
            stdout=outgoing,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        started.set_exception(error)
        return
    started.set_result(process)
    process.wait()


def _hint() -> str:
    return f"give a command that runs another one on a host, as {defaults.LAUNCH!r}"


_Got = TypeVar("_Got")

# A login over a slow line takes seconds; a password that is waited for never comes.
START_LIMIT_S = 60.0
# The least of so many round trips, each way, is what the line takes when nothing is in its way.
_PINGS = 20
# What has ended its output is about to end itself.
_STATUS_GRACE_S = 0.5
# A page of what came instead of a worker.
_SHOWN_CHARS = 2_000


class RemoteHost:
    """A host with a service of ours, for this analysis alone; `open_hosts` gives them."""

    def __init__(self, name: str, launch: str) -> None:
        """Start a service there and begin to speak with it; `open` comes next.

        Raises:
            TestbedError: there is no such launcher here.
        """
        self.name = name
        self._service = LaunchedService(service_command(name, launch))
        self._ended = False
        self._begun_s = time.monotonic()
        self._deadline = self._begun_s + START_LIMIT_S
        # What it said first, and how many ns after it was started; None until it has.
        self.versions: object = None
        self.answered_ns: int | None = None
        self._versions: Future[object] = Future()
        self._opened: Future[HostFacts] = Future()
        self._children: dict[int, RemoteChild] = {}
        self._numbers = itertools.count()
        self._tells: list[Callable[[str], object]] = []
        self._conversation = conversation.Conversation(
            self._service.stream,
            our_mark=conversation.COMMAND_MARK,
            their_mark=conversation.WORKER_MARK,
            heard=self._heard,
            ended=self._lose,
            patience_s=None,
        )
        self._questions = host_files.Questions(name, self._conversation.send)
        self._conversation.start()

    @property
    def command(self) -> str:
        """What starts the service, for the user to try."""
        return self._service.command

    @property
    def facts(self) -> HostFacts:
        """What the host said of itself when it was opened."""
        return self._opened.result()

    @property
    def lost(self) -> str | None:
        """Why the host cannot be asked any more, None if it can."""
        return self._questions.lost

    def when_lost(self, tell: Callable[[str], object]) -> None:
        """Have somebody told, in another thread, when the host is lost; at once if it is."""
        self._tells.append(tell)
        if self.lost is not None:
            tell(self.lost)

    def hear(self) -> None:
        """Wait until the host has answered, or is lost."""
        with contextlib.suppress(host_files.HostLostError):
            self._questions.ask("clock").result()

    def open(self) -> None:
        """Take the host for this analysis.

        Raises:
            TestbedError: the service did not start, is of another version, or serves another
                analysis.
        """
        check_versions(self.name, self._soon(self._versions))
        self._conversation.send(("open", _asked_by()))
        self._soon(self._opened)

    def child(self, name: str) -> RemoteChild:
        """Fork a child there, which has TensorFlow; the first one waits for its import.

        Raises:
            HostLostError: the host is gone.
        """
        number = next(self._numbers)
        child = RemoteChild(name, number, self._questions)
        self._children[number] = child
        return child

    def new_folder(self, name: str) -> str:
        """Make a folder there whose name begins so, for what children write; return its path.

        Raises:
            AdvisorError: it cannot be made, or the host is gone.
        """
        folder: str = self._questions.ask("folder", name).result().value
        return folder

    def put(self, path: Path) -> str:
        """Copy a file, or a folder with all files below it, to the host; return its path there.

        It keeps its name, lies in a folder of its own, and goes with the analysis.

        Raises:
            AdvisorError: it cannot be written there, there is none, or the host is gone.
        """
        return host_files.send(self._questions, next(self._numbers), path)

    def get(self, path: str, local: Path) -> None:
        """Copy a file of the host's scratch folder to here.

        Raises:
            AdvisorError: it is not there, lies elsewhere, or the host is gone.
        """
        host_files.fetch(self._questions, path, local)

    def pings(self) -> tuple[Ping, ...]:
        """Read the host's clock some times (`time.time_ns` of both hosts).

        Raises:
            HostLostError: the host is gone.
        """
        found = []
        for _ in range(_PINGS):
            asked_ns = time.time_ns()
            read_ns, came_ns = self._questions.ask("clock").result()
            found.append(Ping(asked_ns=asked_ns, read_ns=read_ns, answered_ns=came_ns))
        return tuple(found)

    def end(self) -> None:
        """Let the service there end, with everything that it started; `close` waits for that."""
        if not self._ended:
            self._ended = True
            if not self._opened.done():
                self._service.kill()  # There is nobody who would take leave.
            self._conversation.close()
            self._fail_all(host_files.HostLostError(f"host {self.name} was closed"))

    def close(self) -> None:
        """End the service there and everything that it started."""
        self.end()
        self._service.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _soon(self, awaited: Future[_Got]) -> _Got:
        try:
            return awaited.result(max(0.0, self._deadline - time.monotonic()))
        except TimeoutError:
            pass
        raise TestbedError(
            f"host {self.name}: `{self._service.command}` started no worker within "
            f"{START_LIMIT_S:g} s{self._printed()}",
            hint="nobody can type a password here: let ssh log in by a key, or see "
            "what --launch needs",
        )

    def _printed(self) -> str:
        """Return what came instead of a worker, on lines of its own."""
        parts = {
            "It last printed": self._service.said().strip(),
            "Instead of a worker spoke": self._conversation.skipped.strip()[-_SHOWN_CHARS:],
        }
        return "".join(f"\n{what}:\n{text}" for what, text in parts.items() if text)

    def _heard(self, message: object, came_ns: int) -> None:
        match message:
            case ("answer", int(number), str(outcome), value):
                told = calls.redacted_answer(outcome, value)
                self._questions.answered(number, outcome, told, came_ns)
            case ("ended", int(number), calls.CallFailure() as failure):
                if number in self._children:
                    self._children[number].fail(calls.redacted_answer("returned", failure))
            case ("versions", versions) if not self._versions.done():
                self.versions = versions
                self.answered_ns = round((time.monotonic() - self._begun_s) * NS_PER_S)
                self._versions.set_result(versions)
            case ("opened", HostFacts() as facts) if not self._opened.done():
                self._opened.set_result(facts)
            case ("refused", AdvisorError() as error) if not self._opened.done():
                self._opened.set_exception(
                    TestbedError(f"host {self.name}: {error.message}", hint=error.hint)
                )
            case _:
                raise MisfitError("a message that no worker sends")

    def _lose(self, why: str) -> None:
        """Let everything fail that the host was to do."""
        if why == conversation.ENDED:
            why = self._service.account(wait_s=_STATUS_GRACE_S) or why
        if self._opened.done():
            lost = host_files.HostLostError(f"host {self.name} is lost: {why}")
            self._fail_all(lost)
            for tell in self._tells:
                tell(lost.message)
        else:
            self._fail_all(
                host_files.HostLostError(
                    f"host {self.name} has no worker: {why}{self._printed()}",
                    hint=f"see whether it starts alone: {self._service.command}",
                )
            )
        self._service.kill()

    def _fail_all(self, lost: host_files.HostLostError) -> None:
        for opening in (self._versions, self._opened):
            if not opening.done():
                opening.set_exception(lost)
        failure = calls.CallFailure(
            cause=calls.FailureCause.CRASHED,
            message=lost.message,
            child_ended=True,
            output_tail=self._service.said(),
        )
        for child in list(self._children.values()):
            child.fail(failure)
        self._questions.lose(lost)


def lost_among(hosts: Iterable[RemoteHost]) -> str | None:
    """Return why the first host that is lost cannot be asked any more, None if all can."""
    return next((host.lost for host in hosts if host.lost is not None), None)


@contextlib.contextmanager
def open_hosts(
    names: Sequence[str], launch: str = defaults.LAUNCH
) -> Iterator[tuple[RemoteHost, ...]]:
    """Have a service on each host while the block runs, all at once.

    ``launch`` runs a command on ``{host}``; `localhost` is this machine.

    Raises:
        TestbedError: one does not start, is of another version, or serves another analysis.
    """
    with contextlib.ExitStack() as stack:
        hosts = [stack.enter_context(RemoteHost(name, launch)) for name in names]
        for host in hosts:
            stack.callback(host.end)  # All of them, before any is waited for.
        for host in hosts:
            host.open()
        yield tuple(hosts)


def _asked_by() -> str:
    return f"{user_name()} on {socket.gethostname()} (process {os.getpid()})"
