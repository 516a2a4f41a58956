"""`advisor analyze`: load, trace, estimate costs, propose, simulate, run, conclude.

Each stage is a module of its own that returns frozen values. Here they follow one another, and
what they find is recorded and shown as soon as it is found.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placement_advisor import defaults
from placement_advisor.analysis import hosts, resume, runs, step_costs, target_costs, tracing
from placement_advisor.analysis.assemble import advice_placements, assemble, candidates_of, snapshot
from placement_advisor.analysis.options import NO_RUN, QUICK, RESUME, AnalyzeOptions
from placement_advisor.analysis.predictions import bound_of, break_even_of, predict, propose_all
from placement_advisor.analysis.progress import AnalysisProgress, Stage, initial_facts
from placement_advisor.candidates import towers
from placement_advisor.candidates.batch_split.mirrored_graph import FAMILY as MIRRORED
from placement_advisor.candidates.families import SPLITS, check_names
from placement_advisor.errors import AdvisorError, ModelError, TestbedError
from placement_advisor.files.output import scratch_folder
from placement_advisor.machine import testbed_plan
from placement_advisor.processes.calls import FailureCause
from placement_advisor.processes.children import Child, preload
from placement_advisor.testbed.cost_measurement import has_calibration
from placement_advisor.tf.load.model_source import source_kind

if TYPE_CHECKING:
    from collections.abc import Callable

    from placement_advisor.analysis.analysis_result import Analysis
    from placement_advisor.analysis.predictions import Predictions
    from placement_advisor.analysis.verdict import RerunEstimate
    from placement_advisor.graph.placement import Placement
    from placement_advisor.testbed.benchmark import Benchmark, ProgressReporter
    from placement_advisor.tf.answers import Traced


def analyze(
    options: AnalyzeOptions,
    recording: Callable[[Traced], resume.AnalysisRecorder],
    progress: AnalysisProgress,
) -> Analysis:
    """Analyse a model.

    ``recording`` returns what records the findings about a step that was traced.

    Raises:
        AdvisorError: anything that the user can fix.
    """
    # Refuse what cannot work before anything is started.
    source_kind(Path(options.source.path))
    check_names(options.candidates or ())
    with ExitStack() as stack:
        return _AnalysisRun(options, recording, progress, stack).result()


class _AnalysisRun:
    """One analysis from its options to its result; each stage leaves here what later ones need.

    The rounds of candidates ask it what to run next (`runs.Steering`).
    """

    _loader: Child
    _request: tracing.AnalysisRequest
    _recorder: resume.AnalysisRecorder
    _predictions: Predictions
    _measured: step_costs.MeasuredCosts

    def __init__(
        self,
        options: AnalyzeOptions,
        recording: Callable[[Traced], resume.AnalysisRecorder],
        progress: AnalysisProgress,
        stack: ExitStack,
    ) -> None:
        self._options, self._recording, self._stack = options, recording, stack
        self._progress, self._watcher = progress, progress.watcher
        self._earlier = _resume_state(options)
        self._hardware: target_costs.TargetHardware | None = None
        if options.hardware is not None:
            self._hardware = target_costs.read_target_hardware(options.hardware, options.costs)
        self._scratch = stack.enter_context(scratch_folder())
        self._bundle = self._scratch / "bundle"
        self._bundle.mkdir()
        self._hosts: hosts.ConnectedHosts | None = None
        self._session: step_costs.TestbedSession | None = None
        self._results = runs.RunResults()

    def result(self) -> Analysis:
        """Go through all stages."""
        plan = self._plan_testbed()
        self._load_and_trace(plan)
        costs = self._estimate()
        self._propose_and_simulate(costs)
        if self._session is not None:
            self._run(self._session)
        return self._conclude()

    def _plan_testbed(self) -> testbed_plan.TestbedPlan:
        """Return where candidates run, or why they do not."""
        options = self._options
        if options.hosts is not None:
            preload()  # It goes on while hosts start.
            self._hosts = hosts.connect(options.hosts, self._stack, self._watcher)
            plan = self._hosts.plan
        elif self._hardware is not None:
            plan = self._hardware.plan()
        else:
            plan = testbed_plan.plan_testbed(options.testbed, options.devices)
        if options.ratios is not None and len(options.ratios) != len(plan.devices):
            raise AdvisorError(
                f"--ratios: {len(options.ratios)} ratios for {len(plan.devices)} devices",
                hint="give one for each device",
            )
        if plan.not_run is None:
            self._progress.learn(is_calibrated=has_calibration(plan))
        else:
            self._progress.learn(is_run=False)
        plan = _plan_as_used(plan, options, self._watcher)
        if self._earlier is not None:
            now = resume.conditions_of(options, plan)
            resume.check_same_conditions(self._earlier.conditions, now, options.folder)
        self._progress.learn(is_busy=plan.load is not None)
        return plan

    def _load_and_trace(self, plan: testbed_plan.TestbedPlan) -> None:
        self._progress.begin(Stage.IMPORT)
        self._watcher.working("importing TensorFlow", 0, 1)
        preload()
        self._loader = self._stack.enter_context(Child("loader"))
        if self._hosts is not None:
            # What it does then is of no use.
            self._hosts.when_lost(partial(self._loader.interrupt, FailureCause.CRASHED))
        try:
            self._request = self._traced(plan)
        except ModelError:
            if self._hosts is not None and self._hosts.lost is not None:
                raise TestbedError(self._hosts.lost) from None
            raise
        if self._earlier is not None:
            now = resume.traced_conditions(self._request)
            resume.check_same_conditions(self._earlier.traced, now, self._options.folder)
        self._recorder = self._recording(self._request.traced)

    def _traced(self, plan: testbed_plan.TestbedPlan) -> tracing.AnalysisRequest:
        """Load the model and trace it, also with its batch split and at other batch sizes."""
        options, loader, watcher = self._options, self._loader, self._watcher
        progress = self._progress
        progress.begin(Stage.LOAD)
        tracing.load_model(options.source, loader, watcher)
        progress.begin(Stage.TRACE)
        traced = tracing.trace_loaded(options.source, self._bundle, loader, watcher)
        progress.learn(ops=len(traced.graph))
        progress.begin(Stage.SPLIT)
        will_run = plan.not_run is None and traced.python_call is None
        folder = self._bundle if will_run else None
        splits = tracing.split_batch(options, len(plan.devices), traced, folder, loader, watcher)
        growth = None
        if not options.quick:
            watcher.working("tracing other batch sizes", 0, 1)
            growth = tracing.growth_of(loader, traced, options.source.time_limit_s)
        return tracing.AnalysisRequest(
            options=options, plan=plan, traced=traced, splits=splits, growth=growth
        )

    def _estimate(self) -> step_costs.AllCosts:
        """Return the costs of the step: assumed, recorded in its process, or measured."""
        if self._request.plan.not_run is not None:
            self._loader.close()
            return step_costs.assume_costs(self._request, self._hardware)
        call = self._request.traced.python_call
        return self._measure_costs() if call is None else self._record_costs(call)

    def _record_costs(self, python_call: str) -> step_costs.AllCosts:
        """Return what the step costs in the process that has loaded it, where it can run."""
        plan = runs.own_process_plan(self._request.plan, python_call)
        self._request = request = replace(self._request, plan=plan)
        self._progress.learn(is_run=False)
        self._progress.begin(Stage.MEASURE)
        self._recorder.show(snapshot(request, "measuring costs"))
        folder = self._scratch / "own-process"
        recorded = runs.record_in_own_process(request, self._loader, folder, self._watcher)
        self._loader.close()
        if recorded is None:
            return step_costs.assume_costs(request, None)
        prices, self._results = recorded
        return step_costs.costs_from(request, prices)

    def _measure_costs(self) -> step_costs.AllCosts:
        """Return what the step costs on the testbed; a resumed analysis measures nothing anew."""
        request, site = self._request, None
        if self._hosts is not None:
            site = self._hosts.site(self._scratch, self._stack)
            self._hosts.when_lost(lambda why: self._watcher.note(f"warning: {why}"))
        self._session = session = step_costs.make_testbed_session(
            request, self._loader, self._bundle, self._scratch, self._watcher, site
        )
        self._stack.callback(session.close)
        self._progress.begin(Stage.CALIBRATE)
        self._recorder.show(snapshot(request, "measuring costs"))
        if self._earlier is None:
            self._measured = step_costs.measure_costs_of_step(request, session, self._progress)
        else:
            self._measured = self._earlier.costs
            session.trial.resume(self._earlier.candidates, self._earlier.joining)
            step_costs.restart_testbed(request, session, self._progress)
        return step_costs.costs_from_measured(request, self._measured)

    def _propose_and_simulate(self, costs: step_costs.AllCosts) -> None:
        """Find the candidates and predict them all; recorded before any of them runs.

        A resumed analysis has the placements that searches found before.
        """
        request, options, earlier = self._request, self._options, self._earlier
        self._progress.begin(Stage.SEARCH)
        self._recorder.show(snapshot(request, "predicting"))
        self._watcher.working("searching placements", 0, 1)
        found = {}
        if earlier is not None:
            found = resume.read_searched_placements(options.folder, earlier, request.graph)
        proposals = propose_all(
            request.graph,
            costs,
            options.families,
            options.effort,
            found,
            request.traced.requested_device_of,
        )
        cluster = proposals.prices.cluster
        self._recorder.placements(request.graph, cluster, [*proposals.of_whole_batch.values()])
        pair = replace(cluster, devices=cluster.devices[: towers.GROUP])
        for split in proposals.splits.values():
            if split.within is not None:
                self._recorder.placements(request.graph, pair, [split.within])
        self._progress.begin(Stage.SIMULATE)
        self._predictions = predict(proposals)
        for label, predicted in self._predictions.predicted.items():
            self._recorder.prediction(label, predicted.schedule, predicted.ratio)
        if earlier is not None:
            resume.check_candidates_exist(earlier, proposals.placements, options.folder)
            predictions = self._predictions
            for label, ratio in earlier.after_runs.items():
                predictions = runs.with_ratio(predictions, label, ratio)
            self._change_predictions(predictions)

    def _run(self, session: step_costs.TestbedSession) -> None:
        """Run candidates, and correct the predictions of all others by what has run."""
        earlier, predictions = self._earlier, self._predictions
        if earlier is None:
            chosen = runs.candidates_to_run(predictions, self._options)
            chosen = _without_second_script_run(chosen, self._request, self._watcher)
            brief = runs.candidate_to_run_briefly(predictions, self._options)
        else:
            labels = [label for label in earlier.candidates if label != defaults.BASELINE]
            chosen = tuple(predictions.proposals.placements[label] for label in labels)
            brief = None
        self._progress.learn(**_facts_of_candidates(predictions, chosen, brief))
        beside = runs.ReferenceTimings() if earlier is None else earlier.beside
        candidates = runs.CandidateRuns(self._options, session, self._progress, self, beside)
        results = candidates.run(chosen, brief, self._request.growing(predictions.proposals.prices))
        sessions = 1 if earlier is None else earlier.sessions + 1
        self._results = replace(results, outcomes=self._record_profiles(results), sessions=sessions)
        self._change_predictions(runs.corrected_predictions(self._predictions, self._results))
        self._recorder.rounds(self._new_resume_state(session.trial))

    def show(self, doing: str, results: runs.RunResults) -> None:
        """Show how far the runs are."""
        self._recorder.show(snapshot(self._request, doing, self._predictions, results))

    def refine(self, results: runs.RunResults) -> Placement | None:
        """Return the candidate that joins by what has run, None if none does."""
        refined = runs.refine(self._predictions, results, self._options.effort)
        if refined is None:
            return None
        self._change_predictions(refined.predictions)
        return refined.placement

    def advise(self, results: runs.RunResults) -> list[Placement]:
        """Return what to time at the end that is no candidate."""
        predictions = runs.corrected_predictions(self._predictions, results)
        return advice_placements(self._request, predictions, results)

    def _change_predictions(self, predictions: Predictions) -> None:
        """Take on predictions, and record the candidates and the ratios that are new in them."""
        proposals, before = predictions.proposals, self._predictions.predicted
        for label, predicted in predictions.predicted.items():
            if label not in before:
                placement = proposals.placements[label]
                self._recorder.placements(proposals.graph, proposals.prices.cluster, [placement])
                self._recorder.prediction(label, predicted.schedule, predicted.ratio)
            if predicted.after_runs is not None and predicted != before.get(label):
                self._recorder.prediction_after_runs(label, predicted.after_runs)
        self._predictions = predictions

    def _record_profiles(self, results: runs.RunResults) -> dict[str, runs.CandidateRun]:
        """Record raw profiles; return what came of each candidate, with where they are."""
        outcomes = dict(results.outcomes)
        for label, outcome in results.outcomes.items():
            if outcome.files is None:
                continue
            where = self._recorder.profile(label, outcome.files)
            if outcome.measured is not None:
                measured = replace(outcome.measured, profile_run=where)
                outcomes[label] = replace(outcome, measured=measured)
        return outcomes

    def _new_resume_state(self, trial: Benchmark) -> resume.ResumeState:
        """Return what another session needs to go on from this one."""
        predicted = self._predictions.predicted
        after_runs = {label: predicted[label].after_runs for label in trial.entries}
        return resume.ResumeState(
            conditions=resume.conditions_of(self._options, self._request.plan),
            traced=resume.traced_conditions(self._request),
            sessions=self._results.sessions,
            joining=trial.joining,
            costs=self._measured,
            candidates={label: entry.so_far() for label, entry in trial.entries.items()},
            beside=self._results.beside,
            after_runs={label: ratio for label, ratio in after_runs.items() if ratio is not None},
        )

    def _conclude(self) -> Analysis:
        """Put everything together, and record it."""
        request, predictions, options = self._request, self._predictions, self._options
        self._progress.begin(Stage.CONCLUDE)
        self._watcher.working("finding what would change the verdict", 0, 1)
        candidates = candidates_of(predictions, self._results)
        self._recorder.graph(request.graph)
        sweep = None
        if not options.quick:
            growing = request.growing(predictions.proposals.prices)
            sweep = break_even_of(predictions, candidates, growing, options.effort)
        analysis = assemble(
            request,
            predictions,
            self._results,
            candidates,
            bound_of(predictions),
            sweep,
            _rerun_estimate(request, predictions, self._progress),
        )
        self._recorder.show(analysis)
        return analysis


def _resume_state(options: AnalyzeOptions) -> resume.ResumeState | None:
    """Return what there is to go on from, None for a new analysis."""
    if not options.resume:
        return None
    if not initial_facts(options).is_run:
        raise AdvisorError(
            f"{RESUME} adds rounds, and by the other options none run",
            hint=f"leave out --hardware, --testbed none, {NO_RUN} and {QUICK}",
        )
    return resume.read_resume_state(options.folder)


def _plan_as_used(
    plan: testbed_plan.TestbedPlan, options: AnalyzeOptions, watcher: ProgressReporter
) -> testbed_plan.TestbedPlan:
    """Return where candidates run, or why they do not, though they may be able to."""
    if not options.run:
        option, not_run = QUICK if options.quick else NO_RUN, plan.not_run
        if not_run is None:
            plan = replace(plan, kind=testbed_plan.TestbedKind.NONE, slots=(), is_declined=True)
            not_run = f"{option}: no step was executed"
        if options.quick and not set(SPLITS).intersection(options.families):
            not_run += ", no split of the batch tried"
        plan = replace(plan, not_run=not_run)
    plan = testbed_plan.with_network(
        plan,
        open_ports=options.open_ports,
        instead=f"--no-run only predicts; {testbed_plan.ONE_PROCESS}",
        note=watcher.note,
    )
    return testbed_plan.with_load(plan, watcher.note)


def _facts_of_candidates(
    predictions: Predictions, chosen: tuple[Placement, ...], brief: Placement | None
) -> dict[str, Any]:
    """Return the facts for `AnalysisProgress` once it is known what runs beside the baseline."""
    labels = (defaults.BASELINE, *(placement.label for placement in chosen))
    step_ns = {label: of.schedule.step_ns for label, of in predictions.predicted.items()}
    return {
        "steps_ns": tuple(step_ns[label] for label in labels),
        "brief_ns": None if brief is None else step_ns[brief.label],
    }


def _rerun_estimate(
    request: tracing.AnalysisRequest, predictions: Predictions, progress: AnalysisProgress
) -> RerunEstimate | None:
    """Return what the next run would take: more of the same, or without what kept this one short.

    None if there is none that would tell more.
    """
    options, plan = request.options, request.plan
    if plan.not_run is None:
        known = replace(progress.known, is_calibrated=True, is_resumed=True, brief_ns=None)
        return progress.again(known, None)
    if not plan.is_declined and not options.quick:
        return None
    chosen = runs.candidates_to_run(predictions, options)
    brief = runs.candidate_to_run_briefly(predictions, options)
    is_run = plan.is_declined and request.traced.python_call is None
    facts = _facts_of_candidates(predictions, chosen, brief)
    known = replace(progress.known, is_run=is_run, **facts)
    if options.quick:
        splits = initial_facts(replace(options, quick=False)).splits
        known = replace(known, splits=splits, effort=max(known.effort, defaults.EFFORT))
    return progress.again(known, QUICK if options.quick else NO_RUN)


def _without_second_script_run(
    chosen: tuple[Placement, ...], request: tracing.AnalysisRequest, watcher: ProgressReporter
) -> tuple[Placement, ...]:
    """Return the candidates without `mirrored`, if a script would have to run for it once more.

    Unless another run finds its step, and the script has a strategy, or that candidate is named.
    """
    captured = request.traced.captured
    is_asked = MIRRORED in (request.options.candidates or ())
    if captured is None or (captured.repeat and (captured.is_replica or is_asked)):
        return chosen
    if any(placement.family == MIRRORED for placement in chosen):
        why = f"no second run of the script would find {captured.call}"
        if captured.repeat:
            why = f"the script would run once more for it (--candidates {MIRRORED})"
        watcher.note(f"{MIRRORED} is predicted, and does not run: {why}")
    return tuple(placement for placement in chosen if placement.family != MIRRORED)
