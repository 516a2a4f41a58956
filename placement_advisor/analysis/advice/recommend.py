"""The answer of an analysis: its verdict in words, with its ground and its reasons."""

from __future__ import annotations

from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING

from placement_advisor.analysis.advice.deciding import deciding_reasons
from placement_advisor.analysis.advice.reasons import (
    as_is_reason,
    binds_all,
    bound_reason,
    failure_reason,
    faster_device_reason,
    is_refuted,
    measured_reasons,
    order_reason,
    proof_text,
    simulated_reasons,
)
from placement_advisor.analysis.advice.ruling import (
    AS_IS,
    Ruling,
    is_not_applicable,
    no_ground,
    rule_measured,
    rule_simulated,
    rule_unfit,
    with_as_is,
)
from placement_advisor.analysis.advice.settling import (
    RealRun,
    RunElsewhere,
    WithoutPython,
    in_words,
    next_run,
)
from placement_advisor.analysis.analysis_result import AdviceVerdict, Recommendation
from placement_advisor.candidates import references
from placement_advisor.cost.table import CostSource
from placement_advisor.defaults import AS_WRITTEN
from placement_advisor.machine.testbed_plan import TestbedKind
from placement_advisor.measurement.measurement import WORTHWHILE_SPEEDUP, FailureKind
from placement_advisor.units import format_ns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from placement_advisor.analysis.advice.settling import Again, Settling
    from placement_advisor.analysis.analysis_result import Bound, Candidate, TestbedSummary

# Testbeds whose step times say nothing about a split.
_UNFIT_TESTBEDS = {
    "logical-cpus": "logical CPUs share their cores and copy by pointer: they show that a "
    "placement takes effect, not whether it pays",
}

_OPENINGS = {
    AdviceVerdict.SPLIT: "split: ",
    AdviceVerdict.STAY_SINGLE: "stay single: ",
    AdviceVerdict.CANNOT_TELL: "cannot tell: ",
    AdviceVerdict.CANNOT_FIT: "cannot fit on one device: ",
}


def recommend(
    candidates: Sequence[Candidate],
    testbed: TestbedSummary,
    as_is: Sequence[int] | None,
    bound: Bound | None = None,
    again: Again | None = None,
    *,
    calls_python: bool = False,
) -> Recommendation:
    """Return the answer for these candidates.

    ``as_is`` holds the step times of the unmodified step in ns, as many of each round. ``again`` is
    what a run that tells more would take, None where there can be none. A step that
    ``calls_python`` does not run.
    ``candidate`` of the answer is the split that the verdict is about: the one to use, or the best
    that was tried. ``speedup`` is None where nothing was measured.
    """
    alone = next((c for c in candidates if c.family == references.SINGLE), None)
    proof = None
    if bound is not None and bound.proves_single and not is_refuted(bound, candidates):
        proof = bound
    if alone is not None and _does_not_fit(alone):
        ruling = rule_unfit(alone, _splits(candidates))
        basis, ground = "simulated", f"simulated for {testbed.description}"
    elif testbed.not_run is None:
        ruling = _rule_run(alone, candidates, testbed, as_is, is_proved=proof is not None)
        basis, ground = "measured", f"measured on {testbed.description}"
    else:
        ruling = _rule_not_run(alone, candidates, testbed, bound, calls_python=calls_python)
        basis, ground = "simulated", f"simulated for {testbed.description}, not run"

    opening = _OPENINGS[ruling.verdict]
    if ruling.verdict is AdviceVerdict.STAY_SINGLE and proof is not None:
        opening = opening.replace("single", f"single, {proof_text(proof, candidates)}")
    own = next((c for c in candidates if c.family == AS_WRITTEN), None)
    if own is not None and own is ruling.split and ruling.verdict is AdviceVerdict.SPLIT:
        ruling = replace(ruling, says=ruling.says.replace(own.name, f"keep your own ({own.name})"))
    adds = ruling.adds + _about_own(own, ruling) + in_words(ruling.settling, again)
    headline = f"{opening}{ruling.says}, {ground}{adds}"
    caveat = _as_is_caveat(as_is, ruling) if as_is and testbed.stand_in else None
    if as_is:
        where = " on all cores" if testbed.stand_in else ""
        headline += f"; {caveat or f'{AS_IS}{where}: {format_ns(median(as_is))}'}"

    tell = measured_reasons if basis == "measured" else simulated_reasons
    told, others = _of_candidates(candidates, alone, ruling, tell)
    reasons = [
        testbed.not_run,
        ruling.because,
        order_reason(candidates),
        bound_reason(bound, candidates) if bound is not None else None,
        *told,
    ]
    shown = alone if ruling.verdict is AdviceVerdict.STAY_SINGLE else ruling.split or alone
    if as_is and shown is not None:
        reasons.append(as_is_reason(as_is, shown, stand_in=testbed.stand_in))
    elsewhere = "; accelerators compute and copy at other speeds" if testbed.stand_in else ""
    return Recommendation(
        verdict=ruling.verdict,
        candidate=ruling.split.name if ruling.split is not None else None,
        speedup=ruling.speedup,
        basis=basis,
        applies_to=f"{testbed.description}{elsewhere}",
        answer=f"{opening}{ruling.says}{adds}",
        headline=headline,
        caveat=caveat,
        deciding=deciding_reasons(
            candidates,
            ruling.split,
            bound if bound is not None and binds_all(bound, candidates, as_is) else None,
            ruling.because,
            basis,
        ),
        reasons=tuple(filter(None, reasons)),
        others=tuple(filter(None, others)),
        next_run=next_run(ruling.settling, again),
    )


def _about_own(own: Candidate | None, ruling: Ruling) -> str:
    """Return what to say of the user's own split beside the answer, if that is another one."""
    if own is None or own is ruling.split:
        return ""
    if own.failure is not None:
        return f"; your own split has no result: {own.failure.kind.value.replace('-', ' ')}"
    if own.comparison is not None:
        speedup = own.comparison.speedup
        median_, low, high = speedup.median, speedup.low, speedup.high
    elif own.predicted_ratio is not None and own.predicted_ratio.low > 0:
        ratio = own.predicted_ratio
        median_, low, high = 1 / ratio.ratio, 1 / ratio.high, 1 / ratio.low
    else:
        return ""
    if low >= WORTHWHILE_SPEEDUP:
        means = "it pays, and less" if ruling.verdict is AdviceVerdict.SPLIT else "it pays"
    elif high < 1:
        means = "one device is faster"
    elif high < WORTHWHILE_SPEEDUP:
        means = "one device is as fast"
    else:
        means = "too close to one device to tell"
    how = "" if own.comparison is not None else ", simulated"
    return f"; your own split is {median_:.2f}× ({low:.2f}–{high:.2f}{how}): {means}"


def _splits(candidates: Sequence[Candidate]) -> list[Candidate]:
    return [candidate for candidate in candidates if candidate.family != references.SINGLE]


def _hosts(testbed: TestbedSummary) -> set[str]:
    return {host.name for host in testbed.cluster.hosts}


def _rule_run(
    alone: Candidate | None,
    candidates: Sequence[Candidate],
    testbed: TestbedSummary,
    as_is: Sequence[int] | None,
    *,
    is_proved: bool,
) -> Ruling:
    unfit = _UNFIT_TESTBEDS.get(testbed.kind)
    if unfit:
        return no_ground(unfit)
    to_beat = None if testbed.stand_in else as_is
    return rule_measured(alone, _splits(candidates), to_beat, is_proved, _hosts(testbed))


def _rule_not_run(
    alone: Candidate | None,
    candidates: Sequence[Candidate],
    testbed: TestbedSummary,
    bound: Bound | None,
    *,
    calls_python: bool,
) -> Ruling:
    is_proved = bound is not None and bound.proves_single_if_wrong
    is_here = testbed.stand_in or testbed.kind != TestbedKind.NONE
    is_recorded = bound is not None and bound.source is CostSource.RECORDED
    settling: Settling = RunElsewhere(is_recorded=is_recorded)
    if is_here:
        settling = WithoutPython() if calls_python else RealRun()
    return rule_simulated(alone, _splits(candidates), is_proved, settling, _hosts(testbed))


def _of_candidates(
    candidates: Sequence[Candidate],
    alone: Candidate | None,
    ruling: Ruling,
    tell: Callable[[Candidate, Candidate], Iterable[str | None]],
) -> tuple[list[str | None], list[str | None]]:
    """Return reasons that candidates give: those of the answer, and those of the others."""
    told: list[str | None] = []
    others: list[str | None] = []
    for candidate in candidates:
        is_answer = ruling.split in (None, candidate)
        if alone is not None and candidate is not alone and candidate.failure is None:
            if candidate.family == references.SINGLE:
                told.append(faster_device_reason(candidate, alone))
            else:
                (told if is_answer else others).extend(tell(candidate, alone))
        is_beside = not is_answer and is_not_applicable(candidate)
        (others if is_beside else told).append(failure_reason(candidate))
    return told, others


def _as_is_caveat(as_is: Sequence[int], ruling: Ruling) -> str | None:
    """Return that the unmodified step is faster than a split on stand-ins; None if it is not.

    It is said only where the step times that are shown say so, too. Elsewhere a split is
    recommended only if it beats it.
    """
    run = ruling.split.measured if ruling.split is not None else None
    if ruling.verdict is not AdviceVerdict.SPLIT or ruling.split is None or run is None:
        return None
    comparison = with_as_is(ruling.split, run, as_is, among=1)
    as_is_ns, split_ns = median(as_is), median(run.step_ns)
    if comparison is None or comparison.ratio.high < 1 or as_is_ns > split_ns:
        return None
    is_faster = comparison.ratio.low > 1
    return (
        f"on this machine your untouched step is {'faster' if is_faster else 'as fast'}: as-is on "
        f"all cores {format_ns(as_is_ns)}, the split {format_ns(split_ns)}; the "
        "verdict is about serial devices, like those that the stand-ins stand for"
    )


def _does_not_fit(candidate: Candidate) -> bool:
    failure = candidate.failure
    return failure is not None and failure.kind is FailureKind.DOES_NOT_FIT
