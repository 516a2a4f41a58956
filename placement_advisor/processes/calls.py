"""Calls to other processes return an answer or a `CallFailure`, free of the user's secrets.

A `Callee` is a child process of this machine or one on another host. `RemoteModule` names
functions of modules that only children import. Secrets are values of arguments and
environment variables whose names say so; they are removed from what a child prints and raises
before anybody reads it. Names of ops and layers stay, and so do secrets that the user's code
reads from files. Lines of a traceback are the user's own, or this package's. What TensorFlow logs
of itself is for nobody.
"""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar, TypeVarTuple

from placement_advisor.errors import AdvisorError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Self


_Answer = TypeVar("_Answer")


class FailureCause(StrEnum):
    """How a call ended without an answer."""

    CRASHED = "crashed"
    TIMED_OUT = "timed-out"
    OUT_OF_MEMORY = "out-of-memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFailure:
    """A call without an answer.

    Either its child is gone (``child_ended``), or TensorFlow or the user's code raised in it, and
    it answers further calls, and ``in_full`` is all that the error says where ``message`` is a
    sentence of it. Of a child that is gone ``output_tail`` ends what it printed, and
    ``stack`` says where its Python code was, as file and line, innermost first; empty if that is
    not known.
    """

    cause: FailureCause
    message: str
    child_ended: bool = False
    in_full: str = ""
    output_tail: str = ""
    stack: tuple[tuple[str, int], ...] = ()


def expect(answer: _Answer | CallFailure, error: Callable[[CallFailure], Exception]) -> _Answer:
    """Return an answer; where there is none, raise what ``error`` makes of the failure."""
    if isinstance(answer, CallFailure):
        raise error(answer)
    return answer


# What a call to a device of a testbed may take. A candidate's steps are few enough to take seconds.
CALL_LIMIT_S = 300.0

_Arguments = TypeVarTuple("_Arguments")
_Returned = TypeVar("_Returned")
_Answer_co = TypeVar("_Answer_co", covariant=True)


class Callee(ABC):
    """A process that answers calls one after the other until it is closed.

    ``name`` is what failures call it.
    """

    name: str

    @property
    @abstractmethod
    def pid(self) -> int:
        """Process id, on the host that it runs on."""

    @abstractmethod
    def start(
        self, function: Callable[[*_Arguments], _Returned], *args: *_Arguments
    ) -> PendingCall[_Returned]:
        """Begin a call without waiting; its answer must be waited for before the next call."""

    @abstractmethod
    def wait_for_answer(self, time_limit_s: float | None, watch: tuple[Callee, ...]) -> Any:
        """Return the answer to the call that is under way; see `Pending.wait`."""

    @abstractmethod
    def failure(self, *, within_s: float = 0.0) -> CallFailure | None:
        """Return how it died, None if it still lives ``within_s`` seconds from now.

        One that has more memory than it may is ended.
        """

    @abstractmethod
    def close(self) -> None:
        """End the process and everything that it started."""

    def call(
        self,
        function: Callable[[*_Arguments], _Returned],
        *args: *_Arguments,
        time_limit_s: float | None = None,
    ) -> _Returned | CallFailure:
        """Run ``function`` in the process and return what it returns.

        It is found there by the names of its module and its own, which may be those of a
        `RemoteModule`. Returns a `CallFailure` if the process dies or breaks a limit, and from then
        on.

        Raises:
            AdvisorError: raised by the function, passed on.
            ChildError: any other exception in the process, with its traceback.
        """
        return self.start(function, *args).wait(time_limit_s=time_limit_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class PendingCall(Generic[_Answer_co]):
    """A call that a process was asked for."""

    def __init__(self, callee: Callee) -> None:
        """Await the answer to what the process was asked last."""
        self._callee = callee

    def wait(
        self, *, time_limit_s: float | None = None, watch: tuple[Callee, ...] = ()
    ) -> _Answer_co | CallFailure:
        """Return the answer; see `Callee.call`.

        Where the answer needs other processes too (``watch``), the death of one ends the wait.
        """
        answer: _Answer_co | CallFailure = self._callee.wait_for_answer(time_limit_s, watch)
        return answer


class RemoteModule:
    """Stands for a module where that must not be imported; see `Callee.call`."""

    def __init__(self, name: str) -> None:
        """Stand for the module of this name."""
        self.__name__ = name

    def __getattr__(self, name: str) -> RemoteFunction:
        """Return what stands for a function of the module; nobody looks whether there is one."""
        return RemoteFunction(self.__name__, name)


class RemoteFunction:
    """Stands for a function: it has the names by which a function is found, and no more."""

    def __init__(self, module: str, name: str) -> None:
        """Stand for the function of this name in a module."""
        self.__module__ = module
        self.__name__ = self.__qualname__ = name


_OURS = Path(__file__).resolve().parents[1]


@contextmanager
def without_stderr() -> Iterator[None]:
    """Hide what is written to stderr: TensorFlow greets there whatever its log level."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    os.close(nowhere)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def is_user_code(file: str, model_file: Path) -> bool:
    """Say whether ``file`` is the model file, or lies in its folder and is no installed package."""
    path = Path(file)
    if not path.is_file() or "site-packages" in path.parts:
        return False
    return path.resolve().is_relative_to(model_file.resolve().parent) and not is_ours(file)


def is_ours(file: str) -> bool:
    """Say whether ``file`` is the advisor's."""
    return Path(file).resolve().is_relative_to(_OURS)


# Names of what nobody else is to read, as a word of its own or at the end of one: not TOKENIZERS.
_SECRET = re.compile(r"(keys?|tokens?|passw(or)?ds?|secrets?|credentials?)(?![a-z])", re.IGNORECASE)
_HIDDEN = "***"
# Shorter values are words or numbers that stand everywhere.
_SHORTEST_SECRET = 5
# Those of arguments; the environment is at hand.
_hidden: set[str] = set()


def register_secrets(arguments: tuple[str, ...]) -> None:
    """Hide what is secret among the arguments of a script, in this process, from now on."""
    _hidden.update(secret for _, secret in _parted(arguments) if secret is not None)


def redacted_arguments(arguments: tuple[str, ...]) -> tuple[str, ...]:
    """Return arguments as they may be shown: without what is a secret by its name."""
    return tuple(shown for shown, _ in _parted(arguments))


def redacted(text: str) -> str:
    """Return a text without secrets of the environment, and without those that are hidden."""
    secrets = _hidden | {value for name, value in os.environ.items() if _SECRET.search(name)}
    # As they are, and as a list of arguments or a `KeyError` shows them.
    forms = {form for secret in secrets for form in (secret, repr(secret)[1:-1])}
    for form in sorted(forms, key=len, reverse=True):
        if len(form) >= _SHORTEST_SECRET:
            text = text.replace(form, _HIDDEN)
    return text


def redacted_answer(outcome: str, value: Any) -> Any:
    """Return what a child has answered without secrets in what it tells: errors and failures.

    All else that was "returned" stays as it is, texts too: they are paths and addresses.
    """
    match value:
        case AdvisorError():
            hint = value.hint and redacted(value.hint)
            return type(value)(redacted(value.message), hint=hint)
        case CallFailure():
            return replace(
                value,
                message=redacted(value.message),
                in_full=redacted(value.in_full),
                output_tail=redacted(value.output_tail),
            )
        case str() if outcome == "raised":
            return redacted(value)
    return value


def _parted(arguments: tuple[str, ...]) -> Iterator[tuple[str, str | None]]:
    """Yield each argument as it may be shown, with the secret that it holds.

    >>> [shown for shown, _ in _parted(("--data", "d", "--api-key", "k", "--token=t"))]
    ['--data', 'd', '--api-key', '***', '--token=***']
    """
    follows = False
    for word in arguments:
        name, equals, value = word.partition("=")
        is_named = _SECRET.search(name) is not None and (word.startswith("-") or equals != "")
        if is_named and equals:
            yield f"{name}={_HIDDEN}", value
        elif follows and not word.startswith("--"):
            yield _HIDDEN, word
        else:
            yield word, None
        follows = is_named and not equals
