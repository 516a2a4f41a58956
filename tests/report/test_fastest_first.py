"""Which candidates the pictures show."""

from __future__ import annotations

from dataclasses import replace

import sample_analysis
from made_up_steps import made_up

from placement_advisor.report.analysis.figures import fastest_first, in_own_timelines, in_timeline


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
