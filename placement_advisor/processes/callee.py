"""What answers calls: a child process of this machine, or one on another host."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Generic, TypeVar, TypeVarTuple

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

    from placement_advisor.processes.call_failure import CallFailure

_Arguments = TypeVarTuple("_Arguments")
_Returned = TypeVar("_Returned")
_Answer = TypeVar("_Answer", covariant=True)


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
    ) -> Pending[_Returned]:
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self.close()


class Pending(Generic[_Answer]):
    """A call that a process was asked for."""

    def __init__(self, callee: Callee) -> None:
        """Await the answer to what the process was asked last."""
        self._callee = callee

    def wait(
        self, *, time_limit_s: float | None = None, watch: tuple[Callee, ...] = ()
    ) -> _Answer | CallFailure:
        """Return the answer; see `Callee.call`.

        Where the answer needs other processes too (``watch``), the death of one ends the wait.
        """
        answer: _Answer | CallFailure = self._callee.wait_for_answer(time_limit_s, watch)
        return answer
