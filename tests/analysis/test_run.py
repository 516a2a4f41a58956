from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from op_graphs import chain
from sample_analysis import OPTIONS
from sample_hosts import TWO_HOSTS

from placement_advisor.analysis import runs
from placement_advisor.analysis.progress import AnalysisProgress, SilentListener
from placement_advisor.analysis.step_costs import TestbedSession
from placement_advisor.analysis.tracing import load_model
from placement_advisor.cost.table import CostBasis, CostSource
from placement_advisor.errors import ModelError
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.machine.testbed_plan import TestbedKind, plan_testbed
from placement_advisor.measurement.measurement import LoopTiming
from placement_advisor.processes.calls import CallFailure, FailureCause
from placement_advisor.profile.recorded_ops import RecordedOp, RecordedProfile
from placement_advisor.testbed.benchmark import BRIEF_ROUNDS, SilentProgress
from placement_advisor.tf.answers import OwnSteps
from placement_advisor.tf.load.model_source import ModelSource

FAILED = CallFailure(cause=FailureCause.CRASHED, message="no kernel")
STEP_NS, INPUT = 100, object()
LOOP = LoopTiming(steps_per_call=10, one_ns=(2,), several_ns=(1,))
ROUNDS, STEPS = 3, 2


class Loader:
    """Answers as told: ``cues`` maps (function, how many times before) to an answer."""

    def __init__(self, cues):
        self._cues, self.calls = cues, []
        self.is_closed = False

    def call(self, function, *args, time_limit_s):
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

    def failure(self):
        return None

    def close(self):
        self.is_closed = True


def ran(
    cues=None,
    show=lambda doing, results: None,
    onlooker=None,
    ended=None,
    refine=0,
    joining=lambda results: None,
    enter=lambda placement, **how: None,
    runs_as_is=True,
    brief=None,
    before=0,
    beside=None,
    advise=lambda results: [],
):
    """Run no candidate for some rounds."""
    loader = Loader(cues or {})

    def time_round(number, of, *, is_brief=False):
        assert number == trial.rounds
        trial.rounds += 1

    trial = SimpleNamespace(
        entries={},
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
    session = TestbedSession(
        testbed=SimpleNamespace(close=lambda: None, plan=SimpleNamespace(runs_as_is=runs_as_is)),
        trial=trial,
        mirrored=None,
        loader=loader,
        bundles=Path(),
    )
    progress = AnalysisProgress(onlooker or SilentListener(), options)
    steering = SimpleNamespace(show=show, refine=joining, advise=advise)
    beside = beside or runs.ReferenceTimings()
    found = runs.CandidateRuns(options, session, progress, steering, beside).run((), brief, None)
    assert loader.is_closed
    return found, loader


def test_what_is_advised_is_timed_once_all_rounds_have_shown_what_to_advise():
    seen = []

    def advise(results):
        seen.append(results)
        return ["a split", "a split with a move"]

    found, _ = ran(advise=advise)
    (known,) = seen
    assert known.beside == found.beside
    assert found.timed == ("a split", "a split with a move")


def test_the_step_as_it_is_is_timed_once_a_round_where_it_has_these_devices():
    found, _ = ran()
    assert found.beside.as_is_ns == (101, 101, 102, 102, 103, 103)
    assert found.loop_timing is LOOP
    assert found.input_timing is INPUT
    assert found.warnings == ()
    found, loader = ran(runs_as_is=False)
    assert found.beside.as_is_ns == ()
    assert loader.calls == ["time_input"]
    assert found.warnings == ()


@pytest.mark.parametrize("fails_at", [0, 2])
def test_a_step_that_fails_as_it_is_has_no_times_and_is_not_tried_again(fails_at):
    found, loader = ran({("run_as_is", fails_at): FAILED})
    assert found.beside.as_is_ns == ()
    assert loader.calls == ["run_as_is"] * (fails_at + 1) + ["time_input"]
    assert found.warnings == ("as-is was not timed: no kernel",)


def test_a_dataset_that_hangs_costs_nothing_but_its_time():
    found, _ = ran({("time_input", 0): CallFailure(cause=FailureCause.TIMED_OUT, message="hangs")})
    assert len(found.beside.as_is_ns) == ROUNDS * STEPS
    assert found.warnings == ("the dataset was not timed alone: hangs",)
    assert found.input_timing is None


def test_each_round_is_shown_with_what_is_known_by_then():
    shown = []
    ran(show=lambda doing, results: shown.append((doing, len(results.beside.as_is_ns))))
    rounds = [(f"timing, round {done} done", STEPS * done) for done in (1, 2, 3)]
    assert shown == [*rounds, ("profiling", 6)]


def test_after_a_host_is_lost_no_round_is_waited_for_and_the_report_says_why():
    found, _ = ran(ended="host b is lost")
    assert found.beside.as_is_ns == ()
    assert found.warnings == ("host b is lost; what was measured by then is all there is",)


def test_what_is_ahead_is_told_as_stages_begin_and_after_each_round():
    onlooker, told = SilentListener(), []
    onlooker.expect = told.append
    ran(onlooker=onlooker)
    preparing, running, *rounds, over, profiling = told
    assert len(rounds) == ROUNDS
    assert preparing.later_s > running.later_s
    assert {each.later_s for each in (*rounds, over)} == {running.later_s}
    assert (rounds[0].is_most, over.is_most) == (True, False)
    assert running.later_s == pytest.approx(profiling.stage_s + profiling.later_s)
    # No round takes a millisecond here: what was expected of them has been corrected.
    assert rounds[-1].stage_s < running.stage_s


@pytest.mark.parametrize(("refine", "looks"), [(0, []), (1, [1]), (2, [1, 2]), (9, [1, 2])])
def test_after_rounds_with_others_to_come_a_candidate_may_join(refine, looks):
    # Of three rounds there is a look after each but the last.
    seen = []
    entered = []

    def joining(results):
        seen.append(len(results.beside.as_is_ns) // STEPS)
        return SimpleNamespace(family="towers") if len(seen) == 1 else None

    ran(refine=refine, joining=joining, enter=entered.append)
    assert seen == looks
    assert len(entered) == bool(looks)


def test_what_runs_briefly_is_prepared_after_the_rounds_and_the_step_as_it_is_runs_beside_it():
    shown = []
    entered = []

    def enter(placement, *, is_brief=False):
        entered.append((placement.label, is_brief, len(shown)))

    found, _ = ran(
        brief=SimpleNamespace(label="alternating"),
        show=lambda doing, results: shown.append(doing),
        enter=enter,
    )
    assert entered == [("alternating", True, ROUNDS)]
    assert len(found.beside.as_is_ns) == (ROUNDS + BRIEF_ROUNDS) * STEPS


def test_rounds_that_are_added_go_on_from_those_before_or_have_no_times_of_the_step_as_it_is():
    shown = []
    earlier = runs.ReferenceTimings(as_is_ns=(7, 8, 9, 10), warnings=("said before",))
    found, _ = ran(before=2, beside=earlier, show=lambda doing, results: shown.append(doing))
    assert found.beside.as_is_ns == (7, 8, 9, 10, 101, 101, 102, 102, 103, 103)
    assert found.warnings == ("said before",)
    assert shown[:ROUNDS] == [f"timing, round {done} done" for done in (1, 2, 3)]
    found, _ = ran({("run_as_is", 0): FAILED}, before=2, beside=earlier)
    assert found.beside.as_is_ns == ()
    failed = runs.ReferenceTimings(without_as_is=True, warnings=("as-is was not timed: killed",))
    found, loader = ran(before=2, beside=failed)
    assert "run_as_is" not in loader.calls
    assert found.warnings == failed.warnings


CALL = "`EagerPyFunc` at train.py:12"
US = 1_000


def step_graph():
    plain = chain("before", "python", "after")
    ops = [op._replace(kind="EagerPyFunc") if op.name == "python" else op for op in plain.ops]
    return OpGraph(ops, plain.edges)


def seen(name, kind, *step_us):
    step_ns = tuple(time_us * US for time_us in step_us)
    return RecordedOp(name=name, kind=kind, on_device=True, step_ns=step_ns)


def recording(*ops):
    return RecordedProfile(path="profile", ops=ops, anonymous_ns=0, copies={})


PROFILE = recording(
    seen("before", "MatMul", 300, 900, 200),
    seen("python", "EagerPyFunc", 400),
    seen("after", "MatMul", 200),
    seen("MatMul", "MatMul", 60),
    seen("Tanh", "Tanh", 40),
)


def test_what_python_runs_is_its_own_time_and_a_call_within_a_loop_the_loops():
    found = runs.own_op_ns(step_graph(), PROFILE, {})
    assert found == {"before": 300 * US, "python": (400 + 60 + 40) * US, "after": 200 * US}
    graph = chain("while", "after")
    inside = recording(seen("call", "PyFunc", 70), seen("after", "MatMul", 200), seen("x", "X", 5))
    found = runs.own_op_ns(graph, inside, {"while": frozenset({"call"})})
    assert found == {"while": 75 * US, "after": 200 * US}


def recorded(monkeypatch, *step_us, gpus=0):
    """Return what is made of `PROFILE` and of steps that take so long."""
    monkeypatch.setattr(runs, "gpu_count", lambda: gpus)
    monkeypatch.setattr(runs, "read_recorded", lambda folder, shares_core: PROFILE)
    steps = OwnSteps(warmup_ns=(9_000 * US,), step_ns=tuple(each * US for each in step_us))
    loader = SimpleNamespace(call=lambda *asked, time_limit_s: steps)
    subject = SimpleNamespace(
        graph=step_graph(),
        plan=plan_testbed(TestbedKind.NONE, 2),
        traced=SimpleNamespace(members={}),
        options=SimpleNamespace(source=SimpleNamespace(time_limit_s=1.0)),
    )
    return runs.record_in_own_process(subject, loader, Path("profile"), SilentProgress())


def test_op_times_launches_and_the_start_fill_the_step_that_was_timed(monkeypatch):
    prices, results = recorded(monkeypatch, 1_400, 1_500, 2_000)
    table = prices.costs["worker:1"]
    # 1.5 ms are 0.4 to start it, as assumed, 3 launches of 3 µs, as much as one may take, and ops
    # of 1 ms, which are lengthened to 1.091.
    assert prices.cluster.dispatch.step_overhead_ns == 400 * US
    assert {device.launch_overhead_ns for device in prices.cluster.devices} == {3 * US}
    assert table.time_ns("python") == pytest.approx(500 * US * 1.091, abs=1)
    assert {cost.basis for cost in table.costs.values()} == {CostBasis.MEASURED}
    assert prices.source is CostSource.RECORDED
    alone = results.outcomes["single"].measured
    assert (alone.warmup_ns, alone.step_ns) == ((9_000 * US,), (1_400 * US, 1_500 * US, 2_000 * US))
    prices, _ = recorded(monkeypatch, 1_100)
    cluster, table = prices.cluster, prices.costs["worker:0"]
    assert cluster.dispatch.step_overhead_ns == 100 * US
    assert (cluster.devices[0].launch_overhead_ns, table.time_ns("python")) == (0, 500 * US)


def test_a_plan_says_why_nothing_runs_and_nothing_is_recorded_beside_gpus_or_on_hosts(monkeypatch):
    assert recorded(monkeypatch, 1_500, gpus=2) is None
    plan = runs.own_process_plan(plan_testbed(TestbedKind.LOGICAL_CPUS, 2), CALL)
    assert plan.not_run.endswith("the process that made it; all times are assumed")
    monkeypatch.setattr(runs, "gpu_count", lambda: 0)
    plan = runs.own_process_plan(plan_testbed(TestbedKind.LOGICAL_CPUS, 2), CALL)
    assert (plan.kind, plan.slots) == (TestbedKind.NONE, ())
    assert plan.not_run == (
        "no candidate ran: `EagerPyFunc` at train.py:12 calls Python, which stays with the process "
        "that made it; op times were measured there"
    )
    with pytest.raises(ModelError, match="no host can run this step: `EagerPyFunc`"):
        runs.own_process_plan(TWO_HOSTS, CALL)


@pytest.mark.parametrize(
    ("name", "limit_s", "says", "advises"),
    [
        ("train.py", 600, "no step was seen within 600 s", "--capture-timeout"),
        ("model.keras", 20, "loading failed: loader gave no answer within 20 s", "--time-limit"),
        ("model.pb", 20, "loading failed: loader gave no answer within 20 s", "--time-limit"),
    ],
)
def test_a_script_may_run_for_the_capture_timeout_and_other_models_load_within_the_time_limit(
    tmp_path, name, limit_s, says, advises
):
    (tmp_path / name).touch()
    limits = []

    def call(*_, time_limit_s):
        limits.append(time_limit_s)
        message = f"loader gave no answer within {time_limit_s:g} s"
        return CallFailure(cause=FailureCause.TIMED_OUT, message=message)

    loader = SimpleNamespace(call=call, printed="")
    source = ModelSource(path=str(tmp_path / name), time_limit_s=20, capture_timeout_s=600)
    with pytest.raises(ModelError) as error:
        load_model(source, loader, SilentProgress())
    assert limits == [limit_s]
    told = f"{error.value.message}; {error.value.hint}"
    assert says in told
    assert advises in told
