"""Why a candidate has no result."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class FailureKind(StrEnum):
    """Why a candidate has no result."""

    CRASHED = "crashed"
    TIMED_OUT = "timed-out"
    OUT_OF_MEMORY = "out-of-memory"
    NOT_APPLICABLE = "not-applicable"
    DOES_NOT_FIT = "does-not-fit"
    WRONG_RESULT = "wrong-result"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What went wrong with one candidate.

    ``message`` is a sentence; ``in_full`` all that there is to read, empty if that is no more.
    """

    kind: FailureKind
    message: str
    in_full: str = ""
