"""The problems of a check: their codes, causes, effects and explanations, and its result.

The code of a problem names its cause where that is known: a finding (`PA101`), or a change of
scopes, of the placement or of layers. Effects say what the cause does to the step. Without a
known cause the first effect stands for it. `EXPLANATIONS` are for `advisor explain` and SARIF; a
finding is explained on its own page.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, replace
from enum import StrEnum
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """A code in words: a title, when it is found, what to do."""

    title: str
    found: str
    action: str


EXPLANATIONS: Mapping[str, Explanation] = {
    ProblemCode.BACKWARD_LEFT: Explanation(
        title="The backward pass has left the device of its forward pass",
        found="Layers still ask for their device, but their backward pass no longer runs "
        "there. It has no device and runs on the default one: a tape replaced "
        "tf.gradients, or a tf.function of its own takes the gradients. Or a tape takes "
        "them in a tf.device scope, whose device all of them have. The line is the one "
        "that takes them, or that of the scope.",
        action="Take gradients with tf.gradients(loss, variables) inside the tf.function, which "
        "places them with their forward ops, or use placement_advisor.place(step, placement).",
    ),
    ProblemCode.SCOPE_CHANGED: Explanation(
        title="Layers are in another tf.device scope, or in none",
        found="The step is placed as written. Most ops of a layer's forward pass, or its "
        "variables, are on another device than in the lock file. Either no scope holds "
        "them any more, which puts them on the default device, or another scope does. "
        "The line is that of the scope, or the first that lost its own. A simulation "
        "with these layers put back shows which effects come from it.",
        action="Put the lines back into the scope that they had, or accept the move.",
    ),
    ProblemCode.PLACEMENT_CHANGED: Explanation(
        title="The placement that is configured is another one",
        found="The settings name another placement than the lock file has, or the placement file "
        "puts layers of the same graph elsewhere.",
        action="Take the placement back, or accept it.",
    ),
    ProblemCode.LAYERS_CHANGED: Explanation(
        title="Layers are new, gone, or made of other ops or sizes",
        found="The step became worse than allowed, and not by layers that an edit moved. Name, "
        "ops and sizes identify a layer. Rules and searches place by layers, so a name "
        "scope that is gone is such a change, too. The problem names the layers that "
        "take longer and the tensors that cross. The line is that of the largest effect. "
        "A size that all layers share, such as the batch, changes all of them.",
        action="Check whether these changes are needed. Else restore the layer or the name "
        "scope, or split the model again with advisor analyze.",
    ),
    ProblemCode.DOES_NOT_FIT: Explanation(
        title="The placement no longer fits the model",
        found="A layer has no device in the placement file, a rule no longer applies, or "
        "tf.device scopes name more devices than there are.",
        action="Place the model again with advisor analyze, or edit the placement file.",
    ),
    ProblemCode.OUT_OF_MEMORY: Explanation(
        title="A device has too little memory for the step",
        found="The simulated peak of the device is above its memory. No tolerance.",
        action="Make the batch smaller, or move layers to a device that has memory left.",
    ),
    ProblemCode.OVER_BUDGET: Explanation(
        title="The step costs more than its budget in pyproject.toml",
        found="More bytes cross than max_transfer_bytes, or a simulated peak is above "
        "max_peak_memory. No tolerance.",
        action="Send or hold fewer bytes, or raise the budget that the problem names.",
    ),
    ProblemCode.MOVED: Explanation(
        title="A layer runs on another device than before",
        found="Most ops of its forward pass, its backward pass or its variables run elsewhere, "
        "under a placement as written or in a file. Nothing shows that this is better, "
        "and no scope or file says why.",
        action="Put it back where it was, or accept the move.",
    ),
    ProblemCode.NO_KERNEL: Explanation(
        title="An op on a GPU has no kernel there",
        found="A kind of op is placed on a GPU that has no kernel for it, and was not before. It "
        "runs on the host, and its tensors are copied there and back. advisor explain PA102 has "
        "more.",
        action="Move it out of the device scope, ideally into the input pipeline.",
    ),
    ProblemCode.COPIES: Explanation(
        title="More tensors cross between devices in a step",
        found="The simulated step has more copies than the locked one. No tolerance.",
        action="Compute what is read there on that side, or send one tensor for several.",
    ),
    ProblemCode.BYTES: Explanation(
        title="More bytes cross between devices in a step",
        found="By more than 1 % of what the lock file has.",
        action="Cut where less crosses: before a layer that widens, after one that narrows.",
    ),
    ProblemCode.SLOWER: Explanation(
        title="The simulated step takes longer",
        found="By more than 5 %, or max_step_regression, predicted for the same hardware by the "
        "same versions of TensorFlow and the advisor.",
        action="Check whether the layers named need to be that heavy, or split the model again "
        "with advisor analyze.",
    ),
    ProblemCode.MEMORY: Explanation(
        title="A device needs more memory at its peak",
        found="The simulated peak is higher by more than 5 % than the lock file has it.",
        action="See what stays in memory longer or is larger than before, or take a smaller batch.",
    ),
    ProblemCode.STANDING: Explanation(
        title="The placement no longer pays as it did",
        found="The placement was predicted to be faster than one device. It is now no faster, "
        "or within doubt. Its ratio to one device also grew by more than the tolerance.",
        action="Ask advisor analyze which placement pays now.",
    ),
    ProblemCode.NOT_LOCKED: Explanation(
        title="The lock file does not have the model",
        found="pyproject.toml names a model that placements.lock.json does not have.",
        action="Write it with advisor check --update, and commit what that writes.",
    ),
    ProblemCode.MEASURED_SLOWER: Explanation(
        title="The placement was measured to be slower than the locked one",
        found="With --measure both take turns on the same devices. In two races today's placement "
        "takes longer than allowed, by the whole interval and by more than the noise.",
        action="Put the layers back where they were.",
    ),
    ProblemCode.DOES_NOT_RUN: Explanation(
        title="The step does not run under its placement",
        found="With --measure TensorFlow refused it, or its results differ from those of one "
        "device.",
        action="Run advisor analyze on the model, which says more.",
    ),
    Status.COULD_NOT_RUN: Explanation(
        title="The model could not be checked",
        found="It does not load or trace, took too long, or lacks a configured file. The check "
        "goes on with the other models.",
        action="Do what the message says.",
    ),
    Status.INCONCLUSIVE: Explanation(
        title="A measurement does not tell",
        found="With --measure the machine was too noisy, the difference too small, or there are "
        "too few devices.",
        action="Run it again on a quieter machine. With --strict this is a failure.",
    ),
}


def problem_page(code: str) -> str:
    """Return what is to be said of a code, as Markdown."""
    found = EXPLANATIONS[code]
    return (
        f"# {code}\n\n{found.title}.\n\n## When it is found\n\n{found.found}\n\n"
        f"## What to do\n\n{found.action}\n\n"
        "What can be accepted, and with which tolerance, is in docs/how-to/ci.md under *What "
        "fails*.\n"
    )
