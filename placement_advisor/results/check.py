"""What `advisor check --format json` answers.

The same check gives the same bytes: no times of day, nothing that was timed. All is simulated. Left
out: where each layer runs, which the lock file has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from annotated_types import Ge, Le

from placement_advisor import __version__
from placement_advisor.check.problems import ProblemCode, Status
from placement_advisor.check.record import Part, PredictedVerdict
from placement_advisor.files.contract import STRICT, ByName, Count, Ns, Positive, Rows, Text, like
from placement_advisor.units import NS_PER_US

if TYPE_CHECKING:
    from placement_advisor.check import problems, record
    from placement_advisor.check.problems import CheckResult, ModelResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where it is configured."""

    file: Text
    """File, relative to the project."""
    line: Positive
    """Line, the first is 1."""


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
    """Stable name of the effect."""
    what: Text
    """By how much, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What is not as it is to be."""

    code: ProblemCode
    """Stable name of the cause, or of the first effect where no cause is known; `advisor explain
    CODE` tells what it means.
    """
    what: Text
    """What happened."""
    culprits: Rows[Text]
    """Which layers and tensors it concerns, those that moved first, then the largest."""
    effects: Rows[Effect]
    """What became worse by it."""
    action: Text
    """What to do about it."""
    place: Place | None
    source: Text | None
    """What stands at that line; None if not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The step as the lock file has it; None if it does not."""

    hardware: Text
    """Machine that was simulated."""
    devices_fingerprint: Text
    """Hash of all figures of its devices and links."""
    tensorflow_version: Text
    """Version of TensorFlow that traced the model."""
    advisor_version: Text
    """Version of placement-advisor that simulated the step."""
    placement: Text
    """Placement as configured: a family, or a file."""
    graph_fingerprint: Text
    """Hash of the graph; names and order do not count."""
    placed_fingerprint: Text
    """Hash of the graph with its devices; their names do not count."""
    step_ns: Ns
    """Step time, simulated, to three digits."""
    single_step_ns: Ns
    """Step time on one device alone, simulated, to three digits."""
    transfer_count: Count
    """Copies between devices."""
    transfer_bytes: Count
    """Bytes that they carry; those of unknown size are left out."""
    peak_memory_bytes: ByName[Count]
    """Peak memory by device, simulated, to three digits for each thing that it is held for."""
    verdict: PredictedVerdict
    """Whether the placement is predicted to be faster than one device, no faster, or within doubt.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A part of a layer that runs elsewhere."""

    layer: Text
    """Name of the layer; empty for ops of none."""
    part: Part
    """Which of its ops."""
    before: Rows[Text]
    """Devices before, those of most ops first."""
    after: Rows[Text]
    """Devices now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """A layer whose work takes longer."""

    layer: Text
    """Name of the layer; empty for ops of none."""
    before_ns: Ns
    """Time of its ops before, simulated."""
    after_ns: Ns
    """Time of its ops now, simulated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """A tensor that crosses."""

    tensor: Text
    """Name of the tensor, or of the variable that was read."""
    source: Text
    """Device that it comes from."""
    target: Text
    """Device that it goes to."""
    size_bytes: Count | None
    """Its size; None if not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OnHost:
    """A layer with ops that GPUs have no kernel for."""

    layer: Text
    """Name of the layer; empty for ops of none."""
    kind: Text
    """Kind of op."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """What differs, with devices named as now; None if nothing does or nothing was compared."""

    renamed: ByName[Text]
    """New names of layers, by their old ones."""
    gone: Rows[Text]
    """Layers that are gone."""
    new: Rows[Text]
    """Layers that are new."""
    moves: Rows[Move]
    """Parts of layers of which most ops run on another device."""
    growths: Rows[Growth]
    """Layers whose ops take longer in a step, or less long, the largest growth first."""
    cuts_added: Rows[Cut]
    """Tensors that cross between devices and did not; of the 100 largest."""
    cuts_removed: Rows[Cut]
    """Tensors that no longer cross; of the 100 largest."""
    on_host_added: Rows[OnHost]
    """Kinds of ops on a GPU that has no kernel for them, which were not there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCheck:
    """A model, held to its record in the lock file."""

    model: Text
    """Model as configured."""
    placement: Text
    """Placement as configured: a family, or a file."""
    place: Place
    status: Status
    """How its check ended; a measurement that does not tell is inconclusive."""
    error: Text | None
    """Why it could not be checked; None if it was."""
    hint: Text | None
    """What to do about that; None if nothing is known."""
    problems: Rows[Problem]
    """Reasons to fail, each cause once, with what it does to the step."""
    notes: Rows[Text]
    """What a reader should know, improvements among it; none of it fails."""
    before: Record | None
    after: Record | None
    difference: Difference | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """Whether placements are as they were locked, and what is not."""

    __pydantic_config__: ClassVar = STRICT

    schema_version: Annotated[int, Ge(1), Le(1)]
    advisor_version: Text
    """Version of placement-advisor that checked."""
    lock_file: Text
    """Lock file, as the user calls it."""
    strict: bool
    """Whether inconclusive counts as failed."""
    exit_code: Literal[0, 1, 2]
    """0 if all passed, 1 if one failed, else 2 if one could not run."""
    results: Rows[ModelCheck]
    """Models, in the order of their names."""

    @classmethod
    def of(cls, result: CheckResult) -> Check:
        """Return it as it is published."""
        return like(
            cls,
            result,
            schema_version=1,
            advisor_version=__version__,
            results=tuple(map(_model, result.results)),
        )


def _model(model: ModelResult) -> ModelCheck:
    before, after, found = model.before, model.after, model.difference
    return like(
        ModelCheck,
        model,
        place=like(Place, model.place),
        problems=tuple(map(_problem, model.problems)),
        notes=tuple(model.notes),
        before=None if before is None else _record(before),
        after=None if after is None else _record(after),
        difference=None if found is None else _difference(found),
    )


def _problem(found: problems.Problem) -> Problem:
    return like(
        Problem,
        found,
        culprits=tuple(found.culprits),
        effects=tuple(like(Effect, each, code=each.code.value) for each in found.effects),
        place=None if found.place is None else like(Place, found.place),
    )


def _record(found: record.Record) -> Record:
    return Record(
        hardware=found.hardware,
        devices_fingerprint=found.devices,
        tensorflow_version=found.tensorflow,
        advisor_version=found.advisor,
        placement=found.placement,
        graph_fingerprint=found.graph,
        placed_fingerprint=found.placed,
        step_ns=found.step_us * NS_PER_US,
        single_step_ns=found.single_step_us * NS_PER_US,
        transfer_count=found.copies,
        transfer_bytes=found.bytes_across,
        peak_memory_bytes={
            device: found.peak_bytes(device) for device in sorted(found.memory_bytes)
        },
        verdict=found.standing,
    )


def _difference(found: record.Difference) -> Difference:
    return Difference(
        renamed=dict(sorted(found.renamed.items())),
        gone=tuple(found.gone),
        new=tuple(found.new),
        moves=tuple(
            like(
                Move,
                move,
                before=tuple(move.before),
                after=tuple(move.after),
            )
            for move in found.moves
        ),
        growths=tuple(
            Growth(
                layer=growth.layer,
                before_ns=growth.before_us * NS_PER_US,
                after_ns=growth.after_us * NS_PER_US,
            )
            for growth in found.growths
        ),
        cuts_added=tuple(like(Cut, cut) for cut in found.cuts_added),
        cuts_removed=tuple(like(Cut, cut) for cut in found.cuts_removed),
        on_host_added=tuple(OnHost(layer=layer, kind=kind) for layer, kind in found.on_host_added),
    )
