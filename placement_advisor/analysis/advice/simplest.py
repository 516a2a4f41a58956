"""The simplest of the splits that nothing tells apart.

A split that tears layers, goes over the host or copies more is more to write, debug and keep. So it
is recommended only over what it is surely faster than: measured, if it wins in the same rounds;
simulated, if the ranges of their ratios do not overlap. Of those that are alike in all of that, one
that a search found stands behind those that follow a rule, which says it in a sentence. One that is
bad on purpose tears nothing, and stands behind all others. What the user has written is there
already, and simpler than any other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from placement_advisor.analysis.advice.reasons import speedup_of
from placement_advisor.candidates.families import WORST_CASE_FAMILIES
from placement_advisor.defaults import AS_WRITTEN
from placement_advisor.graph.name_patterns import listed
from placement_advisor.measurement.measurement import compare
from placement_advisor.solvers.step_search import FAMILY as SEARCHED
from placement_advisor.units import counted

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from placement_advisor.analysis.analysis_result import Candidate
    from placement_advisor.measurement.measurement import Measurement
    from placement_advisor.simulator.schedule import Transfer
    from placement_advisor.simulator.sensitivity import PredictedRatio


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
            return "is laid out badly on purpose"
        if self.is_new > simpler.is_new:
            return "is not what you have"
        if self.torn_layers > simpler.torn_layers:
            return f"tears {counted(self.torn_layers, 'layer')} against {simpler.torn_layers}"
        if self.over_host > simpler.over_host:
            over_host = counted(self.over_host, "tensor")
            return f"copies {over_host} over the host against {simpler.over_host}"
        if self.copies > simpler.copies:
            return f"copies {counted(self.copies, 'tensor')} against {simpler.copies}"
        return "was found by a search, and follows no rule"


def simplest_measured(
    faster: Sequence[tuple[Candidate, Measurement]], hosts: Collection[str]
) -> Candidate:
    """Return the simplest of those that the first one, the fastest, does not surely beat."""
    best, run = faster[0]
    alike = [best]
    for candidate, other in faster[1:]:
        beaten = compare(best.name, run.rounds, other.rounds, among=len(faster))
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


def complicated_reason(
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
