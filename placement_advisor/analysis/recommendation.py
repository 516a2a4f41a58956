"""The recommendation of an analysis: the verdict in words, with its basis and its reasons.

`deciding_reasons` are the few that a reader sees first: what makes the answer odd, where the step
of the split spends its time (or why there is no split), and the bound, where it covers all that
is shown.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from statistics import median
from typing import TYPE_CHECKING

from placement_advisor.analysis import reasons as verdict_reasons
from placement_advisor.analysis import verdict
from placement_advisor.analysis.analysis_result import AdviceVerdict, Recommendation
from placement_advisor.candidates import references
from placement_advisor.defaults import AS_WRITTEN, WORTHWHILE_SPEEDUP
from placement_advisor.machine.testbed_plan import TestbedKind
from placement_advisor.measurement.measurement import FailureKind, StepProfile
from placement_advisor.simulator.schedule import intervals_by_key, intervals_length_outside
from placement_advisor.units import format_ns, format_share

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from placement_advisor.analysis.analysis_result import Candidate, TestbedSummary, UncertainBound


# What is read at a glance.
MAX_DECIDING = 3


def deciding_reasons(
    candidates: Sequence[Candidate],
    alone: Candidate,
    ruling: verdict.VerdictDecision,
    bound: UncertainBound | None,
    basis: str,
) -> tuple[str, ...]:
    """Return the most important reasons for an answer.

    ``bound`` is one that binds all candidates, None if there is none. ``basis`` says whose figures
    decide: measured or simulated.
    """
    split = ruling.split
    failed: list[str | None] = []
    unfit: list[str | None] = []
    for candidate in candidates:
        is_absent = verdict.failed_by(candidate, FailureKind.NOT_APPLICABLE)
        (unfit if is_absent else failed).append(verdict_reasons.failure_reason(candidate))

    def told() -> Iterator[str | None]:
        yield ruling.because
        if split is None:
            yield from failed
        else:
            yield from (_measured_split if basis == "measured" else _simulated_split)(split, alone)
        if bound is not None:
            yield (
                f"no placement of these ops takes less than {format_ns(bound.step_ns)}; "
                f"single takes {format_ns(bound.single_ns)} (simulated)"
            )
        if split is None:
            yield from unfit

    return tuple(islice(dict.fromkeys(filter(None, told())), MAX_DECIDING))


def _measured_split(split: Candidate, alone: Candidate) -> Iterator[str | None]:
    """Yield where the steps of a split and of the single device went, as profiled."""
    profile, base = split.profile, alone.profile
    if split.broken_laws:
        what = split.broken_laws[0].what
        yield f"{split.name}: {what}, which is impossible: its profile says nothing"
    elif profile is not None:
        yield _copies_text(
            split.name,
            profile.transfer_count,
            profile.exposed_by_device,
            median(profile.step_ns),
            "profiled",
        ) + _longest_wait(profile)
        if base is not None:
            yield _compute_text(split.name, profile.compute_ns, base.compute_ns, "profiled")
    ratio = split.predicted_ratio
    if ratio is not None and verdict_reasons.is_other_side(split):
        yield (
            f"{split.name} was simulated at {verdict_reasons.speedup_of(ratio.ratio)}: the "
            "answer rests on the measurement alone"
        )


def _longest_wait(profile: StepProfile) -> str:
    """Return which tensor the device that waits most waits for longest, as an addition."""
    waiting = max(profile.exposed_by_device, key=profile.exposed_by_device.__getitem__)
    spans = profile.timeline
    computes = [(span.start_ns, span.end_ns) for span in spans if span.lane == waiting]
    copies = intervals_by_key(
        (span.name, (span.start_ns, span.end_ns))
        for span in spans
        if span.is_copy and span.lane.endswith(f"→ {waiting}")
    )
    waits_ns = {name: intervals_length_outside(on_way, computes) for name, on_way in copies.items()}
    longest = max(waits_ns, key=waits_ns.__getitem__, default="")
    return f", longest for {longest}" if waits_ns.get(longest) else ""


def _simulated_split(split: Candidate, alone: Candidate) -> Iterator[str | None]:
    """Yield where the steps of a split and of the single device would go."""
    ours, theirs = split.predicted, alone.predicted
    if ours is None or theirs is None:
        return
    count = ours.transfer_count
    yield _copies_text(split.name, count, ours.exposed_by_device, ours.step_ns, "simulated")
    yield _compute_text(split.name, ours.compute_ns, theirs.compute_ns, "simulated")


def _copies_text(
    name: str,
    count: int | None,
    exposed_by_device: Mapping[str, int],
    step_ns: float,
    basis: str,
) -> str:
    if count is None:
        return f"{name}: its profile does not show all copies, so what it waits for is unknown"
    if not count:
        return f"{name}: no copies ({basis})"
    waiting = max(exposed_by_device, key=exposed_by_device.__getitem__)
    waits_ns = exposed_by_device[waiting]
    share = f", {format_share(waits_ns / step_ns)} of its step" if step_ns else ""
    return f"{name}: {waiting} waits {format_ns(waits_ns)} for copies{share} ({basis})"


def _compute_text(
    name: str, ours_ns: Mapping[str, int], theirs_ns: Mapping[str, int], basis: str
) -> str:
    busiest = max(ours_ns, key=ours_ns.__getitem__)
    return (
        f"{name}: {busiest} computes for {format_ns(ours_ns[busiest])} a step, "
        f"single for {format_ns(max(theirs_ns.values()))} ({basis})"
    )


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
    bound: UncertainBound | None = None,
    again: verdict.RerunEstimate | None = None,
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
    alone = next(c for c in candidates if c.family == references.SINGLE)
    proof = bound if bound is not None and bound.proves_single else None
    if proof is not None and verdict_reasons.is_refuted(proof, candidates):
        proof = None
    is_proved = proof is not None
    ruling, basis, ground = _rule(
        alone, candidates, testbed, as_is, bound, is_proved=is_proved, calls_python=calls_python
    )
    opening = _OPENINGS[ruling.verdict]
    if ruling.verdict is AdviceVerdict.STAY_SINGLE and proof is not None:
        opening = opening.replace(
            "single", f"single, {verdict_reasons.proof_text(proof, candidates)}"
        )
    own = next((c for c in candidates if c.family == AS_WRITTEN), None)
    if own is not None and own is ruling.split and ruling.verdict is AdviceVerdict.SPLIT:
        ruling = replace(ruling, says=ruling.says.replace(own.name, f"keep your own ({own.name})"))
    adds = (
        ruling.adds + _about_own(own, ruling) + verdict.next_experiment_text(ruling.settling, again)
    )
    headline = f"{opening}{ruling.says}, {ground}{adds}"
    shown = alone if ruling.verdict is AdviceVerdict.STAY_SINGLE else ruling.split or alone
    caveat = "stand-ins do not tell how fast this machine is" if testbed.stand_in else None
    if as_is:
        where = " on all cores" if testbed.stand_in else ""
        beside = f"{verdict.AS_IS}{where} {format_ns(median(as_is))}"
        caveat = caveat and f"{caveat}: {beside}"
        headline += f"; {caveat or beside}"
        if shown.step_ns is not None:
            headline += f", {shown.name} {format_ns(shown.step_ns)}"

    tell = (
        verdict_reasons.measured_reasons
        if basis == "measured"
        else verdict_reasons.simulated_reasons
    )
    told, others = _of_candidates(candidates, alone, ruling, tell)
    reasons = [
        testbed.not_run,
        ruling.because,
        verdict_reasons.order_reason(candidates),
        verdict_reasons.bound_reason(bound, candidates) if bound is not None else None,
        *told,
    ]
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
            alone,
            ruling,
            bound
            if bound is not None and verdict_reasons.binds_all(bound, candidates, as_is)
            else None,
            basis,
        ),
        reasons=tuple(filter(None, reasons)),
        others=tuple(filter(None, others)),
        next_run=verdict.next_run(ruling.settling, again),
    )


def _about_own(own: Candidate | None, ruling: verdict.VerdictDecision) -> str:
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
        means = "one device is just as fast"
    else:
        means = "too close to one device to tell"
    how = "" if own.comparison is not None else ", simulated"
    return f"; your own split is {median_:.2f}× ({low:.2f}–{high:.2f}{how}): {means}"


def _rule(
    alone: Candidate,
    candidates: Sequence[Candidate],
    testbed: TestbedSummary,
    as_is: Sequence[int] | None,
    bound: UncertainBound | None,
    *,
    is_proved: bool,
    calls_python: bool,
) -> tuple[verdict.VerdictDecision, str, str]:
    """Return the ruling, whose figures decide, and the ground of these in words."""
    splits = [candidate for candidate in candidates if candidate.family != references.SINGLE]
    hosts = {host.name for host in testbed.cluster.hosts}
    here = testbed.description
    if verdict.failed_by(alone, FailureKind.DOES_NOT_FIT):
        return verdict.rule_unfit(alone, splits), "simulated", f"simulated for {here}"
    if testbed.not_run is None:
        unfit = _UNFIT_TESTBEDS.get(testbed.kind)
        to_beat = None if testbed.stand_in else as_is
        measured = verdict.rule_measured(alone, splits, to_beat, is_proved, hosts)
        ruling = verdict.cannot_tell(unfit) if unfit else measured
        return ruling, "measured", f"measured on {here}"
    is_recorded = bound is not None and bound.costs_from == "recorded"
    settling = verdict.RECORDED_ELSEWHERE if is_recorded else verdict.ELSEWHERE
    if testbed.stand_in or testbed.kind != TestbedKind.NONE:
        settling = verdict.WITHOUT_PYTHON if calls_python else verdict.REAL_RUN
    is_proved = bound is not None and bound.proves_single_if_wrong
    ruling = verdict.rule_simulated(alone, splits, is_proved, settling, hosts)
    return ruling, "simulated", f"simulated for {here}, not run"


def _of_candidates(
    candidates: Sequence[Candidate],
    alone: Candidate,
    ruling: verdict.VerdictDecision,
    tell: Callable[[Candidate, Candidate], Iterable[str | None]],
) -> tuple[list[str | None], list[str | None]]:
    """Return reasons that candidates give: those of the answer, and those of the others."""
    told: list[str | None] = []
    others: list[str | None] = []
    for candidate in candidates:
        is_answer = ruling.split in (None, candidate)
        if candidate is not alone and candidate.failure is None:
            if candidate.family == references.SINGLE:
                told.append(verdict_reasons.faster_device_reason(candidate, alone))
            else:
                (told if is_answer else others).extend(tell(candidate, alone))
        is_beside = not is_answer and verdict.failed_by(candidate, FailureKind.NOT_APPLICABLE)
        (others if is_beside else told).append(verdict_reasons.failure_reason(candidate))
    return told, others
