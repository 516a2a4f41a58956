"""Figures of candidates, and which of them pictures show."""

from __future__ import annotations

from dataclasses import replace

import sample_analysis
from made_up_steps import made_up
from sample_values import step_profile
from simulated_steps import towers

from placement_advisor.measurement.measurement import Activity
from placement_advisor.report.document import NOTHING
from placement_advisor.report.statements import (
    activity_rows,
    fastest_first,
    figure_lines,
    in_own_timelines,
)


def test_activities_are_the_costliest_and_every_copy_below_them() -> None:
    activities = [
        Activity(name=name, calls=2, total_ns=ns, min_ns=1, max_ns=ns, is_copy="copy" in name)
        for name, ns in (("MatMul", 600), ("small copy", 10), ("Relu", 100), ("Conv2D", 290))
    ]
    rows = activity_rows(tuple(activities), top=2)
    assert [row.cells[-1] for row in rows] == ["MatMul", "Conv2D", "small copy"]
    assert [row.is_copy for row in rows] == [False, False, True]
    assert rows[0].cells == ("60.00%", "600 ns", "2", "300 ns", "1 ns", "600 ns", "MatMul")


def test_bytes_that_are_not_all_known_are_a_lower_bound_and_without_any_unknown() -> None:
    schedule = towers().schedule
    assert figure_lines(1_000, schedule) == ["1.00 µs", "4 copies, ≥ 3.20 kB", "41.6 µs exposed"]
    unknown = [copy for copy in schedule.transfers if copy.size_bytes is None]
    assert figure_lines(1_000, replace(schedule, transfers=tuple(unknown)))[1] == "1 copy, ?"


def test_a_step_without_profile_or_with_half_of_one_does_not_claim_to_copy_nothing() -> None:
    assert figure_lines(1_000, None) == ["1.00 µs", "no profile to rely on"]
    assert figure_lines(None, None) == [NOTHING]
    unseen = step_profile(100, compute_ns={"a": 1}, unseen_copies=("sum to a",))
    assert figure_lines(1_000, unseen) == ["1.00 µs", "copies not all seen", "0 ns exposed"]
    assert (unseen.transfer_count, unseen.transfer_bytes) == (None, None)


def test_single_comes_first_then_the_fastest_by_ratio_then_what_has_none() -> None:
    analysis = made_up(candidates=4)
    single, first, second, third = analysis.candidates
    unsure = replace(first, comparison=None)
    shuffled = replace(analysis, candidates=(third, unsure, single, second))
    assert fastest_first(shuffled) == (single, second, third, unsure)


def test_what_did_not_run_or_failed_after_some_rounds_is_not_shown_beside_what_ran() -> None:
    analysis = sample_analysis.sample()
    single, towers, crashed = analysis.candidates
    late = replace(towers, name="late", failure=crashed.failure)
    shown = replace(analysis, candidates=(single, towers, crashed, late))
    assert [c.name for c in fastest_first(shown)] == ["single", "towers"]
    assert [c.name for c in in_own_timelines(analysis)] == ["alternating"]
    # Where nothing ran, the best predictions are shown.
    shown = sample_analysis.unmeasured()
    assert [c.name for c in fastest_first(shown)] == ["single", "towers", "alternating"]
