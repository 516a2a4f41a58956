"""What is timed beside candidates, and what becomes of it when it fails; the trial is made up."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from sample_analysis import OPTIONS

from placement_advisor.analysis.progress import AnalysisProgress, SilentListener
from placement_advisor.analysis.runs import CandidateRuns, ReferenceTimings, RunResults
from placement_advisor.analysis.step_costs import TestbedSession
from placement_advisor.measurement.measurement import LoopTiming
from placement_advisor.processes.calls import CallFailure, FailureCause
from placement_advisor.testbed.benchmark import BRIEF_ROUNDS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from placement_advisor.analysis.progress import ProgressListener, TimeAhead
    from placement_advisor.graph.placement import Placement

FAILED = CallFailure(cause=FailureCause.CRASHED, message="no kernel")
STEP_NS, WHOLE_NS, INPUT = 100, 200, object()
LOOP = LoopTiming(steps_per_call=10, one_ns=(2,), several_ns=(1,))
ROUNDS, STEPS = 3, 2


class Loader:
    """Answers as told: ``cues`` maps (function, how many times before) to an answer."""

    def __init__(self, cues: Mapping[tuple[str, int], Any]) -> None:
        self._cues, self.calls = cues, list[str]()
        self.is_closed = False

    def call(self, function: Callable[..., Any], *args: Any, time_limit_s: float) -> Any:
        assert not self.is_closed
        name = function.__name__
        count = self.calls.count(name)
        self.calls.append(name)
        answers = {
            "run_as_is": [STEP_NS + count] * STEPS,
            "run_at_batches": FAILED,
            "time_fit": LOOP,
            "time_input": INPUT,
        }
        return self._cues.get((name, count), answers[name])

    def failure(self) -> None:
        return None

    def close(self) -> None:
        self.is_closed = True


class Mirrored:
    """Times steps with whole batches, until it is to fail."""

    def __init__(self, fails_at: int | None) -> None:
        self._fails_at = fails_at

    def close(self) -> None:
        pass

    def run_weak_steps(self, number: int, steps: int, *, time_limit_s: float) -> Any:
        return (
            FAILED if number == self._fails_at else [1_000_000, *[WHOLE_NS + number] * (steps - 1)]
        )


def ran(
    cues: Mapping[tuple[str, int], Any] | None = None,
    mirrored: Mirrored | None = None,
    show: Callable[[str, RunResults], None] = lambda doing, results: None,
    onlooker: ProgressListener | None = None,
    ended: str | None = None,
    refine: int = 0,
    joining: Callable[[RunResults], Placement | None] = lambda results: None,
    enter: Callable[..., None] = lambda placement, **how: None,
    runs_as_is: bool = True,
    brief: Any = None,
    before: int = 0,
    beside: ReferenceTimings | None = None,
    advise: Callable[[RunResults], Any] = lambda results: [],
) -> tuple[RunResults, Loader]:
    """Run no candidate but the mirrored one for some rounds."""
    loader = Loader(cues or {})
    entries = {}
    if mirrored is not None:
        entries["mirrored"] = SimpleNamespace(failure=None, files=None, measurement=lambda _: None)

    def time_round(number: int, of: int, *, is_brief: bool = False) -> None:
        assert number == trial.rounds
        trial.rounds += 1

    trial = SimpleNamespace(
        entries=entries,
        ended=ended,
        comparisons=dict,
        competitors=1,
        running=list,
        joining=refine,
        rounds=before,
        round=time_round,
        enter=enter,
        time_apart=lambda placements, budget_s: tuple(placements),
        profile_all=lambda: None,
    )
    options = replace(OPTIONS, steps=STEPS, rounds=ROUNDS)
    session: Any = TestbedSession(
        testbed=SimpleNamespace(  # type: ignore[arg-type]
            close=lambda: None, plan=SimpleNamespace(runs_as_is=runs_as_is)
        ),
        trial=trial,  # type: ignore[arg-type]
        mirrored=mirrored,  # type: ignore[arg-type]
        loader=loader,  # type: ignore[arg-type]
        bundles=Path(),
    )
    progress = AnalysisProgress(onlooker or SilentListener(), options)
    steering: Any = SimpleNamespace(show=show, refine=joining, advise=advise)
    runs = CandidateRuns(options, session, progress, steering, beside or ReferenceTimings())
    found = runs.run((), brief, None)
    assert loader.is_closed
    return found, loader


def test_what_is_advised_is_timed_once_all_rounds_have_shown_what_to_advise() -> None:
    seen: list[RunResults] = []

    def advise(results: RunResults) -> list[str]:
        seen.append(results)
        return ["a split", "a split with a move"]

    found, _ = ran(advise=advise)
    (known,) = seen
    assert known.beside == found.beside
    assert found.timed == ("a split", "a split with a move")


def test_the_step_as_it_is_is_timed_once_a_round_after_a_call_that_traces() -> None:
    found, _ = ran()
    assert found.beside.as_is_ns == (101, 101, 102, 102, 103, 103)
    assert found.loop_timing is LOOP
    assert found.input_timing is INPUT
    assert found.warnings == ()


@pytest.mark.parametrize("fails_at", [0, 2])
def test_a_step_that_fails_as_it_is_has_no_times_and_is_not_tried_again(fails_at: int) -> None:
    found, loader = ran({("run_as_is", fails_at): FAILED})
    assert found.beside.as_is_ns == ()
    assert loader.calls == ["run_as_is"] * (fails_at + 1) + ["time_input"]
    assert found.warnings == ("as-is was not timed: no kernel",)


def test_where_the_step_as_it_is_has_other_devices_it_is_not_timed() -> None:
    found, loader = ran(runs_as_is=False)
    assert found.beside.as_is_ns == ()
    assert loader.calls == ["time_input"]
    assert found.warnings == ()


def test_weak_scaling_leaves_out_the_round_before_and_first_steps() -> None:
    found, _ = ran(mirrored=Mirrored(fails_at=None))
    assert found.beside.weak_ns == (200, 200, 201, 201, 202, 202)


def test_weak_scaling_that_fails_is_a_warning_and_costs_as_is_nothing() -> None:
    found, _ = ran(
        {("time_input", 0): CallFailure(cause=FailureCause.TIMED_OUT, message="hangs")},
        mirrored=Mirrored(fails_at=2),
    )
    assert found.beside.weak_ns == (200, 200, 201, 201)
    assert len(found.beside.as_is_ns) == ROUNDS * STEPS
    assert found.warnings == (
        "weak scaling was not timed: no kernel",
        "the dataset was not timed alone: hangs",
    )
    assert found.input_timing is None


def test_each_round_is_shown_with_what_is_known_by_then() -> None:
    shown: list[tuple[str, int]] = []
    ran(show=lambda doing, results: shown.append((doing, len(results.beside.as_is_ns))))
    assert shown == [
        ("timing, round 1 done", 2),
        ("timing, round 2 done", 4),
        ("timing, round 3 done", 6),
        ("profiling", 6),
    ]


def test_after_a_host_is_lost_no_round_is_waited_for_and_the_report_says_why() -> None:
    found, _ = ran(ended="host b is lost")
    assert found.beside.as_is_ns == ()
    assert found.warnings == ("host b is lost; what was measured by then is all there is",)


class Expecting(SilentListener):
    def __init__(self) -> None:
        self.told: list[TimeAhead] = []

    def expect(self, ahead: TimeAhead) -> None:
        self.told.append(ahead)


def test_what_is_ahead_is_told_as_stages_begin_and_after_each_round() -> None:
    onlooker = Expecting()
    ran(onlooker=onlooker)
    preparing, running, *rounds, over, profiling = onlooker.told
    assert len(rounds) == ROUNDS
    assert preparing.later_s > running.later_s
    assert {each.later_s for each in (*rounds, over)} == {running.later_s}
    assert (rounds[0].doubt_s > 0, over.doubt_s) == (True, 0)
    assert running.later_s == pytest.approx(profiling.stage_s + profiling.later_s)
    # No round takes a millisecond here: what was expected of them has been corrected.
    assert rounds[-1].stage_s < running.stage_s


@pytest.mark.parametrize(("refine", "looks"), [(0, []), (1, [1]), (2, [1, 2]), (9, [1, 2])])
def test_after_rounds_with_others_to_come_a_candidate_may_join(
    refine: int, looks: list[int]
) -> None:
    # Of three rounds there is a look after each but the last.
    seen: list[int] = []
    entered: list[object] = []

    def joining(results: RunResults) -> Any:
        seen.append(len(results.beside.as_is_ns) // STEPS)
        return SimpleNamespace(family="towers") if len(seen) == 1 else None

    ran(refine=refine, joining=joining, enter=entered.append)
    assert seen == looks
    assert len(entered) == bool(looks)


def test_what_runs_briefly_is_prepared_after_the_rounds_and_the_step_as_it_is_runs_beside_it() -> (
    None
):
    shown: list[str] = []
    entered: list[tuple[str, bool, int]] = []

    def enter(placement: Placement, *, is_brief: bool = False) -> None:
        entered.append((placement.label, is_brief, len(shown)))

    found, _ = ran(
        brief=SimpleNamespace(label="alternating"),
        show=lambda doing, results: shown.append(doing),
        enter=enter,
    )
    assert entered == [("alternating", True, ROUNDS)]
    assert len(found.beside.as_is_ns) == (ROUNDS + BRIEF_ROUNDS) * STEPS


def test_after_a_host_is_lost_nothing_runs_briefly() -> None:
    entered: list[object] = []
    ran(brief=SimpleNamespace(label="alternating"), ended="lost", enter=entered.append)
    assert entered == []


def test_rounds_that_are_added_go_on_from_those_before() -> None:
    shown: list[str] = []
    earlier = ReferenceTimings(as_is_ns=(7, 8, 9, 10), weak_ns=(11,), warnings=("said before",))
    found, _ = ran(before=2, beside=earlier, show=lambda doing, results: shown.append(doing))
    assert found.beside.as_is_ns == (7, 8, 9, 10, 101, 101, 102, 102, 103, 103)
    assert (found.beside.weak_ns, found.warnings) == ((11,), ("said before",))
    assert shown[:ROUNDS] == [f"timing, round {done} done" for done in (1, 2, 3)]


def test_looks_for_who_may_join_count_the_rounds_that_are_added() -> None:
    seen: list[int] = []

    def joining(results: RunResults) -> None:
        seen.append(len(results.beside.as_is_ns) // STEPS)

    ran(before=40, refine=1, joining=joining)
    assert seen == [1]


def test_a_step_as_it_is_that_failed_before_is_not_timed_in_added_rounds() -> None:
    failed = ReferenceTimings(without_as_is=True, warnings=("as-is was not timed: it crashed",))
    found, loader = ran(before=2, beside=failed)
    assert "run_as_is" not in loader.calls
    assert found.warnings == failed.warnings


def test_a_step_as_it_is_that_fails_in_added_rounds_leaves_no_times_of_some_rounds() -> None:
    found, _ = ran(
        {("run_as_is", 0): FAILED}, before=2, beside=ReferenceTimings(as_is_ns=(7, 8, 9, 10))
    )
    assert found.beside.as_is_ns == ()
