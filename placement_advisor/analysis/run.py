"""Candidates run in turns, with the user's own step beside them, and then with the profiler on."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from placement_advisor import defaults
from placement_advisor.analysis.durations import Stage
from placement_advisor.candidates.batch_split.mirrored_graph import FAMILY as MIRRORED
from placement_advisor.candidates.families import PER_DEVICE, PER_PAIR, RUN_BRIEFLY, to_run
from placement_advisor.files.contract import Ns, Rows
from placement_advisor.processes.calls import CallFailure
from placement_advisor.simulator.step_growth import GrowingStep
from placement_advisor.testbed.benchmark import (
    BRIEF_ROUNDS,
    failure_of,
    is_time_for_another,
    time_briefly,
    time_in_rounds,
)
from placement_advisor.testbed.user_step import batch_points, loop_timing
from placement_advisor.tf.calls import as_is, input_timer
from placement_advisor.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from placement_advisor.analysis.apparatus import Apparatus
    from placement_advisor.analysis.course import Course
    from placement_advisor.analysis.options import AnalyzeOptions
    from placement_advisor.analysis.predict import Forecast
    from placement_advisor.analysis.subject import Subject
    from placement_advisor.cost.batch import Throughput
    from placement_advisor.errors import BatchSplitError
    from placement_advisor.graph.placement import Placement
    from placement_advisor.measurement.measurement import (
        CandidateFailure,
        Comparison,
        InputTiming,
        LoopTiming,
        Measurement,
    )
    from placement_advisor.processes.children import Child
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
class Outcome:
    """What came of a candidate that ran; ``files`` are its raw profiles, None if it has none."""

    measured: Measurement | None
    comparison: Comparison | None
    failure: CandidateFailure | None
    files: ProfileFiles | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """Steps that are no candidates, timed once a round: as is, and mirrored with whole batches.

    ``without_as_is`` there are no times of it, and it is not timed: it has failed, or would have
    other devices than candidates have. ``warnings`` say why it failed.
    """

    as_is_ns: Rows[Ns] = ()
    weak_ns: Rows[Ns] = ()
    without_as_is: bool = False
    warnings: Rows[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """What runs have shown, of candidates by label; without arguments, that nothing ran.

    ``timed`` are splits with what findings would move in them, and without. ``sessions`` is in how
    many analyses, each resuming the one before.
    """

    outcomes: Mapping[str, Outcome] = field(default_factory=dict)
    beside: Beside = Beside()
    timed: tuple[TimedPlacement, ...] = ()
    batch_points: tuple[Throughput, ...] = ()
    loop_timing: LoopTiming | None = None
    input_timing: InputTiming | None = None
    warnings: tuple[str, ...] = ()
    sessions: int = 0


def to_be_run(forecast: Forecast, options: AnalyzeOptions) -> tuple[Placement, ...]:
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


def to_be_run_briefly(forecast: Forecast, options: AnalyzeOptions) -> Placement | None:
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
    subject: Subject,
    chosen: tuple[Placement, ...],
    brief: Placement | None,
    apparatus: Apparatus,
    course: Course,
    show: Callable[[str, Results], None],
    refine: Callable[[Results], Placement | None],
    advise: Callable[[Results], Sequence[Placement]],
    growing: GrowingStep | BatchSplitError | None = None,
    beside: Beside = Beside(),
) -> Results:
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
        show(f"preparing {placement.label}", Results(outcomes=_outcomes(trial)))
        _enter(apparatus, placement)
    course.begin(Stage.RUN)
    beside = _race(subject.options, brief, apparatus, course, show, refine, beside)
    course.end_rounds()
    watcher.working("looking for advice", 0, 1)
    to_time = advise(Results(outcomes=_outcomes(trial), beside=beside))
    timed = trial.time_apart(to_time, ADVICE_BUDGET_S)
    watcher.working("timing other batch sizes", 0, 1)
    points: tuple[Throughput, ...] = ()
    if isinstance(growing, GrowingStep):
        points = batch_points(loader, growing, beside.as_is_ns)
    watcher.working("timing Keras' loop", 0, 1)
    loop = loop_timing(loader, beside.as_is_ns)
    input_timing, warnings = _time_input(loader, watcher)
    loader.close()
    results = Results(
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


def _outcomes(trial: Benchmark) -> dict[str, Outcome]:
    """Return what has come of each candidate so far."""
    comparisons = trial.comparisons()
    return {
        label: Outcome(
            measured=entry.measurement(None),
            comparison=comparisons.get(label),
            failure=entry.failure,
            files=entry.files,
        )
        for label, entry in trial.entries.items()
    }


def _enter(apparatus: Apparatus, placement: Placement) -> None:
    trial, family = apparatus.trial, placement.family
    if family == MIRRORED:
        trial.enter(placement, bench=apparatus.mirrored, if_wrong=_ADDS_UP)
    elif family in PER_DEVICE:
        trial.enter(placement, PER_DEVICE[0])
    elif family in PER_PAIR:
        trial.enter(placement, PER_PAIR[0])
    else:
        trial.enter(placement)


def _race(
    options: AnalyzeOptions,
    brief: Placement | None,
    apparatus: Apparatus,
    course: Course,
    show: Callable[[str, Results], None],
    refine: Callable[[Results], Placement | None],
    beside: Beside,
) -> Beside:
    """Time all candidates in rounds, and those that join; return what was timed beside them."""
    trial, watcher = apparatus.trial, course.watcher
    look_after, first = looks(options.rounds, trial.joining), trial.rounds
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
        results = Results(outcomes=_outcomes(trial), beside=beside)
        show(f"timing, round {done} done", results)
        spent_s = time.monotonic() - began_s
        if done in look_after and is_time_for_another(trial, options.rounds, done, spent_s):
            watcher.working("looking for a better split", 0, 1)
            joins = refine(results)
            if joins is not None:
                _enter(apparatus, joins)
        course.end_round(done)

    time_in_rounds(trial, options.rounds, end_round)
    if brief is not None and trial.ended is None:
        watcher.working("preparing", 0, 1, brief.label)
        trial.enter(brief, is_brief=True)
        time_briefly(trial, time_as_is)
    return beside


def looks(asked: int | None, joining: int) -> range:
    """Return after how many rounds to look for a candidate that may join, so many of them.

    ``asked`` is the number of rounds asked for, None for as many as usual.
    """
    rounds = asked or defaults.ROUNDS
    each = max(1, rounds // _ROUNDS_PER_LOOK)
    return range(each, min((joining + 1) * each, rounds), each)


def _time_as_is(
    beside: Beside, options: AnalyzeOptions, apparatus: Apparatus, number: int
) -> Beside:
    if beside.without_as_is:
        return beside
    answer = apparatus.loader.call(
        as_is.run_as_is, number, options.steps, time_limit_s=options.source.time_limit_s
    )
    if isinstance(answer, CallFailure):
        warning = f"as-is was not timed: {failure_of(answer).message}"
        # Some rounds do not compare with candidates that ran in all.
        warnings = (*beside.warnings, warning)
        return replace(beside, as_is_ns=(), without_as_is=True, warnings=warnings)
    return replace(beside, as_is_ns=(*beside.as_is_ns, *answer))


def _time_weak_scaling(
    beside: Beside, options: AnalyzeOptions, apparatus: Apparatus, number: int
) -> Beside:
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
    answer = loader.call(input_timer.time_input, time_limit_s=_INPUT_LIMIT_S)
    if isinstance(answer, CallFailure):
        return None, (f"the dataset was not timed alone: {answer.message}",)
    return answer, ()
