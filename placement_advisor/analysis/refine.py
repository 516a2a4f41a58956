"""What to run next, once runs have shown by how much splits of the model are off.

Model: what the runs so far say (`Belief`) corrects what is predicted of all that has not run, and a
search goes on from there, by costs as they are: what it makes too much of is corrected as well. The
one that is then expected to be fastest runs, unless something that has run is at least as fast, or
the gain would not be worth a split.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from placement_advisor import defaults
from placement_advisor.analysis.predict import Forecast, prediction_of
from placement_advisor.candidates import searched
from placement_advisor.candidates.by_layer import NotApplicable
from placement_advisor.candidates.families import TO_UNDERSTAND
from placement_advisor.measurement.measurement import WORTHWHILE_RATIO, paired_ratios
from placement_advisor.simulator.sensitivity import MeasuredRatio, PredictionCorrection
from placement_advisor.solvers.step_search import FAMILY as SEARCHED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from placement_advisor.analysis.run import Results
    from placement_advisor.graph.placement import Placement
    from placement_advisor.simulator.sensitivity import PredictedRatio
    from placement_advisor.solvers.effort import Effort

# Halfway between the quartiles of what is normal lie so many standard deviations.
_QUARTILE = 0.674


@dataclass(frozen=True, slots=True, kw_only=True)
class Refined:
    """A candidate to run next, and the forecast that has it."""

    placement: Placement
    forecast: Forecast


def refine(forecast: Forecast, results: Results, effort: Effort) -> Refined | None:
    """Return what promises most by what has run; None if nothing promises more than that has.

    What is predicted of it by what has run is kept in the forecast, as made before it runs.
    """
    belief = believed(forecast, results)
    if belief is None:
        return None
    found = _searched(forecast, effort)
    with_found = forecast if found is None else with_candidate(forecast, found)
    promised = {
        label: belief.ratio(placement)
        for label, placement in with_found.proposals.of_whole_batch.items()
        if label not in results.outcomes
        and placement.family not in TO_UNDERSTAND
        and with_found.predicted[label].too_large is None
    }
    least = min(promised, key=lambda label: promised[label].ratio, default=None)
    measured = [ratio for ratio, _ in _measured(results).values()]
    if least is None or promised[least].ratio >= min(WORTHWHILE_RATIO, *measured):
        return None
    placement = with_found.proposals.placements[least]
    chosen = with_found if placement is found else forecast
    return Refined(placement=placement, forecast=with_ratio(chosen, least, promised[least]))


def learned(forecast: Forecast, results: Results) -> Forecast:
    """Return the forecast with what is predicted by all that has run, of all that has not."""
    belief = believed(forecast, results)
    if belief is None:
        return forecast
    for label, placement in forecast.proposals.of_whole_batch.items():
        if label not in results.outcomes and label != defaults.BASELINE:
            forecast = with_ratio(forecast, label, belief.ratio(placement))
    return forecast


def believed(forecast: Forecast, results: Results) -> PredictionCorrection | None:
    """Return what splits of the whole batch have shown; None if none has yet."""
    placements = forecast.proposals.of_whole_batch
    seen = [
        MeasuredRatio(placement=placements[label], ratio=ratio, deviation=deviation)
        for label, (ratio, deviation) in _measured(results).items()
        if label in placements
    ]
    return PredictionCorrection(forecast.sensitivity, seen) if seen else None


def middle(ratios: Sequence[float]) -> tuple[float, float]:
    """Return the median of ratios, and about the standard deviation of its logarithm."""
    logarithms = sorted(map(math.log, ratios))
    count = len(logarithms)
    quarter = logarithms[(3 * count) // 4] - logarithms[count // 4]
    # That of a median of what is normal is a quarter more than that of a mean.
    deviation = 1.25 * quarter / (2 * _QUARTILE) / math.sqrt(count)
    return math.exp(logarithms[count // 2]), deviation


def _searched(forecast: Forecast, effort: Effort) -> Placement | None:
    """Return what a search finds by costs as they are, None if nothing new."""
    proposals = forecast.proposals
    if SEARCHED not in proposals.answers:
        return None
    starts = proposals.of_whole_batch
    found = searched.propose_searched(
        starts,
        proposals.prices.costs,
        proposals.simulator,
        replace(effort, units=min(effort.units, defaults.REFINE_EFFORT)),
    )
    if isinstance(found, NotApplicable):
        return None
    count = sum(answer.family == SEARCHED for answer in proposals.answers.values())
    return replace(
        found,
        label=f"{SEARCHED}-{count + 1}",
        rationale=f"joined once others had run, {found.rationale}",
    )


def with_candidate(forecast: Forecast, placement: Placement) -> Forecast:
    """Return the forecast with one more candidate, simulated by costs as they were before runs."""
    answers = {**forecast.proposals.answers, placement.label: placement}
    proposals = replace(forecast.proposals, answers=answers)
    predicted = prediction_of(proposals, forecast.sensitivity, placement.label)
    return replace(
        forecast,
        proposals=proposals,
        predicted={**forecast.predicted, placement.label: predicted},
    )


def with_ratio(forecast: Forecast, label: str, ratio: PredictedRatio) -> Forecast:
    """Return the forecast with what runs of others say of a candidate."""
    predicted = replace(forecast.predicted[label], after_runs=ratio)
    return replace(forecast, predicted={**forecast.predicted, label: predicted})


def _measured(results: Results) -> dict[str, tuple[float, float]]:
    """Return what `middle` does of each split so far, those of the batch included, by label."""
    alone = results.outcomes.get(defaults.BASELINE)
    if alone is None or alone.measured is None:
        return {}
    found = {}
    for label, outcome in results.outcomes.items():
        if label != defaults.BASELINE and outcome.measured is not None and outcome.failure is None:
            ratios = paired_ratios(alone.measured.rounds, outcome.measured.rounds)
            if ratios:
                found[label] = middle(ratios)
    return found
