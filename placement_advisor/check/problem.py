"""What a check says of a step that fails it: problems, each with one cause and what that does.

A problem's code names its cause where one is known: a finding (`PA101`), or a change of scopes, of
the placement or of layers. What the cause does to the step are its effects. Without a known cause
the first effect stands for it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from placement_advisor.graph.name_patterns import first_names

if TYPE_CHECKING:
    from collections.abc import Sequence

# More names than these no reader of a pull request takes in.
MAX_CULPRITS = 5


class Code(StrEnum):
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
LASTING = frozenset({Code.DOES_NOT_FIT, Code.OUT_OF_MEMORY, Code.OVER_BUDGET, Code.DOES_NOT_RUN})
# Causes by which layers run elsewhere.
MOVES = frozenset({Code.BACKWARD_LEFT, Code.SCOPE_CHANGED, Code.PLACEMENT_CHANGED, Code.MOVED})
# What to do about an effect whose cause is not known.
ACTIONS = {
    Code.OUT_OF_MEMORY: "make the batch smaller, or move layers to where memory is left",
    Code.OVER_BUDGET: "let less cross or be held, or raise the budget in pyproject.toml",
    Code.COPIES: "compute what is read there on that side, or send one tensor for several",
    Code.BYTES: "cut where less crosses: before a layer that widens, after one that narrows",
    Code.SLOWER: "see whether the layers named need to be that heavy, or split the model anew with "
    "advisor analyze",
    Code.MEMORY: "see what is kept longer or is larger than before; a smaller batch needs less",
    Code.STANDING: "ask advisor analyze which placement pays now",
    Code.MEASURED_SLOWER: "put the layers back where they were",
}


class Place(NamedTuple):
    """A line of the user's code; ``file`` is relative to the project."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What became worse, and by how much (``size``, to compare); of one ``device``, or of the step.

    ``culprits`` say of what it is made, for where no cause stands above it.
    """

    code: Code
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

    code: Code
    what: str
    culprits: tuple[str, ...] = ()
    effects: tuple[Effect, ...] = ()
    action: str
    place: Place | None = None
    source: str | None = None

    @property
    def codes(self) -> tuple[Code, ...]:
        """The codes of the problem and of its effects."""
        return (self.code, *(effect.code for effect in self.effects))


def alone(effect: Effect, place: Place | None) -> Problem:
    """Return an effect as a problem of its own."""
    return Problem(
        code=effect.code,
        what=effect.what,
        culprits=effect.culprits,
        action=ACTIONS[effect.code],
        place=place,
    )


def after_update(problem: Problem) -> tuple[tuple[Problem, ...], str | None]:
    """Return what a new lock file leaves of a problem, and what it accepts, if anything."""
    if problem.code in LASTING:
        return (problem,), None
    lasting = [effect for effect in problem.effects if effect.code in LASTING]
    rest = [effect.what for effect in problem.effects if effect.code not in LASTING]
    left = tuple(replace(alone(each, problem.place), source=problem.source) for each in lasting)
    if problem.code is Code.NOT_LOCKED:
        return left, None
    return left, f"accepted: {'; '.join([problem.what, *rest])}"


def first_few(phrases: list[str]) -> tuple[str, ...]:
    """Return as many phrases as anyone reads, the last of them how many more there are."""
    more = len(phrases) - MAX_CULPRITS
    return (*phrases[:MAX_CULPRITS], *([f"{more} more"] if more > 0 else []))


def some(layers: Sequence[str]) -> str:
    """Return the first of these layers and how many there are beyond them."""
    return first_names([called(layer) for layer in layers], MAX_CULPRITS)


def called(layer: str) -> str:
    """Return a layer as people call it."""
    return layer or "ops of no layer"


def at(phrase: str, place: Place | None) -> str:
    """Return a phrase with its line, where that is known."""
    return phrase if place is None else f"{phrase} ({place})"
