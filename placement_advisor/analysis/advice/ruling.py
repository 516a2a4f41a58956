"""What candidates prove: split, stay single, or cannot tell.

Measured: *split* if a candidate's interval lies below the worthwhile ratio; *stay single* if every
candidate that ran lies above it; else *cannot tell*, with what would settle it. Where the devices
are no stand-ins, a split must also beat the step as it is. Simulated: the same, with the range of
the ratio if costs are wrong by as much as they are known to be in place of the interval. So a
candidate that is surely worth it decides, even where another is predicted faster but not surely.
Of those that are surely worth it, the answer is the simplest that none surely beats (`simplest`).
What ran briefly neither wins nor leaves anything in doubt where something else was measured; where
it comes out faster all the same, staying single is not the answer.

*Stay single* rests on at least one split that was tried and is not bad on purpose, or on a proof: a
bound on the step of any placement, under the costs of the prediction. Where there is neither (no
family applies, or all failed), the answer is *cannot tell*: that the advisor found no split does
not show that none would help. A proof under costs that were not measured decides only if it holds
even where these are as wrong as they may be; simulated ratios must do no less. A candidate that
failed is not covered by the verdict, and a reason says so. *Cannot fit*: one device does not hold
the step; the answer is the smallest split that fits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from placement_advisor.analysis.advice.reasons import (
    doubt_text,
    speedup_of,
    speedup_text,
    unsure_reason,
)
from placement_advisor.analysis.advice.settling import MoreRounds, rounds_to_settle
from placement_advisor.analysis.advice.simplest import (
    complicated_reason,
    simplest_measured,
    simplest_simulated,
)
from placement_advisor.analysis.analysis_result import AdviceVerdict
from placement_advisor.candidates.families import WORST_CASE_FAMILIES
from placement_advisor.measurement.measurement import (
    WORTHWHILE_RATIO,
    Comparison,
    FailureKind,
    Verdict,
    compare,
    overall_verdict,
)
from placement_advisor.units import format_bytes, format_ns

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from placement_advisor.analysis.advice.settling import Settling
    from placement_advisor.analysis.analysis_result import Candidate
    from placement_advisor.measurement.measurement import Interval, Measurement

AS_IS = "as-is"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """A verdict on a split; ``says`` and ``adds`` go before and after the ground."""

    verdict: AdviceVerdict
    says: str
    split: Candidate | None = None
    speedup: Interval | None = None
    adds: str = ""
    settling: Settling | None = None
    because: str | None = None


def rule_unfit(alone: Candidate, splits: Sequence[Candidate]) -> Ruling:
    """Rule on a step that one device does not hold: fewest devices that do, then the fastest."""
    assert alone.failure is not None
    fitting = [
        (c, c.placement, c.predicted)
        for c in splits
        if c.failure is None and c.placement is not None and c.predicted is not None
    ]
    if not fitting:
        return Ruling(
            verdict=AdviceVerdict.CANNOT_FIT,
            says="no split was found that fits",
            because=alone.failure.message,
        )
    best, placement, predicted = min(
        fitting, key=lambda entry: (len(set(entry[1].device_of.values())), entry[2].step_ns)
    )
    used = set(placement.device_of.values())
    peaks = ", ".join(
        f"{device} {format_bytes(size)}"
        for device, size in predicted.peak_memory_bytes.items()
        if device in used
    )
    return Ruling(
        verdict=AdviceVerdict.CANNOT_FIT,
        says=f"the smallest split that fits is {best.name} on {len(used)} devices, "
        f"{format_ns(predicted.step_ns)}, peak memory {peaks}",
        split=best,
        because=alone.failure.message,
    )


def rule_measured(
    alone: Candidate | None,
    splits: Sequence[Candidate],
    to_beat: Sequence[int] | None,
    is_proved: bool,
    hosts: Collection[str],
) -> Ruling:
    """Rule on splits that ran; ``to_beat`` are steps as they are, of as many in each round."""
    if alone is None or alone.failure is not None or alone.measured is None:
        return no_ground("single has no measurement to compare with")
    tried = [
        (c, c.measured, c.comparison)
        for c in splits
        if c.failure is None
        and c.measured is not None
        and c.comparison is not None
        # What was not shown to train the same model is not offered.
        and not c.is_unverified
    ]
    if not tried:
        return _nothing_tried(splits, "measured", is_proved)
    compared = [entry for entry in tried if not entry[2].is_brief] or tried
    deciding = overall_verdict([comparison for _, _, comparison in compared])
    alike = sorted(
        (entry for entry in compared if entry[2].verdict is deciding),
        key=lambda entry: entry[2].ratio.median,
    )
    best, _, comparison = alike[0]
    speedup = comparison.speedup
    if deciding is Verdict.FASTER:
        return _rule_faster(alike, to_beat, hosts, among=len(splits))
    says = f"{best.name} at {speedup_text(speedup)}"
    if deciding is Verdict.SLOWER:
        lost = Ruling(verdict=AdviceVerdict.STAY_SINGLE, says=says, split=best, speedup=speedup)
        for candidate, _, brief in tried:
            if brief.verdict is Verdict.FASTER:
                return _contradicted(lost, candidate, brief)
        return _all_lost(lost, [candidate for candidate, _, _ in compared], is_proved)
    return Ruling(
        verdict=AdviceVerdict.CANNOT_TELL,
        says=says,
        split=best,
        speedup=speedup,
        settling=rounds_to_settle(comparison),
    )


def _rule_faster(
    faster: Sequence[tuple[Candidate, Measurement, Comparison]],
    to_beat: Sequence[int] | None,
    hosts: Collection[str],
    *,
    among: int,
) -> Ruling:
    """Rule on splits that beat the single device, the fastest first."""
    rulings = [
        _against_as_is(candidate, run, comparison.speedup, to_beat, among=among)
        if to_beat
        else Ruling(
            verdict=AdviceVerdict.SPLIT,
            says=f"{candidate.name}, {speedup_text(comparison.speedup)}",
            split=candidate,
            speedup=comparison.speedup,
        )
        for candidate, run, comparison in faster
    ]
    won = [
        (entry, ruling)
        for entry, ruling in zip(faster, rulings, strict=True)
        if ruling.verdict is AdviceVerdict.SPLIT
    ]
    if not won:
        return rulings[0]
    chosen = simplest_measured([(candidate, run) for (candidate, run, _), _ in won], hosts)
    ratios = [(candidate, comparison.ratio.median) for (candidate, _, comparison), _ in won]
    because = complicated_reason(ratios, chosen, hosts)
    ruling = next(ruling for _, ruling in won if ruling.split is chosen)
    return replace(ruling, because=because)


def _against_as_is(
    best: Candidate, run: Measurement, speedup: Interval, as_is: Sequence[int], *, among: int
) -> Ruling:
    """Rule on a split that beats the single device: it must beat the unmodified step as well.

    ``among`` is the number of splits that it was chosen from.
    """
    comparison = with_as_is(best, run, as_is, among=among)
    verdict = Verdict.INCONCLUSIVE if comparison is None else comparison.verdict
    says = f"{best.name}, {speedup_text(speedup)}"
    if verdict is Verdict.FASTER:
        return Ruling(verdict=AdviceVerdict.SPLIT, says=says, split=best, speedup=speedup)
    if verdict is Verdict.SLOWER:
        return Ruling(
            verdict=AdviceVerdict.STAY_SINGLE,
            says=f"best split is {says}, which does not beat the step as it is",
            split=best,
            speedup=speedup,
            because=f"{best.name} beats single as the advisor runs it, "
            "but not the unmodified step by the 3 % that a split must win",
        )
    return Ruling(
        verdict=AdviceVerdict.CANNOT_TELL,
        says=f"{says} over single, but not clearly faster than the step as it is",
        split=best,
        speedup=speedup,
        settling=MoreRounds(count=run.round_count),
    )


def with_as_is(
    split: Candidate, run: Measurement, as_is: Sequence[int], *, among: int
) -> Comparison | None:
    """Compare a split with the unmodified step, of which as many steps ran in each round."""
    each = len(as_is) // len(run.rounds)
    turns = [as_is[i * each : (i + 1) * each] for i in range(len(run.rounds))]
    return compare(AS_IS, turns, run.rounds, among=among)


def rule_simulated(
    alone: Candidate | None,
    splits: Sequence[Candidate],
    is_proved: bool,
    settling: Settling,
    hosts: Collection[str],
) -> Ruling:
    """Rule on splits that did not run; ``settling`` is what would tell more."""
    if alone is None or alone.predicted is None:
        return no_ground("single has no prediction to compare with")
    tried = [
        (c, c.predicted_ratio)
        for c in splits
        if c.failure is None and c.predicted_ratio is not None
    ]
    if not tried:
        return _nothing_tried(splits, "simulated", is_proved)
    by_ratio = sorted(tried, key=lambda entry: entry[1].ratio)
    best, ratio = by_ratio[0]
    sure = [entry for entry in by_ratio if entry[1].high < WORTHWHILE_RATIO]
    if sure:
        chosen, given = simplest_simulated(sure, hosts)
        unsure = None if sure[0][0] is best else unsure_reason(best.name, ratio)
        ratios = [(candidate, predicted.ratio) for candidate, predicted in sure]
        return Ruling(
            verdict=AdviceVerdict.SPLIT,
            says=f"{chosen.name}, {speedup_of(given.ratio)}",
            split=chosen,
            because=complicated_reason(ratios, chosen, hosts) or unsure,
        )
    says = f"{best.name} at {speedup_of(ratio.ratio)}"
    if all(each.low > WORTHWHILE_RATIO for _, each in tried):
        lost = Ruling(verdict=AdviceVerdict.STAY_SINGLE, says=says, split=best)
        return _all_lost(lost, [candidate for candidate, _ in tried], is_proved)
    _, doubtful = min(tried, key=lambda entry: entry[1].low)
    return Ruling(
        verdict=AdviceVerdict.CANNOT_TELL,
        says=says,
        split=best,
        settling=settling,
        because=f"the verdict changes if {doubt_text(doubtful.doubt)}: as wrong as costs may be "
        "that nobody measured here",
    )


def _nothing_tried(splits: Sequence[Candidate], done: str, is_proved: bool) -> Ruling:
    """Rule where there is no split to judge; see the module for why only a proof decides then."""
    if is_proved:
        return Ruling(verdict=AdviceVerdict.STAY_SINGLE, says="no split was tried")
    if splits and all(map(is_not_applicable, splits)):
        return no_ground("no split of this graph was found to try")
    return no_ground(f"no split was {done} to compare with single")


def _all_lost(lost: Ruling, tried: Sequence[Candidate], is_proved: bool) -> Ruling:
    """Return the ruling to stay, if it rests on more than splits that are bad on purpose.

    That those lose was known before, and says nothing of others.
    """
    stay = replace(lost, says=f"best split is {lost.says}")
    if not all(candidate.family in WORST_CASE_FAMILIES for candidate in tried):
        return stay
    names = " and ".join(candidate.name for candidate in tried)
    is_one = len(tried) == 1
    is_bad, loses = ("split tried is", "it loses") if is_one else ("splits tried are", "they lose")
    because = f"the only {is_bad} {names}, bad on purpose"
    if is_proved:
        return replace(stay, because=because)
    return replace(
        lost,
        verdict=AdviceVerdict.CANNOT_TELL,
        adds="; no split was tried but those that are bad on purpose",
        because=f"{because}: that {loses} does not show that no split would help",
    )


def _contradicted(lost: Ruling, winner: Candidate, comparison: Comparison) -> Ruling:
    """Return that it cannot be told: what ran briefly came out faster than one device."""
    return replace(
        lost,
        verdict=AdviceVerdict.CANNOT_TELL,
        because=f"{winner.name} came out at {speedup_text(comparison.speedup)}, in "
        f"{comparison.rounds} rounds that do not decide: name it in --candidates to have it "
        "compared",
    )


def no_ground(says: str) -> Ruling:
    """Return that it cannot be told, with the reason."""
    return Ruling(verdict=AdviceVerdict.CANNOT_TELL, says=says)


def is_not_applicable(candidate: Candidate) -> bool:
    """Say whether the family of a candidate has nothing to propose for this graph."""
    return candidate.failure is not None and candidate.failure.kind is FailureKind.NOT_APPLICABLE
