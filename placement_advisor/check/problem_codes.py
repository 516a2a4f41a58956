"""The problems of a check: their codes, causes, effects and explanations, and its result.

The code of a problem names its cause where that is known: a finding (`PA101`), or a change of
scopes, of the placement or of layers. Effects say what the cause does to the step. Without a
known cause the first effect stands for it. `EXPLANATIONS` are for `advisor explain` and SARIF; a
finding is explained on its own page as well.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass, replace
from enum import StrEnum
from importlib import resources
from typing import TYPE_CHECKING

from placement_advisor.files.contract import Positive, Text
from placement_advisor.graph.name_patterns import first_names

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from placement_advisor.check.lock_record import Difference, Record


# More names than these no reader of a pull request takes in.
MAX_CULPRITS = 5


class ProblemCode(StrEnum):
    """What is wrong; stable names, as other tools know them."""

    BACKWARD_LEFT = "PA101"
    SCOPE_CHANGED = "scope-changed"
    PLACEMENT_CHANGED = "placement-changed"
    LAYERS_CHANGED = "layers-changed"
    DOES_NOT_FIT = "placement-does-not-fit"
    OUT_OF_MEMORY = "out-of-memory"
    OVER_BUDGET = "over-budget"
    MOVED = "layer-moved"
    NO_KERNEL = "no-gpu-kernel"
    COPIES = "more-copies"
    BYTES = "more-bytes-across"
    SLOWER = "slower-step"
    MEMORY = "more-memory"
    STANDING = "verdict-changed"
    NOT_LOCKED = "not-in-lock-file"
    MEASURED_SLOWER = "measured-slower"
    DOES_NOT_RUN = "does-not-run"


# What a new lock file does not make good: the step does not run, or is over budget, all the same.
LASTING = frozenset(
    {
        ProblemCode.DOES_NOT_FIT,
        ProblemCode.OUT_OF_MEMORY,
        ProblemCode.OVER_BUDGET,
        ProblemCode.DOES_NOT_RUN,
    }
)
# Causes by which layers run elsewhere.
MOVES = frozenset(
    {
        ProblemCode.BACKWARD_LEFT,
        ProblemCode.SCOPE_CHANGED,
        ProblemCode.PLACEMENT_CHANGED,
        ProblemCode.MOVED,
    }
)


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A line of code or of settings."""

    file: Text
    """Relative to the project."""
    line: Positive

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What became worse, and by how much (``size``, to compare); of one ``device``, or of the step.

    ``culprits`` say of what it is made, for where no cause stands above it.
    """

    code: ProblemCode
    what: str
    size: float = 1.0
    device: str = ""
    culprits: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A reason to fail: its cause, what made it happen, what it does to the step, what to do.

    ``place`` is the line of the code that it comes from, where that is known, and ``source`` what
    stands there.
    """

    code: ProblemCode
    what: str
    culprits: tuple[str, ...] = ()
    effects: tuple[Effect, ...] = ()
    action: str
    place: Place | None = None
    source: str | None = None

    @property
    def codes(self) -> tuple[ProblemCode, ...]:
        """The codes of the problem and of its effects."""
        return (self.code, *(effect.code for effect in self.effects))


def effect_as_problem(effect: Effect, place: Place | None) -> Problem:
    """Return an effect as a problem of its own."""
    action = EXPLANATIONS[effect.code].action
    return Problem(
        code=effect.code,
        what=effect.what,
        culprits=effect.culprits,
        action=action[0].lower() + action.removesuffix(".")[1:],
        place=place,
    )


def after_update(problem: Problem) -> tuple[tuple[Problem, ...], str | None]:
    """Return what a new lock file leaves of a problem, and what it accepts, if anything."""
    if problem.code in LASTING:
        return (problem,), None
    lasting = [effect for effect in problem.effects if effect.code in LASTING]
    rest = [effect.what for effect in problem.effects if effect.code not in LASTING]
    left = tuple(
        replace(effect_as_problem(each, problem.place), source=problem.source) for each in lasting
    )
    if problem.code is ProblemCode.NOT_LOCKED:
        return left, None
    return left, f"accepted: {'; '.join([problem.what, *rest])}"


def first_few(phrases: list[str]) -> tuple[str, ...]:
    """Return as many phrases as anyone reads, the last of them how many more there are."""
    more = len(phrases) - MAX_CULPRITS
    return (*phrases[:MAX_CULPRITS], *([f"{more} more"] if more > 0 else []))


def some_layers(layers: Sequence[str]) -> str:
    """Return the first of these layers and how many there are beyond them."""
    return first_names([layer_text(layer) for layer in layers], MAX_CULPRITS)


def layer_text(layer: str) -> str:
    """Return a layer as people call it."""
    return layer or "ops of no layer"


def with_place(phrase: str, place: Place | None) -> str:
    """Return a phrase with its line, where that is known."""
    return phrase if place is None else f"{phrase} ({place})"


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
            return replace(place, file=posixpath.normpath(folder / place.file))

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


@dataclass(frozen=True, slots=True)
class Explanation:
    """A code in words: a title, when it is found, what to do."""

    title: str
    found: str
    action: str


_PAGE = re.compile(
    r"# (\S+)\n\n(.+?)\.\n\n## When it is found\n\n(.+?)\n\n## What to do\n\n(.+?)\n(?:\n|$)",
    re.DOTALL,
)


def _explanations() -> Mapping[str, Explanation]:
    """Return the pages of `pages/problems.md`, in which texts are wrapped."""
    pages = resources.files("placement_advisor.check") / "pages" / "problems.md"
    found = _PAGE.findall(pages.read_text(encoding="utf-8"))
    return {
        code: Explanation(*(" ".join(text.split()) for text in texts)) for code, *texts in found
    }


EXPLANATIONS = _explanations()


def problem_page(code: str) -> str:
    """Return what is to be said of a code, as Markdown."""
    found = EXPLANATIONS[code]
    return (
        f"# {code}\n\n{found.title}.\n\n## When it is found\n\n{found.found}\n\n"
        f"## What to do\n\n{found.action}\n\n"
        "What can be accepted, and with which tolerance, is in docs/how-to/ci.md under *What "
        "fails*.\n"
    )
