"""Runs candidates in rounds beside the unmodified step, and chooses what to run next.

`run` times the candidates in turns and then profiles them. Between rounds `refine` corrects the
predictions by what has run (`Belief`), searches again from there, and adds the candidate that it
now expects to be fastest. It adds none if a measured candidate is at least as fast, or if the
gain would not be worth a split.

`recorded_here` handles a step that calls Python. Such a step runs only in the process that traced
it, so it runs there as a whole on one core, and no candidate runs. Ops cost what the profile
shows. A call of Python includes whatever it runs, ops of other graphs too. Step time beyond the
ops is step start-up, up to the assumed start-up time; the rest is launch overhead. Copies are
assumed. Left out: machines with GPUs, where nothing is recorded; the work that Python leaves to
its own threads.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import median
from typing import TYPE_CHECKING

from placement_advisor import defaults
from placement_advisor.analysis.predictions import Predictions, prediction_of
from placement_advisor.analysis.progress import Stage
from placement_advisor.analysis.target_costs import OWN_PROCESS_UNCERTAINTY, StepCosts
from placement_advisor.analysis.tracing import child_ended
from placement_advisor.candidates import searched
from placement_advisor.candidates.batch_split.mirrored_graph import FAMILY as MIRRORED
from placement_advisor.candidates.by_layer import NotApplicable
from placement_advisor.candidates.families import (
    PER_DEVICE,
    PER_PAIR,
    RUN_BRIEFLY,
    TO_UNDERSTAND,
    to_run,
)
from placement_advisor.cost.links import assumed_cluster
from placement_advisor.cost.measured_costs import measured_costs, with_members
from placement_advisor.cost.table import CostSource
from placement_advisor.defaults import BASELINE
from placement_advisor.errors import ModelError
from placement_advisor.files.contract import Ns, Rows
from placement_advisor.machine.testbed_plan import TestbedKind
from placement_advisor.machine.this_machine import gpu_count, usable_cores
from placement_advisor.measurement.measurement import WORTHWHILE_RATIO, Measurement, paired_ratios
from placement_advisor.processes.calls import CallFailure, expect
from placement_advisor.profile.recorded_costs import joined_ops
from placement_advisor.profile.recorded_ops import read_recorded
from placement_advisor.simulator.sensitivity import MeasuredRatio, PredictionCorrection
from placement_advisor.simulator.step_growth import GrowingStep
from placement_advisor.solvers.step_search import FAMILY as SEARCHED
from placement_advisor.testbed.benchmark import (
    BRIEF_ROUNDS,
    failure_of,
    is_time_for_another,
    time_briefly,
    time_in_rounds,
)
from placement_advisor.testbed.cost_measurement import with_launches
from placement_advisor.testbed.user_step import batch_points, loop_timing
from placement_advisor.tf.answers import PYTHON_CALLS
from placement_advisor.tf.calls import native_step
from placement_advisor.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from pathlib import Path

    from placement_advisor.analysis.options import AnalyzeOptions
    from placement_advisor.analysis.progress import AnalysisProgress
    from placement_advisor.analysis.step_costs import TestbedSession
    from placement_advisor.analysis.tracing import AnalysisRequest
    from placement_advisor.cost.batch import Throughput
    from placement_advisor.cost.table import CostTable
    from placement_advisor.errors import BatchSplitError
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.graph.placement import Placement
    from placement_advisor.machine.devices import Cluster
    from placement_advisor.machine.testbed_plan import TestbedPlan
    from placement_advisor.measurement.measurement import (
        CandidateFailure,
        Comparison,
        InputTiming,
        LoopTiming,
    )
    from placement_advisor.processes.children import Child
    from placement_advisor.profile.recorded_ops import RecordedProfile
    from placement_advisor.simulator.sensitivity import PredictedRatio
    from placement_advisor.solvers.effort import Effort
    from placement_advisor.testbed.benchmark import Benchmark, ProgressReporter, TimedPlacement
    from placement_advisor.testbed.testbed import ProfileFiles


# After each such share of the usual rounds a candidate may join, so that the second one has most of
# them, too. Judgement.
_ROUNDS_PER_LOOK = 5
# What is there to be understood is not waited for much longer than that, beside the minute and a
# half that rounds may take which decide. Judgement; who wants it all the same asks for it by name.
_BRIEF_BUDGET_S = 20.0
# The same for what is advised: what takes longer is left at what costs say of it.
ADVICE_BUDGET_S = 30.0
# A pipeline is timed for a few seconds; one batch that takes most of a minute is a hang.
_INPUT_LIMIT_S = 60.0
_ADDS_UP = (
    "; tf.distribute adds up the gradients of replicas: a loss that is a mean over samples has to "
    "be divided by strategy.num_replicas_in_sync, which Keras does in its own train_step; "
    "what an optimizer clips by the norm of gradients, each replica clips by its own before that"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateRun:
    """What came of a candidate that ran; ``files`` are its raw profiles, None if it has none."""

    measured: Measurement | None
    comparison: Comparison | None
    failure: CandidateFailure | None
    files: ProfileFiles | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceTimings:
    """Steps that are no candidates, timed once a round: as is, and mirrored with whole batches.

    ``without_as_is`` there are no times of it, and it is not timed: it has failed, or would have
    other devices than candidates have. ``warnings`` say why it failed.
    """

    as_is_ns: Rows[Ns] = ()
    weak_ns: Rows[Ns] = ()
    without_as_is: bool = False
    warnings: Rows[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResults:
    """What runs have shown, of candidates by label; without arguments, that nothing ran.

    ``timed`` are splits with what findings would move in them, and without. ``sessions`` is in how
    many analyses, each resuming the one before.
    """

    outcomes: Mapping[str, CandidateRun] = field(default_factory=dict)
    beside: ReferenceTimings = ReferenceTimings()
    timed: tuple[TimedPlacement, ...] = ()
    batch_points: tuple[Throughput, ...] = ()
    loop_timing: LoopTiming | None = None
    input_timing: InputTiming | None = None
    warnings: tuple[str, ...] = ()
    sessions: int = 0


def candidates_to_run(forecast: Predictions, options: AnalyzeOptions) -> tuple[Placement, ...]:
    """Return the candidates to run beside the baseline: those that were named, else the best.

    What does not fit is not run.
    """
    step_ns = {
        label: predicted.schedule.step_ns
        for label, predicted in forecast.predicted.items()
        if predicted.too_large is None
    }
    labels = to_run(step_ns) if options.candidates is None else step_ns
    placements = forecast.proposals.placements
    return tuple(placements[label] for label in labels if label != defaults.BASELINE)


def candidate_to_run_briefly(forecast: Predictions, options: AnalyzeOptions) -> Placement | None:
    """Return what runs for a few rounds at the end, to be understood; None if nothing does.

    It is left out where candidates were named, and where it would take too long.
    """
    predicted = forecast.predicted.get(RUN_BRIEFLY)
    if options.candidates is not None or predicted is None or predicted.too_large is not None:
        return None
    round_ns = predicted.schedule.step_ns + forecast.predicted[defaults.BASELINE].schedule.step_ns
    takes_s = BRIEF_ROUNDS * (1 + options.steps) * round_ns / NS_PER_S
    return forecast.proposals.placements[RUN_BRIEFLY] if takes_s <= _BRIEF_BUDGET_S else None


def run(
    subject: AnalysisRequest,
    chosen: tuple[Placement, ...],
    brief: Placement | None,
    apparatus: TestbedSession,
    course: AnalysisProgress,
    show: Callable[[str, RunResults], None],
    refine: Callable[[RunResults], Placement | None],
    advise: Callable[[RunResults], Sequence[Placement]],
    growing: GrowingStep | BatchSplitError | None = None,
    beside: ReferenceTimings = ReferenceTimings(),
) -> RunResults:
    """Run candidates beside the baseline, which the trial has already; all ends with it.

    What is ``brief`` runs last, for a few rounds. ``growing`` is the step at other batches, of
    which those are run that tell of a larger one. ``show`` is told what goes on, with what is known
    by then. ``refine`` says which candidate is to join by what has run, None if none is; ``advise``
    what is to be timed at the end that is no candidate. What runs ``beside`` them is added to what
    it has by now.
    """
    trial, loader, watcher = apparatus.trial, apparatus.loader, course.watcher
    course.begin(Stage.PREPARE)
    for i, placement in enumerate(chosen):
        watcher.working("preparing", i, len(chosen), placement.label)
        show(f"preparing {placement.label}", RunResults(outcomes=_outcomes(trial)))
        _enter_candidate(apparatus, placement)
    course.begin(Stage.RUN)
    beside = _run_rounds(subject.options, brief, apparatus, course, show, refine, beside)
    course.end_rounds()
    watcher.working("looking for advice", 0, 1)
    to_time = advise(RunResults(outcomes=_outcomes(trial), beside=beside))
    timed = trial.time_apart(to_time, ADVICE_BUDGET_S)
    watcher.working("timing other batch sizes", 0, 1)
    points: tuple[Throughput, ...] = ()
    if isinstance(growing, GrowingStep):
        points = batch_points(loader, growing, beside.as_is_ns)
    watcher.working("timing Keras' loop", 0, 1)
    loop = loop_timing(loader, beside.as_is_ns)
    input_timing, warnings = _time_input(loader, watcher)
    loader.close()
    results = RunResults(
        outcomes=_outcomes(trial),
        beside=beside,
        timed=timed,
        batch_points=points,
        loop_timing=loop,
        input_timing=input_timing,
        warnings=(*beside.warnings, *warnings),
    )
    course.begin(Stage.PROFILE)
    show("profiling", results)
    trial.profile_all()
    apparatus.close()
    if trial.ended is not None:
        ended = f"{trial.ended}; what was measured by then is all there is"
        results = replace(results, warnings=(ended, *results.warnings))
    return replace(results, outcomes=_outcomes(trial))


def _outcomes(trial: Benchmark) -> dict[str, CandidateRun]:
    """Return what has come of each candidate so far."""
    comparisons = trial.comparisons()
    return {
        label: CandidateRun(
            measured=entry.measurement(None),
            comparison=comparisons.get(label),
            failure=entry.failure,
            files=entry.files,
        )
        for label, entry in trial.entries.items()
    }


def _enter_candidate(apparatus: TestbedSession, placement: Placement) -> None:
    trial, family = apparatus.trial, placement.family
    if family == MIRRORED:
        trial.enter(placement, bench=apparatus.mirrored, if_wrong=_ADDS_UP)
    elif family in PER_DEVICE:
        trial.enter(placement, PER_DEVICE[0])
    elif family in PER_PAIR:
        trial.enter(placement, PER_PAIR[0])
    else:
        trial.enter(placement)


def _run_rounds(
    options: AnalyzeOptions,
    brief: Placement | None,
    apparatus: TestbedSession,
    course: AnalysisProgress,
    show: Callable[[str, RunResults], None],
    refine: Callable[[RunResults], Placement | None],
    beside: ReferenceTimings,
) -> ReferenceTimings:
    """Time all candidates in rounds, and those that join; return what was timed beside them."""
    trial, watcher = apparatus.trial, course.watcher
    look_after, first = rounds_to_refine_after(options.rounds, trial.joining), trial.rounds
    # Both are run once before, since the first call traces.
    if not apparatus.testbed.plan.runs_as_is:
        beside = replace(beside, without_as_is=True)
    as_is_ns, weak_ns = beside.as_is_ns, beside.weak_ns
    warm = _time_weak_scaling(_time_as_is(beside, options, apparatus, 0), options, apparatus, 0)
    as_is_ns = () if warm.without_as_is else as_is_ns
    beside, began_s = replace(warm, as_is_ns=as_is_ns, weak_ns=weak_ns), time.monotonic()

    def time_as_is(number: int) -> None:
        nonlocal beside
        beside = _time_as_is(beside, options, apparatus, number)

    def end_round(number: int) -> None:
        nonlocal beside
        done = number + 1 - first
        time_as_is(number)
        beside = _time_weak_scaling(beside, options, apparatus, number)
        results = RunResults(outcomes=_outcomes(trial), beside=beside)
        show(f"timing, round {done} done", results)
        spent_s = time.monotonic() - began_s
        if done in look_after and is_time_for_another(trial, options.rounds, done, spent_s):
            watcher.working("looking for a better split", 0, 1)
            joins = refine(results)
            if joins is not None:
                _enter_candidate(apparatus, joins)
        course.end_round(done)

    time_in_rounds(trial, options.rounds, end_round)
    if brief is not None and trial.ended is None:
        watcher.working("preparing", 0, 1, brief.label)
        trial.enter(brief, is_brief=True)
        time_briefly(trial, time_as_is)
    return beside


def rounds_to_refine_after(asked: int | None, joining: int) -> range:
    """Return after how many rounds to look for a candidate that may join, so many of them.

    ``asked`` is the number of rounds asked for, None for as many as usual.
    """
    rounds = asked or defaults.ROUNDS
    each = max(1, rounds // _ROUNDS_PER_LOOK)
    return range(each, min((joining + 1) * each, rounds), each)


def _time_as_is(
    beside: ReferenceTimings, options: AnalyzeOptions, apparatus: TestbedSession, number: int
) -> ReferenceTimings:
    if beside.without_as_is:
        return beside
    answer = apparatus.loader.call(
        native_step.run_as_is, number, options.steps, time_limit_s=options.source.time_limit_s
    )
    if isinstance(answer, CallFailure):
        warning = f"as-is was not timed: {failure_of(answer).message}"
        # Some rounds do not compare with candidates that ran in all.
        warnings = (*beside.warnings, warning)
        return replace(beside, as_is_ns=(), without_as_is=True, warnings=warnings)
    return replace(beside, as_is_ns=(*beside.as_is_ns, *answer))


def _time_weak_scaling(
    beside: ReferenceTimings, options: AnalyzeOptions, apparatus: TestbedSession, number: int
) -> ReferenceTimings:
    """Time a mirrored step with the whole batch on every device."""
    entry = apparatus.trial.entries.get(MIRRORED)
    if apparatus.mirrored is None or entry is None or entry.failure is not None:
        return beside
    answer = apparatus.mirrored.run_weak_steps(
        number, 1 + options.steps, time_limit_s=options.source.time_limit_s
    )
    if isinstance(answer, CallFailure):
        warning = f"weak scaling was not timed: {failure_of(answer).message}"
        return replace(beside, warnings=(*beside.warnings, warning))
    return replace(beside, weak_ns=(*beside.weak_ns, *answer[1:]))


def _time_input(
    loader: Child, watcher: ProgressReporter
) -> tuple[InputTiming | None, tuple[str, ...]]:
    """Time the user's dataset alone; last of all that the loader does, as it may hang.

    Returns the timing, if there is one, and warnings.
    """
    if loader.failure() is not None:  # A step of theirs ended it, which has been said.
        return None, ()
    watcher.working("timing the dataset alone", 0, 1)
    answer = loader.call(native_step.time_input, time_limit_s=_INPUT_LIMIT_S)
    if isinstance(answer, CallFailure):
        return None, (f"the dataset was not timed alone: {answer.message}",)
    return answer, ()


# Halfway between the quartiles of what is normal lie so many standard deviations.
_QUARTILE = 0.674


@dataclass(frozen=True, slots=True, kw_only=True)
class Refined:
    """A candidate to run next, and the forecast that has it."""

    placement: Placement
    forecast: Predictions


def refine(forecast: Predictions, results: RunResults, effort: Effort) -> Refined | None:
    """Return what promises most by what has run; None if nothing promises more than that has.

    What is predicted of it by what has run is kept in the forecast, as made before it runs.
    """
    belief = prediction_correction(forecast, results)
    if belief is None:
        return None
    found = _searched_again(forecast, effort)
    with_found = forecast if found is None else with_candidate(forecast, found)
    promised = {
        label: belief.ratio(placement)
        for label, placement in with_found.proposals.of_whole_batch.items()
        if label not in results.outcomes
        and placement.family not in TO_UNDERSTAND
        and with_found.predicted[label].too_large is None
    }
    least = min(promised, key=lambda label: promised[label].ratio, default=None)
    measured = [ratio for ratio, _ in _measured_ratios(results).values()]
    if least is None or promised[least].ratio >= min(WORTHWHILE_RATIO, *measured):
        return None
    placement = with_found.proposals.placements[least]
    chosen = with_found if placement is found else forecast
    return Refined(placement=placement, forecast=with_ratio(chosen, least, promised[least]))


def corrected_predictions(forecast: Predictions, results: RunResults) -> Predictions:
    """Return the forecast with what is predicted by all that has run, of all that has not."""
    belief = prediction_correction(forecast, results)
    if belief is None:
        return forecast
    for label, placement in forecast.proposals.of_whole_batch.items():
        if label not in results.outcomes and label != defaults.BASELINE:
            forecast = with_ratio(forecast, label, belief.ratio(placement))
    return forecast


def prediction_correction(
    forecast: Predictions, results: RunResults
) -> PredictionCorrection | None:
    """Return what splits of the whole batch have shown; None if none has yet."""
    placements = forecast.proposals.of_whole_batch
    seen = [
        MeasuredRatio(placement=placements[label], ratio=ratio, deviation=deviation)
        for label, (ratio, deviation) in _measured_ratios(results).items()
        if label in placements
    ]
    return PredictionCorrection(forecast.sensitivity, seen) if seen else None


def median_and_deviation(ratios: Sequence[float]) -> tuple[float, float]:
    """Return the median of ratios, and about the standard deviation of its logarithm."""
    logarithms = sorted(map(math.log, ratios))
    count = len(logarithms)
    quarter = logarithms[(3 * count) // 4] - logarithms[count // 4]
    # That of a median of what is normal is a quarter more than that of a mean.
    deviation = 1.25 * quarter / (2 * _QUARTILE) / math.sqrt(count)
    return math.exp(logarithms[count // 2]), deviation


def _searched_again(forecast: Predictions, effort: Effort) -> Placement | None:
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


def with_candidate(forecast: Predictions, placement: Placement) -> Predictions:
    """Return the forecast with one more candidate, simulated by costs as they were before runs."""
    answers = {**forecast.proposals.answers, placement.label: placement}
    proposals = replace(forecast.proposals, answers=answers)
    predicted = prediction_of(proposals, forecast.sensitivity, placement.label)
    return replace(
        forecast,
        proposals=proposals,
        predicted={**forecast.predicted, placement.label: predicted},
    )


def with_ratio(forecast: Predictions, label: str, ratio: PredictedRatio) -> Predictions:
    """Return the forecast with what runs of others say of a candidate."""
    predicted = replace(forecast.predicted[label], after_runs=ratio)
    return replace(forecast, predicted={**forecast.predicted, label: predicted})


def _measured_ratios(results: RunResults) -> dict[str, tuple[float, float]]:
    """Return what `middle` does of each split so far, those of the batch included, by label."""
    alone = results.outcomes.get(defaults.BASELINE)
    if alone is None or alone.measured is None:
        return {}
    found = {}
    for label, outcome in results.outcomes.items():
        if label != defaults.BASELINE and outcome.measured is not None and outcome.failure is None:
            ratios = paired_ratios(alone.measured.rounds, outcome.measured.rounds)
            if ratios:
                found[label] = median_and_deviation(ratios)
    return found


def own_process_plan(plan: TestbedPlan, call: str) -> TestbedPlan:
    """Return the plan for a step of which ``call`` calls Python: no candidate runs.

    Raises:
        ModelError: other hosts were to run it.
    """
    why = f"{call} calls Python, which stays with the process that made it"
    if plan.hosts:
        raise ModelError(
            f"no host can run this step: {why}",
            hint="leave out --hosts, or replace tf.py_function and tf.numpy_function by "
            "TensorFlow ops",
        )
    times = "op times were measured there" if _can_record_here() else "all times are assumed"
    return replace(
        plan,
        kind=TestbedKind.NONE,
        slots=(),
        open_ports=False,
        not_run=f"no candidate ran: {why}; {times}",
    )


def record_in_own_process(
    subject: AnalysisRequest, loader: Child, folder: Path, watcher: ProgressReporter
) -> tuple[StepCosts, RunResults] | None:
    """Run the step in the process that has loaded it; return what it costs, and `single` as it ran.

    The profile goes into ``folder``. None where nothing is recorded, on machines with GPUs.

    Raises:
        ModelError: the step does not run.
    """
    if not _can_record_here():
        return None
    source, graph = subject.options.source, subject.graph
    watcher.working("measuring op times in the script's own process", 0, 1)
    core = usable_cores()[0]
    answer = loader.call(native_step.record, str(folder), core, time_limit_s=source.time_limit_s)
    steps = expect(answer, partial(child_ended, source, "running the step"))
    cluster = assumed_cluster(len(subject.plan.devices))
    op_ns = own_op_ns(graph, read_recorded(folder, shares_core=True), subject.traced.members)
    costs = measured_costs(graph, op_ns)
    costs, cluster = _costs_filling_step(costs, cluster, round(median(steps.step_ns)))
    prices = StepCosts(
        cluster=cluster,
        costs=costs.everywhere(cluster),
        source=CostSource.RECORDED,
        doubt=OWN_PROCESS_UNCERTAINTY,
    )
    measured = Measurement(
        warmup_ns=steps.warmup_ns,
        rounds=(steps.step_ns,),
        moved_ops=(),
        verification=None,
        profile=None,
        profile_run=None,
    )
    alone = CandidateRun(measured=measured, comparison=None, failure=None, files=None)
    return prices, RunResults(outcomes={BASELINE: alone})


def own_op_ns(
    graph: OpGraph, recorded: RecordedProfile, members: Mapping[str, Collection[str]]
) -> dict[str, int]:
    """Return what each op of the graph took; ``members`` names the ops within loops.

    Ops that are not of the graph were run by Python: its calls have their time, by what each takes.
    """
    joined = joined_ops(graph, recorded, members)
    op_ns = {name: op.median_ns for name, op in joined}
    calls = [name for name, op in joined if op.kind in PYTHON_CALLS]
    others_ns = sum(op.median_ns for op in recorded.ops) - sum(op.median_ns for _, op in joined)
    calls_ns = sum(op_ns[name] for name in calls)
    for name in calls:
        op_ns[name] += others_ns * op_ns[name] // max(1, calls_ns)
    return with_members(op_ns, members)


def _can_record_here() -> bool:
    return gpu_count() == 0


def _costs_filling_step(
    costs: CostTable, cluster: Cluster, step_ns: int
) -> tuple[CostTable, Cluster]:
    """Return costs and a cluster by which a step on one device takes so long."""
    beside_ns = max(0, step_ns - costs.total_ns)
    start_ns = min(beside_ns, cluster.dispatch.step_overhead_ns)
    costs, launch_ns = with_launches(costs, step_ns - start_ns)
    return costs, replace(
        cluster,
        devices=tuple(replace(each, launch_overhead_ns=launch_ns) for each in cluster.devices),
        dispatch=replace(cluster.dispatch, step_overhead_ns=start_ns),
    )
