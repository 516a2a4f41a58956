"""How a command reaches a host's service: it starts one, or connects to one that listens."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from typing import Protocol

from placement_advisor import defaults
from placement_advisor.errors import TestbedError
from placement_advisor.processes.children import Tail
from placement_advisor.remote_hosts.conversation import PipeStream
from placement_advisor.remote_hosts.relay import connect, place


class ReachedService(Protocol):
    """The stream to a service, and what there is to tell of the way there.

    ``command`` reaches it again, for the user to try.
    """

    command: str
    stream: PipeStream

    def account(self, *, wait_s: float) -> str:
        """Return how the way there ended, in words; empty if it is there after so long."""

    def said(self) -> str:
        """Return what was said on the way, as by ssh; empty if nothing was."""

    def kill(self) -> None:
        """End the way there at once."""

    def wait(self) -> None:
        """Wait until nothing is left of it on this machine."""


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
        self._process: subprocess.Popen[bytes] | None = None
        self._refusal: OSError | None = None
        self._started = threading.Event()
        # The kernel takes the end of the thread that starts a process for the end of its parent.
        self._thread = threading.Thread(
            target=self._run, args=(command, theirs, outgoing), daemon=True
        )
        self._thread.start()
        self._started.wait()
        for descriptor in (theirs, outgoing):
            os.close(descriptor)
        if self._process is None:
            os.close(ours)
            os.close(incoming)
            raise TestbedError(f"{self.command}: {self._refusal}")
        self.stream = PipeStream(incoming, ours)

    def account(self, *, wait_s: float) -> str:
        """Return how the command ended, in words; empty if it runs for so long."""
        assert self._process is not None
        try:
            code = self._process.wait(wait_s)
        except subprocess.TimeoutExpired:
            return ""
        if code < 0:
            return f"`{self.command}` was killed by {signal.Signals(-code).name}"
        return f"`{self.command}` ended with status {code}"

    def said(self) -> str:
        """Return what the command said last; all of it, if it has ended."""
        assert self._process is not None
        return self._printed.text(wait_s=0.0 if self._process.poll() is None else _LAST_WORDS_S)

    def kill(self) -> None:
        """End the command at once, and whatever it has started in its session."""
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def wait(self) -> None:
        """Wait for the command, whose input has ended, and end it if it does not."""
        self._thread.join(_END_GRACE_S)
        self.kill()
        self._thread.join(_END_GRACE_S)

    def _run(self, command: list[str], theirs: int, outgoing: int) -> None:
        bound = [sys.executable, "-P", "-m", "placement_advisor.processes.orphan_guard"]
        try:
            # In a session of its own there is no terminal where ssh could wait for a password, and
            # no Ctrl-C before we have taken leave.
            process = subprocess.Popen(
                [*bound, str(os.getpid()), *command],
                stdin=theirs,
                stdout=outgoing,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            self._refusal = error
            self._started.set()
            return
        assert process.stderr is not None
        self._printed = Tail(process.stderr)
        self._process = process
        self._started.set()
        process.wait()


def _hint() -> str:
    return f"give a command that runs another one on a host, as {defaults.LAUNCH!r}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Where a service waits on a host, and what it shares with those whom it serves."""

    address: str
    port: int
    secret: bytes = field(repr=False)


class ListeningService:
    """A connection to a service; there is no process of ours, as `LaunchedService` has one."""

    def __init__(self, waiting: Waiting) -> None:
        """Connect to it.

        Raises:
            AdvisorError: it cannot be reached, or has another secret.
        """
        self.command = f"advisor worker --listen {place(waiting.address, waiting.port)}"
        descriptor = connect(waiting.address, waiting.port, waiting.secret).detach()
        self.stream = PipeStream(descriptor, descriptor)

    def account(self, *, wait_s: float) -> str:
        """Return nothing: how it ended is not known here."""
        return ""

    def said(self) -> str:
        """Return nothing: what it prints is printed there."""
        return ""

    def kill(self) -> None:
        """Do nothing: it notices that the connection is gone, and waits for the next analysis."""

    def wait(self) -> None:
        """Do nothing: it goes on."""
