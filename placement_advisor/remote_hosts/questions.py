"""What a host was asked and has not answered yet."""

from __future__ import annotations

import itertools
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, NamedTuple

from placement_advisor.errors import AdvisorError, TestbedError
from placement_advisor.files.foreign_json import MisfitError
from placement_advisor.processes.children import ChildError

if TYPE_CHECKING:
    from collections.abc import Callable


class HostLostError(TestbedError):
    """A host does not answer any more; the message says which, and why."""


class Answer(NamedTuple):
    """What a question was answered with, and when that came, by `time.time_ns`."""

    value: Any
    came_ns: int


class Questions:
    """Questions to one host; each is answered, or fails when the host is lost."""

    def __init__(self, host: str, send: Callable[[object], None]) -> None:
        """Ask the host of this name by sending messages."""
        self.host, self._send = host, send
        self._numbers = itertools.count()
        self._open: dict[int, Future[Answer]] = {}
        self._lost: HostLostError | None = None
        self._one_changes = threading.Lock()

    @property
    def lost(self) -> str | None:
        """Why nothing is answered any more, None if all is."""
        return None if self._lost is None else self._lost.message

    def ask(self, kind: str, *args: object) -> Future[Answer]:
        """Ask something and return where the answer will be.

        That raises `HostLostError` if none comes, `AdvisorError` where the user can do something
        about what went wrong, else `ChildError`.

        Raises:
            TypeError: an argument cannot be sent.
        """
        asked: Future[Answer] = Future()
        with self._one_changes:
            number = next(self._numbers)
            if self._lost is not None:
                asked.set_exception(self._lost)
                return asked
            self._open[number] = asked
        self._send(("ask", number, kind, args))
        return asked

    def answered(self, number: int, outcome: str, value: object, came_ns: int) -> None:
        """Take an answer.

        Raises:
            MisfitError: nobody has asked for it.
        """
        with self._one_changes:
            asked = self._open.pop(number, None)
        if asked is None:
            raise MisfitError(f"an answer to question {number}, which nobody asked")
        if outcome == "returned":
            asked.set_result(Answer(value, came_ns))
        elif isinstance(value, AdvisorError):
            asked.set_exception(type(value)(f"host {self.host}: {value.message}", hint=value.hint))
        else:
            asked.set_exception(ChildError(f"host {self.host}: {value}"))

    def lose(self, lost: HostLostError) -> None:
        """Let all questions fail, those to come as well."""
        with self._one_changes:
            self._lost = lost
            left, self._open = list(self._open.values()), {}
        for asked in left:
            asked.set_exception(lost)
