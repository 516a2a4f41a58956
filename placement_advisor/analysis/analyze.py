"""`advisor analyze`: load -> trace -> price -> propose -> predict -> run -> assemble.

Each stage is a module of its own, and what it returns stays as it is. Here they are put one after
the other, with what is kept and shown in between.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from placement_advisor import defaults
from placement_advisor.analysis.assemble import advice_placements, assemble, candidates_of, snapshot
from placement_advisor.analysis.hosts import connect
from placement_advisor.analysis.options import NO_RUN, QUICK, RESUME
from placement_advisor.analysis.predictions import bound_of, break_even_of, predict, propose_all
from placement_advisor.analysis.progress import Stage, initial_facts
from placement_advisor.analysis.recording import (
    ResumeState,
    check_candidates_exist,
    check_same_conditions,
    conditions_of,
    read_resume_state,
    read_searched_placements,
    traced_conditions,
)
from placement_advisor.analysis.runs import (
    ReferenceTimings,
    RunResults,
    candidate_to_run_briefly,
    candidates_to_run,
    corrected_predictions,
    own_process_plan,
    record_in_own_process,
    refine,
    run,
    with_ratio,
)
from placement_advisor.analysis.step_costs import (
    assume_costs,
    costs_from,
    costs_from_measured,
    make_testbed_session,
    measure_costs_of_step,
    restart_testbed,
)
from placement_advisor.analysis.target_costs import read_target_hardware
from placement_advisor.analysis.tracing import (
    AnalysisRequest,
    growth_of,
    load_model,
    split_batch,
    trace_loaded,
)
from placement_advisor.candidates import towers
from placement_advisor.candidates.batch_split.mirrored_graph import FAMILY as MIRRORED
from placement_advisor.candidates.families import SPLITS, check_names
from placement_advisor.errors import AdvisorError, ModelError, TestbedError
from placement_advisor.files.output import scratch_folder
from placement_advisor.machine.testbed_plan import (
    ONE_PROCESS,
    TestbedKind,
    plan_testbed,
    with_load,
    with_network,
)
from placement_advisor.processes.calls import FailureCause
from placement_advisor.processes.children import Child, preload
from placement_advisor.testbed.cost_measurement import has_calibration
from placement_advisor.tf.load.model_source import source_kind

if TYPE_CHECKING:
    from collections.abc import Callable

    from placement_advisor.analysis.analysis_result import Analysis
    from placement_advisor.analysis.options import AnalyzeOptions
    from placement_advisor.analysis.predictions import Predictions
    from placement_advisor.analysis.progress import AnalysisProgress, ProgressFacts
    from placement_advisor.analysis.recording import AnalysisRecorder
    from placement_advisor.analysis.step_costs import AllCosts, MeasuredCosts, TestbedSession
    from placement_advisor.analysis.target_costs import TargetHardware
    from placement_advisor.analysis.verdict import RerunEstimate
    from placement_advisor.graph.placement import Placement
    from placement_advisor.machine.testbed_plan import TestbedPlan
    from placement_advisor.testbed.benchmark import ProgressReporter
    from placement_advisor.tf.answers import Traced


@dataclass(frozen=True, slots=True, kw_only=True)
class _Observers:
    """Those who see an analysis go on: what keeps it, and what times it and says how far it is."""

    recorder: AnalysisRecorder
    course: AnalysisProgress


def analyze(
    options: AnalyzeOptions,
    recording: Callable[[Traced], AnalysisRecorder],
    course: AnalysisProgress,
) -> Analysis:
    """Analyse a model.

    ``recording`` gives what keeps findings about a step, ``course`` is told of each stage.

    Raises:
        AdvisorError: anything that the user can fix.
    """
    # Refuse what cannot work before anything is started.
    source_kind(Path(options.source.path))
    check_names(options.candidates or ())
    kept = _resume_state(options)
    elsewhere = None
    if options.hardware is not None:
        elsewhere = read_target_hardware(options.hardware, options.costs)
    with ExitStack() as stack:
        scratch = stack.enter_context(scratch_folder())
        connected = None
        if options.hosts is not None:
            preload()  # It goes on while hosts start.
            connected = connect(options.hosts, stack, course.watcher)
            plan = connected.plan
        else:
            plan = _plan(options, elsewhere)
        _check_ratios(options, plan)
        if plan.not_run is None:
            course.known = replace(course.known, is_calibrated=has_calibration(plan))
        else:
            course.known = replace(course.known, is_run=False)
        plan = _plan_as_used(plan, options, course.watcher)
        if kept is not None:
            check_same_conditions(kept.conditions, conditions_of(options, plan), options.folder)
        course.known = replace(course.known, is_busy=plan.load is not None)
        course.begin(Stage.IMPORT)
        course.watcher.working("importing TensorFlow", 0, 1)
        preload()
        loader = stack.enter_context(Child("loader"))
        bundle = scratch / "bundle"
        bundle.mkdir()
        if connected is not None:
            # What it does then is of no use.
            connected.when_lost(partial(loader.interrupt, FailureCause.CRASHED))
        try:
            subject = _traced(options, plan, bundle, loader, course)
        except ModelError:
            if connected is not None and connected.lost is not None:
                raise TestbedError(connected.lost) from None
            raise
        if kept is not None:
            check_same_conditions(kept.traced, traced_conditions(subject), options.folder)
        onlookers = _Observers(recorder=recording(subject.traced), course=course)
        if plan.not_run is not None:
            loader.close()
            return _by_predicting(
                subject, assume_costs(subject, elsewhere), RunResults(), onlookers
            )
        if subject.traced.python_call is not None:
            subject = replace(subject, plan=own_process_plan(plan, subject.traced.python_call))
            course.known = replace(course.known, is_run=False)
            return _by_own_process(subject, loader, scratch, onlookers)
        site = None
        if connected is not None:
            site = connected.site(scratch, stack)
            connected.when_lost(lambda why: course.watcher.note(f"warning: {why}"))
        apparatus = make_testbed_session(subject, loader, bundle, scratch, course.watcher, site)
        stack.callback(apparatus.close)
        return _by_running(subject, apparatus, onlookers, kept)


def _resume_state(options: AnalyzeOptions) -> ResumeState | None:
    """Return what there is to go on from, None for a new analysis."""
    if not options.resume:
        return None
    if not initial_facts(options).is_run:
        raise AdvisorError(
            f"{RESUME} adds rounds, and by the other options none run",
            hint=f"leave out --hardware, --testbed none, {NO_RUN} and {QUICK}",
        )
    return read_resume_state(options.folder)


def _plan(options: AnalyzeOptions, elsewhere: TargetHardware | None) -> TestbedPlan:
    """Return where candidates can run, or why they cannot."""
    if elsewhere is not None:
        return elsewhere.plan()
    return plan_testbed(options.testbed, options.devices)


def _check_ratios(options: AnalyzeOptions, plan: TestbedPlan) -> None:
    if options.ratios is not None and len(options.ratios) != len(plan.devices):
        raise AdvisorError(
            f"--ratios: {len(options.ratios)} ratios for {len(plan.devices)} devices",
            hint="give one for each device",
        )


def _plan_as_used(
    plan: TestbedPlan, options: AnalyzeOptions, watcher: ProgressReporter
) -> TestbedPlan:
    """Return where candidates run, or why they do not, though they may be able to."""
    if not options.run:
        option, not_run = QUICK if options.quick else NO_RUN, plan.not_run
        if not_run is None:
            plan = replace(plan, kind=TestbedKind.NONE, slots=(), is_declined=True)
            not_run = f"{option}: no step was executed"
        if options.quick and not set(SPLITS).intersection(options.families):
            not_run += ", no split of the batch tried"
        plan = replace(plan, not_run=not_run)
    plan = with_network(
        plan,
        open_ports=options.open_ports,
        instead=f"--no-run only predicts; {ONE_PROCESS}",
        note=watcher.note,
    )
    return with_load(plan, watcher.note)


def _traced(
    options: AnalyzeOptions,
    plan: TestbedPlan,
    bundle: Path,
    loader: Child,
    course: AnalysisProgress,
) -> AnalysisRequest:
    """Load and trace the model, as it is and with its batch split."""
    course.begin(Stage.LOAD)
    load_model(options.source, loader, course.watcher)
    course.begin(Stage.TRACE)
    traced = trace_loaded(options.source, bundle, loader, course.watcher)
    course.known = replace(course.known, ops=len(traced.graph))
    course.begin(Stage.SPLIT)
    folder = bundle if plan.not_run is None and traced.python_call is None else None
    splits = split_batch(options, len(plan.devices), traced, folder, loader, course.watcher)
    growth = None
    if not options.quick:
        course.watcher.working("tracing other batch sizes", 0, 1)
        growth = growth_of(loader, traced, options.source.time_limit_s)
    return AnalysisRequest(options=options, plan=plan, traced=traced, splits=splits, growth=growth)


def _by_own_process(
    subject: AnalysisRequest, loader: Child, scratch: Path, onlookers: _Observers
) -> Analysis:
    """Analyse the subject by what it costs in the process that has loaded it, where it can run."""
    onlookers.course.begin(Stage.MEASURE)
    onlookers.recorder.show(snapshot(subject, "measuring costs"))
    recorded = record_in_own_process(
        subject, loader, scratch / "own-process", onlookers.course.watcher
    )
    loader.close()
    if recorded is None:
        return _by_predicting(subject, assume_costs(subject, None), RunResults(), onlookers)
    prices, results = recorded
    return _by_predicting(subject, costs_from(subject, prices), results, onlookers)


def _by_predicting(
    subject: AnalysisRequest, priced: AllCosts, results: RunResults, onlookers: _Observers
) -> Analysis:
    """Analyse the subject by its prices; no candidate runs."""
    onlookers.course.begin(Stage.SEARCH)
    onlookers.recorder.show(snapshot(subject, "predicting"))
    return _conclude(subject, _predictions(subject, priced, onlookers), results, onlookers)


def _by_running(
    subject: AnalysisRequest,
    apparatus: TestbedSession,
    onlookers: _Observers,
    kept: ResumeState | None,
) -> Analysis:
    """Analyse the subject by measured costs, and run what is predicted from them.

    What was ``kept`` is gone on from: costs, what is predicted from them, who runs, and rounds.
    """
    recorder, course = onlookers.recorder, onlookers.course
    course.begin(Stage.CALIBRATE)
    recorder.show(snapshot(subject, "measuring costs"))
    if kept is None:
        costs = measure_costs_of_step(subject, apparatus, course)
    else:
        costs = kept.costs
        apparatus.trial.resume(kept.candidates, kept.joining)
        restart_testbed(subject, apparatus, course)
    priced = costs_from_measured(subject, costs)
    forecast = _predictions(subject, priced, onlookers, kept)

    def show(doing: str, results: RunResults) -> None:
        recorder.show(snapshot(subject, doing, forecast, results))

    def look(results: RunResults) -> Placement | None:
        nonlocal forecast
        refined = refine(forecast, results, subject.options.effort)
        if refined is None:
            return None
        _record_changes(forecast, refined.forecast, recorder)
        forecast = refined.forecast
        return refined.placement

    def advise(results: RunResults) -> list[Placement]:
        return advice_placements(subject, corrected_predictions(forecast, results), results)

    if kept is None:
        chosen = _without_second_script_run(
            candidates_to_run(forecast, subject.options), subject, course
        )
        brief = candidate_to_run_briefly(forecast, subject.options)
    else:
        placements = forecast.proposals.placements
        chosen = tuple(placements[label] for label in kept.candidates if label != defaults.BASELINE)
        brief = None
    course.known = _facts_with_candidates(course.known, forecast, chosen, brief)
    growing = subject.growing(priced.prices)
    beside = ReferenceTimings() if kept is None else kept.beside
    results = run(subject, chosen, brief, apparatus, course, show, look, advise, growing, beside)
    results = replace(results, sessions=1 if kept is None else kept.sessions + 1)
    results = _record_profiles(results, recorder)
    last = corrected_predictions(forecast, results)
    _record_changes(forecast, last, recorder)
    recorder.rounds(_new_resume_state(subject, costs, apparatus, last, results))
    return _conclude(subject, last, results, onlookers)


def _new_resume_state(
    subject: AnalysisRequest,
    costs: MeasuredCosts,
    apparatus: TestbedSession,
    forecast: Predictions,
    results: RunResults,
) -> ResumeState:
    """Return what another session needs to go on from this one."""
    trial = apparatus.trial
    after_runs = {label: forecast.predicted[label].after_runs for label in trial.entries}
    return ResumeState(
        conditions=conditions_of(subject.options, subject.plan),
        traced=traced_conditions(subject),
        sessions=results.sessions,
        joining=trial.joining,
        costs=costs,
        candidates={label: entry.so_far() for label, entry in trial.entries.items()},
        beside=results.beside,
        after_runs={label: ratio for label, ratio in after_runs.items() if ratio is not None},
    )


def _facts_with_candidates(
    known: ProgressFacts,
    forecast: Predictions,
    chosen: tuple[Placement, ...],
    brief: Placement | None,
) -> ProgressFacts:
    """Return what is known once it is known what runs beside the baseline."""
    labels = (defaults.BASELINE, *(placement.label for placement in chosen))
    step_ns = {label: of.schedule.step_ns for label, of in forecast.predicted.items()}
    return replace(
        known,
        steps_ns=tuple(step_ns[label] for label in labels),
        brief_ns=None if brief is None else step_ns[brief.label],
    )


def _rerun_estimate(
    subject: AnalysisRequest, forecast: Predictions, course: AnalysisProgress
) -> RerunEstimate | None:
    """Return what the next run would take: more of the same, or without what kept this one short.

    None if there is none that would tell more.
    """
    options, plan = subject.options, subject.plan
    if plan.not_run is None:
        known = replace(course.known, is_calibrated=True, is_resumed=True, brief_ns=None)
        return course.again(known, None)
    if not plan.is_declined and not options.quick:
        return None
    chosen, brief = (
        candidates_to_run(forecast, options),
        candidate_to_run_briefly(forecast, options),
    )
    is_run = plan.is_declined and subject.traced.python_call is None
    known = replace(course.known, is_run=is_run)
    known = _facts_with_candidates(known, forecast, chosen, brief)
    if options.quick:
        splits = initial_facts(replace(options, quick=False)).splits
        known = replace(known, splits=splits, effort=max(known.effort, defaults.EFFORT))
    return course.again(known, QUICK if options.quick else NO_RUN)


def _without_second_script_run(
    chosen: tuple[Placement, ...], subject: AnalysisRequest, course: AnalysisProgress
) -> tuple[Placement, ...]:
    """Return the candidates without `mirrored`, if a script would have to run for it once more.

    Unless another run finds its step, and the script has a strategy, or that candidate is named.
    """
    captured = subject.traced.captured
    is_asked = MIRRORED in (subject.options.candidates or ())
    if captured is None or (captured.repeat and (captured.is_replica or is_asked)):
        return chosen
    if any(placement.family == MIRRORED for placement in chosen):
        why = f"no second run of the script would find {captured.call}"
        if captured.repeat:
            why = f"the script would run once more for it (--candidates {MIRRORED})"
        course.watcher.note(f"{MIRRORED} is predicted, and does not run: {why}")
    return tuple(placement for placement in chosen if placement.family != MIRRORED)


def _predictions(
    subject: AnalysisRequest,
    priced: AllCosts,
    onlookers: _Observers,
    kept: ResumeState | None = None,
) -> Predictions:
    """Find the candidates, predict them all, and have it kept before any of them runs.

    What was ``kept`` stays: what searches had found, and what was predicted of those that joined.
    """
    recorder, options, course = onlookers.recorder, subject.options, onlookers.course
    course.begin(Stage.SEARCH)
    course.watcher.working("searching placements", 0, 1)
    found = {} if kept is None else read_searched_placements(options.folder, kept, subject.graph)
    proposals = propose_all(
        subject.graph,
        priced,
        options.families,
        options.effort,
        found,
        subject.traced.requested_device_of,
    )
    cluster = proposals.prices.cluster
    recorder.placements(subject.graph, cluster, [*proposals.of_whole_batch.values()])
    pair = replace(cluster, devices=cluster.devices[: towers.GROUP])
    for split in proposals.splits.values():
        if split.within is not None:
            recorder.placements(subject.graph, pair, [split.within])
    course.begin(Stage.SIMULATE)
    forecast = predict(proposals)
    for label, predicted in forecast.predicted.items():
        recorder.prediction(label, predicted.schedule, predicted.ratio)
    if kept is None:
        return forecast
    check_candidates_exist(kept, proposals.placements, options.folder)
    for label, ratio in kept.after_runs.items():
        recorder.prediction_after_runs(label, ratio)
        forecast = with_ratio(forecast, label, ratio)
    return forecast


def _record_changes(before: Predictions, after: Predictions, recorder: AnalysisRecorder) -> None:
    """Have candidates kept that are new, and what is predicted anew."""
    proposals = after.proposals
    for label, predicted in after.predicted.items():
        known = before.predicted.get(label)
        if known is None:
            placement = proposals.placements[label]
            recorder.placements(proposals.graph, proposals.prices.cluster, [placement])
            recorder.prediction(label, predicted.schedule, predicted.ratio)
        if predicted.after_runs is not None and predicted != known:
            recorder.prediction_after_runs(label, predicted.after_runs)


def _record_profiles(results: RunResults, recorder: AnalysisRecorder) -> RunResults:
    """Have raw profiles kept; return the results with where they are."""
    outcomes = dict(results.outcomes)
    for label, outcome in results.outcomes.items():
        if outcome.files is None:
            continue
        where = recorder.profile(label, outcome.files)
        if outcome.measured is not None:
            measured = replace(outcome.measured, profile_run=where)
            outcomes[label] = replace(outcome, measured=measured)
    return replace(results, outcomes=outcomes)


def _conclude(
    subject: AnalysisRequest, forecast: Predictions, results: RunResults, onlookers: _Observers
) -> Analysis:
    """Put everything together, and have it kept."""
    recorder, options = onlookers.recorder, subject.options
    onlookers.course.begin(Stage.CONCLUDE)
    onlookers.course.watcher.working("looking for what would change the verdict", 0, 1)
    candidates = candidates_of(forecast, results)
    bound = bound_of(forecast)
    recorder.graph(subject.graph)
    sweep = None
    if not options.quick:
        growing = subject.growing(forecast.proposals.prices)
        sweep = break_even_of(forecast, candidates, growing, options.effort)
    again = _rerun_estimate(subject, forecast, onlookers.course)
    analysis = assemble(subject, forecast, results, candidates, bound, sweep, again)
    recorder.show(analysis)
    return analysis
