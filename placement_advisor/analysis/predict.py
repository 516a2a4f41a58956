"""What is known of the candidates for a step before any of them runs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING

from placement_advisor.analysis.analysis_result import Bound
from placement_advisor.candidates.families import WORST_CASE_FAMILIES
from placement_advisor.candidates.searched import layers_of
from placement_advisor.defaults import BASELINE
from placement_advisor.measurement.invariants import schedule_violations
from placement_advisor.measurement.measurement import (
    WORTHWHILE_RATIO,
    CandidateFailure,
    FailureKind,
)
from placement_advisor.simulator.break_even import FOR_FASTER_LINKS, break_even
from placement_advisor.simulator.schedule import shortages
from placement_advisor.simulator.sensitivity import Sensitivity
from placement_advisor.solvers.bound_check import verify
from placement_advisor.solvers.lower_bounds import bound_step, least_ratio_if_wrong
from placement_advisor.solvers.step_search import least_step

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from placement_advisor.analysis.analysis_result import Candidate
    from placement_advisor.analysis.propose import Proposals
    from placement_advisor.errors import AdvisorError
    from placement_advisor.graph.placement import Placement
    from placement_advisor.measurement.measurement import Violation
    from placement_advisor.simulator.break_even import BreakEven
    from placement_advisor.simulator.schedule import Schedule
    from placement_advisor.simulator.sensitivity import PredictedRatio
    from placement_advisor.simulator.step_growth import GrowingStep
    from placement_advisor.solvers.effort import Effort

# Where copies cost so much of what they cost here, a split is looked for that may win there.
# Judgement: a link of the next class (10 times), and next to free (1,000 times, as far as the
# break-even goes), for a unit of effort each, which is about a second. More places between would
# find splits that win sooner, and lengthen each analysis by as much.
_FASTER = (0.1, 0.001)
_UNITS_FOR_FASTER = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What is predicted of a candidate.

    ``ratio`` is None for the single device itself; ``too_large`` says why it does not fit, None if
    it does. ``weak_step_ns`` is its simulated step with the whole batch for every replica, None
    where the batch is not split. ``after_runs`` is the ratio as predicted when others had run and
    it had not, None if that was not.
    """

    schedule: Schedule
    ratio: PredictedRatio | None
    broken_laws: tuple[Violation, ...]
    too_large: CandidateFailure | None
    weak_step_ns: int | None
    after_runs: PredictedRatio | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What is predicted of each candidate, by label, and how far costs may move it."""

    proposals: Proposals
    predicted: Mapping[str, Prediction]
    sensitivity: Sensitivity


def predict(proposals: Proposals) -> Forecast:
    """Simulate all candidates."""
    alone = proposals.placements[BASELINE]
    sensitivity = Sensitivity(proposals.simulator, alone, proposals.prices.doubt)
    predicted = {
        label: prediction_of(proposals, sensitivity, label) for label in proposals.placements
    }
    return Forecast(proposals=proposals, predicted=predicted, sensitivity=sensitivity)


def prediction_of(proposals: Proposals, sensitivity: Sensitivity, label: str) -> Prediction:
    """Simulate one candidate."""
    placement, split = proposals.placements[label], proposals.splits.get(label)
    simulator = None if split is None else split.simulator
    schedule = (simulator or proposals.simulator).schedule(placement)
    short = shortages(schedule.peak_memory, proposals.prices.cluster.devices)
    return Prediction(
        schedule=schedule,
        ratio=None if label == BASELINE else sensitivity.ratio(placement, simulator),
        broken_laws=schedule_violations(schedule),
        too_large=CandidateFailure(
            kind=FailureKind.DOES_NOT_FIT, message="; ".join(map(str, short))
        )
        if short
        else None,
        weak_step_ns=None if split is None else split.weak_step_ns,
    )


def bound_of(forecast: Forecast) -> Bound:
    """Return what no placement can beat, its arguments checked."""
    proposals = forecast.proposals
    graph, prices = proposals.graph, proposals.prices
    lower = bound_step(graph, prices.costs, prices.cluster, proposals.simulator)
    verify(lower, graph, prices.costs, prices.cluster)
    bound = Bound(
        lower=lower,
        single_ns=forecast.predicted[BASELINE].schedule.step_ns,
        source=prices.source,
        doubt=prices.doubt,
        ratio_if_wrong=None,
    )
    if not bound.proves_single:
        return bound
    ratio = least_ratio_if_wrong(graph, prices.costs, forecast.sensitivity)
    return replace(bound, ratio_if_wrong=ratio)


def break_even_of(
    forecast: Forecast,
    candidates: Sequence[Candidate],
    growing: GrowingStep | AdvisorError | None,
    effort: Effort,
) -> BreakEven | None:
    """Sweep what would have to change for a split to win, of those that fit and did not fail.

    ``candidates`` have what was measured, by which predictions are corrected; ``growing`` is the
    step at other batches, or why it is not known there.
    """
    proposals = forecast.proposals
    own, failed = proposals.of_whole_batch, {c.name for c in candidates if c.failure is not None}
    if BASELINE in failed or forecast.predicted[BASELINE].too_large is not None:
        return None
    splits = [
        *(
            placement
            for name, placement in own.items()
            if name not in {BASELINE, *failed} and len(set(placement.device_of.values())) > 1
        ),
        *_for_faster_links(proposals, effort),
    ]
    labels = [split.label for split in splits]
    return break_even(
        proposals.simulator,
        baseline=own[BASELINE],
        splits=tuple(splits),
        growing=growing,
        worthwhile_ratio=WORTHWHILE_RATIO,
        corrections=_corrections(labels, candidates),
    )


def _for_faster_links(proposals: Proposals, effort: Effort) -> Iterator[Placement]:
    """Yield what a search finds where copies cost less than here: splits that may win then."""
    effort = replace(effort, units=min(effort.units, _UNITS_FOR_FASTER))
    starts, layer_of = tuple(proposals.of_whole_batch.values()), layers_of(proposals.graph)
    for factor in _FASTER:
        cluster = proposals.prices.cluster.scaled(copies=factor, launches=1)
        found = least_step(proposals.simulator.on(cluster), starts, layer_of, effort)
        if not found.excess_bytes and len(set(found.placement.device_of.values())) > 1:
            yield replace(found.placement, label=FOR_FASTER_LINKS)


def _corrections(labels: Sequence[str], candidates: Sequence[Candidate]) -> dict[str, float]:
    """Return the measured over the predicted ratio of each split; nothing if none was measured.

    A split that did not run gets the median of those that did and are not bad on purpose.
    """
    seen = {
        c.name: c.comparison.ratio.median / c.predicted_ratio.ratio
        for c in candidates
        if c.name in labels and c.comparison and c.predicted_ratio and c.predicted_ratio.ratio
    }
    others = [
        seen[c.name] for c in candidates if c.name in seen and c.family not in WORST_CASE_FAMILIES
    ]
    if not seen:
        return {}
    middle = median(others or seen.values())
    return {label: seen.get(label, middle) for label in labels}
