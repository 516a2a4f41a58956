"""A trial on a testbed that fails on cue. What really failing testbeds do is in test_analyze."""

from collections import Counter
from dataclasses import replace
from functools import partialmethod

import pytest
from sample_hosts import TWO_HOSTS

from placement_advisor import defaults
from placement_advisor.errors import TestbedError
from placement_advisor.graph.placement import Placement
from placement_advisor.machine.testbed_plan import HostLink, TestbedKind, TestbedPlan, plan_hosts
from placement_advisor.machine.this_machine import core_slots, gpu_slots
from placement_advisor.measurement.measurement import FailureKind, least_samples
from placement_advisor.measurement.verification import Verification
from placement_advisor.processes.calls import CallFailure, FailureCause
from placement_advisor.testbed import benchmark
from placement_advisor.testbed.benchmark import (
    BRIEF_ROUNDS,
    Benchmark,
    SilentProgress,
    time_briefly,
    time_in_rounds,
)
from placement_advisor.testbed.testbed import STEP, ProfileFiles
from placement_advisor.tf.answers import Prepared, SourceLine

CRASHED = FailureCause.CRASHED
DOWN = CallFailure(cause=CRASHED, message="worker:1 was killed by SIGKILL", child_ended=True)
LOST = CallFailure(cause=CRASHED, message="host b is lost: nothing was heard", child_ended=True)
REFUSED = CallFailure(cause=CRASHED, message="no kernel")
STEP_NS = {"single": 1_000, "towers": 700, "alternating": 2_000}
# As many as tell how two candidates compare if nothing varies.
ROUNDS = least_samples(2)
RIGHT = Verification(steps=4, variables=1, relative_difference=1e-7)


def wrong(relative_difference):
    what = {"wrong": "what was added to variable 'w'", "wrong_variable": "w"}
    return replace(RIGHT, relative_difference=relative_difference, **what)


class FakeTestbed:
    """Answers as told: ``cues`` maps (function, label, how many times before) to an answer."""

    plan = TestbedPlan(kind=TestbedKind.GPUS, devices=(), stand_in=False, description="")

    def __init__(self, cues, *, starts=99):
        self.cues, self.starts_left = cues, starts
        self.calls = []
        self.up = True
        self.lost = None
        self.prepared = []
        self.discarded = []
        self.profiled = {}
        self.reference = None
        self._seen = Counter()

    def start(self):
        if self.up:
            return
        if not self.starts_left:
            raise TestbedError("worker:0 did not start")
        self.starts_left -= 1
        self.up, self.prepared, self.reference = True, [], None

    def _answer(self, function, label, *args):
        self.calls.append((function, label))
        if self.lost is not None:
            return LOST
        assert self.up, "called while down"
        count = self._seen[function, label]
        self._seen[function, label] += 1
        answer = self.cues.get((function, label, count))
        if answer == LOST:
            self.lost = LOST.message
        if answer is not None:
            self.up = not (isinstance(answer, CallFailure) and answer.child_ended)
            return answer
        return getattr(self, f"_{function}")(label, *args)

    prepare = partialmethod(_answer, "prepare")
    verify = partialmethod(_answer, "verify")
    run_steps = partialmethod(_answer, "run_steps")
    profile = partialmethod(_answer, "profile")

    def _prepare(self, label, _, program):
        assert program == STEP
        assert label not in self.prepared, "prepared twice"
        self.prepared.append(label)
        return Prepared(moved_ops=(), crossings=())

    def _verify(self, label, _):
        assert label in self.prepared
        if self.reference is None:
            self.reference = label
            return None
        assert self.reference == "single", f"compared with {self.reference}"
        return RIGHT

    def _run_steps(self, label, _, steps):
        assert label in self.prepared, f"{label} runs unprepared"
        return [STEP_NS[label]] * steps

    def call(self, function, label):
        assert function.__name__ == "discard"
        self.discarded.append(label)

    def _profile(self, label, steps):
        assert label in self.prepared
        self.profiled[label] = steps
        return ProfileFiles(client=None, devices={})  # type: ignore[arg-type]


def placed(*labels):
    here = {"op": "GPU:0"}
    return [Placement(label=each, family=each, device_of=here, rationale="") for each in labels]


def entered(*labels, cues=None, starts=99, **options):
    """Return a trial of placements, and its testbed."""
    testbed = FakeTestbed(cues or {}, starts=starts)
    trial = Benchmark(testbed, steps=2, watcher=SilentProgress(), **options)
    for placement in placed(*labels):
        trial.enter(placement)
    return trial, testbed


@pytest.fixture(autouse=True)
def no_profile_files(monkeypatch):
    monkeypatch.setattr(benchmark, "read_gpu_steps", lambda *_: None)


def run(cues=None, *, starts=99, rounds=ROUNDS):
    """Run three candidates in as many rounds as they need, then profile them."""
    trial, testbed = entered(*STEP_NS, cues=cues, starts=starts)
    time_in_rounds(trial, rounds, lambda number: testbed.calls.append(("as-is", str(number))))
    trial.profile_all()
    return trial.entries, testbed


def test_every_round_times_all_in_an_order_of_its_own_and_the_first_step_of_a_turn_is_warm_up():
    entries, testbed = run()
    turns = [call for call in testbed.calls if call[0] in ("run_steps", "as-is")][3:]
    size = len(STEP_NS) + 1
    rounds = [turns[i : i + size] for i in range(0, len(turns), size)]
    assert len(rounds) == ROUNDS
    for number, (*timed, beside) in enumerate(rounds):
        assert sorted(timed) == sorted(("run_steps", label) for label in STEP_NS)
        assert beside == ("as-is", str(number))
    assert {timed[0][1] for timed in rounds} == set(STEP_NS)
    assert entries["towers"].rounds == [(700, 700)] * ROUNDS
    # Three to warm up, and one at the start of each turn.
    assert entries["towers"].warmup_ns == [700] * (3 + ROUNDS)
    assert all(entry.files is not None for entry in entries.values())


def test_of_steps_that_take_minutes_few_are_profiled(monkeypatch):
    minutes = {"single": 30_000_000_000, "towers": 90_000_000_000, "alternating": 7_000_000_000}
    monkeypatch.setitem(globals(), "STEP_NS", minutes)
    _, testbed = run()
    assert testbed.profiled == {"single": 3, "towers": 3, "alternating": 8}


FULL = CallFailure(cause=FailureCause.OUT_OF_MEMORY, message="OOM when allocating")
LATE = CallFailure(cause=FailureCause.TIMED_OUT, message="late", child_ended=True)
KILLED = "crashed: worker:1 was killed by SIGKILL"
NOT_STARTED = "crashed: worker:0 did not start"
ALL_OUT = {"towers": NOT_STARTED, "alternating": NOT_STARTED}
FAR_OFF = "wrong-result: within 4 steps what was added to variable 'w' differs from the single"


@pytest.mark.parametrize(
    ("cues", "starts", "failed"),
    [
        ({("run_steps", "towers", 3): DOWN}, 1, {"towers": KILLED}),
        ({("prepare", "towers", 0): REFUSED}, 0, {"towers": "crashed: no kernel"}),
        # The new client has forgotten single's results; the fake refuses any other reference.
        ({("verify", "towers", 0): DOWN}, 1, {"towers": KILLED}),
        ({("verify", "single", 0): DOWN}, 1, {"single": KILLED}),
        (
            {("run_steps", "towers", 2): DOWN, ("prepare", "single", 1): DOWN},
            2,
            {"towers": KILLED, "single": KILLED},
        ),
        # A testbed that does not come up again ends the trial, not the analysis.
        ({("run_steps", "single", 2): DOWN}, 0, {"single": KILLED, **ALL_OUT}),
        (
            {("run_steps", "single", 2): DOWN, ("prepare", "towers", 1): DOWN},
            1,
            {"single": KILLED, **ALL_OUT, "towers": KILLED},
        ),
        ({("verify", "towers", 0): wrong(0.25)}, 0, {"towers": FAR_OFF}),
        ({("verify", "towers", 0): wrong(float("nan"))}, 0, {"towers": FAR_OFF}),
        ({("prepare", "towers", 0): FULL}, 0, {"towers": "out-of-memory: OOM"}),
        ({("run_steps", "towers", 1): LATE}, 1, {"towers": "timed-out: late"}),
    ],
)
def test_a_failure_puts_its_candidate_out_and_the_others_go_on(cues, starts, failed):
    entries, testbed = run(cues, starts=starts)
    assert testbed.starts_left == 0
    found = {label: entry.failure for label, entry in entries.items() if entry.failure}
    assert found.keys() == failed.keys()
    for name, failure in found.items():
        assert f"{failure.kind}: {failure.message}".startswith(failed[name])
    for label, entry in entries.items():
        assert (entry.measurement(None) is None) == (not any(entry.rounds))
        if label not in failed:
            assert len(entry.rounds) == ROUNDS
            assert entry.files is not None
            is_compared = label != "single" and ("verify", "single", 0) not in cues
            assert (entry.verification == RIGHT) == is_compared


@pytest.mark.parametrize(
    ("step_ns", "cues", "asked", "rounds"),
    [
        # The worthwhile ratio itself: in doubt to the end.
        ({"towers": 970}, {}, ROUNDS, defaults.MAX_ROUNDS),
        ({}, {}, 1, ROUNDS),
        # The best is sure, though another is not.
        ({"alternating": 970}, {}, ROUNDS, ROUNDS),
        # Whoever is in doubt is out, or what all are compared with.
        ({"towers": 970}, {("run_steps", "towers", 4): DOWN}, ROUNDS, ROUNDS),
        ({"towers": 970}, {("run_steps", "single", 4): DOWN}, ROUNDS, ROUNDS),
    ],
)
def test_rounds_are_added_while_a_verdict_is_in_doubt(monkeypatch, step_ns, cues, asked, rounds):
    for label, time_ns in step_ns.items():
        monkeypatch.setitem(STEP_NS, label, time_ns)
    entries, _ = run(cues, rounds=asked)
    assert max(len(entry.rounds) for entry in entries.values()) == rounds


@pytest.mark.parametrize(("asked", "done"), [(None, ROUNDS), (1, ROUNDS), (ROUNDS + 3, ROUNDS + 3)])
def test_time_that_is_up_ends_a_race_in_doubt_but_not_before_there_is_an_interval_or_what_was_asked(
    monkeypatch, asked, done
):
    monkeypatch.setattr(defaults, "TIMING_BUDGET_S", -1.0)
    monkeypatch.setitem(STEP_NS, "towers", 970)
    entries, _ = run(rounds=asked)
    assert len(entries["single"].rounds) == done


def test_who_joins_between_rounds_has_no_steps_before_and_as_many_as_others_after(monkeypatch):
    monkeypatch.setattr(defaults, "TIMING_BUDGET_S", -1.0)
    trial, _ = entered("single", "towers", joining=1)
    assert trial.competitors == 2

    def end_round(number):
        if number == 2:
            trial.enter(*placed("alternating"))

    time_in_rounds(trial, None, end_round)
    assert trial.competitors == 2
    rounds = trial.entries["alternating"].rounds
    assert rounds == [(), (), ()] + [(2_000, 2_000)] * ROUNDS
    assert len(trial.entries["single"].rounds) == 3 + ROUNDS
    comparison = trial.comparisons()["alternating"]
    assert comparison.rounds == ROUNDS
    assert comparison.ratio.median == 2.0
    measured = trial.entries["alternating"].measurement(None)
    assert measured.round_count == ROUNDS


def test_nobody_joins_who_would_not_be_timed_often_enough_in_the_time_there_is():
    trial, _ = entered(joining=1)
    budget_s, needed = defaults.TIMING_BUDGET_S, 3 + least_samples(1)
    just_s = 3 * budget_s / needed
    assert benchmark.is_time_for_another(trial, None, 3, just_s - 0.001)
    assert not benchmark.is_time_for_another(trial, None, 3, just_s + 0.001)
    assert benchmark.is_time_for_another(trial, 10, 3, just_s + 0.001)


def briefly(cues=None):
    """Run `alternating` for a few rounds behind those of the others."""
    trial, testbed = entered("single", "towers", cues=cues, joining=1)
    time_in_rounds(trial, ROUNDS, lambda number: testbed.calls.append(("as-is", str(number))))
    trial.enter(*placed("alternating"), is_brief=True)
    time_briefly(trial, lambda number: testbed.calls.append(("as-is", str(number))))
    return trial, testbed


def test_what_runs_briefly_has_rounds_of_its_own_and_weakens_no_interval_of_others():
    trial, testbed = briefly()
    total = ROUNDS + BRIEF_ROUNDS
    rounds = {label: entry.rounds for label, entry in trial.entries.items()}
    assert rounds["single"] == [(1_000, 1_000)] * total
    assert rounds["towers"] == [(700, 700)] * ROUNDS + [()] * BRIEF_ROUNDS
    assert rounds["alternating"] == [()] * ROUNDS + [(2_000, 2_000)] * BRIEF_ROUNDS
    # What is paired by the number of a round has one for each.
    assert [name for function, name in testbed.calls if function == "as-is"] == [
        str(number) for number in range(total)
    ]
    alone, _ = entered("single", "towers", joining=1)
    time_in_rounds(alone, ROUNDS, lambda _: None)
    assert trial.competitors == alone.competitors == 2
    assert trial.fewest_rounds == alone.fewest_rounds == ROUNDS
    found = trial.comparisons()
    assert found["towers"] == alone.comparisons()["towers"]
    assert found["alternating"].is_brief
    assert (found["alternating"].rounds, found["alternating"].ratio.low) == (BRIEF_ROUNDS, 2.0)


def test_a_host_that_is_lost_in_brief_rounds_costs_those_alone():
    # One to warm up, those before, and the third of its own.
    trial, _ = briefly({("run_steps", "alternating", 1 + 2): LOST})
    assert trial.ended is not None
    assert {len(entry.rounds) for entry in trial.entries.values()} == {ROUNDS + 2}
    assert trial.comparisons()["towers"].rounds == ROUNDS
    assert all(entry.failure is None for entry in trial.entries.values())


def apart(cues=None, budget_s=1.0):
    """Time two more placements apart from a trial of two; return it, its testbed, their rounds."""
    trial, testbed = entered("single", cues=cues)
    time_in_rounds(trial, ROUNDS, lambda _: None)
    found = trial.time_apart(placed("towers", "single"), budget_s)
    return trial, testbed, {each.placement.label: each.rounds for each in found}


def test_what_is_no_candidate_is_timed_apart_if_there_is_time_and_is_gone_then():
    trial, testbed, found = apart()
    rounds = len(found["towers"])
    assert rounds > defaults.ROUNDS
    assert found == {"towers": ((700, 700),) * rounds, "single": ((1_000, 1_000),) * rounds}
    assert trial.entries.keys() == {"single"}
    assert trial.entries["single"].rounds == [(1_000, 1_000)] * ROUNDS
    assert ("verify", "towers") in testbed.calls
    assert testbed.discarded == ["towers"]
    assert apart(budget_s=(least_samples() - 0.5) * 5.1e-6)[2] == {}
    rounds = apart(budget_s=(least_samples() + 0.5) * 5.1e-6)[2]["towers"]
    assert len(rounds) == least_samples()


@pytest.mark.parametrize(
    ("cue", "answer"),
    [
        (("prepare", "towers", 0), DOWN),
        (("run_steps", "towers", 0), REFUSED),
        (("run_steps", "towers", 3), DOWN),
        (("verify", "towers", 0), wrong(0.5)),
    ],
)
def test_what_fails_apart_leaves_nothing_timed_and_costs_no_candidate(cue, answer):
    trial, _, found = apart({cue: answer})
    assert found == {}
    trial.profile_all()
    assert trial.entries["single"].failure is None


def test_a_worker_that_dies_under_the_profiler_costs_that_candidates_profile():
    entries, _ = run({("profile", "towers", 0): DOWN})
    assert entries["towers"].failure is not None
    assert entries["towers"].files is None
    assert entries["alternating"].files is not None


def test_a_testbed_that_something_else_took_down_is_built_anew_at_no_candidates_cost():
    trial, testbed = entered()
    for placement in placed("single", "towers"):
        testbed.up = False
        trial.enter(placement)
    testbed.up = False
    trial.round(0, 1)
    assert [entry.failure for entry in trial.entries.values()] == [None, None]
    assert [len(entry.rounds[0]) for entry in trial.entries.values()] == [2, 2]
    assert testbed.starts_left == 99 - 3


def test_a_host_that_is_lost_ends_the_rounds_and_leaves_what_all_have_completed():
    entries, testbed = run({("run_steps", "towers", 5): LOST})
    assert [len(entry.rounds) for entry in entries.values()] == [4] * len(STEP_NS)
    assert all(entry.failure is None and entry.files is None for entry in entries.values())
    assert testbed.starts_left == 99
    entries, testbed = run({("verify", "towers", 0): LOST})
    assert {entry.failure and entry.failure.message for entry in entries.values()} == {LOST.message}
    assert ("prepare", "towers") in testbed.calls
    assert ("run_steps", "towers") not in testbed.calls
    entries, testbed = run({("profile", "single", 0): LOST})
    assert [len(entry.rounds) for entry in entries.values()] == [ROUNDS] * len(STEP_NS)
    assert all(entry.failure is None for entry in entries.values())
    assert ("profile", "towers") not in testbed.calls


@pytest.mark.parametrize(("slots", "on_gpus"), [(gpu_slots(1), True), (core_slots((0,)), False)])
def test_profiles_of_hosts_are_read_as_those_of_what_hosts_lend(monkeypatch, slots, on_gpus):
    read = []
    monkeypatch.setattr(benchmark, "read_worker_steps", lambda *_, on_gpus: read.append(on_gpus))
    hosts = tuple(replace(host, slots=slots) for host in TWO_HOSTS.hosts)
    trial, testbed = entered()
    testbed.plan = plan_hosts(hosts, HostLink.TLS)
    trial.profile(trial.enter(*placed("single")))
    assert read == [on_gpus]


class OwnBench:
    """Runs one candidate apart from the testbed; it is gone after its first failure."""

    def __init__(self, cues):
        self.cues, self.prepared = cues, 0

    def prepare(self, label, device_of, program):
        self.prepared += 1
        return self.cues.get("prepare", Prepared(moved_ops=(), crossings=()))

    def verify(self, label, steps):
        return self.cues.get("verify", RIGHT)

    def run_steps(self, label, batch, steps):
        return self.cues.get("run_steps", [600] * steps)

    def profile(self, label, steps):
        return ProfileFiles(client=None, devices={})  # type: ignore[arg-type]


def run_beside(bench, cues=None):
    trial, testbed = entered(cues=cues)
    for label, own in (("single", None), ("mirrored", bench), ("towers", None)):
        trial.enter(*placed(label), bench=own, if_wrong="; as said")
    time_in_rounds(trial, ROUNDS, lambda _: None)
    trial.profile_all()
    return trial.entries, testbed


def test_a_candidate_with_a_bench_of_its_own_runs_in_turn_and_neither_takes_the_other_down():
    entries, testbed = run_beside(OwnBench({}))
    assert entries["mirrored"].rounds == [(600, 600)] * ROUNDS
    assert entries["mirrored"].files is not None
    assert ("run_steps", "mirrored") not in testbed.calls
    entries, testbed = run_beside(OwnBench({"run_steps": DOWN}))
    assert entries["mirrored"].failure is not None
    assert len(entries["towers"].rounds) == ROUNDS
    assert testbed.starts_left == 99
    bench = OwnBench({})
    entries, _ = run_beside(bench, {("run_steps", "towers", 3): DOWN})
    assert entries["towers"].failure is not None
    assert entries["mirrored"].failure is None
    assert len(entries["mirrored"].rounds) == ROUNDS
    assert bench.prepared == 1
    entries, _ = run_beside(OwnBench({"verify": wrong(0.5)}))
    assert entries["mirrored"].failure.kind is FailureKind.WRONG_RESULT
    assert entries["mirrored"].failure.message.endswith("rounding explains); as said")


def test_replicas_that_train_alone_are_a_wrong_result_with_the_line_and_the_remedy():
    alone = Prepared(moved_ops=(), crossings=(), unexchanged=("w", "v"))
    trial, _ = entered(line_of={"w": SourceLine(file="model.py", line=12)})
    for label, bench in (("single", None), ("mirrored", OwnBench({"prepare": alone}))):
        trial.enter(*placed(label), bench=bench)
    failure = trial.entries["mirrored"].failure
    assert failure.kind is FailureKind.WRONG_RESULT
    assert failure.message == (
        "each device updates 'w', 'v' from its own samples alone: nothing is exchanged, every "
        "replica trains a model of its own; 'w' is updated in model.py:12; add the gradients up "
        "first, with optimizer.apply_gradients or "
        "tf.distribute.get_replica_context().all_reduce"
    )
    assert trial.entries["mirrored"].rounds == []


def in_sessions(lengths, cues=None):
    """Run candidates in trials of so many rounds, each going on from the one before.

    One joins after a round of the first, one more might.
    """
    *first, last = STEP_NS
    trial, _ = entered(*first, cues=cues, joining=2)
    time_in_rounds(trial, 1, lambda _: None)
    trial.enter(*placed(last))
    for number, rounds in enumerate(lengths):
        trial = resumed(trial, cues) if number else trial
        time_in_rounds(trial, rounds, lambda _: None)
    return trial


def resumed(before, cues=None):
    """Return a trial that goes on from another."""
    trial, _ = entered(cues=cues)
    trial.resume({label: entry.so_far() for label, entry in before.entries.items()}, before.joining)
    for placement in placed(*STEP_NS):
        trial.enter(placement)
    return trial


def test_rounds_in_sessions_are_compared_as_if_they_had_run_in_one(monkeypatch):
    monkeypatch.setattr(defaults, "MAX_ROUNDS", 1)
    at_once, parts = in_sessions((20,)), in_sessions((7, 4, 9))
    assert parts.rounds == at_once.rounds == 21
    assert parts.entries["alternating"].rounds == at_once.entries["alternating"].rounds
    assert parts.entries["alternating"].rounds[0] == ()
    # The interval allows for all that compete, and for the one that may still join: not for each
    # of them anew in every session.
    assert parts.competitors == at_once.competitors == 3
    assert parts.joining == at_once.joining == 1
    assert parts.comparisons() == at_once.comparisons()
    trial = in_sessions((3, 5))
    numbers = []
    time_in_rounds(trial, 2, numbers.append)
    assert numbers == [9, 10]


def test_what_failed_in_one_session_is_out_in_the_next(monkeypatch):
    monkeypatch.setattr(defaults, "MAX_ROUNDS", 1)
    # After the warm-up and two rounds, in the first session alone.
    trial = in_sessions((9, 5), {("run_steps", "towers", 3): REFUSED})
    towers = trial.entries["towers"]
    assert towers.failure.message == REFUSED.message
    assert towers.rounds[:2] == [(700, 700)] * 2
    assert not any(towers.rounds[2:])
    assert trial.competitors == 3


def test_what_ran_briefly_stays_so_in_the_next_session():
    before, _ = briefly()
    trial = resumed(before)
    time_in_rounds(trial, 1, lambda _: None)
    assert trial.comparisons()["alternating"] == before.comparisons()["alternating"]
    assert trial.competitors == before.competitors
    assert trial.comparisons()["towers"].rounds == ROUNDS + 1
