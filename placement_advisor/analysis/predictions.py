"""The candidates for a step, and what the simulator predicts for each before any of them runs.

Candidates are laid out by a rule, found by a search, or split the batch. A batch split is a step
of another graph than the one that was traced, so it has a simulator of its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import median
from types import MappingProxyType
from typing import TYPE_CHECKING

from placement_advisor import defaults
from placement_advisor.analysis.analysis_result import GRAPH, Candidate, UncertainBound
from placement_advisor.candidates import searched, towers
from placement_advisor.candidates.batch_split import split_graph as batch_graph
from placement_advisor.candidates.batch_split.mirrored_graph import FAMILY as MIRRORED
from placement_advisor.candidates.batch_split.split_graph import FAMILY as BATCH
from placement_advisor.candidates.by_layer import NotApplicable
from placement_advisor.candidates.families import (
    FAMILIES,
    WORST_CASE_FAMILIES,
    placements_of,
    propose,
)
from placement_advisor.candidates.references import as_written
from placement_advisor.candidates.searched import layers_of
from placement_advisor.defaults import BASELINE
from placement_advisor.errors import AdvisorError, BatchSplitError
from placement_advisor.measurement import measurement as measurements
from placement_advisor.measurement.invariants import schedule_violations
from placement_advisor.simulator import schedule as schedules
from placement_advisor.simulator.break_even import FOR_FASTER_LINKS, BreakEven, break_even
from placement_advisor.simulator.sensitivity import CostUncertainty, PredictedRatio, Sensitivity
from placement_advisor.simulator.simulator import Simulator
from placement_advisor.solvers import lower_bounds
from placement_advisor.solvers.step_search import FAMILY as SEARCHED
from placement_advisor.solvers.step_search import least_step

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from placement_advisor.analysis.step_costs import AllCosts, SplitCosts
    from placement_advisor.analysis.target_costs import StepCosts
    from placement_advisor.cost.table import CostSource
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.graph.placement import Placement
    from placement_advisor.machine.devices import Cluster
    from placement_advisor.simulator.step_growth import GrowingStep
    from placement_advisor.solvers.effort import Effort


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitCandidate:
    """A placement of a step whose batch is split, ready to be simulated.

    ``samples`` are those of each replica, ``own`` the ops of the unsplit step that compute
    something of a replica's own. ``weak_step_ns`` is its simulated step with the whole batch for
    every replica, None unless that was traced. ``within`` is the placement of the unsplit step that
    it repeats on each pair of devices, None if it is by device.
    """

    placement: Placement
    samples: tuple[int, ...]
    own: tuple[str, ...]
    simulator: Simulator
    weak_step_ns: int | None
    within: Placement | None


def split_candidates(
    graph: OpGraph, prices: StepCosts, families: Sequence[str], split: SplitCosts | BatchSplitError
) -> dict[str, SplitCandidate | NotApplicable]:
    """Return the candidate of each family that a split of the batch is of."""
    if isinstance(split, BatchSplitError):
        return {name: NotApplicable(family=name, reason=split.message) for name in families}
    traced, timed = split.traced, split.collectives
    clusters = {} if timed is None else {MIRRORED: timed.on(prices.cluster)}
    simulators, weak = (
        {
            name: Simulator(
                step.graph,
                costs[name],
                clusters.get(name, prices.cluster),
                collective_of=step.collective_of,
            )
            for name, step in graphs.items()
        }
        for graphs, costs in ((traced.graphs, split.costs), (traced.weak, split.weak_costs))
    )
    return {
        name: _split_candidate(graph, prices, name, split, simulators, weak) for name in families
    }


def _split_candidate(
    graph: OpGraph,
    prices: StepCosts,
    family: str,
    split: SplitCosts,
    simulators: Mapping[str, Simulator],
    weak: Mapping[str, Simulator],
) -> SplitCandidate | NotApplicable:
    traced, cluster, graph_key = split.traced, prices.cluster, batch_graph.graph_of(family)
    if graph_key not in traced.graphs:
        uneven = (
            "MirroredStrategy gives all devices the same number of samples, not "
            f"{_sum_text(traced.samples)}"
        )
        return NotApplicable(family=family, reason=uneven)
    within: Placement | NotApplicable | None = None
    if family == towers.BATCH_TOWERS:
        within = towers.within_a_pair(graph, prices.costs, cluster)
    if isinstance(within, NotApplicable):
        return within
    placed = _placed_split(traced.graphs[graph_key], family, traced.samples, cluster, within)
    if isinstance(placed, NotApplicable):
        return placed
    weak_step_ns = None
    if graph_key in weak:
        weakly = _placed_split(traced.weak[graph_key], family, traced.samples, cluster, within)
        assert not isinstance(weakly, NotApplicable)
        weak_step_ns = weak[graph_key].step_ns(weakly)
    return SplitCandidate(
        placement=placed,
        samples=traced.samples,
        own=traced.own,
        simulator=simulators[graph_key],
        weak_step_ns=weak_step_ns,
        within=within,
    )


def _placed_split(
    step: batch_graph.SplitGraph,
    family: str,
    samples: tuple[int, ...],
    cluster: Cluster,
    within: Placement | None,
) -> Placement | NotApplicable:
    """Return the placement of a step whose batch is split."""
    devices, host = cluster.device_names()[: len(samples)], cluster.devices[0].host
    if within is not None:
        return towers.on_pairs(step, within, cluster.device_names(), samples)
    rationales = {
        BATCH: f"one update of the variables on {devices[0]}",
        batch_graph.ON_HOST: f"one update of the variables on {host}",
        batch_graph.SPREAD: (
            f"one update of each variable, spread by size over {', '.join(devices)}"
        ),
        MIRRORED: "variables and updates on every device",
    }
    rationale = f"{_sum_text(samples)} samples side by side, {rationales[family]}"
    return batch_graph.placed_on_devices(family, step, devices, host, rationale)


def _sum_text(samples: tuple[int, ...]) -> str:
    return " + ".join(map(str, samples))


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposals:
    """The candidates for a step, and what simulates them.

    ``answers`` has what each family that was asked for says, by label, the single device first.
    ``splits`` has the steps with the batch split, by family.
    """

    graph: OpGraph
    prices: StepCosts
    simulator: Simulator
    answers: Mapping[str, Placement | NotApplicable]
    splits: Mapping[str, SplitCandidate]

    @property
    def placements(self) -> dict[str, Placement]:
        """The candidates that there are, by label, the single device first."""
        return placements_of(self.answers)

    @property
    def of_whole_batch(self) -> dict[str, Placement]:
        """The candidates that place the step as it was traced."""
        return {n: p for n, p in self.placements.items() if n not in self.splits}


def propose_all(
    graph: OpGraph,
    all_costs: AllCosts,
    families: Sequence[str],
    effort: Effort,
    known: Mapping[str, Placement] = MappingProxyType({}),
    requested_device_of: Mapping[str, str] = MappingProxyType({}),
) -> Proposals:
    """Return the candidates of some families; the single device is always among them.

    Those that searches have found before are ``known``, by label, and taken as they are.
    ``requested_device_of`` has the devices that the user's own scopes ask for.
    """
    prices = all_costs.prices
    simulator = Simulator(graph, prices.costs, prices.cluster)
    own = as_written(graph, requested_device_of, prices.cluster)
    answers = propose(tuple(FAMILIES), graph, prices.costs, prices.cluster, own)
    if SEARCHED in families and SEARCHED not in known:
        dearer = prices.doubt.copies
        found = searched.propose_searched(answers, prices.costs, simulator, effort, dearer=dearer)
        answers[SEARCHED] = found
    answers.update(known)
    splits: dict[str, SplitCandidate] = {}
    for of, split in all_costs.splits.items():
        for family, step in split_candidates(graph, prices, of, split).items():
            if isinstance(step, SplitCandidate):
                splits[family] = step
            answers[family] = step.placement if isinstance(step, SplitCandidate) else step
    return Proposals(
        graph=graph,
        prices=prices,
        simulator=simulator,
        answers={
            label: answer
            for label, answer in answers.items()
            if label == BASELINE or answer.family in families
        },
        splits=splits,
    )


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

    schedule: schedules.Schedule
    ratio: PredictedRatio | None
    broken_laws: tuple[measurements.Violation, ...]
    too_large: measurements.CandidateFailure | None
    weak_step_ns: int | None
    after_runs: PredictedRatio | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Predictions:
    """What is predicted of each candidate, by label, and how far costs may move it."""

    proposals: Proposals
    predicted: Mapping[str, Prediction]
    sensitivity: Sensitivity


def predict(proposals: Proposals) -> Predictions:
    """Simulate all candidates."""
    alone = proposals.placements[BASELINE]
    sensitivity = Sensitivity(proposals.simulator, alone, proposals.prices.doubt)
    predicted = {
        label: prediction_of(proposals, sensitivity, label) for label in proposals.placements
    }
    return Predictions(proposals=proposals, predicted=predicted, sensitivity=sensitivity)


def prediction_of(proposals: Proposals, sensitivity: Sensitivity, label: str) -> Prediction:
    """Simulate one candidate."""
    placement, split = proposals.placements[label], proposals.splits.get(label)
    simulator = None if split is None else split.simulator
    schedule = (simulator or proposals.simulator).schedule(placement)
    short = schedules.shortages(schedule.peak_memory, proposals.prices.cluster.devices)
    return Prediction(
        schedule=schedule,
        ratio=None if label == BASELINE else sensitivity.ratio(placement, simulator),
        broken_laws=schedule_violations(schedule),
        too_large=measurements.CandidateFailure(
            kind=measurements.FailureKind.DOES_NOT_FIT, message="; ".join(map(str, short))
        )
        if short
        else None,
        weak_step_ns=None if split is None else split.weak_step_ns,
    )


def with_candidate(predictions: Predictions, placement: Placement) -> Predictions:
    """Return the predictions with one more candidate, by costs as they were before runs."""
    answers = {**predictions.proposals.answers, placement.label: placement}
    proposals = replace(predictions.proposals, answers=answers)
    predicted = prediction_of(proposals, predictions.sensitivity, placement.label)
    return replace(
        predictions,
        proposals=proposals,
        predicted={**predictions.predicted, placement.label: predicted},
    )


def with_searched(predictions: Predictions, bound: UncertainBound, effort: Effort) -> Predictions:
    """Return the predictions with what a search finds, if any placement can beat the candidates.

    None can where one of these fits and takes no longer than the bound.
    """
    fitting = (p.schedule.step_ns for p in predictions.predicted.values() if p.too_large is None)
    if bound.split_ns >= min(fitting, default=math.inf):
        return predictions
    proposals = predictions.proposals
    found = searched.propose_searched(
        {name: each for name, each in proposals.answers.items() if name not in proposals.splits},
        proposals.prices.costs,
        proposals.simulator,
        effort,
        dearer=proposals.prices.doubt.copies,
    )
    return predictions if isinstance(found, NotApplicable) else with_candidate(predictions, found)


def bound_of(predictions: Predictions) -> UncertainBound:
    """Return what no placement can beat."""
    proposals = predictions.proposals
    prices = proposals.prices
    lower = lower_bounds.bound_step(proposals.simulator)
    single_ns = predictions.predicted[BASELINE].schedule.step_ns
    bound = bound_from(lower, single_ns, prices.source, prices.doubt, None)
    if not bound.proves_single:
        return bound
    ratio = lower_bounds.least_ratio_if_wrong(predictions.sensitivity)
    return bound_from(lower, single_ns, prices.source, prices.doubt, ratio)


def bound_from(
    lower: lower_bounds.LowerBound,
    single_ns: int,
    source: CostSource,
    doubt: CostUncertainty,
    ratio_if_wrong: float | None,
) -> UncertainBound:
    """Return what a lower bound says beside the step on one device.

    ``ratio_if_wrong`` is the least that any placement takes of that step if costs are as wrong as
    they may be, None where it was not looked for.
    """
    most = max(0.0, 1 - lower.step_ns / single_ns) if single_ns else 0.0
    if_wrong = None if ratio_if_wrong is None else max(0.0, 1 - ratio_if_wrong)
    is_proved = most <= 1 - defaults.WORTHWHILE_RATIO
    return UncertainBound(
        step_ns=lower.step_ns,
        split_ns=lower.split_ns,
        alone_ns=dict(lower.alone_ns),
        single_ns=single_ns,
        most_to_gain=most,
        proves_single=is_proved,
        most_to_gain_if_wrong=if_wrong,
        proves_single_if_wrong=is_proved
        and if_wrong is not None
        and if_wrong <= 1 - defaults.WORTHWHILE_RATIO,
        costs_from=source.value,
        reason=lower.reason,
        graph_file=GRAPH,
        doubt=doubt,
    )


def break_even_of(
    predictions: Predictions,
    candidates: Sequence[Candidate],
    growing: GrowingStep | AdvisorError | None,
    effort: Effort,
) -> BreakEven | None:
    """Sweep what would have to change for a split to win, of those that fit and did not fail.

    ``candidates`` have what was measured, by which predictions are corrected; ``growing`` is the
    step at other batches, or why it is not known there.
    """
    proposals = predictions.proposals
    own, failed = proposals.of_whole_batch, {c.name for c in candidates if c.failure is not None}
    if BASELINE in failed or predictions.predicted[BASELINE].too_large is not None:
        return None
    splits = [
        *(
            placement
            for name, placement in own.items()
            if name not in {BASELINE, *failed} and len(set(placement.device_of.values())) > 1
        ),
        *_splits_for_faster_links(proposals, effort),
    ]
    labels = [split.label for split in splits]
    return break_even(
        proposals.simulator,
        baseline=own[BASELINE],
        splits=tuple(splits),
        growing=growing,
        worthwhile_ratio=defaults.WORTHWHILE_RATIO,
        corrections=_corrections(labels, candidates),
    )


def _splits_for_faster_links(proposals: Proposals, effort: Effort) -> Iterator[Placement]:
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
