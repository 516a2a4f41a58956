"""Calls without an answer: what came instead, and how to insist on one."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

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
