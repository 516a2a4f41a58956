"""What `advisor check --format json` answers.

The same check gives the same bytes: no times of day, nothing that was timed. All is simulated. Left
out: where each layer runs, which the lock file has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from placement_advisor import __version__
from placement_advisor.check import lock_record, problem_codes
from placement_advisor.check import problem_codes as check_problems
from placement_advisor.check.lock_record import Growth, Move, PredictedVerdict
from placement_advisor.files.contract import STRICT, ByName, Count, Ns, Rows, Text, like
from placement_advisor.units import NS_PER_US


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What a problem brings."""

    code: Literal[
        "out-of-memory",
        "over-budget",
        "more-copies",
        "more-bytes-across",
        "slower-step",
        "more-memory",
        "verdict-changed",
        "measured-slower",
    ]
    what: Text


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What is not as it is to be."""

    code: check_problems.ProblemCode
    """For `advisor explain`."""
    what: Text
    culprits: Rows[Text]
    """Layers and tensors, moved ones first."""
    effects: Rows[Effect]
    action: Text
    place: check_problems.Place | None
    source: Text | None
    """That line of the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The step as the lock file has it; None if it does not."""

    hardware: Text
    """Simulated machine."""
    devices_fingerprint: Text
    """Of devices and links."""
    tensorflow_version: Text
    advisor_version: Text
    placement: Text
    """Family or file."""
    graph_fingerprint: Text
    """Leaves out names and order."""
    placed_fingerprint: Text
    """With devices, but not their names."""
    step_ns: Ns
    """To three digits."""
    single_step_ns: Ns
    """On one device, to three digits."""
    transfer_count: Count
    transfer_bytes: Count
    """Of known size."""
    peak_memory_bytes: ByName[Count]
    """Each purpose to three digits."""
    verdict: PredictedVerdict
    """Against one device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """A tensor that crosses."""

    tensor: Text
    """Or a variable's name."""
    source: Text
    target: Text
    size_bytes: Count | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OnHost:
    """A layer with ops that GPUs have no kernel for."""

    layer: Text
    """Empty for ops of none."""
    kind: Text


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """What differs, with devices named as now; None if nothing does or nothing was compared."""

    renamed: ByName[Text]
    """New names by the old ones."""
    gone: Rows[Text]
    new: Rows[Text]
    moves: Rows[Move]
    """Parts that are mostly elsewhere now."""
    growths: Rows[Growth]
    """Largest growth first."""
    cuts_added: Rows[Cut]
    """Of the 100 largest."""
    cuts_removed: Rows[Cut]
    """Of the 100 largest."""
    on_host_added: Rows[OnHost]
    """Now without a GPU kernel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCheck:
    """A model, held to its record in the lock file."""

    model: Text
    placement: Text
    """Family or file."""
    place: check_problems.Place
    status: check_problems.Status
    error: Text | None
    """Why it was not checked."""
    hint: Text | None
    problems: Rows[Problem]
    """One for each cause."""
    notes: Rows[Text]
    """They never fail the check."""
    before: Record | None
    after: Record | None
    difference: Difference | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """Whether placements are as they were locked, and what is not."""

    __pydantic_config__: ClassVar = STRICT

    schema_version: Literal[1]
    advisor_version: Text
    lock_file: Text
    strict: bool
    """Inconclusive results count as failed."""
    exit_code: Literal[0, 1, 2]
    """0: passed, 1: failed, 2: could not run."""
    results: Rows[ModelCheck]
    """By name."""

    @classmethod
    def of(cls, result: check_problems.CheckResult) -> Check:
        """Return it as it is published."""
        return like(
            cls,
            result,
            advisor_version=__version__,
            results=tuple(map(_model, result.results)),
        )


def _model(model: check_problems.ModelResult) -> ModelCheck:
    before, after, found = model.before, model.after, model.difference
    return like(
        ModelCheck,
        model,
        problems=tuple(map(_problem, model.problems)),
        before=before and _record(before),
        after=after and _record(after),
        difference=found and _difference(found),
    )


def _problem(found: problem_codes.Problem) -> Problem:
    effects = tuple(like(Effect, each, code=each.code.value) for each in found.effects)
    return like(Problem, found, effects=effects)


def _record(found: lock_record.Record) -> Record:
    return like(
        Record,
        found,
        devices_fingerprint=found.devices,
        tensorflow_version=found.tensorflow,
        advisor_version=found.advisor,
        graph_fingerprint=found.graph,
        placed_fingerprint=found.placed,
        step_ns=found.step_us * NS_PER_US,
        single_step_ns=found.single_step_us * NS_PER_US,
        transfer_count=found.copies,
        transfer_bytes=found.bytes_across,
        peak_memory_bytes={name: found.peak_bytes(name) for name in sorted(found.memory_bytes)},
        verdict=found.standing,
    )


def _difference(found: lock_record.Difference) -> Difference:
    return like(
        Difference,
        found,
        cuts_added=tuple(like(Cut, cut) for cut in found.cuts_added),
        cuts_removed=tuple(like(Cut, cut) for cut in found.cuts_removed),
        on_host_added=tuple(OnHost(layer=layer, kind=kind) for layer, kind in found.on_host_added),
    )
