"""A `Benchmark` prepares, verifies, times and profiles candidates on a testbed.

Rounds are interleaved (A B C, B C A, …), each in an order drawn for it, and run without the
profiler. A turn begins with a step that is not counted, since the turn before has left its
data in the caches. A candidate that joins late has no steps in earlier rounds. Rounds are
added while a verdict is in doubt, up to a budget. A placement that runs briefly has rounds of
its own with the baseline.

A candidate that fails is out; if its failure took the testbed down, the testbed is started again
and the others go on. When a host is lost, the benchmark ends with the rounds that all candidates
completed; they fail if there is none.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field, replace
from statistics import median
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from placement_advisor import defaults
from placement_advisor.errors import AdvisorError
from placement_advisor.files.contract import Ns, Rows
from placement_advisor.graph.name_patterns import first_names
from placement_advisor.machine.testbed_plan import TestbedKind
from placement_advisor.measurement import measurement as measurements
from placement_advisor.measurement.verification import TOLERANCE, VERIFIED_STEPS, Verification
from placement_advisor.processes.calls import CallFailure
from placement_advisor.profile.gpu_planes import read_gpu_steps
from placement_advisor.profile.worker_steps import read_worker_steps
from placement_advisor.testbed import testbed as testbeds
from placement_advisor.tf.calls import runner
from placement_advisor.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from placement_advisor.graph.placement import Placement
    from placement_advisor.testbed.mirrored_testbed import MirroredTestbed
    from placement_advisor.tf.answers import Prepared, SourceLine


# Fewer where they take long: a minute of steps shows what half an hour of them does.
PROFILED_STEPS = 10
_FEWEST_PROFILED_STEPS = 3
_PROFILING_BUDGET_S = 60.0
# Judgement: the first step sets up what later ones find, and two more are cheap.
_WARMUP_STEPS = 3
# Steps until they are steady, fewer where they take long; those of the warm-up are left out.
# Judgement: a median of twelve, taken twice with the profile between, is what costs of ops rest on;
# more would make each analysis longer before its first round.
_SETTLING_STEPS = 15
_FEWEST_SETTLING_STEPS = 2 * _WARMUP_STEPS
_SETTLING_BUDGET_S = 5.0
# What is timed apart decides nothing that more certainty would wait for, and its steps are few: a
# range is a third narrower than with the rounds of candidates. Judgement.
_ROUNDS_APART = 3 * defaults.ROUNDS
_EXCHANGE = (
    "add the gradients up first, with optimizer.apply_gradients or "
    "tf.distribute.get_replica_context().all_reduce"
)
# A message names as many; a step that exchanges nothing may have hundreds.
_NAMED_VARIABLES = 3


class ProgressReporter(Protocol):
    """Is told what goes on."""

    def working(self, what: str, done: int, total: int, candidate: str = "") -> None:
        """Say what is under way, how much of it is done, and which candidate is at work."""

    def note(self, what: str) -> None:
        """Say something that should stay to be read."""


class SilentProgress:
    """A watcher that says nothing."""

    def working(self, what: str, done: int, total: int, candidate: str = "") -> None:
        """Say nothing."""

    def note(self, what: str) -> None:
        """Say nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierRounds:
    """The results of a candidate in an earlier benchmark, which another one continues."""

    rounds: Rows[Rows[Ns]]
    warmup_ns: Rows[Ns]
    failure: measurements.CandidateFailure | None
    is_brief: bool


@dataclass(slots=True)
class BenchmarkEntry:
    """One candidate in a benchmark; ``profiled_steps`` counts the steps of its last profile."""

    placement: Placement
    bench: testbeds.Testbed | MirroredTestbed
    program: str = testbeds.STEP
    if_wrong: str = ""
    is_brief: bool = False
    prepared: Prepared | None = None
    warmup_ns: list[int] = field(default_factory=list)
    rounds: list[tuple[int, ...]] = field(default_factory=list)
    verification: Verification | None = None
    profile: measurements.StepProfile | None = None
    files: testbeds.ProfileFiles | None = None
    profiled_steps: int = 0
    failure: measurements.CandidateFailure | None = None

    def measurement(self, profile_run: str | None) -> measurements.Measurement | None:
        """Return what was measured, None if no step was timed."""
        if not any(self.rounds) or self.prepared is None:
            return None
        return measurements.Measurement(
            warmup_ns=tuple(self.warmup_ns),
            rounds=tuple(self.rounds),
            moved_ops=self.prepared.moved_ops,
            verification=self.verification,
            profile=self.profile,
            profile_run=profile_run,
        )

    def so_far(self) -> EarlierRounds:
        """Return the results that another benchmark can continue from."""
        return EarlierRounds(
            rounds=tuple(self.rounds),
            warmup_ns=tuple(self.warmup_ns),
            failure=self.failure,
            is_brief=self.is_brief,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedPlacement:
    """The steps of a placement in each of the rounds in which it was timed with others, in ns."""

    placement: Placement
    rounds: tuple[tuple[int, ...], ...]


class Benchmark:
    """Runs placements on a testbed; the first one entered is the reference for results."""

    def __init__(
        self,
        testbed: testbeds.Testbed,
        *,
        steps: int,
        watcher: ProgressReporter,
        line_of: Mapping[str, SourceLine] = MappingProxyType({}),
        joining: int = 0,
    ) -> None:
        """Use a testbed; ``steps`` are counted per turn.

        ``line_of`` has the line of the user's code that updates each variable, where it is known.
        ``joining`` is how many candidates may join between rounds.
        """
        self._line_of = line_of
        self._earlier: Mapping[str, EarlierRounds] = {}
        # How many may still join, and how many rounds are done.
        self.joining, self.rounds = joining, 0
        self.entries: dict[str, BenchmarkEntry] = {}
        self._testbed, self._steps, self._watcher = testbed, steps, watcher
        # Why nothing runs any more, None while all goes on.
        self.ended: str | None = None

    def resume(self, earlier: Mapping[str, EarlierRounds], joining: int) -> None:
        """Continue an earlier benchmark; its results are given by label. Comes before `enter`.

        ``joining`` candidates may still join.
        """
        self._earlier, self.joining = earlier, joining
        self.rounds = max(len(each.rounds) for each in earlier.values())

    def enter(
        self,
        placement: Placement,
        program: str = testbeds.STEP,
        *,
        bench: MirroredTestbed | None = None,
        if_wrong: str = "",
        is_brief: bool = False,
    ) -> BenchmarkEntry:
        """Prepare a candidate, verify its results against the first one's, warm it up.

        It runs on the testbed, unless it has a ``bench`` of its own. ``if_wrong`` says why results
        may be wrong. It keeps its earlier results; a candidate that failed earlier is out.
        """
        entry = BenchmarkEntry(
            placement=placement,
            bench=bench or self._testbed,
            program=program,
            if_wrong=if_wrong,
            is_brief=is_brief,
            rounds=[()] * self.rounds,
        )
        earlier = self._earlier.get(placement.label)
        if earlier is None:
            self.joining -= bool(self.rounds) and not is_brief
        else:
            entry.rounds[: len(earlier.rounds)] = earlier.rounds
            entry.warmup_ns, entry.is_brief = [*earlier.warmup_ns], earlier.is_brief
            entry.failure = earlier.failure
        self.entries[placement.label] = entry
        self._make_ready(entry)
        return entry

    def probe(self, placement: Placement, program: str) -> tuple[BenchmarkEntry, int | None]:
        """Profile and time a step that is no candidate, and discard it; see `examine`."""
        entry = BenchmarkEntry(placement=placement, bench=self._testbed, program=program)
        self._make_ready(entry, is_verified=False)
        step_ns = self.examine(entry)
        if entry.failure is None:
            self._testbed.call(runner.discard, placement.label)
        return entry, step_ns

    def time_apart(
        self, placements: Sequence[Placement], budget_s: float
    ) -> tuple[TimedPlacement, ...]:
        """Time placements against one another, with the steps of a turn as in all rounds.

        Returns nothing if one of them fails, or if there is too little time for an interval.
        Placements that are no candidates are discarded afterwards.
        """
        entries: list[BenchmarkEntry] = []
        for placement in placements:
            entries.append(self._apart(placement))
            if entries[-1].failure is not None:
                break
        failed = any(entry.failure is not None for entry in entries)
        steps_ns = sum(entry.warmup_ns[-1] for entry in entries if entry.warmup_ns)
        within = budget_s * NS_PER_S / max(1, (1 + self._steps) * steps_ns)
        rounds = min(_ROUNDS_APART, int(within)) if entries and not failed else 0
        for number in range(rounds if rounds >= measurements.least_samples() else 0):
            self._watcher.working("timing what is advised", number, rounds)
            for entry in random.Random(number).sample(entries, len(entries)):
                self._timed_turn(entry, number)
            if any(entry.failure is not None for entry in entries) or self.ended is not None:
                failed = True
                break
        for entry in entries:
            if entry.placement.label not in self.entries:
                self._testbed.call(runner.discard, entry.placement.label)
        return tuple(
            TimedPlacement(placement=entry.placement, rounds=tuple(entry.rounds))
            for entry in entries
            if entry.rounds and not failed
        )

    def examine(self, entry: BenchmarkEntry) -> int | None:
        """Profile a candidate and return its median step time, None if it fails."""
        before_ns = self.settle(entry)
        if entry.failure is None:
            self.profile(entry)
        # Once more, since the machine may have been slow for a while.
        after_ns = self.settle(entry)
        if before_ns is None or after_ns is None or entry.failure is not None:
            return None
        return round(median((before_ns, after_ns)))

    def settle(self, entry: BenchmarkEntry) -> int | None:
        """Run steps until they are steady and return their median time, None if one fails.

        They stay among the warm-up: they ran alone, not in turns.
        """
        steps = _SETTLING_STEPS
        if entry.warmup_ns:
            within = _affordable(entry, _SETTLING_BUDGET_S)
            steps = max(_FEWEST_SETTLING_STEPS, min(steps, within))
        samples = self._turn(entry, 0, steps)
        entry.warmup_ns += samples
        return round(median(samples[_WARMUP_STEPS:])) if samples else None

    def speed(self) -> dict[str, int]:
        """Return how long a reference product takes on each device now, none if it fails."""
        answer = self._testbed.call(runner.speed)
        if isinstance(answer, CallFailure):
            self._rebuild()
            return {}
        return answer

    def round(self, number: int, of: int, *, is_brief: bool = False) -> None:
        """Time a turn of every candidate that is still in, in an order drawn for this round.

        In a round that ``is_brief`` these are the baseline and what runs briefly.
        """
        turns: list[BenchmarkEntry] = []
        others: list[BenchmarkEntry] = []
        for entry in self.running():
            takes_part = entry.is_brief is is_brief or entry.placement.label == defaults.BASELINE
            (turns if takes_part else others).append(entry)
        random.Random(number).shuffle(turns)
        for entry in turns:
            self._watcher.working("timing rounds", number, of, entry.placement.label)
            self._timed_turn(entry, number)
            if self.ended is not None:
                return
        for entry in others:
            entry.rounds.append(())
        self.rounds += 1

    def comparisons(self) -> dict[str, measurements.Comparison]:
        """Compare every candidate that has run with the baseline."""
        theirs, among = self.entries[defaults.BASELINE].rounds, self.competitors
        found = {}
        for label, entry in self.entries.items():
            each = measurements.compare(
                defaults.BASELINE, theirs, entry.rounds, among=1 if entry.is_brief else among
            )
            if label != defaults.BASELINE and each is not None:
                found[label] = replace(each, is_brief=entry.is_brief)
        return found

    @property
    def competitors(self) -> int:
        """How many a split is chosen from, those included that may join.

        That one fails, or does not join, is no reason to ask less of others.
        """
        compared = sum(not entry.is_brief for entry in self.entries.values())
        return max(1, compared - 1 + self.joining)

    @property
    def fewest_rounds(self) -> int:
        """In how many rounds each candidate that is compared and still in was timed, at least."""
        counts = [
            sum(1 for steps in entry.rounds if steps)
            for entry in self.running()
            if not entry.is_brief
        ]
        return min(counts, default=self.rounds)

    def profile(self, entry: BenchmarkEntry) -> None:
        """Profile steps of one candidate."""
        within = _affordable(entry, _PROFILING_BUDGET_S)
        steps = max(_FEWEST_PROFILED_STEPS, min(PROFILED_STEPS, within))
        answer = entry.bench.profile(entry.placement.label, steps)
        if isinstance(answer, CallFailure):
            self._fail(entry, answer)
            return
        entry.files, entry.profiled_steps = answer, steps
        entry.profile = self._read_profile(entry, answer)

    def profile_all(self) -> None:
        """Profile every candidate that is still in."""
        running = self.running()
        for i, entry in enumerate(running):
            if self.ended is not None:
                return
            self._watcher.working("profiling", i, len(running), entry.placement.label)
            if entry.failure is None:
                self.profile(entry)

    def _read_profile(
        self, entry: BenchmarkEntry, files: testbeds.ProfileFiles
    ) -> measurements.StepProfile | None:
        assert entry.prepared is not None
        kind = self._testbed.plan.kind
        names = [device.name for device in self._testbed.plan.devices]
        if kind is TestbedKind.GPUS:
            return read_gpu_steps(files.client, {name: i for i, name in enumerate(names)})
        if kind in testbeds.HAVE_WORKERS:
            return read_worker_steps(
                files.devices,
                files.client,
                entry.prepared.crossings,
                entry.prepared.exchanged_bytes,
                files.clocks,
                on_gpus=self._testbed.plan.on_gpus,
            )
        # Logical CPUs share their threads: the profile cannot tell which device an op ran on,
        # unless there is only one in use.
        used = sorted(set(entry.placement.device_of.values()))
        if len(used) > 1:
            return None
        return read_worker_steps({used[0]: files.client}, files.client, ())

    def running(self) -> list[BenchmarkEntry]:
        """Return the candidates that are still in; none once the trial has ended."""
        if self.ended is not None:
            return []
        return [entry for entry in self.entries.values() if entry.failure is None]

    def _apart(self, placement: Placement) -> BenchmarkEntry:
        """Return the entry of a placement to time: a candidate's own, or a new one."""
        known = self.entries.get(placement.label)
        if known is not None and known.placement.device_of == placement.device_of:
            return replace(known, rounds=[], warmup_ns=[*known.warmup_ns])
        entry = BenchmarkEntry(placement=placement, bench=self._testbed)
        self._make_ready(entry)
        return entry

    def _make_ready(self, entry: BenchmarkEntry, *, is_verified: bool = True) -> None:
        """Prepare a step, verify it unless told otherwise, and warm it up, unless it fails."""
        self._stand_up()
        if entry.failure is not None:
            return
        answer = self._call_prepare(entry)
        if isinstance(answer, CallFailure):
            self._fail(entry, answer)
            return
        entry.prepared = answer
        if is_verified:
            self._check_exchange(entry, answer.unexchanged)
            self._verify(entry)
        entry.warmup_ns += self._turn(entry, 0, _WARMUP_STEPS)

    def _call_prepare(self, entry: BenchmarkEntry) -> Prepared | CallFailure:
        placement = entry.placement
        return entry.bench.prepare(placement.label, placement.device_of, entry.program)

    @property
    def _reference(self) -> BenchmarkEntry:
        """The candidate whose results are the right ones: the first that was entered."""
        return next(iter(self.entries.values()))

    def _verify(self, entry: BenchmarkEntry) -> None:
        # Where the reference has failed there is nothing to compare with, and no verdict.
        if entry.failure is not None or self._reference.failure is not None:
            return
        answer = entry.bench.verify(entry.placement.label, VERIFIED_STEPS)
        if isinstance(answer, CallFailure):
            self._fail(entry, answer)
            return
        if answer is None:
            return
        entry.verification = answer
        if answer.wrong:
            entry.failure = measurements.CandidateFailure(
                kind=measurements.FailureKind.WRONG_RESULT,
                message=(
                    f"within {VERIFIED_STEPS} steps {answer.wrong} differs from the single-device "
                    f"run by {answer.relative_difference:.2g} of its largest value (tolerance "
                    f"{TOLERANCE:g}, and more than rounding explains)"
                    f"{self._line(answer.wrong_variable)}{entry.if_wrong}"
                ),
            )

    def _check_exchange(self, entry: BenchmarkEntry, alone: Sequence[str]) -> None:
        """Put a candidate out if its replicas update some variables alone."""
        if alone:
            named = first_names([repr(name) for name in alone], _NAMED_VARIABLES)
            entry.failure = measurements.CandidateFailure(
                kind=measurements.FailureKind.WRONG_RESULT,
                message=(
                    f"each device updates {named} from its own samples alone: nothing is "
                    f"exchanged, every replica trains a model of its own{self._line(alone[0])}; "
                    f"{_EXCHANGE}"
                ),
            )

    def _line(self, variable: str) -> str:
        """Return where the user's code updates a variable, as an addition."""
        line = self._line_of.get(variable)
        return f"; {variable!r} is updated in {line.file}:{line.line}" if line else ""

    def _timed_turn(self, entry: BenchmarkEntry, number: int) -> None:
        samples = self._turn(entry, number, self._steps + 1)
        if self.ended is not None:
            return
        entry.warmup_ns += samples[:1]
        entry.rounds.append(tuple(samples[1:]))

    def _turn(self, entry: BenchmarkEntry, batch: int, steps: int) -> list[int]:
        """Run steps of a candidate and return their times, none if it fails or is out."""
        if entry.failure is None:
            self._stand_up()
        if entry.failure is not None:
            return []
        answer = entry.bench.run_steps(entry.placement.label, batch, steps)
        if isinstance(answer, CallFailure):
            self._fail(entry, answer)
            return []
        return answer

    def _fail(self, entry: BenchmarkEntry, answer: CallFailure) -> None:
        if self._ends() and any(entry.rounds):
            return  # No fault of the candidate's, which has shown something.
        entry.failure = failure_of(answer)
        self._stand_up()

    def _stand_up(self) -> None:
        """Start the testbed again if it is down."""
        if self.ended is None and not self._testbed.up:
            self._rebuild()

    def _rebuild(self) -> None:
        """Start the testbed again and prepare the candidates that are still in."""
        if self._ends():
            return
        try:
            self._testbed.start()
        except AdvisorError as error:
            if not self._ends():
                for entry in self.running():
                    entry.failure = measurements.CandidateFailure(
                        kind=measurements.FailureKind.CRASHED, message=error.message
                    )
            return
        for entry in self.running():
            if entry.prepared is None or entry.bench is not self._testbed:
                continue
            answer: Prepared | Verification | CallFailure | None = self._call_prepare(entry)
            if entry is self._reference and not isinstance(answer, CallFailure):
                # The new client knows no results yet.
                answer = entry.bench.verify(entry.placement.label, VERIFIED_STEPS)
            if isinstance(answer, CallFailure):
                if self._ends():
                    return
                entry.failure = failure_of(answer)
                if answer.child_ended:
                    self._rebuild()  # Ends, since each time a candidate is out.
                    return

    def _ends(self) -> bool:
        """End the benchmark if its testbed has lost a host; return whether it has ended."""
        if self.ended is not None:
            return True
        lost = self._testbed.lost
        if lost is None:
            return False
        running = self.running()
        complete = min((len(entry.rounds) for entry in running), default=0)
        for entry in running:
            del entry.rounds[complete:]
            if not complete:
                entry.failure = measurements.CandidateFailure(
                    kind=measurements.FailureKind.CRASHED, message=lost
                )
        self.ended = lost
        return True


def _affordable(entry: BenchmarkEntry, budget_s: float) -> int:
    """Return how many steps of a candidate fit into a time, judged by its last one."""
    return int(budget_s * NS_PER_S / max(1, entry.warmup_ns[-1]))


def failure_of(answer: CallFailure) -> measurements.CandidateFailure:
    """Return a failed call as the failure of a candidate."""
    return measurements.CandidateFailure(
        kind=measurements.FailureKind(answer.cause.value),
        message=answer.message,
        in_full=answer.in_full or answer.output_tail,
    )


# The fewest rounds that have an interval; they compare one candidate, and decide nothing else.
BRIEF_ROUNDS = measurements.least_samples()


def time_in_rounds(trial: Benchmark, asked: int | None, as_is: Callable[[int], None]) -> None:
    """Time all candidates of a trial in rounds, adding rounds while its verdict is in doubt.

    As many as were ``asked`` for run, however long they take; None for as many as usual, if there
    is time; none after the end of the trial. They come on top of rounds that the trial has already.
    ``as_is`` is called once a round, to time the user's own step beside the candidates.
    """
    deadline = time.monotonic() + defaults.TIMING_BUDGET_S
    first, rounds = trial.rounds, asked or defaults.ROUNDS
    most, least = (
        max(rounds, defaults.MAX_ROUNDS),
        max(asked or 0, measurements.least_samples(trial.competitors)),
    )
    done = 0
    while done < rounds or (done < most and _may_settle(trial)):
        trial.round(first + done, first + (rounds if done < rounds else most))
        if trial.ended is not None:
            return
        as_is(first + done)
        done += 1
        is_late = time.monotonic() > deadline and done >= (asked or 0)
        if is_late and trial.fewest_rounds >= least:
            return


def time_briefly(trial: Benchmark, as_is: Callable[[int], None]) -> None:
    """Time brief candidates against the baseline; ``as_is`` is called as in `time_in_rounds`."""
    first = trial.rounds
    for number in range(first, first + BRIEF_ROUNDS):
        trial.round(number, first + BRIEF_ROUNDS, is_brief=True)
        if trial.ended is not None:
            return
        as_is(number)


def is_time_for_another(trial: Benchmark, asked: int | None, done: int, spent_s: float) -> bool:
    """Say whether there is time for an interval of a candidate that joins now.

    ``done`` rounds have taken ``spent_s``. Who ``asked`` for rounds by number gets as many, and
    whoever joins is timed in what is left of them.
    """
    needed = done + measurements.least_samples(trial.competitors)
    return asked is not None or spent_s / done * needed <= defaults.TIMING_BUDGET_S


def _may_settle(trial: Benchmark) -> bool:
    """Say whether more rounds could settle the verdict, on candidates that are not out."""
    running = [entry.placement.label for entry in trial.running() if not entry.is_brief]
    if defaults.BASELINE not in running or running == [defaults.BASELINE]:
        return False
    compared = trial.comparisons()
    told = [compared[label] for label in running if label in compared]
    return len(told) < len(running) - 1 or measurements.is_in_doubt(told)
