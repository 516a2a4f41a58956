"""A child on a host, called from elsewhere: a thread of the service calls and watches it."""

from __future__ import annotations

import queue
import threading
import traceback
from functools import partial
from typing import TYPE_CHECKING, Any

from placement_advisor.errors import AdvisorError
from placement_advisor.processes.calls import FailureCause, RemoteFunction
from placement_advisor.processes.children import Child, ChildError
from placement_advisor.remote_hosts.callable_functions import CALLABLE

if TYPE_CHECKING:
    from collections.abc import Callable

    from placement_advisor.processes.calls import CallFailure

    # Takes an outcome, "returned" or "raised", and a value.
    Answering = Callable[[str, object], None]

# As the command looks after its own children.
_POLL_INTERVAL_S = 0.05


class HostedChild:
    """What is asked of it is done in order; it is stopped or closed while a call goes on, too."""

    def __init__(
        self,
        name: str,
        answer: Answering,
        told: Callable[[CallFailure], None],
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

    def call(
        self,
        answer: Answering,
        module: str,
        name: str,
        args: tuple[object, ...],
    ) -> None:
        """Call a function of those that may be called."""
        self._requests.put(partial(self._call, answer, module, name, args))

    def stop(self, answer: Answering, cause: FailureCause, message: str) -> None:
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

        self._interrupt(FailureCause.CRASHED, f"{self._name} was closed")
        self._requests.put(close)

    def join(self, limit_s: float) -> None:
        """Wait until it has been closed."""
        self._thread.join(limit_s)

    def _interrupt(self, cause: FailureCause, message: str) -> None:
        if self._child is not None:
            self._child.interrupt(cause, message)

    def _live(self, answer: Answering) -> None:
        try:
            child = Child(self._name)
        except AdvisorError as error:
            answer("raised", error)
            return
        except Exception:  # The fork server is gone.
            answer("raised", traceback.format_exc())
            return
        self._child = child
        answer("returned", child.pid)
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

    @staticmethod
    def _call(
        answer: Answering,
        module: str,
        name: str,
        args: tuple[object, ...],
        child: Child,
    ) -> None:
        if (module, name) not in CALLABLE:
            answer("raised", f"{module}.{name} may not be called from another host")
            return
        function: Any = RemoteFunction(module, name)
        try:
            answer("returned", child.call(function, *args))
        except AdvisorError as error:
            answer("raised", error)
        except ChildError as error:
            answer("raised", str(error))
