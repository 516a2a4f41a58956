from dataclasses import replace
from functools import partial

import pytest
import sample_values
from recorded_profiles import copied
from sample_values import step_profile

from placement_advisor.analysis.analysis_result import AdviceVerdict, Candidate, TestbedSummary
from placement_advisor.analysis.predictions import bound_from
from placement_advisor.analysis.reasons import simulated_reasons
from placement_advisor.analysis.recommendation import recommend
from placement_advisor.cost.table import CostSource
from placement_advisor.graph.placement import Placement
from placement_advisor.machine.devices import Cluster, Device
from placement_advisor.measurement.measurement import (
    CandidateFailure,
    Comparison,
    FailureKind,
    Interval,
    Invariant,
    Span,
    Violation,
)
from placement_advisor.measurement.verification import Verification
from placement_advisor.simulator.schedule import Schedule, Transfer
from placement_advisor.simulator.sensitivity import CostUncertainty, PredictedRatio
from placement_advisor.solvers.lower_bounds import LowerBound

TESTBED = TestbedSummary(
    kind="workers",
    stand_in=True,
    description="2 CPU stand-ins (1 core each, gRPC)",
    cluster=Cluster(devices=(), links=()),
    fingerprint="f",
    not_run=None,
)
GPUS = replace(TESTBED, kind="gpus", stand_in=False, description="2 GPUs")
NOT_RUN = replace(TESTBED, not_run="not run (--no-run)")
MS = 1_000_000
DOUBT = CostUncertainty(copies=2.0, launches=2.0, ops=1.1)


def measurement(step_ms, profile=None):
    return sample_values.measurement(((round(step_ms * MS),),) * 20, profile=profile)


def schedule(step_ms):
    return Schedule(
        label="x",
        runs=(),
        transfers=(),
        step_ns=round(step_ms * MS),
        compute_ns={"w0": 2 * MS, "w1": MS},
        exposed_by_device={},
        peak_memory={},
    )


def simulated(name, low, ratio, high):
    """A candidate that was simulated, with the ends of its ratio to single."""
    predicted = PredictedRatio(ratio=ratio, low=low, high=high, doubt=DOUBT)
    return replace(candidate(name, predicted=10 * ratio), predicted_ratio=predicted)


def candidate(name, *, ms=None, ratio=None, rounds=20, predicted=None, failure=None, profile=None):
    """A candidate; ``ratio`` is (median, low, high) of its step time over single's."""
    comparison = ratio and Comparison(
        baseline="single",
        ratio=Interval(median=ratio[0], low=ratio[1], high=ratio[2]),
        rounds=rounds,
    )
    return Candidate(
        name=name,
        family=name,
        rationale="",
        predicted=schedule(predicted) if predicted is not None else None,
        measured=measurement(ms, profile) if ms is not None else None,
        comparison=comparison,
        failure=failure and CandidateFailure(kind=failure, message="what happened"),
    )


SINGLE, ALONE = candidate("single", ms=10), candidate("single", predicted=10)
LOSING = candidate("towers", ms=12, ratio=(1.2, 1.1, 1.3))
FAST = candidate("towers", ms=7, ratio=(0.7, 0.68, 0.72))
SLOW = candidate("towers", ms=12, ratio=(1.25, 1.2, 1.3))
SLOWEST = candidate("alternating", ms=16, ratio=(1.6, 1.5, 1.7))
UNSURE = candidate("towers", ms=9.9, ratio=(0.99, 0.93, 1.05))
ABSENT = candidate("towers", failure=FailureKind.NOT_APPLICABLE)
CRASHED = candidate("alternating", failure=FailureKind.CRASHED)


def briefly(name, ratio):
    found = candidate(name, ms=10 * ratio[0], ratio=ratio, rounds=8)
    return replace(found, comparison=replace(found.comparison, is_brief=True))


def spread(name, predicted, *devices):
    """Return a candidate with an op on each of the devices."""
    device_of = {f"op{i}": device for i, device in enumerate(devices)}
    placed = Placement(label=name, family=name, device_of=device_of, rationale="")
    return replace(candidate(name, predicted=predicted), placement=placed)


def bound(split_ns, *, source=CostSource.MEASURED, if_wrong=0.975):
    reason = "critical path: 2 ops need one another in turn"
    lower = LowerBound(split_ns=split_ns, alone_ns={"w0": 10 * MS}, reason=reason)
    found = bound_from(lower, 10 * MS, source, DOUBT, None)
    return bound_from(lower, 10 * MS, source, DOUBT, if_wrong) if found.proves_single else found


def unsure(median, low, high):
    return candidate("towers", ms=9, ratio=(median, low, high))


def in_rounds(split, rounds):
    """Return a split that took these times."""
    return replace(split, measured=replace(split.measured, rounds=tuple(rounds)))


SPLIT, STAY = AdviceVerdict.SPLIT, AdviceVerdict.STAY_SINGLE
OPEN, UNFITTING = AdviceVerdict.CANNOT_TELL, AdviceVerdict.CANNOT_FIT
SHORT = CandidateFailure(kind=FailureKind.DOES_NOT_FIT, message="on w0 the step holds 3 GB")
UNFIT = replace(ALONE, failure=SHORT)
OFF = CandidateFailure(kind=FailureKind.WRONG_RESULT, message="off by 2")
ELSEWHERE = replace(
    GPUS, kind="none", description="2xA100 (assumed)", not_run="predicted for devices not here"
)
BATCH = replace(candidate("batch", ms=5, ratio=(1.1, 1.0, 1.2)), samples=(16, 16))
# On two cards that are not here, with ranges of speed-ups: 1.19 to 2.27, and 0.89 to 3.06.
GOOD_SURELY = simulated("towers", 0.44, 0.65, 0.84)
UNTOLD = simulated("searched", 0.33, 0.41, 1.12)
BAD, GOOD = simulated("alternating", 1.2, 1.6, 2.0), simulated("towers", 1.2, 1.6, 2.0)
PIPELINE = candidate("pipeline", ms=12, ratio=(1.2, 1.1, 1.3))
BRIEF = [briefly("alternating", ratio) for ratio in ((1.1, 0.9, 1.3), (1.6, 1.5, 1.7))]
NOISY = [163 * MS, 163 * MS, 163 * MS, 5 * MS] * 5
SLOW_MINUTES = [1, 1, 4, 9, 3] * 4
IN_SLOW_MINUTES = in_rounds(FAST, ((7 * MS * slow,) * 4 for slow in SLOW_MINUTES))
ASSUMED = partial(bound, 9_800_000, source=CostSource.ASSUMED)
BEST = "stay single: best split is towers at 0.80× (95 % interval 0.77–0.83), measured on 2"
NO_BETTER = "does not beat the step as it is"
UNMEASURED = "no split was measured to compare with single"
QUIET = "a quieter machine would settle it"
REAL_RUN = "; a real run would settle it"
ON_SUCH = "; a run on such devices would settle it"
RECORDING = f"{ON_SUCH}, a profile recorded there (--costs) may"
NOT_HERE = "stand-ins do not tell how fast this machine is"
OWN = f"{NOT_HERE}: as-is on all cores"
WHOLE = "no placement that leaves the batch whole can save more than"
RECORDED = bound(5, source=CostSource.RECORDED)
AS_IS_IN_SLOW_MINUTES = [8 * MS * slow for slow in SLOW_MINUTES for _ in range(2)]
SLOWER = simulated("pipeline", 0.5, 0.7, 0.8)
TOO_LARGE = replace(spread("towers", 6, "w0", "w1"), failure=SHORT)
ASSUMING = ([ALONE], [ALONE, BAD])


def case(verdict, says, *tried, on=TESTBED, as_is=None, proof=None, winner=None):
    return pytest.param(tried, on, as_is, proof, verdict, winner, says)


@pytest.mark.parametrize(
    ("tried", "testbed", "as_is", "proof", "verdict", "winner", "says"),
    [
        case(STAY, BEST, SINGLE, SLOW, SLOWEST, winner="towers"),
        # The interval reaches 0.06 from the median, the margin is 0.02 away: 20 * 3 * 3 rounds,
        # 20 of which have run.
        case(OPEN, f"(--resume --rounds 160) or {QUIET}", SINGLE, UNSURE, SLOWEST, winner="towers"),
        case(OPEN, f"only {QUIET}", SINGLE, unsure(0.971, 0.9, 1.0)),
        case(OPEN, f"only {QUIET}", SINGLE, unsure(0.97, 0.9, 1.0)),
        case(OPEN, f"(--resume --rounds 20) or {QUIET}", SINGLE, unsure(0.95, 0.93, 0.97)),
        # What ran briefly leaves nothing in doubt.
        *(case(STAY, "", SINGLE, SLOW, each, winner="towers") for each in BRIEF),
        case(OPEN, "cannot tell: single has no measurement", candidate("single"), FAST),
        case(OPEN, "single has no measurement", replace(SINGLE, failure=CRASHED.failure), FAST),
        case(STAY, "", SINGLE, replace(FAST, failure=OFF), SLOWEST, PIPELINE, winner="pipeline"),
        # Finding nothing to split does not show that no split helps.
        case(OPEN, "cannot tell: no split of this graph was found to try", SINGLE, ABSENT),
        case(OPEN, UNMEASURED, SINGLE),
        case(OPEN, UNMEASURED, SINGLE, CRASHED),
        case(OPEN, UNMEASURED, SINGLE, ABSENT, CRASHED),
        # That a split loses which is bad on purpose is no ground to stay, simulated or not.
        case(OPEN, "", ALONE, BAD, on=NOT_RUN),
        case(STAY, "", ALONE, BAD, GOOD, on=NOT_RUN),
        # On real devices a split must beat the step as it is, within rounds.
        case(SPLIT, "", SINGLE, FAST, on=GPUS, as_is=[7_250_000] * 20, winner="towers"),
        case(STAY, NO_BETTER, SINGLE, FAST, on=GPUS, as_is=[7_200_000] * 20),
        case(OPEN, "", SINGLE, FAST, on=GPUS, as_is=[5 * MS, 9 * MS] * 10),
        case(SPLIT, "", SINGLE, IN_SLOW_MINUTES, on=GPUS, as_is=AS_IS_IN_SLOW_MINUTES),
        # In some rounds the split takes longer, so that the interval of their ratio has 1 in it.
        case(SPLIT, f"gRPC); {OWN} 163 ms", SINGLE, FAST, as_is=NOISY),
        case(STAY, f"; {OWN} 1.00 ms", SINGLE, SLOW, as_is=[MS] * 9),
        # Of simulated splits that are surely worth it the fastest is the answer.
        case(SPLIT, "", ALONE, UNTOLD, SLOWER, GOOD_SURELY, on=NOT_RUN, winner="towers"),
        case(OPEN, RECORDING, ALONE, UNTOLD, on=ELSEWHERE),
        case(OPEN, ON_SUCH, ALONE, UNTOLD, on=ELSEWHERE, proof=RECORDED),
        case(OPEN, REAL_RUN, ALONE, UNTOLD, on=NOT_RUN, winner="searched"),
        case(OPEN, REAL_RUN, ALONE, UNTOLD, on=replace(GPUS, not_run="not run")),
        case(STAY, f"proved ({WHOLE} 2 %", SINGLE, LOSING, BATCH, proof=bound(9_800_000)),
        case(
            STAY,
            "stay single, proved (no placement can save more than 1 %, 3 % if costs are as wrong "
            "as they may be): no split was tried",
            *(SINGLE, ABSENT),
            proof=bound(9_900_000),
        ),
        # Ranges of simulated ratios must survive costs as wrong as they may be; so must a proof.
        *(case(STAY, "", *tried, on=NOT_RUN, proof=ASSUMED(if_wrong=0.98)) for tried in ASSUMING),
        *(case(OPEN, "", *tried, on=NOT_RUN, proof=ASSUMED(if_wrong=0.9)) for tried in ASSUMING),
        # A measured split that wins outweighs a proof.
        case(SPLIT, "", SINGLE, FAST, proof=bound(9_900_000), winner="towers"),
        case(UNFITTING, "no split was found that fits", UNFIT, TOO_LARGE, on=NOT_RUN),
        case(OPEN, "share their cores", SINGLE, FAST, on=replace(TESTBED, kind="logical-cpus")),
    ],
)
def test_the_verdict_follows_from_what_ran_or_was_simulated(
    tried, testbed, as_is, proof, verdict, winner, says
):
    answer = recommend(tried, testbed, as_is, proof)
    assert answer.verdict is verdict
    assert winner in (None, answer.candidate)
    assert says in answer.headline


def test_a_split_whose_whole_interval_is_under_the_margin_wins():
    answer = recommend([SINGLE, FAST, SLOWEST], TESTBED, [12_300_000])
    assert answer.verdict is SPLIT
    assert (answer.candidate, answer.basis) == ("towers", "measured")
    assert answer.caveat == f"{OWN} 12.3 ms"
    assert answer.headline == (
        "split: towers, 1.43× (95 % interval 1.39–1.47), "
        f"measured on 2 CPU stand-ins (1 core each, gRPC); {answer.caveat}, towers 7.00 ms"
    )
    assert answer.speedup == Interval(median=1 / 0.7, low=1 / 0.72, high=1 / 0.68)


@pytest.mark.parametrize("other", [FAST, SLOW, UNSURE])
def test_what_ran_briefly_is_no_answer_however_fast(other):
    answer = recommend([SINGLE, other, briefly("alternating", (0.5, 0.4, 0.6))], TESTBED, None)
    assert answer.candidate == "towers"
    assert answer.verdict is not STAY
    if other is SLOW:
        assert answer.deciding[0] == (
            "alternating came out at 2.00× (95 % interval 1.67–2.50), in 8 rounds that do not "
            "decide: name it in --candidates to have it compared"
        )


def test_a_crash_leaves_the_verdict_of_the_others_and_a_reason_why_nothing_ran_comes_first():
    answer = recommend([SINGLE, SLOW, CRASHED], TESTBED, None)
    assert answer.verdict is STAY
    assert "alternating: crashed: what happened; the answer does not cover it" in answer.reasons
    idle = replace(TESTBED, not_run="only 2 cores")
    answer = recommend([ALONE, candidate("towers", predicted=5)], idle, None)
    assert answer.headline.endswith("not run")
    assert answer.reasons[0] == "only 2 cores"


WORSE = replace(SLOWEST, name="alternating-ops", family="alternating-ops")


@pytest.mark.parametrize("others", [[ABSENT], [replace(CRASHED, name="towers", family="towers")]])
def test_that_splits_lose_which_are_bad_on_purpose_is_no_ground_to_stay(others):
    answer = recommend([SINGLE, *others, SLOWEST], TESTBED, None)
    assert answer.verdict is OPEN
    assert answer.headline.startswith("cannot tell: alternating at 0.62×")
    assert answer.headline.endswith("; no split was tried but those that are bad on purpose")
    assert answer.reasons[0].startswith(
        "the only split tried is alternating, bad on purpose: that it loses does"
    )
    answer = recommend([SINGLE, *others, SLOWEST, WORSE], TESTBED, None)
    assert answer.reasons[0].startswith(
        "the only splits tried are alternating and alternating-ops, bad on purpose"
    )


def test_of_a_step_that_calls_python_splits_are_simulated_beside_a_measured_device():
    alone = candidate("single", ms=10, predicted=10)
    unsure = simulated("towers", 0.8, 0.95, 1.1)
    answer = recommend([alone, unsure], NOT_RUN, None, calls_python=True)
    assert (answer.verdict, answer.basis) == (OPEN, "simulated")
    assert answer.speedup is None
    assert answer.answer.endswith("; a step without Python could run, which would settle it")
    sure = simulated("towers", 0.5, 0.6, 0.7)
    answer = recommend([alone, sure], NOT_RUN, None, calls_python=True)
    assert (answer.verdict, answer.basis) == (SPLIT, "simulated")


def test_of_a_proof_it_is_said_how_sure_it_is_and_a_better_measurement_refutes_it():
    answer = recommend([SINGLE, ABSENT, SLOWEST], TESTBED, None, bound(9_900_000))
    assert answer.verdict is STAY
    assert answer.reasons[0] == "the only split tried is alternating, bad on purpose"
    alone = candidate("single", ms=9.7, ratio=None)
    answer = recommend([alone, LOSING], TESTBED, None, bound(9_800_000))
    assert answer.headline.startswith("stay single, proved")
    (told,) = (reason for reason in answer.reasons if reason.startswith("bound"))
    assert told.startswith(
        "bound (simulated, too high: single ran faster; no split refutes what it says of the gain):"
    )
    proved = recommend([SINGLE, LOSING], TESTBED, None, bound(9_800_000))
    assert any("critical path: 2 ops need one another" in reason for reason in proved.reasons)
    open_to_gain = recommend([SINGLE, LOSING], TESTBED, None, bound(9_600_000))
    assert open_to_gain.verdict is STAY
    assert "proved" not in open_to_gain.headline
    assert any("at most 4 % to gain" in reason for reason in open_to_gain.reasons)
    better = candidate("towers", ms=9.75, ratio=(0.975, 0.971, 0.98))
    answer = recommend([SINGLE, better], TESTBED, None, bound(9_800_000))
    assert answer.verdict is STAY
    assert answer.headline.startswith("stay single: ")
    too_high = "bound (simulated, too high: towers ran faster"
    assert any(reason.startswith(f"{too_high}):") for reason in answer.reasons)
    as_fast = candidate("towers", ms=9.9, ratio=(0.985, 0.98, 0.99))
    answer = recommend([SINGLE, as_fast], TESTBED, None, bound(9_800_000))
    assert answer.headline.startswith("stay single, proved")


def test_medians_that_seem_to_contradict_speedups_are_explained_once():
    # Half of the rounds were slow, more of those in which only towers ran well.
    faster = candidate("towers", ms=8, ratio=(0.7, 0.68, 0.72))
    slower = candidate("pipeline", ms=7, ratio=(0.8, 0.78, 0.82))
    answer = recommend([SINGLE, faster, slower], TESTBED, None)
    (told,) = (reason for reason in answer.reasons if reason.startswith("the ratios of rounds"))
    assert told.startswith(
        "the ratios of rounds decide: they put towers ahead. The medians of all steps differ "
        "(towers 8.00 ms, pipeline 7.00 ms)"
    )
    beside_single = candidate("towers", ms=9.5, ratio=(1.02, 1.0, 1.05))
    answer = recommend([SINGLE, beside_single], TESTBED, None)
    assert any("(single 10.0 ms, towers 9.50 ms)" in told for told in answer.reasons)
    # In the order of speed-ups they need no word.
    answer = recommend([SINGLE, FAST, SLOWEST], TESTBED, None)
    assert not any(reason.startswith("the ratios of rounds") for reason in answer.reasons)


@pytest.mark.parametrize(
    ("towers", "alternating", "verdict"),
    [
        ((0.6, 0.7, 0.96), (1.2, 1.6, 2.0), SPLIT),
        ((0.6, 0.7, 0.97), (1.2, 1.6, 2.0), OPEN),
        ((0.97, 1.1, 1.4), (1.2, 1.6, 2.0), OPEN),
        ((0.98, 1.1, 1.4), (0.9, 1.6, 2.0), OPEN),
        ((0.98, 1.1, 1.4), (1.2, 1.6, 2.0), STAY),
        ((1.2, 1.6, 2.0), (0.6, 0.7, 0.96), SPLIT),
    ],
)
def test_a_simulated_verdict_survives_costs_as_wrong_as_they_may_be(towers, alternating, verdict):
    splits = simulated("towers", *towers), simulated("alternating", *alternating)
    answer = recommend([ALONE, *splits], NOT_RUN, None)
    assert answer.verdict is verdict
    assert (answer.basis, answer.speedup) == ("simulated", None)
    assert answer.candidate == ("towers" if towers[1] < alternating[1] else "alternating")
    assert "simulated for 2 CPU stand-ins" in answer.headline
    assert "measured" not in answer.headline
    says = "the verdict changes if copies and launches are up to 2× off, and a split's ops "
    assert any(r.startswith(says) for r in answer.reasons) == (verdict is OPEN)


def test_a_split_that_is_surely_worth_it_decides_though_another_is_predicted_faster_unsurely():
    answer = recommend([ALONE, GOOD_SURELY, UNTOLD], ELSEWHERE, None)
    assert (answer.verdict, answer.candidate) == (SPLIT, "towers")
    assert answer.answer == "split: towers, 1.54×"
    says = (
        "searched is predicted faster, 2.44×, but may be as slow as "
        "0.89× with the largest errors in costs: it is not surely worth it"
    )
    assert answer.deciding[0] == says
    assert says in answer.reasons


def total(source, target, count, size_bytes, time_ms, exposed_ms):
    found = copied(source, target, size_bytes, time_ms * MS, exposed_ms * MS)
    return replace(found, count=count)


def profile(step_ms, compute_ms, exposed_ms, transfers=None, timeline=()):
    """A profile of 10 steps on two devices, with copies from the first to the second."""
    return step_profile(
        *(step_ms * MS,) * 10,
        compute_ns={"w0": compute_ms[0] * MS, "w1": compute_ms[1] * MS},
        exposed_by_device={"w0": exposed_ms[0] * MS, "w1": exposed_ms[1] * MS},
        transfers=(total("w0", "w1", 6, 8, 1, 1),) if transfers is None else transfers,
        timeline=timeline,
    )


PROFILED = replace(SINGLE, measured=measurement(10, profile(10, (9, 0), (0, 0), ())))
# While w1 computes it does not wait for the longer copy, and never for what is on its way to w0.
RAN = [("w1", "op", 2, 6), ("w0 → w1", "large:0", 1, 6), ("w0 → w1", "small:0", 6, 9)]
SPANS = [
    Span(lane=lane, name=name, start_ns=start, end_ns=end, is_copy=name != "op")
    for lane, name, start, end in (*RAN, ("w1 → w0", "back:0", 0, 16))
]
WAITING = replace(SLOW, measured=measurement(12, profile(16, (5, 3), (2, 4), timeline=SPANS)))


def test_what_decides_is_where_the_steps_go_and_what_none_can_beat():
    answer = recommend([PROFILED, WAITING, CRASHED], TESTBED, None, bound(6 * MS))
    assert answer.deciding == (
        "towers: w1 waits 4.00 ms for copies, 25 % of its step (profiled), longest for small:0",
        "towers: w0 computes for 5.00 ms a step, single for 9.00 ms (profiled)",
        "no placement of these ops takes less than 6.00 ms; single takes 10.0 ms (simulated)",
    )
    # Why another one has no result stands under the table, and among all reasons.
    unbound = recommend([PROFILED, WAITING, CRASHED], TESTBED, None)
    assert unbound.deciding == answer.deciding[:2]
    assert any(reason.startswith("alternating: crashed") for reason in unbound.reasons)


@pytest.mark.parametrize(
    ("also", "as_is", "binds"),
    [
        ([], None, True),
        ([BATCH], None, False),  # It is of other ops.
        ([replace(BATCH, measured=None, comparison=None, predicted=schedule(20))], None, False),
        ([candidate("pipeline", ms=5.9, ratio=(1.1, 1.0, 1.2))], None, False),
        ([candidate("pipeline", ms=6.1, ratio=(1.1, 1.0, 1.2))], None, True),
        ([], [5 * MS] * 20, False),  # It has all of the machine.
        ([], [7 * MS] * 20, True),
        ([ABSENT], None, True),
    ],
)
def test_a_bound_is_told_as_one_of_all_only_where_nothing_shown_is_beyond_it(also, as_is, binds):
    answer = recommend([PROFILED, WAITING, *also], TESTBED, as_is, bound(6 * MS))
    everywhere = [*answer.deciding, *answer.reasons]
    assert any("no placement of these ops takes less" in text for text in everywhere) is binds
    (told,) = (reason for reason in answer.reasons if reason.startswith("bound"))
    if BATCH.name in [each.name for each in also]:
        assert "no placement that leaves the batch whole can take less than 6.00 ms" in told
        assert told.endswith("; batch splits the batch, which makes other ops")
    assert told.startswith("bound (simulated, too high: pipeline ran faster; no ") is (
        any(c.measured and c.samples is None and c.measured.step_ns[0] < 6 * MS for c in also)
    )


def test_that_a_family_does_not_apply_decides_only_where_there_is_no_split():
    absent = replace(ABSENT, name="variables-on-host")
    answer = recommend([PROFILED, WAITING, absent], TESTBED, None)
    assert not any("not applicable" in reason for reason in answer.deciding)
    assert any(reason.startswith("variables-on-host") for reason in answer.reasons + answer.others)
    answer = recommend([PROFILED, absent], TESTBED, None)
    assert answer.deciding == ("variables-on-host: not applicable: what happened",)


def test_a_simulated_answer_rests_on_simulated_figures_after_what_it_doubts():
    unsure = simulated("towers", 0.6, 0.7, 1.2)
    doubt, copies, compute = recommend([ALONE, unsure], NOT_RUN, None, bound(6 * MS)).deciding
    assert doubt.startswith("the verdict changes if copies and launches are up to 2× off")
    assert copies == "towers: no copies (simulated)"
    assert compute == "towers: w0 computes for 2.00 ms a step, single for 2.00 ms (simulated)"


def test_nothing_is_concluded_from_a_profile_that_breaks_a_law():
    law = Violation(law=Invariant.DEVICE_WITHIN_STEP, what="w0 is busy for 9 ms of 5 ms")
    broken = replace(WAITING, broken_laws=(law,))
    answer = recommend([PROFILED, broken], TESTBED, None)
    told = "towers: w0 is busy for 9 ms of 5 ms, which is impossible: "
    assert answer.deciding == (f"{told}its profile says nothing",)
    assert f"{told}its profile counts for nothing" in answer.reasons
    assert not any("copies" in reason for reason in answer.reasons)


def test_the_answer_leaves_out_the_devices_and_the_caveat_stands_apart():
    answer = recommend([SINGLE, FAST], GPUS, [9 * MS] * 20)
    assert answer.answer == "split: towers, 1.43× (95 % interval 1.39–1.47)"
    assert answer.caveat is None
    assert answer.headline.endswith("; as-is 9.00 ms, towers 7.00 ms")
    assert recommend([ALONE, UNTOLD], NOT_RUN, None).caveat == NOT_HERE


def test_where_one_device_does_not_hold_the_step_the_smallest_split_that_fits_is_the_answer():
    wide, narrow = spread("pipeline", 4, "w0", "w1", "w2"), spread("towers", 6, "w0", "w1")
    slow = spread("alternating", 9, "w0", "w1")
    answer = recommend([UNFIT, wide, slow, narrow], NOT_RUN, None)
    assert (answer.verdict, answer.candidate) == (UNFITTING, "towers")
    assert "the smallest split that fits is towers on 2 devices, 6.00 ms" in answer.headline
    assert "on w0 the step holds 3 GB" in answer.reasons


@pytest.mark.parametrize(
    ("source", "if_wrong", "proved"),
    [
        (CostSource.MEASURED, 0.98, "proved"),
        (CostSource.MEASURED, 0.89, "proved for costs exactly as measured"),
        (CostSource.ASSUMED, 0.98, "proved for assumed costs"),
        (CostSource.ASSUMED, 0.5, "proved for costs exactly as assumed"),
        (CostSource.RECORDED, 0.98, "proved for recorded costs"),
    ],
)
def test_what_is_proved_is_said_with_the_costs_that_it_is_proved_for(source, if_wrong, proved):
    proof = bound(9_800_000, source=source, if_wrong=if_wrong)
    if source is CostSource.MEASURED:
        answer = recommend([SINGLE, LOSING], TESTBED, None, proof)
    else:
        answer = recommend([ALONE, GOOD], NOT_RUN, None, proof)
    wrong = {0.98: "", 0.89: ", 11 %", 0.5: ", 50 %"}[if_wrong]
    most = f"2 %{wrong} if costs are as wrong as they may be" if wrong else "2 %"
    assert answer.headline.startswith(
        f"stay single, {proved} (no placement can save more than {most}): best split is towers at "
    )
    (told,) = (reason for reason in answer.reasons if reason.startswith("bound"))
    held = "that holds" if if_wrong > 0.97 else "that is not proved"
    assert f"{held} if copies and launches are up to 2× off" in told


def test_a_prediction_on_the_other_side_of_the_worthwhile_ratio_is_said_to_count_for_nothing():
    doubtful = PredictedRatio(ratio=0.8, low=0.7, high=0.9, doubt=DOUBT)
    slow = replace(LOSING, predicted=schedule(8))
    answer = recommend([SINGLE, replace(slow, predicted_ratio=doubtful)], TESTBED, None)
    assert answer.verdict is STAY
    assert any("rests on the measurement alone" in reason for reason in answer.reasons)
    says = "towers was simulated at 1.25×: the answer rests on the measurement alone"
    assert says in answer.deciding
    right = replace(doubtful, ratio=1.1)
    answer = recommend([SINGLE, replace(slow, predicted_ratio=right)], TESTBED, None)
    assert not any("rests on the measurement alone" in reason for reason in answer.reasons)


def test_a_copy_of_unknown_size_is_not_told_as_nothing():
    split = copying(simulated("towers", 0.4, 0.5, 0.6), 1, size_bytes=None, time_ns=MS)
    assert any("; 1 copy per step, ?, 1.00 ms" in line for line in simulated_reasons(split, ALONE))


def test_reasons_set_copies_against_compute_and_prediction_against_measurement():
    copies = (total("w0", "w1", 4, 900_000, 5, 3), total("w1", "w0", 3, 100_000, 2, 1))
    split = profile(12, (6, 4), (1, 3), copies)
    slow = candidate("towers", ms=12, ratio=(1.2, 1.1, 1.3), predicted=9, profile=split)
    answer = recommend([PROFILED, slow], TESTBED, None)
    assert answer.reasons == (
        "towers is 0.83× as fast as single (95 % interval 0.77–0.91, 20 rounds): "
        "a split is worth it above 1.03×",
        "towers: 7 copies per step carry 1.00 MB in 7.00 ms; w1 has nothing to compute during "
        "3.00 ms of it (25 % of the step); compute: 6.00 ms on w0, 4.00 ms on w1",
        "if copies were free, towers would still need at least the 6.00 ms that w0 computes; "
        "single computes for 9.00 ms",
        "towers: predicted 9.00 ms, measured 12.0 ms: the prediction is 25 % too low",
    )


def test_reasons_are_about_the_answer_and_what_broke_and_the_rest_is_beside():
    absent = replace(ABSENT, name="searched")
    crashed = replace(CRASHED, name="pipeline")
    answer = recommend([SINGLE, FAST, SLOWEST, absent, crashed], TESTBED, None)
    assert answer.candidate == "towers"
    assert any(reason.startswith("pipeline: crashed") for reason in answer.reasons)
    assert not any("alternating" in reason for reason in answer.reasons)
    assert any(reason.startswith("alternating is 0.62× as fast") for reason in answer.others)
    assert any(reason.startswith("searched: not applicable") for reason in answer.others)


def test_faster_devices_and_ops_that_ran_elsewhere_are_named():
    cpu = replace(candidate("single-cpu", predicted=5), family="single")
    answer = recommend([ALONE, cpu, simulated("towers", 1.1, 1.2, 1.3)], NOT_RUN, None)
    assert any(r.startswith("single-cpu is 2.00× as fast as single") for r in answer.reasons)
    slow = replace(candidate("single-cpu", predicted=12), family="single")
    answer = recommend([ALONE, slow, simulated("towers", 1.1, 1.2, 1.3)], NOT_RUN, None)
    assert not any("single-cpu" in reason for reason in answer.reasons)
    moved = replace(FAST, measured=replace(FAST.measured, moved_ops=("a", "b")))
    answer = recommend([SINGLE, moved], TESTBED, None)
    assert any("ran 2 ops elsewhere than planned, 'a' among them" in r for r in answer.reasons)
    assert not any("elsewhere" in r for r in recommend([SINGLE, FAST], TESTBED, None).reasons)


def test_a_floor_above_the_step_itself_is_not_shown():
    for compute_ms, is_shown in ((11, True), (13, False)):
        split = profile(14, (compute_ms, 0), (0, 0), ())
        split = candidate("towers", ms=12, ratio=(1.2, 1.1, 1.3), profile=split)
        reasons = recommend([PROFILED, split], TESTBED, None).reasons
        assert any("if copies were free" in reason for reason in reasons) is is_shown


def test_a_split_with_unverified_updates_is_never_recommended():
    fast = candidate("towers", ms=6, ratio=(0.6, 0.55, 0.65))
    found = Verification(steps=4, variables=5, unverified=("w", "v", "u", "t"))
    unverified = replace(fast, measured=replace(fast.measured, verification=found))
    slower = candidate("alternating", ms=8, ratio=(0.8, 0.75, 0.85))
    assert recommend([SINGLE, fast, slower], TESTBED, None).candidate == "towers"
    answer = recommend([SINGLE, unverified, slower], TESTBED, None)
    assert answer.candidate == "alternating"
    says = "towers: unverified: a mistake in what it adds to 'w', 'v', 'u' and 1 more"
    assert any(reason.startswith(says) for reason in (*answer.reasons, *answer.others))
    alone = recommend([SINGLE, unverified], TESTBED, None)
    assert (alone.verdict, alone.candidate) == (OPEN, None)


def noisy(name, ms, **facts):
    """A candidate that is surely faster than single, by rounds that differ by a tenth."""
    rounds = ((round(ms * (1 + (n % 5) / 50) * MS),) for n in range(20))
    fast = candidate(name, ms=ms, ratio=(ms / 10, ms / 10 - 0.05, ms / 10 + 0.05))
    return replace(in_rounds(fast, rounds), **facts)


def shuffled(split):
    """The same times, in other rounds."""
    return in_rounds(split, reversed(split.measured.rounds))


def copying(split, count, source="w0", size_bytes=8, time_ns=1):
    what = {"port": 0, "source": source, "target": "w1", "size_bytes": size_bytes}
    copies = tuple(
        Transfer(producer=f"op{n}", start_ns=n, end_ns=n + time_ns, **what) for n in range(count)
    )
    predicted = split.predicted or schedule(5)
    waits = {"w0": 0, "w1": MS}
    return replace(split, predicted=replace(predicted, transfers=copies, exposed_by_device=waits))


def test_of_splits_that_rounds_do_not_tell_apart_the_one_with_whole_layers_is_the_answer():
    searched = noisy("searched", 6.9, torn_layers=2)
    towers = shuffled(noisy("towers", 7.0))
    answer = recommend([SINGLE, searched, towers], TESTBED, None)
    assert answer.candidate == "towers"
    assert answer.speedup == towers.comparison.speedup
    assert answer.deciding[0] == (
        "searched at 1.45× is not surely faster than towers, and more complicated: it tears 2 "
        "layers against 0"
    )
    # In the same rounds one wins each time.
    sure = replace(searched, measured=noisy("searched", 6.0).measured)
    towers = noisy("towers", 7.0)
    assert recommend([SINGLE, sure, towers], TESTBED, None).candidate == "searched"


def test_a_simpler_split_that_does_not_beat_the_step_as_it_is_is_no_answer():
    searched = noisy("searched", 6.0, torn_layers=1)
    towers = in_rounds(noisy("towers", 7.0), [(5_000_000,), (9_000_000,)] * 10)
    as_is = [7_000_000] * 20
    assert recommend([SINGLE, searched, towers], TESTBED, as_is).candidate == "towers"
    assert recommend([SINGLE, searched, towers], GPUS, as_is).candidate == "searched"


def test_of_two_splits_alike_in_all_else_the_one_that_a_rule_made_is_the_answer():
    because = (
        "searched at {} is not surely faster than towers, and more complicated: it was found by a "
        "search, and follows no rule"
    )
    searched = copying(simulated("searched", 0.5, 0.684, 0.8), 3)
    towers = copying(simulated("towers", 0.5, 0.685, 0.8), 3)
    for order in ([searched, towers], [towers, searched]):
        answer = recommend([ALONE, *order], NOT_RUN, None)
        assert answer.candidate == "towers"
        assert answer.deciding[0] == because.format("1.46×")
    searched = copying(noisy("searched", 6.9), 3)
    towers = shuffled(copying(noisy("towers", 7.0), 3))
    answer = recommend([SINGLE, searched, towers], TESTBED, None)
    assert answer.candidate == "towers"
    assert answer.deciding[0] == because.format("1.45×")


def test_a_split_that_is_bad_on_purpose_is_the_answer_only_where_it_surely_beats_all_others():
    alternating = simulated("alternating", 0.4, 0.5, 0.6)
    searched = replace(simulated("searched", 0.45, 0.55, 0.65), torn_layers=5)
    faster = replace(simulated("searched", 0.3, 0.45, 0.65), torn_layers=5)
    assert recommend([ALONE, alternating, faster], NOT_RUN, None).candidate == "searched"
    answer = recommend([ALONE, alternating, searched], NOT_RUN, None)
    assert answer.candidate == "searched"
    assert answer.deciding[0] == (
        "alternating at 2.00× is not surely faster than searched, and more complicated: it is "
        "a bad layout on purpose"
    )
    towers = copying(simulated("towers", 0.5, 0.6, 0.65), 1)
    answer = recommend([ALONE, alternating, searched, towers], NOT_RUN, None)
    assert answer.candidate == "towers"
    assert answer.deciding[0] == (
        "alternating at 2.00× and searched at 1.82× are not surely faster than towers, and more "
        "complicated: alternating is a bad layout on purpose, searched tears 5 layers against 0"
    )
    slower = replace(searched, predicted_ratio=simulated("", 0.61, 0.7, 0.8).predicted_ratio)
    assert recommend([ALONE, alternating, slower], NOT_RUN, None).candidate == "alternating"


def test_simple_is_first_whole_layers_then_no_host_then_few_copies_and_a_split_batch_most_of_all():
    host = Device(name="h", kind="CPU")
    hosts = replace(NOT_RUN, cluster=Cluster(devices=(), links=(), hosts=(host,)))
    few = copying(simulated("few", 0.4, 0.5, 0.6), 2, source="h")
    many = copying(simulated("many", 0.45, 0.55, 0.65), 9)
    more = copying(simulated("more", 0.3, 0.4, 0.5), 10)
    answer = recommend([ALONE, few, more, many], hosts, None)
    assert answer.candidate == "many"
    assert answer.deciding[0].endswith(
        "more copies 10 tensors against 9, few copies 2 tensors over the host against 0"
    )
    answer = recommend([ALONE, few, many], hosts, None)
    assert answer.candidate == "many"
    assert answer.deciding[0].endswith("it copies 2 tensors over the host against 0")
    batch = replace(copying(simulated("batch", 0.46, 0.56, 0.66), 300), samples=(8, 8))
    assert recommend([ALONE, few, many, batch], hosts, None).candidate == "batch"
