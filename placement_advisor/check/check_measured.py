"""`advisor check --measure`: runs today's placement and the locked one in turns.

The devices are those of this machine: GPUs if there are enough, else CPU workers that emulate
them. The locked placement runs twice in each round; the difference between its two turns is
noise. Only ratios within a round count, so that a slow moment of the machine slows both sides.

Today's placement is slower if the whole interval lies above the tolerance and the median above
the noise; it is no slower if the whole interval lies below the tolerance. Intervals hold at every
look (`anytime_interval`), so rounds may be added until they tell. One comparison may still be
wrong: a failure needs a second one.

Left out: the step of the lock file. Both placements are of today's step, so only moves are
measured; predicted times tell of the rest.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from statistics import median
from typing import TYPE_CHECKING

from placement_advisor.analysis.reasons import speedup_of
from placement_advisor.candidates import references
from placement_advisor.check import problem_codes as check_problems
from placement_advisor.check.causes import move_texts
from placement_advisor.check.code_lines import CodeLines
from placement_advisor.measurement.measurement import Interval, median_interval
from placement_advisor.testbed import benchmark
from placement_advisor.testbed.testbed import STEP, Testbed

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.graph.placement import Placement
    from placement_advisor.machine.devices import Cluster
    from placement_advisor.machine.testbed_plan import TestbedPlan


class Slowdown(StrEnum):
    """How today's placement compares with the locked one."""

    SLOWER = "slower"
    NO_SLOWER = "no-slower"
    CANNOT_TELL = "cannot-tell"


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowdownTest:
    """Step time of today's placement over the locked one's, and what noise does to such a ratio.

    ``noise`` is how far from 1 the ratio of the locked placement to itself may lie.
    """

    pace: Slowdown
    ratio: Interval
    noise: float
    rounds: int

    def __str__(self) -> str:
        low, middle, high = (
            f"{(ratio - 1) * 100:+.0f} %"
            for ratio in (self.ratio.low, self.ratio.median, self.ratio.high)
        )
        return (
            f"steps {middle} against the locked placement ({low} to {high} in {self.rounds} "
            f"rounds, noise {self.noise * 100:.0f} %)"
        )


def slowdown_test(
    today: Sequence[Sequence[int]],
    locked: Sequence[Sequence[int]],
    again: Sequence[Sequence[int]],
    tolerance: float,
) -> SlowdownTest | None:
    """Compare step times by round; None if too few rounds are complete.

    ``again`` are those of the locked placement, run a second time. ``tolerance`` is the share by
    which today's may be slower.
    """
    complete = [
        (median(ours), median(theirs), median(twin))
        for ours, theirs, twin in zip(today, locked, again, strict=False)
        if ours and theirs and twin
    ]
    # The locked placement is known twice as well, by both of its turns.
    ratio = median_interval([ours / ((theirs + twin) / 2) for ours, theirs, twin in complete])
    same = median_interval([twin / theirs for _, theirs, twin in complete])
    if ratio is None or same is None:
        return None
    noise = max(same.high - 1, 1 - same.low, 0.0)
    if ratio.low > 1 + tolerance and ratio.median > 1 + noise:
        pace = Slowdown.SLOWER
    elif ratio.high <= 1 + tolerance:
        pace = Slowdown.NO_SLOWER
    else:
        pace = Slowdown.CANNOT_TELL
    return SlowdownTest(pace=pace, ratio=ratio, noise=noise, rounds=len(complete))


_LOCKED, _AGAIN, _TODAY = "locked", "locked-again", "today"
# Judgement, as of `advisor analyze` (`defaults.py`).
_STEPS = 4
# A race ends after so many rounds if they tell, else as soon as they do. So many tell of a
# placement that takes a sixth longer where rounds differ by 5 % (tests/check/test_races.py); four
# times as many halve what is left in doubt.
ROUNDS = 15
MAX_ROUNDS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredCheck:
    """Two races of today's placement against the locked one; the second only where it mattered.

    ``against_single`` is its step time over that of one device, ``devices`` what ran it. Where it
    does not run as it should, ``failure`` says why; where nothing can be told, ``unknown`` does.
    """

    devices: str
    first: SlowdownTest | None = None
    second: SlowdownTest | None = None
    against_single: float | None = None
    failure: str | None = None
    unknown: str | None = None

    @property
    def is_slower(self) -> bool:
        """Whether both races say so."""
        races = (self.first, self.second)
        return all(each is not None and each.pace is Slowdown.SLOWER for each in races)

    @property
    def is_inconclusive(self) -> bool:
        """Whether the races do not tell, or there was none."""
        if self.failure is not None or self.is_slower:
            return False
        return self.first is None or self.first.pace is not Slowdown.NO_SLOWER


def measure(
    graph: OpGraph,
    today: Placement,
    locked: Placement,
    cluster: Cluster,
    plan: TestbedPlan,
    bundle: Path,
    scratch: Path,
    tolerance: float,
    watcher: benchmark.ProgressReporter,
) -> MeasuredCheck:
    """Race two placements of a step, whose bundle is in a folder, beside one device.

    They are placed on a cluster; here its devices are those of a testbed, in order.
    """
    names = cluster.device_names()
    if plan.not_run is not None:
        return MeasuredCheck(devices=plan.description, unknown=plan.not_run)
    here = dict.fromkeys(cluster.place_names(), plan.devices[0].name)
    here |= dict(zip(names, (device.name for device in plan.devices), strict=True))
    testbed = Testbed(plan, scratch=scratch)
    testbed.add_program(STEP, bundle, graph)
    try:
        watcher.working("starting devices", 0, 1)
        testbed.start()
        trial = benchmark.Benchmark(testbed, steps=_STEPS, watcher=watcher)
        # The reference for results comes first; the locked placement runs on both sides of today's.
        alone = trial.enter(references.on_device(graph, plan.devices[0].name))
        for label, placement in ((_LOCKED, locked), (_TODAY, today), (_AGAIN, locked)):
            trial.enter(replace(placement.renamed(here), label=label))
        found = _measured_placements(trial, alone, plan.description, tolerance)
    finally:
        testbed.close()
    return found


def with_measured(
    result: check_problems.ModelResult, check: MeasuredCheck
) -> check_problems.ModelResult:
    """Return the result with what was measured: slower fails, no answer is inconclusive."""
    problems, notes = list(result.problems), list(result.notes)
    if check.is_slower:
        moves = () if result.difference is None else result.difference.moves
        problems = _with_slower(
            problems,
            check_problems.Effect(
                code=check_problems.ProblemCode.MEASURED_SLOWER,
                what=f"measured on {check.devices}: {check.second}; "
                f"in an earlier race {check.first}",
                culprits=check_problems.first_few(list(move_texts(moves, CodeLines()))),
            ),
        )
    elif check.failure is not None:
        problems.append(
            check_problems.Problem(
                code=check_problems.ProblemCode.DOES_NOT_RUN,
                what=f"does not run on {check.devices}: {check.failure}",
                action="run advisor analyze on the model, which says more",
            )
        )
    elif check.first is None:
        notes.append(f"not measured: {check.unknown or 'no round was complete'}")
    else:
        alone = ""
        if check.against_single is not None:
            alone = f"; {speedup_of(check.against_single)} as fast as one device"
        unclear = "" if check.first.pace is Slowdown.NO_SLOWER else ", which decides nothing"
        notes.append(f"measured on {check.devices}: {check.first}{alone}{unclear}")
    status = result.status
    if problems:
        status = check_problems.Status.FAILED
    elif check.is_inconclusive and status is check_problems.Status.PASSED:
        status = check_problems.Status.INCONCLUSIVE
    return replace(result, status=status, problems=tuple(problems), notes=tuple(notes))


def _with_slower(
    problems: Sequence[check_problems.Problem], slower: check_problems.Effect
) -> list[check_problems.Problem]:
    """Return the problems with an effect of the layers that moved: what did not was not raced."""
    of_moves = next((each for each in problems if each.code in check_problems.MOVES), None)
    if of_moves is None:
        return [*problems, check_problems.effect_as_problem(slower, None)]
    with_it = replace(of_moves, effects=(*of_moves.effects, slower))
    return [with_it if each is of_moves else each for each in problems]


def _measured_placements(
    trial: benchmark.Benchmark, alone: benchmark.BenchmarkEntry, devices: str, tolerance: float
) -> MeasuredCheck:
    first = _run_slowdown_test(trial, tolerance)
    second = (
        _run_slowdown_test(trial, tolerance) if first and first.pace is Slowdown.SLOWER else None
    )
    entries = trial.entries
    failed = entries[_TODAY].failure
    others = [entry.failure for entry in (alone, entries[_LOCKED], entries[_AGAIN])]
    reason = next((failure.message for failure in others if failure is not None), None)
    ratio = slowdown_test(entries[_TODAY].rounds, alone.rounds, alone.rounds, tolerance)
    return MeasuredCheck(
        devices=devices,
        first=None if failed or reason else first,
        second=None if failed or reason else second,
        against_single=ratio.ratio.median if ratio is not None else None,
        failure=failed.message if failed is not None and reason is None else None,
        unknown=reason,
    )


def _run_slowdown_test(trial: benchmark.Benchmark, tolerance: float) -> SlowdownTest | None:
    """Time rounds until they tell, or for as many as there may be, and compare those alone."""
    before = {label: len(entry.rounds) for label, entry in trial.entries.items()}
    found = None
    for number in range(MAX_ROUNDS):
        trial.round(number, MAX_ROUNDS)
        if number + 1 < ROUNDS:
            continue
        new = {label: entry.rounds[before[label] :] for label, entry in trial.entries.items()}
        found = slowdown_test(new[_TODAY], new[_LOCKED], new[_AGAIN], tolerance)
        if found is None or found.pace is not Slowdown.CANNOT_TELL:
            break
    return found
