"""The numbers behind an answer, each as one plain sentence.

A figure with × is a speed-up: the step time of the baseline over that of the candidate.
Copies against compute per candidate, what the step would be if copies were free, prediction
against measurement, the unmodified step, and what the answer does not cover.
"""

from __future__ import annotations

from itertools import combinations
from statistics import median
from typing import TYPE_CHECKING

from placement_advisor import defaults
from placement_advisor.candidates import references
from placement_advisor.graph.name_patterns import first_names, listed
from placement_advisor.measurement import measurement as measurements
from placement_advisor.units import copies_text, format_bytes, format_ns, format_share

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from placement_advisor.analysis.analysis_result import Candidate, UncertainBound
    from placement_advisor.simulator.sensitivity import CostUncertainty, PredictedRatio


# A reason names as many; a large model has hundreds.
_NAMED_VARIABLES = 3
# A split of the batch makes other ops, which a bound does not cover.
_WHOLE = "that leaves the batch whole"
_VERDICT_WORDS = {
    measurements.Verdict.FASTER: "faster",
    measurements.Verdict.SLOWER: (f"a split is worth it above {defaults.WORTHWHILE_SPEEDUP:.2f}×"),
    measurements.Verdict.INCONCLUSIVE: "too uncertain to decide",
}


def doubt_text(doubt: CostUncertainty) -> str:
    """Return how wrong costs may be."""
    off = f"copies and launches are up to {doubt.copies:g}× off"
    if doubt.launches != doubt.copies:
        off = f"copies are up to {doubt.copies:g}× and launches up to {doubt.launches:g}× off"
    free = " (launches perhaps free)" if doubt.may_hide_launches else ""
    return f"{off}{free}, and a split's ops {doubt.ops:g}×"


def speedup_text(speedup: measurements.Interval) -> str:
    """Return a speedup with its interval."""
    return f"{speedup.median:.2f}× (95 % interval {speedup.low:.2f}–{speedup.high:.2f})"


def speedup_of(ratio: float) -> str:
    """Return the speed-up that a ratio of step times is.

    >>> speedup_of(0.8), speedup_of(0)
    ('1.25×', '∞×')
    """
    return f"{1 / ratio:.2f}×" if ratio else "∞×"


def order_reason(candidates: Sequence[Candidate]) -> str | None:
    """Return why speed-ups and medians of steps differ; None if they tell the same order.

    The first pair is named, the baseline included, whose median step times lie the other way round.
    """
    alone = next((c for c in candidates if c.family == references.SINGLE), None)
    runs = [
        (c.comparison.ratio.median if c.comparison else 1.0, c.step_ns, c.name)
        for c in candidates
        if c.failure is None and c.step_ns is not None and (c.comparison is not None or c is alone)
    ]
    for (faster, faster_ns, name), (slower, slower_ns, other) in combinations(sorted(runs), 2):
        told = format_ns(faster_ns), format_ns(slower_ns)
        if faster_ns > slower_ns and told[0] != told[1] and f"{faster:.2f}" != f"{slower:.2f}":
            return (
                f"the ratios of rounds decide: they put {name} ahead. The medians of all "
                f"steps differ ({name} {told[0]}, {other} {told[1]}), as a slow spell "
                "may hit one side more"
            )
    return None


def measured_reasons(candidate: Candidate, alone: Candidate) -> list[str]:
    """Return what was measured of one split, beside the single device."""
    reasons = []
    if candidate.comparison is not None:
        reasons.append(_ratio_reason(candidate.name, candidate.comparison))
    if candidate.measured is None:
        return reasons
    profile, step_ns = candidate.profile, candidate.step_ns
    if candidate.broken_laws:
        reasons.append(
            f"{candidate.name}: {candidate.broken_laws[0].what}, which is impossible: its "
            "profile counts for nothing"
        )
    elif profile is not None:
        reasons.append(_copies_against_compute(candidate.name, profile))
        if alone.profile and step_ns and max(profile.compute_ns.values()) < step_ns:
            reasons.append(_free_copies(candidate.name, profile, alone.profile))
    if candidate.predicted is not None and step_ns is not None:
        reasons.append(_prediction_error(candidate.name, candidate.predicted.step_ns, step_ns))
    ratio = candidate.predicted_ratio
    if ratio is not None and is_other_side(candidate):
        reasons.append(
            f"{candidate.name}: the simulation says {speedup_of(ratio.ratio)}, on the other "
            f"side of {defaults.WORTHWHILE_SPEEDUP:.2f}×. Its error is too large to "
            "decide, so the answer rests on the measurement alone"
        )
    if candidate.measured.moved_ops:
        moved = candidate.measured.moved_ops
        reasons.append(
            f"{candidate.name}: TensorFlow ran {len(moved)} ops elsewhere than planned, "
            f"{moved[0]!r} among them"
        )
    return reasons


def simulated_reasons(candidate: Candidate, alone: Candidate) -> list[str]:
    """Return what was simulated of one split, beside the single device."""
    ours, theirs = candidate.predicted, alone.predicted
    if ours is None or theirs is None:
        return [f"{candidate.name}: not simulated"]
    ratio, crossing = candidate.predicted_ratio, ours.carried
    reasons = []
    if ratio is not None:
        reasons.append(
            f"{candidate.name} is {speedup_of(ratio.ratio)} as fast as {alone.name} as simulated, "
            f"{speedup_of(ratio.high)} to {speedup_of(ratio.low)} if {doubt_text(ratio.doubt)}: a "
            f"split is worth it above {defaults.WORTHWHILE_SPEEDUP:.2f}×"
        )
    return [
        *reasons,
        f"{candidate.name} (simulated): step {format_ns(ours.step_ns)} against "
        f"{format_ns(theirs.step_ns)} for {alone.name}; "
        f"{copies_text(ours.transfer_count)} per step, "
        f"{format_bytes(crossing.amount, is_floor=crossing.is_floor)}, "
        f"{format_ns(ours.transfer_ns)}, of which "
        f"{format_ns(ours.exposed_ns)} behind no compute; compute {_by_device(ours.compute_ns)}",
    ]


def unsure_reason(name: str, ratio: PredictedRatio) -> str:
    """Return why a candidate that is predicted to be the fastest is not the answer."""
    return (
        f"{name} is predicted faster, {speedup_of(ratio.ratio)}, but may be as slow as "
        f"{speedup_of(ratio.high)} with the largest errors in costs: it is not surely worth it"
    )


def proof_text(bound: UncertainBound, candidates: Sequence[Candidate]) -> str:
    """Return what a bound proves of staying single, of which placements, and under which costs.

    *Proved* stands alone only where it is under measured costs, and holds even if these are as
    wrong as they may be.
    """
    costs = bound.costs_from
    if not bound.proves_single_if_wrong:
        proved = f"proved for costs exactly as {costs}"
    elif costs == "measured":
        proved = "proved"
    else:
        proved = f"proved for {costs} costs"
    most, if_wrong = bound.most_to_gain, bound.most_to_gain_if_wrong
    of = f" {_WHOLE}" if _splits_of_batch(candidates) else ""
    line = f"{proved} (no placement{of} can save more than {format_share(most)}"
    if if_wrong is not None and format_share(if_wrong) != format_share(most):
        line += f", {format_share(if_wrong)} if costs are as wrong as they may be"
    return f"{line})"


def bound_reason(bound: UncertainBound, candidates: Sequence[Candidate]) -> str:
    """Return what no placement can beat, why, and which of the candidates that does not cover."""
    others = _splits_of_batch(candidates)
    of = _WHOLE if others else "of these ops"
    below = _measured_below(bound, candidates)
    refuted = f", too high: {listed(below)} ran faster" if below else ""
    if below and not is_refuted(bound, candidates):
        # All times are off alike: a proof, which is of the share, stands beside this.
        refuted += "; no split refutes what it says of the gain"
    line = (
        f"bound (simulated{refuted}): one device takes {format_ns(bound.single_ns)}, "
        f"no placement {of} can take less than {format_ns(bound.step_ns)}: at most "
        f"{format_share(bound.most_to_gain)} to gain"
    )
    if bound.split_ns <= bound.single_ns:
        line += f"; {bound.reason}"
    if bound.most_to_gain_if_wrong is not None:
        held = "that holds" if bound.proves_single_if_wrong else "that is not proved"
        line += (
            f"; {held} if {doubt_text(bound.doubt)}, with at most "
            f"{format_share(bound.most_to_gain_if_wrong)} to gain then"
        )
    if others:
        split = "split" if len(others) > 1 else "splits"
        return f"{line}; {listed(others)} {split} the batch, which makes other ops"
    return f"{line}; splits of the batch or of a tensor make other ops"


def binds_all(
    bound: UncertainBound, candidates: Sequence[Candidate], as_is: Sequence[int] | None
) -> bool:
    """Whether no step that a table of the candidates shows can lie below the bound, or does.

    A split of the batch is of other ops, a measured step of other costs, and the unmodified step
    (``as_is``, in ns) has all of the machine.
    """
    if _splits_of_batch(candidates) or _measured_below(bound, candidates):
        return False
    return not as_is or median(as_is) >= bound.step_ns


def is_refuted(bound: UncertainBound, candidates: Sequence[Candidate]) -> bool:
    """Whether a placement saved more, as measured, than the bound says that any can."""
    least = 1 - bound.most_to_gain
    return any(
        c.comparison is not None and c.samples is None and c.comparison.ratio.median < least
        for c in candidates
    )


def _splits_of_batch(candidates: Sequence[Candidate]) -> list[str]:
    """Return the candidates that are of other ops than the step that was traced."""
    return [c.name for c in candidates if c.samples is not None]


def _measured_below(bound: UncertainBound, candidates: Sequence[Candidate]) -> list[str]:
    return [
        c.name
        for c in candidates
        if c.samples is None and c.step_ns is not None and c.step_ns < bound.step_ns
    ]


def faster_device_reason(other: Candidate, alone: Candidate) -> str | None:
    """Return that another device alone beats the baseline; None if it does not."""
    if other.predicted is None or alone.predicted is None:
        return None
    ratio = other.predicted.step_ns / max(1, alone.predicted.step_ns)
    if ratio >= defaults.WORTHWHILE_RATIO:
        return None
    return (
        f"{other.name} is {speedup_of(ratio)} as fast as {alone.name} (simulated): the first "
        "device is not the fastest, so compare splits with that one"
    )


def failure_reason(candidate: Candidate) -> str | None:
    """Return why a candidate has no result, and that the answer does not cover it."""
    failure = candidate.failure
    if failure is None:
        return unverified_reason(candidate)
    if failure.kind is measurements.FailureKind.NOT_APPLICABLE:
        return f"{candidate.name}: not applicable: {failure.message}"
    kind = failure.kind.value.replace("-", " ")
    return f"{candidate.name}: {kind}: {failure.message}; the answer does not cover it"


def unverified_reason(candidate: Candidate) -> str | None:
    """Return that it was not shown to train the same model, None if it was or did not run."""
    if not candidate.is_unverified:
        return None
    assert candidate.measured is not None
    assert candidate.measured.verification is not None
    names = candidate.measured.verification.unverified
    shown = first_names([repr(name) for name in names], _NAMED_VARIABLES)
    return (
        f"{candidate.name}: unverified: a mistake in what it adds to {shown} would not have "
        "shown; it is not recommended, and the answer does not cover it"
    )


def _ratio_reason(name: str, comparison: measurements.Comparison) -> str:
    speedup = comparison.speedup
    return (
        f"{name} is {speedup.median:.2f}× as fast as {comparison.baseline} "
        f"(95 % interval {speedup.low:.2f}–{speedup.high:.2f}, {comparison.rounds} rounds): "
        f"{_VERDICT_WORDS[comparison.verdict]}"
    )


def _copies_against_compute(name: str, profile: measurements.StepProfile) -> str:
    compute = _by_device(profile.compute_ns)
    if profile.transfer_count is None:
        unseen = profile.unseen_copies
        return (
            f"{name}: each step makes {copies_text(len(unseen))} that the profile does "
            f"not show, such as {unseen[0]}, so how much it copies is unknown; compute: {compute}"
        )
    if not profile.transfer_count:
        return f"{name}: no copies; compute: {compute}"
    size = profile.transfer_bytes
    carry = "carries" if profile.transfer_count == 1 else "carry"
    line = (
        f"{name}: {copies_text(profile.transfer_count)} per step {carry} "
        f"{'an unknown number of bytes' if size is None else format_bytes(size)} "
        f"in {format_ns(profile.transfer_ns)}"
    )
    waits_ns = profile.exposed_by_device
    waiting = max(waits_ns, key=waits_ns.__getitem__)
    share = waits_ns[waiting] / median(profile.step_ns) if profile.step_ns else None
    return (
        f"{line}; {waiting} has nothing to compute during {format_ns(waits_ns[waiting])} of it "
        f"({format_share(share)} of the step); compute: {compute}"
    )


def _free_copies(
    name: str, profile: measurements.StepProfile, alone: measurements.StepProfile
) -> str:
    """Return the floor that compute sets; copies that slow the cores down are still in it."""
    busiest = max(profile.compute_ns, key=profile.compute_ns.__getitem__)
    ours, theirs = profile.compute_ns[busiest], max(alone.compute_ns.values())
    return (
        f"if copies were free, {name} would still need at least the {format_ns(ours)} that "
        f"{busiest} computes; single computes for {format_ns(theirs)}"
    )


def _prediction_error(name: str, predicted_ns: int, measured_ns: float) -> str:
    error = predicted_ns / measured_ns - 1
    side = "low" if error < 0 else "high"
    return (
        f"{name}: predicted {format_ns(predicted_ns)}, measured {format_ns(measured_ns)}: "
        f"the prediction is {format_share(abs(error))} too {side}"
    )


def is_other_side(candidate: Candidate) -> bool:
    """Whether the prediction would have decided otherwise than the measurement."""
    predicted, comparison = candidate.predicted_ratio, candidate.comparison
    if predicted is None or comparison is None:
        return False
    is_worth_it = comparison.ratio.median < defaults.WORTHWHILE_RATIO
    return is_worth_it != (predicted.ratio < defaults.WORTHWHILE_RATIO)


def _by_device(compute_ns: Mapping[str, int]) -> str:
    return ", ".join(f"{format_ns(time_ns)} on {device}" for device, time_ns in compute_ns.items())
