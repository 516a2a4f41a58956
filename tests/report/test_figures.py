"""Figures of candidates, and which of them pictures show."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import sample_analysis
from made_up_steps import made_up
from simulated_steps import towers

from placement_advisor.measurement.measurement import Activity, Interval, StepProfile
from placement_advisor.measurement.verdict import Comparison
from placement_advisor.report.analysis.figures import (
    activity_rows,
    copy_share,
    error_text,
    fastest_first,
    figure_lines,
    in_own_timelines,
    in_timeline,
    predicted_speedup,
    speedup,
)
from placement_advisor.report.analysis.statements import where_text
from placement_advisor.report.document import NOTHING
from placement_advisor.units import copies_text

if TYPE_CHECKING:
    from placement_advisor.analysis.analysis_result import Analysis


def _profile(*activities: Activity) -> StepProfile:
    return StepProfile(
        step_ns=(100,),
        compute_ns={},
        exposed_by_device={},
        transfers=(),
        activities=activities,
        op_ns={},
        timeline=(),
    )


def _activity(name: str, total_ns: int, *, is_copy: bool = False) -> Activity:
    return Activity(
        name=name, calls=2, total_ns=total_ns, min_ns=1, max_ns=total_ns, is_copy=is_copy
    )


def test_speedup_turns_the_ratio_and_its_interval_around(analysis: Analysis) -> None:
    ratio = Interval(median=0.5, low=0.4, high=0.8)
    compared = Comparison(baseline="single", ratio=ratio, rounds=6)
    candidate = replace(analysis.candidates[1], comparison=compared)
    assert speedup(candidate) == Interval(median=2.0, low=1.25, high=2.5)


def test_predicted_speedup_divides_the_simulated_steps(analysis: Analysis) -> None:
    # single 52.0 ms, towers 30.1 ms
    assert predicted_speedup(analysis, analysis.candidates[1]) == pytest.approx(52.0 / 30.1)


def test_activities_are_the_costliest_and_every_copy_below_them() -> None:
    profile = _profile(
        _activity("MatMul", 600),
        _activity("small copy", 10, is_copy=True),
        _activity("Relu", 100),
        _activity("Conv2D", 290),
    )
    rows = activity_rows(profile.activities, top=2)
    assert [row.cells[-1] for row in rows] == ["MatMul", "Conv2D", "small copy"]
    assert [row.is_copy for row in rows] == [False, False, True]
    assert rows[0].cells == ("60.00%", "600 ns", "2", "300 ns", "1 ns", "600 ns", "MatMul")


def test_copy_share_is_copies_over_everything() -> None:
    profile = _profile(_activity("MatMul", 75), _activity("copy", 25, is_copy=True))
    assert copy_share(profile) == 0.25
    assert copy_share(_profile()) is None


def test_bytes_with_copies_of_unknown_size_are_a_lower_bound() -> None:
    schedule = towers().schedule
    assert schedule.carried.unknown == 1
    assert figure_lines(1_000, schedule) == ["1.00 µs", "4 copies, ≥ 3.20 kB", "41.6 µs exposed"]


def test_bytes_of_which_none_are_known_are_not_at_least_nothing() -> None:
    schedule = towers().schedule
    (item,) = [copy for copy in schedule.transfers if copy.size_bytes is None]
    schedule = replace(schedule, transfers=(item,))
    assert schedule.transfer_bytes is None
    assert figure_lines(1_000, schedule)[1] == "1 copy, ?"


def test_a_step_without_profile_does_not_claim_to_copy_nothing() -> None:
    assert figure_lines(1_000, None) == ["1.00 µs", "no profile to rely on"]
    assert figure_lines(None, None) == [NOTHING]


@pytest.mark.parametrize(("count", "text"), [(0, "no copies"), (1, "1 copy"), (19, "19 copies")])
def test_copies_are_counted_in_words(count: int, text: str) -> None:
    assert copies_text(count) == text


@pytest.mark.parametrize(
    ("predicted", "measured", "text"),
    [
        (110, 100, "+10.0 %"),
        (90, 100, "-10.0 %"),
        (0, 0, "0.0 %"),
        (5, 0, NOTHING),
        (None, 100, NOTHING),
        (100, None, NOTHING),
    ],
)
def test_prediction_errors_are_percent_of_the_measurement(
    predicted: int | None, measured: int | None, text: str
) -> None:
    assert error_text(predicted, measured) == text


def test_file_and_line_of_a_finding_stand_together(analysis: Analysis) -> None:
    finding = analysis.findings[0]
    assert where_text(finding) == "layer item_conv, sample_models/deepconn.py:41"
    assert where_text(replace(finding, where={})) == ""


def test_copies_that_the_profile_does_not_all_show_are_unknown_not_none() -> None:
    unseen = replace(_profile(), compute_ns={"a": 1}, unseen_copies=("sum to a",))
    assert (unseen.transfer_count, unseen.transfer_bytes) == (None, None)
    assert figure_lines(1_000, unseen) == ["1.00 µs", "copies not all seen", "0 ns exposed"]


def test_single_comes_first_then_the_fastest_by_ratio_whatever_the_order_of_trial() -> None:
    analysis = made_up(candidates=4)
    single, first, second, third = analysis.candidates
    shuffled = replace(analysis, candidates=(third, first, single, second))
    assert fastest_first(shuffled) == (single, first, second, third)


def test_what_ran_without_a_comparison_stands_behind_what_has_one() -> None:
    analysis = made_up(candidates=3)
    single, first, second = analysis.candidates
    unsure = replace(first, comparison=None)
    assert fastest_first(replace(analysis, candidates=(single, unsure, second))) == (
        single,
        second,
        unsure,
    )


def test_what_did_not_run_is_not_shown_beside_what_ran() -> None:
    single, towers, crashed = sample_analysis.sample().candidates
    analysis = sample_analysis.sample()
    assert [c.name for c in fastest_first(analysis)] == [single.name, towers.name]
    assert [c.name for c in in_own_timelines(analysis)] == [crashed.name]


def test_what_failed_after_some_rounds_did_not_run() -> None:
    analysis = sample_analysis.sample()
    single, towers, crashed = analysis.candidates
    late = replace(towers, name="late", failure=crashed.failure)
    shown = fastest_first(replace(analysis, candidates=(single, towers, late)))
    assert [c.name for c in shown] == ["single", "towers"]


def test_where_nothing_ran_the_best_predictions_are_shown() -> None:
    shown = fastest_first(sample_analysis.unmeasured())
    assert [c.name for c in shown] == ["single", "towers", "alternating"]


def test_single_and_three_others_share_a_picture_and_the_rest_have_their_own() -> None:
    analysis = made_up(candidates=7)
    assert [c.name for c in in_timeline(analysis)] == ["single", "split-1", "split-2", "split-3"]
    assert [c.name for c in in_own_timelines(analysis)] == ["split-4", "split-5", "split-6"]


def test_what_could_not_be_proposed_has_no_picture() -> None:
    assert in_own_timelines(sample_analysis.not_applicable()) == ()
