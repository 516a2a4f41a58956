from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_analysis import OPTIONS

from placement_advisor import defaults
from placement_advisor.analysis.analysis_result import NextRun
from placement_advisor.analysis.options import effort_of
from placement_advisor.analysis.progress import (
    AnalysisProgress,
    ProgressFacts,
    SilentListener,
    Stage,
    TimeAhead,
    initial_facts,
    rerun_estimate,
    rounds_left,
    time_after_rounds,
    time_ahead,
    time_ahead_in_rounds,
    usual_stage_s,
)
from placement_advisor.analysis.verdict import (
    ELSEWHERE,
    QUIETER_MACHINE,
    REAL_RUN,
    RECORDED_ELSEWHERE,
    WITHOUT_PYTHON,
    RerunEstimate,
    more_rounds,
    next_experiment_text,
    next_run,
)
from placement_advisor.defaults import TIMING_BUDGET_S
from placement_advisor.measurement.measurement import least_samples

MS = 1_000_000
RUNS = ProgressFacts(
    is_run=True,
    is_calibrated=True,
    effort=5.0,
    searches=2,
    splits=1,
    joining=2,
    rounds=None,
    steps=4,
    steps_ns=(15 * MS,) * 8,
)
OF_A_RUN = (Stage.CALIBRATE, Stage.MEASURE, Stage.PREPARE, Stage.RUN, Stage.PROFILE)
PREDICTED = replace(RUNS, is_run=False)
LEAST = least_samples(len(RUNS.steps_ns) - 1)


def test_runs_calibration_and_joining_take_time_only_where_there_are_any():
    none, two = (usual_stage_s(replace(RUNS, joining=joining)) for joining in (0, 2))
    changed = {stage for stage in two if two[stage] != none[stage]}
    assert changed == {Stage.RUN}
    a_search, one_prepared = 2.0, usual_stage_s(RUNS)[Stage.PREPARE] / len(RUNS.steps_ns)
    assert two[Stage.RUN] - none[Stage.RUN] == pytest.approx(2 * (a_search + one_prepared))
    predicted = usual_stage_s(PREDICTED)
    assert not set(OF_A_RUN).intersection(predicted)
    assert [*usual_stage_s(RUNS)] == [*Stage]
    kept, anew = usual_stage_s(RUNS), usual_stage_s(replace(RUNS, is_calibrated=False))
    assert anew[Stage.CALIBRATE] > kept[Stage.CALIBRATE] + 5
    assert {**anew, Stage.CALIBRATE: 0} == {**kept, Stage.CALIBRATE: 0}


def test_ahead_is_the_stage_that_begins_and_all_that_come_later():
    usual = usual_stage_s(PREDICTED)
    last, before = usual[Stage.REPORT], usual[Stage.CONCLUDE]
    assert time_ahead(PREDICTED, Stage.REPORT) == TimeAhead(stage_s=last, later_s=0.0)
    assert time_ahead(PREDICTED, Stage.CONCLUDE) == TimeAhead(stage_s=before, later_s=last)
    # Nobody expected it to take any time.
    assert time_ahead(PREDICTED, Stage.PROFILE) == TimeAhead(stage_s=0.0, later_s=before + last)
    # A stage of 20 s that has taken 60 may well take another 6.
    known = TimeAhead(stage_s=20.0, later_s=3.0)
    assert [known.left_s(spent_s) for spent_s in (0, 15, 60)] == [23, 8, 9]
    stages = [time_ahead(RUNS, stage) for stage in (Stage.IMPORT, Stage.RUN, Stage.PROFILE)]
    assert [each.is_most for each in (*stages, time_after_rounds(RUNS))] == [True] * 2 + [False] * 2
    assert time_after_rounds(RUNS).later_s == time_ahead(RUNS, Stage.RUN).later_s


@pytest.mark.parametrize(
    ("asked", "done", "round_s", "sure_s", "doubt_s"),
    [
        # Ten more of the usual fifteen; then up to 75 more, for as long as there is time.
        (None, 5, 2.0, 20, 90 - 10 - 20),
        (None, 5, 0.5, 5, 75 * 0.5),
        # Those that are added end as soon as nothing is in doubt.
        (None, 20, 2.0, 0, 90 - 40),
        (None, 90, 0.5, 0, 0),
        # The time is up, but not before there is an interval.
        (None, 12, 10.0, 0, 0),
        (None, 1, 100.0, (LEAST - 1) * 100, 0),
        # What was asked for runs, however long it takes.
        (200, 10, 10.0, 1_900, 0),
        (20, 10, 1.0, 10, 90 - 20),
    ],
)
def test_rounds_to_come_take_what_rounds_have_taken(asked, done, round_s, sure_s, doubt_s):
    assert TIMING_BUDGET_S == 90
    left = rounds_left(replace(RUNS, rounds=asked), done, round_s, done * round_s)
    assert (left.stage_s, left.is_most) == (sure_s + doubt_s, doubt_s > 0)
    whole = time_ahead_in_rounds(replace(RUNS, rounds=asked), done, round_s, done * round_s)
    assert whole.stage_s == pytest.approx(left.stage_s + time_after_rounds(RUNS).stage_s)


@given(round_s=st.floats(0.1, 3.0), joins_s=st.floats(0, 9))
def test_no_round_leaves_more_to_come_than_the_one_before_whoever_joins(round_s, joins_s):
    told, spent_s = [], 0.0
    progress = AnalysisProgress(SilentListener(), OPTIONS)
    progress.watcher = SimpleNamespace(expect=lambda ahead: told.append(ahead.stage_s))
    for done in range(1, 90):
        spent_s += round_s + joins_s * (done in (3, 6))
        progress.timings_ns = lambda: {Stage.RUN: spent_s * 1_000 * MS}  # noqa: B023 - used at once
        progress.end_round(done)
    assert all(after <= before + 1e-6 for before, after in pairwise(told))


def test_what_runs_briefly_is_prepared_and_profiled_and_takes_rounds_of_its_own():
    briefly = replace(RUNS, steps_ns=(1_000 * MS,), brief_ns=2_000 * MS)
    alone, both = usual_stage_s(replace(briefly, brief_ns=None)), usual_stage_s(briefly)
    assert both[Stage.PREPARE] == 2 * alone[Stage.PREPARE]
    assert both[Stage.PROFILE] == 2 * alone[Stage.PROFILE]
    # Five steps of either in eight rounds, four of the untouched step, and little between turns.
    assert both[Stage.RUN] - alone[Stage.RUN] == pytest.approx(8 * (5 * 3 + 4), abs=0.5)
    left, brief_left = (
        time_ahead_in_rounds(replace(RUNS, brief_ns=ns), 15, 1.0, 15.0) for ns in (None, 0)
    )
    assert left.stage_s < brief_left.stage_s
    assert briefly.round_s == replace(briefly, brief_ns=None).round_s


def test_what_is_known_at_first_follows_from_what_is_asked():
    usual = replace(RUNS, steps_ns=(15 * MS,) * 7, brief_ns=15 * MS)
    assert initial_facts(OPTIONS) == usual
    assert initial_facts(replace(OPTIONS, devices=4)).splits == 2
    assert not initial_facts(replace(OPTIONS, hardware="2xV100-NVLink")).is_run
    quick = replace(OPTIONS, run=False, quick=True, effort=effort_of(None, 0, quick=True))
    assert (initial_facts(quick).splits, initial_facts(quick).is_run) == (0, False)
    named = initial_facts(replace(OPTIONS, candidates=("towers", "alternating")))
    # The single device always runs.
    assert (named.splits, named.searches, len(named.steps_ns)) == (0, 0, 3)
    assert named.brief_ns is None


@given(
    st.builds(
        ProgressFacts,
        is_run=st.booleans(),
        is_calibrated=st.booleans(),
        effort=st.floats(0, 100),
        searches=st.integers(0, 2),
        splits=st.integers(0, 2),
        rounds=st.none() | st.integers(1, 500),
        steps=st.integers(1, 50),
        ops=st.none() | st.integers(1, 10**6),
        steps_ns=st.lists(st.integers(1, 10**10), min_size=1).map(tuple),
    )
)
def test_the_later_it_is_the_less_is_ahead(known):
    expected = usual_stage_s(known)
    totals = [time_ahead(known, stage).left_s(0) for stage in expected]
    # To rounding.
    assert all(after <= before + 1e-9 * before for before, after in pairwise(totals))
    assert all(seconds >= 0 for seconds in expected.values())


def test_again_takes_what_was_seen_but_for_rounds_and_a_calibration():
    seen_ns = dict.fromkeys(Stage, 10 * 1_000 * MS)
    del seen_ns[Stage.REPORT]
    usual = usual_stage_s(RUNS)
    found = rerun_estimate(RUNS, seen_ns, 2.5, None)
    rounds_s = rounds_left(RUNS, 0, RUNS.round_s, 0.0).stage_s
    beside_s = usual[Stage.RUN] - rounds_s
    others_s = usual[Stage.CALIBRATE] + usual[Stage.REPORT] + beside_s
    assert (found.round_s, found.left_out) == (2.5, None)
    assert found.fixed_s == pytest.approx(10 * (len(Stage) - 3) + others_s)
    seen_ns = {Stage.IMPORT: 3_000 * MS, Stage.SEARCH: 1, Stage.SPLIT: 1}
    found = rerun_estimate(RUNS, seen_ns, None, "--quick")
    assert found.left_out == "--quick"
    others_s = sum(usual.values()) - usual[Stage.IMPORT] - rounds_s
    assert found.takes_s(15) == pytest.approx(3 + others_s + 15 * RUNS.round_s)


# 40 s beside rounds of 2 s.
RAN = RerunEstimate(fixed_s=40.0, round_s=2.0)
NOT_RUN = RerunEstimate(fixed_s=40.0, round_s=2.0, left_out="--quick")
NOT_HERE = RerunEstimate(fixed_s=30.0, round_s=None, left_out="--quick")
S = 1_000_000_000
MORE = NextRun(change="with --resume --rounds 130", takes_ns=300 * S)
FULL = NextRun(change="without --quick", takes_ns=70 * S)
THERE = NextRun(change="without --quick", takes_ns=30 * S)
MORE_ROUNDS = "; more rounds (--resume --rounds 130"
TOO_NEAR = "; the ratio is too near 0.97"
QUIETER = "a quieter machine would settle it"
ON_SUCH = "; a run on such devices would settle it"


@pytest.mark.parametrize(
    ("settling", "again", "words", "run"),
    [
        # 40 + 130 * 2 s
        (more_rounds(130), RAN, f"{MORE_ROUNDS}, about 5 min) or {QUIETER}", MORE),
        (more_rounds(130), None, f"{MORE_ROUNDS}) or {QUIETER}", None),
        (QUIETER_MACHINE, RAN, f"{TOO_NEAR} for more rounds to help: only {QUIETER}", None),
        # 40 + 15 * 2 s
        (REAL_RUN, NOT_RUN, "; a real run (without --quick, about 70 s) would settle it", FULL),
        (REAL_RUN, None, "; a real run would settle it", None),
        # The same command without --quick would tell more, and run nothing either.
        (WITHOUT_PYTHON, NOT_RUN, "; a step without Python could run, which would settle it", FULL),
        # What is not here cannot run, but be looked at for longer.
        (ELSEWHERE, NOT_HERE, f"{ON_SUCH}, a profile recorded there (--costs) may", THERE),
        (RECORDED_ELSEWHERE, None, ON_SUCH, None),
        # A verdict that is simulated is worth a run though nothing is in doubt.
        (None, NOT_RUN, "", FULL),
        (None, RAN, "", None),
    ],
)
def test_what_settles_it_and_the_next_run_are_told_with_their_time(settling, again, words, run):
    assert defaults.ROUNDS == 15
    assert next_experiment_text(settling, again) == words
    assert next_run(settling, again) == run
