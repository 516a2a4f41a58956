"""The progress of an analysis: its stages, how long each takes, and how much is left.

Model: a stage takes a constant, plus a part that grows with the ops of the step, with the steps
that run, or with the effort of searches. The constants come from one machine
(docs/reference/figures.md). What this analysis has measured replaces them: finished stages no
longer count, and later rounds are expected to take as long as earlier ones.

Left out: how much faster or slower another machine is, until its rounds begin.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any, Protocol

from placement_advisor import defaults
from placement_advisor.analysis.verdict import RerunEstimate
from placement_advisor.candidates import towers
from placement_advisor.candidates.families import PER_DEVICE, PER_PAIR
from placement_advisor.clock import Clock
from placement_advisor.measurement.measurement import least_samples
from placement_advisor.solvers.step_search import FAMILY as SEARCHED
from placement_advisor.testbed import benchmark
from placement_advisor.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from placement_advisor.analysis.options import AnalyzeOptions


# Of what nothing is known: a small model, whose step takes 15 ms on each of the candidates that
# usually run, and on the one that runs briefly.
_USUAL_OPS = 1_000
_USUAL_STEP_NS, _USUAL_CANDIDATES = 15_000_000, 7
# Seconds, rounded from what `advisor analyze` took of the processor with deepconn (603 ops) and
# transformer (5,555) of sample_models/ (docs/reference/figures.md); less is known of what needs two
# cores: calibration is what docs/explanation/cost-model.md says, a turn is judgement.
_IMPORT_S, _LOAD_S = 4.0, 1.2
# Once and for each thousand ops: tracing, tracing shares of the batch, searching, and so on.
_TRACE_S = (0.3, 0.6)
_SPLIT_S = (0.5, 1.2)
_SEARCH_S = (0.5, 0.1)
_SIMULATE_S = (0.0, 0.12)
_CONCLUDE_S = (0.2, 0.1)
_REPORT_S = (1.5, 0.6)
# The same for each candidate: to place and verify it, to profile it.
_PREPARE_S = (1.3, 0.5)
_PROFILE_S = (0.2, 0.2)
_START_S, _CALIBRATION_S = 2.0, 20.0
# Op times of the step, and as much for each split of its batch.
_MEASURE_S = 4.0
# Searches for candidates have all of the effort, which is in seconds, those for other links a
# second each at most.
_SEARCHES, _SEARCHES_FOR_LINKS = 2, 2
# What a turn takes beside its steps; other batch sizes, Keras' loop and the dataset, beside all
# rounds.
_TURN_S, _BESIDE_S = 0.01, 5.0
# What takes longer than expected goes on for about a tenth of what it has taken. Judgement.
_OVERDUE_SHARE = 0.1


class Stage(StrEnum):
    """The stages of an analysis, in their order."""

    IMPORT = "import"
    LOAD = "load"
    TRACE = "trace"
    SPLIT = "split"
    CALIBRATE = "calibrate"
    MEASURE = "measure"
    SEARCH = "search"
    SIMULATE = "simulate"
    PREPARE = "prepare"
    RUN = "run"
    PROFILE = "profile"
    CONCLUDE = "conclude"
    REPORT = "report"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressFacts:
    """What is known of an analysis by now.

    ``is_run``: steps of it run. ``splits`` are the splits of its batch to trace, ``searches`` those
    for candidates, ``joining`` the candidates that may join between rounds. ``rounds`` are those
    asked for, None if none were. ``ops`` are those of the step, None while they are not known,
    ``steps_ns`` what a step of each candidate that runs takes, ``brief_ns`` of one that runs
    briefly. ``is_busy``: other work runs beside it. ``is_resumed``: costs are known, and what
    searches found.
    """

    is_run: bool
    is_calibrated: bool
    effort: float
    searches: int
    splits: int
    rounds: int | None
    steps: int
    steps_ns: tuple[int, ...]
    brief_ns: int | None = None
    joining: int = 0
    ops: int | None = None
    is_busy: bool = False
    is_resumed: bool = False

    @property
    def round_s(self) -> float:
        """What a round of all candidates and of the step as it is takes."""
        return self._round_s(self.steps_ns)

    @property
    def brief_s(self) -> float:
        """What all rounds of the candidate that runs briefly take."""
        if self.brief_ns is None:
            return 0.0
        return benchmark.BRIEF_ROUNDS * self._round_s((self.steps_ns[0], self.brief_ns))

    @property
    def prepared(self) -> int:
        """How many candidates are prepared and profiled."""
        return len(self.steps_ns) + (self.brief_ns is not None)

    def _round_s(self, steps_ns: Sequence[int]) -> float:
        turns_ns = sum(steps_ns) * (1 + self.steps) + self.steps_ns[0] * self.steps
        return turns_ns / NS_PER_S + _TURN_S * len(steps_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeAhead:
    """What is ahead of an analysis, in seconds from some moment on.

    ``stage_s`` is for the stage that is under way, ``later_s`` for those behind it. ``is_most``:
    rounds are in it that are added only while the verdict is in doubt. All of it is what an idle
    machine takes; ``is_busy``: this one is not idle.
    """

    stage_s: float
    later_s: float
    is_most: bool = False
    is_busy: bool = False

    def left_s(self, spent_s: float) -> float:
        """Return what is left once ``spent_s`` have passed."""
        return max(self.stage_s - spent_s, _OVERDUE_SHARE * spent_s) + self.later_s


def initial_facts(options: AnalyzeOptions) -> ProgressFacts:
    """Return what is known before anything is looked at: that it runs, as it did before."""
    asked = set(options.families)
    per_pair = options.devices >= towers.MIN_DEVICES_FOR_PAIRS and asked.intersection(PER_PAIR)
    named = options.candidates
    count = _USUAL_CANDIDATES if named is None else 1 + len(named)
    return ProgressFacts(
        is_run=options.run and options.hardware is None,
        is_calibrated=True,
        effort=options.effort.units,
        searches=_SEARCHES if SEARCHED in asked else 0,
        splits=bool(asked.intersection(PER_DEVICE)) + bool(per_pair),
        joining=options.refine,
        rounds=options.rounds,
        steps=options.steps,
        steps_ns=(_USUAL_STEP_NS,) * count,
        brief_ns=_USUAL_STEP_NS if named is None and not options.resume else None,
        is_resumed=options.resume,
    )


def usual_stage_s(known: ProgressFacts) -> dict[Stage, float]:
    """Return what each stage usually takes, without those that are left out."""
    count = known.prepared

    def grows(once_s: float, each_s: float) -> float:
        return _growing_s(known, once_s, each_s)

    found = {
        Stage.IMPORT: _IMPORT_S,
        Stage.LOAD: _LOAD_S,
        Stage.TRACE: grows(*_TRACE_S),
        Stage.SPLIT: grows(*_SPLIT_S) * known.splits,
        Stage.SEARCH: grows(*_SEARCH_S) + known.effort * known.searches,
        Stage.SIMULATE: grows(*_SIMULATE_S),
        Stage.CONCLUDE: grows(*_CONCLUDE_S) + min(known.effort, 1.0) * _SEARCHES_FOR_LINKS,
        Stage.REPORT: grows(*_REPORT_S),
    }
    if known.is_run:
        found |= {
            Stage.CALIBRATE: _START_S + (0.0 if known.is_calibrated else _CALIBRATION_S),
            Stage.MEASURE: _MEASURE_S * (1 + known.splits),
            Stage.PREPARE: grows(*_PREPARE_S) * count,
            Stage.RUN: rounds_left(known, 0, known.round_s, 0.0).stage_s + _around_rounds_s(known),
            Stage.PROFILE: grows(*_PROFILE_S) * count,
        }
    if known.is_resumed:
        del found[Stage.MEASURE], found[Stage.SEARCH]
    return {stage: found[stage] for stage in Stage if stage in found}


def _around_rounds_s(known: ProgressFacts) -> float:
    """Return what is done while rounds run, and after the last one, beside them."""
    joins_s = min(known.effort, defaults.REFINE_EFFORT) + _growing_s(known, *_PREPARE_S)
    return _BESIDE_S + known.brief_s + known.joining * joins_s


def _growing_s(known: ProgressFacts, once_s: float, each_s: float) -> float:
    """Return what is taken once, and for each thousand ops."""
    return once_s + each_s * (known.ops or _USUAL_OPS) / 1_000


def time_ahead(known: ProgressFacts, stage: Stage) -> TimeAhead:
    """Return what is ahead when a stage begins."""
    usual, order = usual_stage_s(known), list(Stage)
    later = [each for each in usual if order.index(each) > order.index(stage)]
    return TimeAhead(
        stage_s=usual.get(stage, 0.0),
        later_s=sum(usual[each] for each in later),
        is_most=Stage.RUN in (stage, *later) and rounds_left(known, 0, known.round_s, 0.0).is_most,
        is_busy=known.is_busy,
    )


def time_ahead_in_rounds(
    known: ProgressFacts, done: int, round_s: float, spent_s: float
) -> TimeAhead:
    """Return what is ahead once some rounds are done, for which see `rounds_left`."""
    left, last = rounds_left(known, done, round_s, spent_s), time_after_rounds(known)
    stage_s = left.stage_s + known.brief_s + last.stage_s
    return replace(last, stage_s=stage_s, is_most=left.is_most)


def time_after_rounds(known: ProgressFacts) -> TimeAhead:
    """Return what is ahead once no round is."""
    return replace(time_ahead(known, Stage.RUN), stage_s=_BESIDE_S, is_most=False)


def rounds_left(known: ProgressFacts, done: int, round_s: float, spent_s: float) -> TimeAhead:
    """Return the most that is left of the rounds alone: see `time_in_rounds` for when they end.

    One of them takes ``round_s``, and ``spent_s`` has passed since the first one began.
    """
    rounds = known.rounds or defaults.ROUNDS
    budget_s = max(0.0, defaults.TIMING_BUDGET_S - spent_s)
    sure_s = max(0, rounds - done) * round_s
    if known.rounds is None:
        least = least_samples(max(1, len(known.steps_ns) - 1))
        sure_s = max(min(sure_s, budget_s), (least - done) * round_s)
    most_s = max(sure_s, min((defaults.MAX_ROUNDS - done) * round_s, budget_s))
    return TimeAhead(stage_s=most_s, later_s=0.0, is_most=most_s > sure_s)


def rerun_estimate(
    known: ProgressFacts, seen_ns: Mapping[str, int], round_s: float | None, left_out: str | None
) -> RerunEstimate:
    """Return what an analysis would take that goes on, or without an option that keeps it short.

    ``known`` is known of that one; ``seen_ns`` is what the stages of this one took, ``round_s``
    what a round did, None if none ran. Stages that differ take what is usual.
    """
    fixed_s = usual_stage_s(known)
    alike = set(fixed_s) - {Stage.CALIBRATE, Stage.RUN}
    if left_out is not None:
        alike = {Stage.IMPORT, Stage.LOAD, Stage.TRACE}
    if known.is_run:
        fixed_s[Stage.RUN] = _around_rounds_s(known)
        round_s = known.round_s if round_s is None else round_s
    fixed_s |= {stage: seen_ns[stage] / NS_PER_S for stage in alike.intersection(seen_ns)}
    return RerunEstimate(fixed_s=sum(fixed_s.values()), round_s=round_s, left_out=left_out)


class ProgressListener(benchmark.ProgressReporter, Protocol):
    """Is told what goes on, and how long it will take."""

    def expect(self, ahead: TimeAhead) -> None:
        """Say what is ahead from this moment on."""


class SilentListener(benchmark.SilentProgress):
    """An onlooker that says nothing."""

    def expect(self, ahead: TimeAhead) -> None:
        """Say nothing."""


class AnalysisProgress:
    """The stages of one analysis, one after the other, from the first on.

    ``known`` is what is known by now.
    """

    def __init__(self, watcher: ProgressListener, options: AnalyzeOptions) -> None:
        """Begin."""
        self.watcher, self.known = watcher, initial_facts(options)
        self._clock = Clock(Stage.IMPORT)
        self._rounds_end_s = [0.0]

    def learn(self, **facts: Any) -> None:
        """Replace some of the facts that are known."""
        self.known = replace(self.known, **facts)

    def begin(self, stage: Stage) -> None:
        """End the stage that is under way and begin another."""
        self._clock.begin(stage)
        self.watcher.expect(time_ahead(self.known, stage))

    def end_round(self, done: int) -> None:
        """Expect of the rounds to come what those that are done have taken."""
        spent_s = self.timings_ns()[Stage.RUN] / NS_PER_S
        self._rounds_end_s.append(spent_s)
        self.watcher.expect(time_ahead_in_rounds(self.known, done, self._round_s(), spent_s))

    def end_rounds(self) -> None:
        """Expect no more rounds."""
        self.watcher.expect(time_after_rounds(self.known))

    def again(self, known: ProgressFacts, left_out: str | None) -> RerunEstimate:
        """Return what an analysis would take of which so much is known; see `durations.again`."""
        round_s = self._round_s() if self._rounds_end_s[1:] else None
        return rerun_estimate(known, self.timings_ns(), round_s, left_out)

    def _round_s(self) -> float:
        """Return what a round takes, whoever joined in some of them."""
        return median(after - before for before, after in pairwise(self._rounds_end_s))

    def timings_ns(self) -> dict[str, int]:
        """Return what each stage has taken by now."""
        return self._clock.timings_ns()
