"""A child process on another host, called as one of this machine is."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple

from placement_advisor.processes.calls import Callee, CallFailure, FailureCause, PendingCall
from placement_advisor.remote_hosts.questions import HostLostError

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from placement_advisor.remote_hosts.questions import Answer, Questions

_Arguments = TypeVarTuple("_Arguments")
_Returned = TypeVar("_Returned")

# As a local child is looked after.
_POLL_INTERVAL_S = 0.05
# A child is ended within a second there; a host that takes longer has other trouble.
_END_LIMIT_S = 5.0


class RemoteChild(Callee):
    """A process that a host's service has forked; the service watches its life and its memory."""

    def __init__(self, name: str, number: int, questions: Questions) -> None:
        """Fork it, as number so and so of this host's children.

        Raises:
            HostLostError: the host is gone.
        """
        self.name = name
        self._number, self._questions = number, questions
        self._call: Future[Answer] | None = None
        self._failed: CallFailure | None = None
        self._has_failed = threading.Event()
        self._closed = False
        self._pid: int = questions.ask("fork", number, name).result().value

    @property
    def pid(self) -> int:
        """Process id there."""
        return self._pid

    def start(
        self, function: Callable[[*_Arguments], _Returned], *args: *_Arguments
    ) -> PendingCall[_Returned]:
        """Begin a call without waiting; its answer must be waited for before the next call."""
        if self._failed is None:
            names = function.__module__, function.__qualname__
            self._call = self._questions.ask("call", self._number, *names, args)
        return PendingCall(self)

    def wait_for_answer(self, time_limit_s: float | None, watch: tuple[Callee, ...]) -> Any:
        """Return the answer to the call that is under way; see `Pending.wait`."""
        deadline = None if time_limit_s is None else time.monotonic() + time_limit_s
        while self._failed is None:
            assert self._call is not None, "start comes first"
            try:
                answer = self._call.result(_POLL_INTERVAL_S).value
            except TimeoutError:
                answer = None
            except HostLostError as lost:
                return self.fail(_crash(lost.message))
            else:
                if isinstance(answer, CallFailure) and answer.child_ended:
                    return self.fail(answer)
                return answer
            for other in watch:
                failure = other.failure()
                if failure is not None:
                    return failure
            if deadline is not None and time.monotonic() > deadline:
                return self._stop(
                    FailureCause.TIMED_OUT, f"{self.name} gave no answer within {time_limit_s:g} s"
                )
        return self._failed

    def failure(self, *, within_s: float = 0.0) -> CallFailure | None:
        """Return how it died, as far as its host has told ``within_s`` seconds from now."""
        self._has_failed.wait(within_s)
        return self._failed

    def fail(self, failure: CallFailure) -> CallFailure:
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
        with contextlib.suppress(HostLostError, TimeoutError):
            self._questions.ask("close", self._number).result(_END_LIMIT_S)

    def _stop(self, cause: FailureCause, message: str) -> CallFailure:
        try:
            asked = self._questions.ask("stop", self._number, cause, message)
            failure = asked.result(_END_LIMIT_S).value
        except HostLostError as lost:
            failure = _crash(lost.message)
        except TimeoutError:
            failure = CallFailure(cause=cause, message=message, child_ended=True)
        return self.fail(failure)


def _crash(message: str) -> CallFailure:
    return CallFailure(cause=FailureCause.CRASHED, message=message, child_ended=True)
