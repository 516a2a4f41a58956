"""Runs candidates in rounds beside the unmodified step, and chooses what to run next.

`CandidateRuns` times the candidates in turns and then profiles them. Between rounds `refine`
corrects the predictions by what has run (`PredictionCorrection`), searches again from there, and
adds the candidate that it now expects to be fastest. It adds none if a measured candidate is at
least as fast, or if the gain would not be worth a split.

`record_in_own_process` handles a step that calls Python. Such a step runs only in the process that
traced it, so it runs there as a whole on one core, and no candidate runs. Ops cost what the profile
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
from typing import TYPE_CHECKING, NamedTuple, Protocol

from placement_advisor import defaults, errors
from placement_advisor.analysis.predictions import Predictions, with_candidate
from placement_advisor.analysis.progress import AnalysisProgress, Stage
from placement_advisor.analysis.target_costs import OWN_PROCESS_UNCERTAINTY, StepCosts
from placement_advisor.analysis.tracing import AnalysisRequest, child_ended
from placement_advisor.candidates import families, searched
from placement_advisor.candidates.batch_split.mirrored_graph import FAMILY as MIRRORED
from placement_advisor.candidates.by_layer import NotApplicable
from placement_advisor.cost import table
from placement_advisor.cost.links import assumed_cluster
from placement_advisor.cost.measured_costs import measured_costs, with_members
from placement_advisor.defaults import BASELINE
from placement_advisor.files.contract import Ns, Rows
from placement_advisor.machine import testbed_plan
from placement_advisor.machine.this_machine import gpu_count, usable_cores
from placement_advisor.measurement import measurement as measurements
from placement_advisor.processes.calls import CallFailure, expect
from placement_advisor.profile.recorded_costs import joined_ops
from placement_advisor.profile.recorded_ops import RecordedProfile, read_recorded
from placement_advisor.simulator.sensitivity import MeasuredRatio, PredictionCorrection
from placement_advisor.simulator.step_growth import GrowingStep
from placement_advisor.solvers.step_search import FAMILY as SEARCHED
from placement_advisor.testbed import benchmark
from placement_advisor.testbed.cost_measurement import with_launches
from placement_advisor.testbed.native_timing import batch_points, loop_timing
from placement_advisor.tf.answers import PYTHON_CALLS
from placement_advisor.tf.calls import native_step
from placement_advisor.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from placement_advisor.analysis.options import AnalyzeOptions
    from placement_advisor.analysis.step_costs import TestbedSession
    from placement_advisor.cost.batch import Throughput
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.graph.placement import Placement
    from placement_advisor.machine.devices import Cluster
    from placement_advisor.processes.children import Child
    from placement_advisor.simulator.sensitivity import PredictedRatio
    from placement_advisor.solvers.effort import Effort
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
    "; tf.distribute adds up the gradients of replicas. Divide a loss that is a mean over "
    "samples by strategy.num_replicas_in_sync, as Keras does in its own train_step. Each "
    "replica clips by the norm of its own gradients, before they are added"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateRun:
    """What came of a candidate that ran; ``files`` are its raw profiles, None if it has none."""

    measured: measurements.Measurement | None
    comparison: measurements.Comparison | None
    failure: measurements.CandidateFailure | None
    files: ProfileFiles | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceTimings:
    """The user's own step, which is no candidate, timed once a round.

    ``without_as_is`` there are no times of it, and it is not timed: it has failed, or would have
    other devices than candidates have. ``warnings`` say why it failed.
    """

    as_is_ns: Rows[Ns] = ()
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
    timed: tuple[benchmark.TimedPlacement, ...] = ()
    batch_points: tuple[Throughput, ...] = ()
    loop_timing: measurements.LoopTiming | None = None
    input_timing: measurements.InputTiming | None = None
    warnings: tuple[str, ...] = ()
    sessions: int = 0


def candidates_to_run(predictions: Predictions, options: AnalyzeOptions) -> tuple[Placement, ...]:
    """Return the candidates to run beside the baseline: those that were named, else the best.

    What does not fit is not run.
    """
    step_ns = {
        label: predicted.schedule.step_ns
        for label, predicted in predictions.predicted.items()
        if predicted.too_large is None
    }
    labels = families.to_run(step_ns) if options.candidates is None else step_ns
    placements = predictions.proposals.placements
    return tuple(placements[label] for label in labels if label != defaults.BASELINE)


def candidate_to_run_briefly(predictions: Predictions, options: AnalyzeOptions) -> Placement | None:
    """Return what runs for a few rounds at the end, to be understood; None if nothing does.

    It is left out where candidates were named, and where it would take too long.
    """
    predicted = predictions.predicted
    brief, alone = predicted.get(families.RUN_BRIEFLY), predicted[defaults.BASELINE]
    if options.candidates is not None or brief is None or brief.too_large is not None:
        return None
    round_ns = brief.schedule.step_ns + alone.schedule.step_ns
    if benchmark.BRIEF_ROUNDS * (1 + options.steps) * round_ns > _BRIEF_BUDGET_S * NS_PER_S:
        return None
    return predictions.proposals.placements[families.RUN_BRIEFLY]


class Steering(Protocol):
    """Follows the runs of an analysis, and says what else is to run."""

    def show(self, doing: str, results: RunResults) -> None:
        """Show what goes on, with what is known by then."""

    def refine(self, results: RunResults) -> Placement | None:
        """Return the candidate that is to join by what has run, None if none is."""

    def advise(self, results: RunResults) -> Sequence[Placement]:
        """Return what is to be timed at the end that is no candidate."""


class CandidateRuns:
    """Runs candidates beside the baseline, which the benchmark of the session has already.

    ``beside`` is what earlier sessions have timed beside candidates.
    """

    def __init__(
        self,
        options: AnalyzeOptions,
        session: TestbedSession,
        progress: AnalysisProgress,
        steering: Steering,
        beside: ReferenceTimings,
    ) -> None:
        self._options, self._session, self._trial = options, session, session.trial
        self._progress, self._watcher = progress, progress.watcher
        self._steering, self._beside = steering, beside

    def run(
        self,
        chosen: Sequence[Placement],
        brief: Placement | None,
        growing: GrowingStep | errors.BatchSplitError | None,
    ) -> RunResults:
        """Run and profile all candidates; end the loader and the session.

        ``brief`` runs last, for a few rounds. ``growing`` is the step at other batches, of which
        those run that show whether a larger one is faster.
        """
        trial, loader, watcher = self._trial, self._session.loader, self._watcher
        self._progress.begin(Stage.PREPARE)
        for i, placement in enumerate(chosen):
            watcher.working("preparing", i, len(chosen), placement.label)
            self._steering.show(f"preparing {placement.label}", self._results())
            self._enter(placement)
        self._progress.begin(Stage.RUN)
        self._time_rounds(brief)
        self._progress.end_rounds()
        watcher.working("looking for advice", 0, 1)
        timed = trial.time_apart(self._steering.advise(self._results()), ADVICE_BUDGET_S)
        watcher.working("timing other batch sizes", 0, 1)
        points: tuple[Throughput, ...] = ()
        if isinstance(growing, GrowingStep):
            points = batch_points(loader, growing, self._beside.as_is_ns)
        watcher.working("timing Keras' loop", 0, 1)
        loop = loop_timing(loader, self._beside.as_is_ns)
        input_timing, warnings = _time_input(loader, watcher)
        loader.close()
        results = replace(
            self._results(),
            timed=timed,
            batch_points=points,
            loop_timing=loop,
            input_timing=input_timing,
            warnings=(*self._beside.warnings, *warnings),
        )
        self._progress.begin(Stage.PROFILE)
        self._steering.show("profiling", results)
        trial.profile_all()
        self._session.close()
        if trial.ended is not None:
            ended = f"{trial.ended}; what was measured by then is all there is"
            results = replace(results, warnings=(ended, *results.warnings))
        return replace(results, outcomes=self._results().outcomes)

    def _results(self) -> RunResults:
        """Return what has come of each candidate so far, and of what runs beside them."""
        comparisons = self._trial.comparisons()
        outcomes = {
            label: CandidateRun(
                measured=entry.measurement(None),
                comparison=comparisons.get(label),
                failure=entry.failure,
                files=entry.files,
            )
            for label, entry in self._trial.entries.items()
        }
        return RunResults(outcomes=outcomes, beside=self._beside)

    def _enter(self, placement: Placement) -> None:
        trial, family = self._trial, placement.family
        if family == MIRRORED:
            trial.enter(placement, bench=self._session.mirrored, if_wrong=_ADDS_UP)
        else:
            splits = (families.PER_DEVICE, families.PER_PAIR)
            trial.enter(placement, *(of[0] for of in splits if family in of))

    def _time_rounds(self, brief: Placement | None) -> None:
        """Time all candidates in rounds, and those that join."""
        trial, asked, watcher = self._trial, self._options.rounds, self._watcher
        look_after, first = rounds_to_refine_after(asked, trial.joining), trial.rounds
        self._warm_up()
        began_s = time.monotonic()

        def end_round(number: int) -> None:
            done = number + 1 - first
            self._time_as_is(number)
            results = self._results()
            self._steering.show(f"timing, round {done} done", results)
            spent_s = time.monotonic() - began_s
            if done in look_after and benchmark.is_time_for_another(trial, asked, done, spent_s):
                watcher.working("looking for a better split", 0, 1)
                joins = self._steering.refine(results)
                if joins is not None:
                    self._enter(joins)
            self._progress.end_round(done)

        benchmark.time_in_rounds(trial, asked, end_round)
        if brief is not None and trial.ended is None:
            watcher.working("preparing", 0, 1, brief.label)
            trial.enter(brief, is_brief=True)
            benchmark.time_briefly(trial, self._time_as_is)

    def _warm_up(self) -> None:
        """Run the user's step once before, since the first call traces."""
        if not self._session.testbed.plan.runs_as_is:
            self._beside = replace(self._beside, without_as_is=True)
        before_ns = self._beside.as_is_ns
        self._time_as_is(0)
        as_is_ns = () if self._beside.without_as_is else before_ns
        self._beside = replace(self._beside, as_is_ns=as_is_ns)

    def _time_as_is(self, number: int) -> None:
        beside, options = self._beside, self._options
        if beside.without_as_is:
            return
        answer = self._session.loader.call(
            native_step.run_as_is, number, options.steps, time_limit_s=options.source.time_limit_s
        )
        if isinstance(answer, CallFailure):
            warning = f"as-is was not timed: {benchmark.failure_of(answer).message}"
            # Some rounds do not compare with candidates that ran in all.
            warnings = (*beside.warnings, warning)
            self._beside = replace(beside, as_is_ns=(), without_as_is=True, warnings=warnings)
        else:
            self._beside = replace(beside, as_is_ns=(*beside.as_is_ns, *answer))


def rounds_to_refine_after(asked: int | None, joining: int) -> range:
    """Return after how many rounds to look for a candidate that may join, so many of them.

    ``asked`` is the number of rounds asked for, None for as many as usual.
    """
    rounds = asked or defaults.ROUNDS
    each = max(1, rounds // _ROUNDS_PER_LOOK)
    return range(each, min((joining + 1) * each, rounds), each)


def _time_input(
    loader: Child, watcher: benchmark.ProgressReporter
) -> tuple[measurements.InputTiming | None, tuple[str, ...]]:
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


class Refined(NamedTuple):
    """A candidate to run next, and the predictions that include it."""

    placement: Placement
    predictions: Predictions


def refine(predictions: Predictions, results: RunResults, effort: Effort) -> Refined | None:
    """Return what promises most by what has run; None if nothing promises more than that has.

    What is predicted of it by what has run is kept in the predictions, as made before it runs.
    """
    correction = prediction_correction(predictions, results)
    if correction is None:
        return None
    found = _searched_again(predictions, effort)
    with_found = predictions if found is None else with_candidate(predictions, found)
    promised = {
        label: correction.ratio(placement)
        for label, placement in with_found.proposals.of_whole_batch.items()
        if label not in results.outcomes
        and placement.family not in families.TO_UNDERSTAND
        and with_found.predicted[label].too_large is None
    }
    least = min(promised, key=lambda label: promised[label].ratio, default=None)
    measured = [ratio for ratio, _ in _measured_ratios(results).values()]
    if least is None or promised[least].ratio >= min(defaults.WORTHWHILE_RATIO, *measured):
        return None
    placement = with_found.proposals.placements[least]
    chosen = with_found if placement is found else predictions
    return Refined(placement=placement, predictions=with_ratio(chosen, least, promised[least]))


def corrected_predictions(predictions: Predictions, results: RunResults) -> Predictions:
    """Return the predictions with what is predicted by all that has run, of all that has not."""
    correction = prediction_correction(predictions, results)
    if correction is None:
        return predictions
    for label, placement in predictions.proposals.of_whole_batch.items():
        if label not in results.outcomes and label != defaults.BASELINE:
            predictions = with_ratio(predictions, label, correction.ratio(placement))
    return predictions


def prediction_correction(
    predictions: Predictions, results: RunResults
) -> PredictionCorrection | None:
    """Return what splits of the whole batch have shown; None if none has yet."""
    placements = predictions.proposals.of_whole_batch
    seen = [
        MeasuredRatio(placement=placements[label], ratio=ratio, deviation=deviation)
        for label, (ratio, deviation) in _measured_ratios(results).items()
        if label in placements
    ]
    return PredictionCorrection(predictions.sensitivity, seen) if seen else None


def median_and_deviation(ratios: Sequence[float]) -> tuple[float, float]:
    """Return the median of ratios, and about the standard deviation of its logarithm."""
    logarithms = sorted(map(math.log, ratios))
    count = len(logarithms)
    quarter = logarithms[(3 * count) // 4] - logarithms[count // 4]
    # That of a median of what is normal is a quarter more than that of a mean.
    deviation = 1.25 * quarter / (2 * _QUARTILE) / math.sqrt(count)
    return math.exp(logarithms[count // 2]), deviation


def _searched_again(predictions: Predictions, effort: Effort) -> Placement | None:
    """Return what a search finds by costs as they are, None if nothing new."""
    proposals = predictions.proposals
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


def with_ratio(predictions: Predictions, label: str, ratio: PredictedRatio) -> Predictions:
    """Return the predictions with what runs of others say of a candidate."""
    predicted = replace(predictions.predicted[label], after_runs=ratio)
    return replace(predictions, predicted={**predictions.predicted, label: predicted})


def _measured_ratios(results: RunResults) -> dict[str, tuple[float, float]]:
    """Return what `middle` does of each split so far, those of the batch included, by label."""
    alone = results.outcomes.get(defaults.BASELINE)
    if alone is None or alone.measured is None:
        return {}
    found = {}
    for label, outcome in results.outcomes.items():
        if label != defaults.BASELINE and outcome.measured is not None and outcome.failure is None:
            ratios = measurements.paired_ratios(alone.measured.rounds, outcome.measured.rounds)
            if ratios:
                found[label] = median_and_deviation(ratios)
    return found


def own_process_plan(plan: testbed_plan.TestbedPlan, call: str) -> testbed_plan.TestbedPlan:
    """Return the plan for a step of which ``call`` calls Python: no candidate runs.

    Raises:
        ModelError: other hosts were to run it.
    """
    why = f"{call} calls Python, which stays with the process that made it"
    if plan.hosts:
        raise errors.ModelError(
            f"no host can run this step: {why}",
            hint="leave out --hosts, or replace tf.py_function and tf.numpy_function by "
            "TensorFlow ops",
        )
    times = "op times were measured there" if _can_record_here() else "all times are assumed"
    return replace(
        plan,
        kind=testbed_plan.TestbedKind.NONE,
        slots=(),
        open_ports=False,
        not_run=f"no candidate ran: {why}; {times}",
    )


def record_in_own_process(
    request: AnalysisRequest, loader: Child, folder: Path, watcher: benchmark.ProgressReporter
) -> tuple[StepCosts, RunResults] | None:
    """Run the step in the process that has loaded it; return what it costs, and `single` as it ran.

    The profile goes into ``folder``. None where nothing is recorded, on machines with GPUs.

    Raises:
        ModelError: the step does not run.
    """
    if not _can_record_here():
        return None
    source, graph = request.options.source, request.graph
    watcher.working("measuring op times in the script's own process", 0, 1)
    core = usable_cores()[0]
    answer = loader.call(native_step.record, str(folder), core, time_limit_s=source.time_limit_s)
    steps = expect(answer, partial(child_ended, source, "running the step"))
    cluster = assumed_cluster(len(request.plan.devices))
    op_ns = own_op_ns(graph, read_recorded(folder, shares_core=True), request.traced.members)
    costs = measured_costs(graph, op_ns)
    costs, cluster = _costs_filling_step(costs, cluster, round(median(steps.step_ns)))
    prices = StepCosts(
        cluster=cluster,
        costs=costs.everywhere(cluster),
        source=table.CostSource.RECORDED,
        doubt=OWN_PROCESS_UNCERTAINTY,
    )
    measured = measurements.Measurement(
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
    costs: table.CostTable, cluster: Cluster, step_ns: int
) -> tuple[table.CostTable, Cluster]:
    """Return costs and a cluster by which a step on one device takes so long."""
    beside_ns = max(0, step_ns - costs.total_ns)
    start_ns = min(beside_ns, cluster.dispatch.step_overhead_ns)
    costs, launch_ns = with_launches(costs, step_ns - start_ns)
    return costs, replace(
        cluster,
        devices=tuple(replace(each, launch_overhead_ns=launch_ns) for each in cluster.devices),
        dispatch=replace(cluster.dispatch, step_overhead_ns=start_ns),
    )
