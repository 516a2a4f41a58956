from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from simulated_steps import towers

from placement_advisor.measurement.measurement import Activity, Interval, Measurement, StepProfile
from placement_advisor.measurement.verdict import Comparison
from placement_advisor.report.analysis.tables import (
    NOTHING,
    StepFigures,
    activity_rows,
    bytes_text,
    copies_text,
    copy_share,
    error_text,
    figure_lines,
    measured_figures,
    one_line,
    predicted_figures,
    predicted_speedup,
    speedup,
    where_text,
)

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
    figures = StepFigures(
        step_ns=1_000,
        compute_ns={"a": 700},
        transfer_count=2,
        transfer_bytes=5_000,
        transfer_ns=300,
        exposed_ns=200,
        step_memory_bytes={},
        bytes_are_a_floor=True,
    )
    assert bytes_text(figures) == "≥ 5.00 kB"
    assert figure_lines(figures) == ["1.00 µs", "2 copies, ≥ 5.00 kB", "200 ns exposed"]


def test_bytes_of_which_none_are_known_are_not_at_least_nothing() -> None:
    (item,) = [copy for copy in towers().schedule.transfers if copy.size_bytes is None]
    figures = predicted_figures(replace(towers().schedule, transfers=(item,)))
    assert (figures.transfer_bytes, bytes_text(figures)) == (None, "?")


def test_a_step_without_profile_does_not_claim_to_copy_nothing() -> None:
    figures = StepFigures(
        step_ns=1_000,
        compute_ns=None,
        transfer_count=None,
        transfer_bytes=None,
        transfer_ns=None,
        exposed_ns=None,
        step_memory_bytes={},
        bytes_are_a_floor=False,
    )
    assert figure_lines(figures) == ["1.00 µs", "no profile to rely on"]
    assert figure_lines(None) == [NOTHING]


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


def test_text_from_models_stays_on_one_line_and_cannot_drive_a_terminal() -> None:
    assert one_line("a\x1b[31m\tb\r\nc") == "a\N{REPLACEMENT CHARACTER}[31m b c"


def test_copies_that_the_profile_does_not_all_show_are_unknown_not_none() -> None:
    unseen = replace(_profile(), compute_ns={"a": 1}, unseen_copies=("sum to a",))
    assert (unseen.transfer_count, unseen.transfer_bytes) == (None, None)
    run = Measurement(
        warmup_ns=(),
        rounds=((1_000,),),
        moved_ops=(),
        verification=None,
        profile=unseen,
        profile_run=None,
    )
    assert figure_lines(measured_figures(run, unseen)) == [
        "1.00 µs",
        "copies not all seen",
        "0 ns exposed",
    ]
