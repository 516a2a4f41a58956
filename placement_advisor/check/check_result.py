"""What a check comes to: a result for each model, and the exit code of all."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from placement_advisor.check.difference import Difference
    from placement_advisor.check.problem import Place, Problem
    from placement_advisor.check.record import Record

PASSED, FAILED, COULD_NOT_RUN = 0, 1, 2


class Status(StrEnum):
    """How the check of a model ended; inconclusive is a measurement that does not tell."""

    PASSED = "passed"
    FAILED = "failed"
    INCONCLUSIVE = "inconclusive"
    COULD_NOT_RUN = "could-not-run"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelResult:
    """The result for one model.

    ``model`` and ``placement`` are as configured, at ``place``. ``before`` is what the lock file
    has of it, if anything, ``after`` the step of today, None where that could not be told; then
    ``error`` says why and ``hint`` what to do. ``difference`` is None where both are the same or
    nothing was compared.
    """

    model: str
    placement: str
    place: Place
    status: Status
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()
    before: Record | None = None
    after: Record | None = None
    difference: Difference | None = None
    error: str | None = None
    hint: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """The results for all models, in the order of their names; ``lock_file`` as the user calls it.

    ``strict`` makes inconclusive a failure.
    """

    lock_file: str
    results: tuple[ModelResult, ...]
    strict: bool = False

    @property
    def exit_code(self) -> int:
        """0 if all passed, 1 if one failed, else 2 if one could not run."""
        found = {result.status for result in self.results}
        if Status.FAILED in found or (self.strict and Status.INCONCLUSIVE in found):
            return FAILED
        return COULD_NOT_RUN if Status.COULD_NOT_RUN in found else PASSED

    def within(self, folder: Path) -> CheckResult:
        """Return the result with places as they are seen from outside of ``folder``."""

        def seen(place: Place) -> Place:
            return place._replace(file=posixpath.normpath(folder / place.file))

        return replace(
            self,
            results=tuple(
                replace(
                    result,
                    place=seen(result.place),
                    problems=tuple(
                        replace(problem, place=problem.place and seen(problem.place))
                        for problem in result.problems
                    ),
                )
                for result in self.results
            ),
        )
