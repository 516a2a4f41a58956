"""What differs between two finished analyses, and what of it the verdicts rest on.

Figures compare where both were measured, or both simulated. A candidate has *moved* where its
intervals against `single` do not overlap: what lies closer may be noise.

Left out: causes. Several things may have changed at once, and the machine has others beside those
that an analysis records.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from placement_advisor.analysis.analysis_result import AdviceVerdict
from placement_advisor.files.contract import STRICT, NotNegative, Ns, Prose, Rows, Text, like
from placement_advisor.graph.fingerprint import layer_fingerprints
from placement_advisor.results.analysis import Analysis, Basis, Link, Recommendation
from placement_advisor.results.candidate import Parts, Step
from placement_advisor.units import format_bandwidth, format_bytes, format_ns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from placement_advisor.graph.op_graph import OpGraph

# A link that is calibrated anew comes out a few percent off.
LINK_CHANGE = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Something that is not what it was, in words."""

    area: Literal["graph", "hardware", "versions", "options"]
    name: Text
    before: Prose
    after: Prose


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer of an analysis; see `Recommendation`."""

    verdict: AdviceVerdict
    candidate: Text | None
    basis: Basis
    answer: Prose


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedupRange:
    """Step time of `single` over that of a candidate: above 1 is faster."""

    estimate: NotNegative
    range: tuple[NotNegative, NotNegative]
    """95 % interval if measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFigures:
    """A candidate in one of the analyses."""

    step_ns: Ns
    """The median if measured."""
    speedup: SpeedupRange | None
    """None if nothing compares."""
    parts: Parts | None
    """None without a valid profile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedCandidate:
    """A candidate in both; None where it has no result that compares."""

    name: Text
    moved: bool | None
    """Its ranges do not overlap."""
    moved_most: Literal["compute", "copies", "idle"] | None
    before: StepFigures | None
    after: StepFigures | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """What differs between two analyses, `before` and `after`."""

    __pydantic_config__: ClassVar = STRICT

    schema_version: Literal[1]
    before: Answer
    after: Answer
    why: Rows[Prose]
    """Why the verdict changed."""
    changes: Rows[Change]
    layers: Rows[Text] | None
    """With other ops; None without both graphs."""
    basis: Basis | None
    """Of both analyses; None if they differ."""
    candidates: Rows[MovedCandidate]
    """Empty if `basis` is None."""


def difference(
    before: Analysis,
    after: Analysis,
    graphs: tuple[OpGraph, OpGraph] | None,
) -> Difference:
    """Return what differs between two analyses; ``graphs`` are those of their models."""
    then, now = before.recommendation, after.recommendation
    basis = then.basis if then.basis == now.basis else None
    candidates = tuple(_candidates(before, after, basis)) if basis is not None else ()
    changes = tuple(_changes(before, after))
    return Difference(
        schema_version=1,
        before=like(Answer, then),
        after=like(Answer, now),
        why=tuple(_why(then, now, candidates, changes)),
        changes=changes,
        layers=None if graphs is None else _layers(*graphs),
        basis=basis,
        candidates=candidates,
    )


def _changes(before: Analysis, after: Analysis) -> Iterator[Change]:
    for area, ours, theirs in (
        ("graph", _graph(before), _graph(after)),
        ("hardware", _hardware(before), _hardware(after)),
        ("versions", _versions(before), _versions(after)),
        ("options", before.options.in_words(), after.options.in_words()),
    ):
        for name in {**ours, **theirs}:
            then, now = ours.get(name, "none"), theirs.get(name, "none")
            if then != now:
                yield Change(area=area, name=name, before=then, after=now)  # type: ignore[arg-type]
        if area == "hardware":
            yield from _links(before, after)


def _graph(analysis: Analysis) -> dict[str, str]:
    model = analysis.model
    return {
        "file": model.path,
        "mode": model.mode,
        "batch": str(model.batch_size or "unknown"),
        "fingerprint": model.graph_fingerprint,
        "ops": f"{model.ops:,}",
        "parameters": format_bytes(model.parameter_bytes),
    }


def _hardware(analysis: Analysis) -> dict[str, str]:
    testbed = analysis.testbed
    return {
        "testbed": testbed.kind,
        "devices": f"{testbed.description}: {', '.join(device.name for device in testbed.devices)}",
        "not run": testbed.not_run or "steps ran",
    }


def _versions(analysis: Analysis) -> dict[str, str]:
    return {"advisor": analysis.advisor_version, "TensorFlow": analysis.tensorflow_version}


def _links(before: Analysis, after: Analysis) -> Iterator[Change]:
    """Yield the links that both have and that are faster or slower by more than a calibration."""
    links = {(link.source, link.target): link for link in after.testbed.links}
    for ours in before.testbed.links:
        theirs = links.get((ours.source, ours.target))
        if theirs is not None and _is_another(ours, theirs):
            yield Change(
                area="hardware",
                name=f"{ours.source} → {ours.target}",
                before=_link(ours),
                after=_link(theirs),
            )


def _is_another(ours: Link, theirs: Link) -> bool:
    return any(
        abs(now - then) > LINK_CHANGE * then
        for then, now in (
            (ours.latency_ns, theirs.latency_ns),
            (ours.bandwidth_bytes_per_s, theirs.bandwidth_bytes_per_s),
        )
    )


def _link(link: Link) -> str:
    return f"{format_bandwidth(link.bandwidth_bytes_per_s)}, {format_ns(link.latency_ns)}"


def _layers(before: OpGraph, after: OpGraph) -> tuple[str, ...]:
    ours, theirs = layer_fingerprints(before), layer_fingerprints(after)
    names = dict.fromkeys([*before.layers(), *after.layers()])
    return tuple(name for name in names if ours.get(name) != theirs.get(name))


def _candidates(before: Analysis, after: Analysis, basis: str) -> Iterator[MovedCandidate]:
    ours, theirs = (
        {each.name: each.step(basis) for each in analysis.candidates}
        for analysis in (before, after)
    )
    for name in dict.fromkeys([*ours, *theirs]):
        then, now = ours.get(name), theirs.get(name)
        if then is not None or now is not None:
            yield MovedCandidate(
                name=name,
                moved=_has_moved(then, now),
                moved_most=_moved_most(then, now),
                before=_figures(then),
                after=_figures(now),
            )


def _has_moved(then: Step | None, now: Step | None) -> bool | None:
    if then is None or now is None or then.ratio is None or now.ratio is None:
        return None
    return then.ratio.high < now.ratio.low or now.ratio.high < then.ratio.low


def _moved_most(then: Step | None, now: Step | None) -> Any:
    """Return the part of a step that changed most; None if that is unknown."""
    if then is None or now is None or then.parts is None or now.parts is None:
        return None
    changes = {
        "compute": abs(now.parts.compute_ns - then.parts.compute_ns),
        "copies": abs(now.parts.copies_ns - then.parts.copies_ns),
        "idle": abs(now.parts.idle_ns - then.parts.idle_ns),
    }
    return max(changes, key=changes.__getitem__) if any(changes.values()) else None


def _figures(step: Step | None) -> StepFigures | None:
    if step is None:
        return None
    speedup = None
    if step.ratio is not None:
        times = step.ratio.inverted
        speedup = SpeedupRange(estimate=times.median, range=(times.low, times.high))
    return like(StepFigures, step, speedup=speedup)


def _why(
    then: Recommendation,
    now: Recommendation,
    candidates: tuple[MovedCandidate, ...],
    changes: tuple[Change, ...],
) -> Iterator[str]:
    """Yield what the change of the verdict rests on, or why nothing can be said of it."""
    if then.basis != now.basis:
        yield f"then {then.basis}, now {now.basis}: figures of the two do not compare"
        return
    if (then.verdict, then.candidate) == (now.verdict, now.candidate):
        return
    told = [each for each in candidates if each.name in (then.candidate, now.candidate)]
    for each in told:
        if each.before is None or each.after is None:
            when = "then" if each.before is None else "now"
            yield f"{each.name} has no result {when}"
        elif each.moved:
            part = f"; of its step {each.moved_most} changed most" if each.moved_most else ""
            yield f"the speed-up of {each.name} moved beyond its interval{part}"
    if told and all(each.moved is False for each in told):
        yield (
            "no speed-up that a verdict is about moved beyond its interval: what changed lies "
            "within the doubt of both"
        )
    if not changes:
        yield "nothing that an analysis records has changed: what else ran on the machine may have"
