"""The verdict on a set of candidates: split, stay single, or cannot tell.

Measured candidates: *split* if an interval lies below the worthwhile ratio, *stay single* if the
intervals of all candidates lie above it, else *cannot tell*, with the run that would settle it.
Where the devices are real, a split must also beat the unmodified step. Simulated candidates: the
same, with the range that uncertain costs give the ratio in place of the interval. A candidate
that is surely worth it decides, even if another one is predicted faster but not surely. A
candidate that ran briefly neither wins nor leaves a doubt where something else was measured; if
it is faster all the same, the verdict is not *stay single*.

Of several candidates that are surely worth it, the simplest one wins unless another surely beats
it: a split that tears layers, copies over the host or copies more is more to write, debug and
keep. Measured candidates beat one another in the same rounds; simulated ones if their ranges do
not overlap. Rules come before searches, the user's own split before all others, and a family that
is bad on purpose comes last.

*Stay single* needs at least one split that was tried and is not bad on purpose, or a proof: a
bound on the step of any placement. A proof under costs that were not measured must hold even if
these are as wrong as they may be. Without either the verdict is *cannot tell*: that no split was
found does not show that none would help. A candidate that failed is not covered, and a reason
says so. *Cannot fit*: one device does not hold the step; the answer is the smallest split that
fits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil
from typing import TYPE_CHECKING, NamedTuple

from placement_advisor import defaults, units
from placement_advisor.analysis.analysis_result import AdviceVerdict, Candidate, NextRun
from placement_advisor.analysis.reasons import doubt_text, speedup_of, speedup_text, unsure_reason
from placement_advisor.candidates.families import WORST_CASE_FAMILIES
from placement_advisor.defaults import AS_WRITTEN
from placement_advisor.graph.name_patterns import listed
from placement_advisor.measurement import measurement as measurements
from placement_advisor.solvers.step_search import FAMILY as SEARCHED

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from placement_advisor.simulator.schedule import Transfer
    from placement_advisor.simulator.sensitivity import PredictedRatio


# The interval shrinks with the square root of the rounds: past this they buy next to nothing.
MAX_ROUNDS_TO_ADVISE = 500
_MORE = "--resume --rounds"
_MUST_WIN = units.format_share(1 - defaults.WORTHWHILE_RATIO)


class NextExperiment(NamedTuple):
    """What would settle a verdict: the end of a sentence, and how many rounds more, if it is these.

    In the words ``{how}`` stands for the run that would tell more, ``{takes}`` for how long it is.
    """

    words: str
    rounds: int | None = None


REAL_RUN = NextExperiment("a real run{how} would settle it")
# Steps that call Python cannot be placed and run.
WITHOUT_PYTHON = NextExperiment("a step without Python could run, which would settle it")
# On devices that are not here, of which a profile was given or not.
RECORDED_ELSEWHERE = NextExperiment("a run on such devices would settle it")
ELSEWHERE = NextExperiment(f"{RECORDED_ELSEWHERE.words}, a profile recorded there (--costs) may")
QUIETER_MACHINE = NextExperiment(
    f"the ratio is too near {defaults.WORTHWHILE_RATIO} for more rounds to help: only a quieter "
    "machine would settle it"
)


def more_rounds(count: int) -> NextExperiment:
    """Return that so many rounds in addition would settle it."""
    how = f"{_MORE} {count}{{takes}}"
    return NextExperiment(f"more rounds ({how}) or a quieter machine would settle it", count)


@dataclass(frozen=True, slots=True, kw_only=True)
class RerunEstimate:
    """What a command would take that tells more: rounds of steps, and all else.

    ``left_out`` is the option without which it would tell more, None where it goes on with rounds.
    ``round_s`` is None where no step can run.
    """

    fixed_s: float
    round_s: float | None
    left_out: str | None = None

    def takes_s(self, rounds: int) -> float:
        """Return about how long it would take with so many rounds."""
        return self.fixed_s + rounds * (self.round_s or 0.0)


def rounds_to_settle(comparison: measurements.Comparison) -> NextExperiment:
    """Return how many rounds more would get the interval to one side of the worthwhile ratio."""
    ratio = comparison.ratio
    distance = abs(ratio.median - defaults.WORTHWHILE_RATIO)
    reach = max(ratio.high - ratio.median, ratio.median - ratio.low)
    if reach**2 * comparison.rounds > distance**2 * MAX_ROUNDS_TO_ADVISE:
        return QUIETER_MACHINE
    rounds = ceil(comparison.rounds * (reach / distance) ** 2)
    return more_rounds(max(rounds - comparison.rounds, comparison.rounds))


def next_experiment_text(settling: NextExperiment | None, again: RerunEstimate | None) -> str:
    """Return what would settle it as the end of a sentence; nothing if nothing is known to."""
    if settling is None:
        return ""
    run, how, takes = next_run(settling, again), "", ""
    if run is not None:
        takes = f", about {units.format_duration(run.takes_ns / units.NS_PER_S)}"
        can_run = again is not None and again.round_s is not None
        how = f" ({run.change}{takes})" if can_run else ""
    return f"; {settling.words.format(how=how, takes=takes)}"


def next_run(settling: NextExperiment | None, again: RerunEstimate | None) -> NextRun | None:
    """Return the run that would tell more: with more rounds, or a first one; None if none."""
    if again is None:
        return None
    if again.left_out is not None:
        rounds, change = defaults.ROUNDS, f"without {again.left_out}"
    elif settling is not None and settling.rounds is not None:
        rounds, change = settling.rounds, f"with {_MORE} {settling.rounds}"
    else:
        return None
    return NextRun(change=change, takes_ns=round(again.takes_s(rounds) * units.NS_PER_S))


@dataclass(frozen=True, slots=True, order=True)
class Complexity:
    """How much of a model a split takes apart; the first that differs decides which is simpler.

    A split of the batch takes nothing apart. What nobody simulated has no copies to count.
    """

    is_bad_on_purpose: bool
    is_new: bool
    torn_layers: int
    over_host: int
    copies: int
    is_searched: bool

    @classmethod
    def of(cls, candidate: Candidate, hosts: Collection[str]) -> Complexity:
        """Return that of a candidate; ``hosts`` are those of the cluster."""
        copies: Sequence[Transfer] = ()
        if candidate.samples is None and candidate.predicted is not None:
            copies = candidate.predicted.transfers
        return cls(
            is_bad_on_purpose=candidate.family in WORST_CASE_FAMILIES,
            is_new=candidate.family != AS_WRITTEN,
            torn_layers=candidate.torn_layers,
            over_host=sum(copy.source in hosts or copy.target in hosts for copy in copies),
            copies=len(copies),
            is_searched=candidate.family == SEARCHED,
        )

    def beyond(self, simpler: Complexity) -> str:
        """Return in which way it is more complicated than another one."""
        if self.is_bad_on_purpose > simpler.is_bad_on_purpose:
            return "is a bad layout on purpose"
        if self.is_new > simpler.is_new:
            return "is not what you have"
        if self.torn_layers > simpler.torn_layers:
            return f"tears {units.counted(self.torn_layers, 'layer')} against {simpler.torn_layers}"
        if self.over_host > simpler.over_host:
            over_host = units.counted(self.over_host, "tensor")
            return f"copies {over_host} over the host against {simpler.over_host}"
        if self.copies > simpler.copies:
            return f"copies {units.counted(self.copies, 'tensor')} against {simpler.copies}"
        return "was found by a search, and follows no rule"


def simplest_measured(
    faster: Sequence[tuple[Candidate, measurements.Measurement]], hosts: Collection[str]
) -> Candidate:
    """Return the simplest of those that the first one, the fastest, does not surely beat."""
    best, run = faster[0]
    alike = [best]
    for candidate, other in faster[1:]:
        beaten = measurements.compare(best.name, run.rounds, other.rounds, among=len(faster))
        if beaten is not None and beaten.ratio.low <= 1:
            alike.append(candidate)
    return min(alike, key=lambda each: Complexity.of(each, hosts))


def simplest_simulated(
    faster: Sequence[tuple[Candidate, PredictedRatio]], hosts: Collection[str]
) -> tuple[Candidate, PredictedRatio]:
    """Return the simplest of those whose range overlaps that of the first one, the fastest."""
    _, best = faster[0]
    alike = [entry for entry in faster if entry[1].low <= best.high]
    return min(alike, key=lambda entry: Complexity.of(entry[0], hosts))


def complexity_reason(
    faster: Sequence[tuple[Candidate, float]], chosen: Candidate, hosts: Collection[str]
) -> str | None:
    """Return why candidates that are faster, but not surely, are not the answer; None if none is.

    ``faster`` are candidates with their ratios, the fastest first; those before the chosen one
    count.
    """
    names = [candidate.name for candidate, _ in faster]
    before = faster[: names.index(chosen.name)]
    if not before:
        return None
    simple = Complexity.of(chosen, hosts)
    mores = [Complexity.of(candidate, hosts).beyond(simple) for candidate, _ in before]
    told = [f"{candidate.name} at {speedup_of(ratio)}" for candidate, ratio in before]
    if len(before) == 1:
        are, why = "is", f"it {mores[0]}"
    else:
        are = "are"
        why = ", ".join(f"{name} {more}" for name, more in zip(names, mores, strict=False))
    return f"{listed(told)} {are} not surely faster than {chosen.name}, and more complicated: {why}"


AS_IS = "as-is"


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictDecision:
    """A verdict on a split; ``says`` and ``adds`` go before and after the ground."""

    verdict: AdviceVerdict
    says: str
    split: Candidate | None = None
    speedup: measurements.Interval | None = None
    adds: str = ""
    settling: NextExperiment | None = None
    because: str | None = None


def rule_unfit(alone: Candidate, splits: Sequence[Candidate]) -> VerdictDecision:
    """Rule on a step that one device does not hold: fewest devices that do, then the fastest."""
    assert alone.failure is not None
    ruling = VerdictDecision(
        verdict=AdviceVerdict.CANNOT_FIT,
        says="no split was found that fits",
        because=alone.failure.message,
    )
    fitting = [
        (c, c.placement, c.predicted)
        for c in splits
        if c.failure is None and c.placement is not None and c.predicted is not None
    ]
    if not fitting:
        return ruling
    best, placement, predicted = min(
        fitting, key=lambda entry: (len(set(entry[1].device_of.values())), entry[2].step_ns)
    )
    used = set(placement.device_of.values())
    peaks = ", ".join(
        f"{device} {units.format_bytes(size)}"
        for device, size in predicted.peak_memory_bytes.items()
        if device in used
    )
    return replace(
        ruling,
        says=f"the smallest split that fits is {best.name} on {len(used)} devices, "
        f"{units.format_ns(predicted.step_ns)}, peak memory {peaks}",
        split=best,
    )


def rule_measured(
    alone: Candidate,
    splits: Sequence[Candidate],
    to_beat: Sequence[int] | None,
    is_proved: bool,
    hosts: Collection[str],
) -> VerdictDecision:
    """Rule on splits that ran; ``to_beat`` are steps as they are, of as many in each round."""
    if alone.failure is not None or alone.measured is None:
        return cannot_tell("single has no measurement to compare with")
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
    deciding = measurements.overall_verdict([comparison for _, _, comparison in compared])
    alike = sorted(
        (entry for entry in compared if entry[2].verdict is deciding),
        key=lambda entry: entry[2].ratio.median,
    )
    best, _, comparison = alike[0]
    speedup = comparison.speedup
    if deciding is measurements.Verdict.FASTER:
        return _rule_faster(alike, to_beat, hosts, among=len(splits))
    says = f"{best.name} at {speedup_text(speedup)}"
    if deciding is measurements.Verdict.SLOWER:
        lost = VerdictDecision(
            verdict=AdviceVerdict.STAY_SINGLE, says=says, split=best, speedup=speedup
        )
        for candidate, _, brief in tried:
            if brief.verdict is measurements.Verdict.FASTER:
                return _contradicted(lost, candidate, brief)
        return _all_lost(lost, [candidate for candidate, _, _ in compared], is_proved)
    return VerdictDecision(
        verdict=AdviceVerdict.CANNOT_TELL,
        says=says,
        split=best,
        speedup=speedup,
        settling=rounds_to_settle(comparison),
    )


def _rule_faster(
    faster: Sequence[tuple[Candidate, measurements.Measurement, measurements.Comparison]],
    to_beat: Sequence[int] | None,
    hosts: Collection[str],
    *,
    among: int,
) -> VerdictDecision:
    """Rule on splits that beat the single device, the fastest first."""
    beating = [
        VerdictDecision(
            verdict=AdviceVerdict.SPLIT,
            says=f"{candidate.name}, {speedup_text(comparison.speedup)}",
            split=candidate,
            speedup=comparison.speedup,
        )
        for candidate, _, comparison in faster
    ]
    rulings = [
        _against_as_is(ruling, run, to_beat, among=among) if to_beat else ruling
        for ruling, (_, run, _) in zip(beating, faster, strict=True)
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
    because = complexity_reason(ratios, chosen, hosts)
    ruling = next(ruling for _, ruling in won if ruling.split is chosen)
    return replace(ruling, because=because)


def _against_as_is(
    ruling: VerdictDecision, run: measurements.Measurement, as_is: Sequence[int], *, among: int
) -> VerdictDecision:
    """Rule on a split that beats the single device: it must beat the unmodified step as well.

    ``ruling`` is what holds then. ``as_is`` has as many of its steps in each round, ``among`` is
    the number of splits that it was chosen from.
    """
    assert ruling.split is not None
    each = len(as_is) // len(run.rounds)
    turns = [as_is[i * each : (i + 1) * each] for i in range(len(run.rounds))]
    comparison = measurements.compare(AS_IS, turns, run.rounds, among=among)
    verdict = measurements.Verdict.INCONCLUSIVE if comparison is None else comparison.verdict
    if verdict is measurements.Verdict.FASTER:
        return ruling
    if verdict is measurements.Verdict.SLOWER:
        return replace(
            ruling,
            verdict=AdviceVerdict.STAY_SINGLE,
            says=f"best split is {ruling.says}, which does not beat the step as it is",
            because=f"{ruling.split.name} beats single as the advisor runs it, "
            f"but not the unmodified step by the {_MUST_WIN} that a split must win",
        )
    return replace(
        ruling,
        verdict=AdviceVerdict.CANNOT_TELL,
        says=f"{ruling.says} over single, but not clearly faster than the step as it is",
        settling=more_rounds(run.round_count),
    )


def rule_simulated(
    alone: Candidate,
    splits: Sequence[Candidate],
    is_proved: bool,
    settling: NextExperiment,
    hosts: Collection[str],
) -> VerdictDecision:
    """Rule on splits that did not run; ``settling`` is what would tell more."""
    tried = [
        (c, c.predicted_ratio)
        for c in splits
        if c.failure is None and c.predicted_ratio is not None
    ]
    if not tried:
        return _nothing_tried(splits, "simulated", is_proved)
    by_ratio = sorted(tried, key=lambda entry: entry[1].ratio)
    best, ratio = by_ratio[0]
    sure = [entry for entry in by_ratio if entry[1].high < defaults.WORTHWHILE_RATIO]
    if sure:
        chosen, given = simplest_simulated(sure, hosts)
        unsure = None if sure[0][0] is best else unsure_reason(best.name, ratio)
        ratios = [(candidate, predicted.ratio) for candidate, predicted in sure]
        return VerdictDecision(
            verdict=AdviceVerdict.SPLIT,
            says=f"{chosen.name}, {speedup_of(given.ratio)}",
            split=chosen,
            because=complexity_reason(ratios, chosen, hosts) or unsure,
        )
    says = f"{best.name} at {speedup_of(ratio.ratio)}"
    if all(each.low > defaults.WORTHWHILE_RATIO for _, each in tried):
        lost = VerdictDecision(verdict=AdviceVerdict.STAY_SINGLE, says=says, split=best)
        return _all_lost(lost, [candidate for candidate, _ in tried], is_proved)
    _, doubtful = min(tried, key=lambda entry: entry[1].low)
    return VerdictDecision(
        verdict=AdviceVerdict.CANNOT_TELL,
        says=says,
        split=best,
        settling=settling,
        because=f"the verdict changes if {doubt_text(doubtful.doubt)}: the largest error in "
        "costs that nobody measured here",
    )


def _nothing_tried(splits: Sequence[Candidate], done: str, is_proved: bool) -> VerdictDecision:
    """Rule where there is no split to judge; see the module for why only a proof decides then."""
    if is_proved:
        return VerdictDecision(verdict=AdviceVerdict.STAY_SINGLE, says="no split was tried")
    absent = measurements.FailureKind.NOT_APPLICABLE
    if splits and all(failed_by(split, absent) for split in splits):
        return cannot_tell("no split of this graph was found to try")
    return cannot_tell(f"no split was {done} to compare with single")


def _all_lost(
    lost: VerdictDecision, tried: Sequence[Candidate], is_proved: bool
) -> VerdictDecision:
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


def _contradicted(
    lost: VerdictDecision, winner: Candidate, comparison: measurements.Comparison
) -> VerdictDecision:
    """Return that it cannot be told: what ran briefly came out faster than one device."""
    return replace(
        lost,
        verdict=AdviceVerdict.CANNOT_TELL,
        because=f"{winner.name} came out at {speedup_text(comparison.speedup)}, in "
        f"{comparison.rounds} rounds that do not decide: name it in --candidates to have it "
        "compared",
    )


def cannot_tell(says: str) -> VerdictDecision:
    """Return that it cannot be told, with the reason."""
    return VerdictDecision(verdict=AdviceVerdict.CANNOT_TELL, says=says)


def failed_by(candidate: Candidate, kind: measurements.FailureKind) -> bool:
    """Say whether a candidate has no result for this reason."""
    return candidate.failure is not None and candidate.failure.kind is kind
