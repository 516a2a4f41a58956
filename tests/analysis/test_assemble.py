"""Predictions and runs put together, candidate by candidate."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from finding_evidence import measured_as
from foreseen import forecast

from placement_advisor.analysis.assemble import candidates_of, title_of
from placement_advisor.analysis.predictions import predict
from placement_advisor.analysis.runs import (
    CandidateRun,
    RunResults,
    candidate_to_run_briefly,
    candidates_to_run,
)
from placement_advisor.measurement.measurement import (
    CandidateFailure,
    Comparison,
    FailureKind,
    Interval,
)

if TYPE_CHECKING:
    from placement_advisor.analysis.predictions import Predictions


SPLIT = "alternating-ops"
TOO_LARGE = CandidateFailure(kind=FailureKind.DOES_NOT_FIT, message="lacks 1 MB")
CRASHED = CandidateFailure(kind=FailureKind.CRASHED, message="killed")


def known(too_large: str | None = None) -> Predictions:
    """Foresee the single device and a split, one of which does not fit."""
    found = forecast(op_ns=60)
    if too_large is None:
        return found
    short = replace(found.predicted[too_large], too_large=TOO_LARGE)
    return replace(found, predicted={**found.predicted, too_large: short})


def outcome(
    step_ns: int | None, ratio: float | None = None, failure: CandidateFailure | None = None
) -> CandidateRun:
    return CandidateRun(
        measured=None if step_ns is None else measured_as(step_ns),
        comparison=None
        if ratio is None
        else Comparison(
            baseline="single",
            ratio=Interval(median=ratio, low=ratio, high=ratio),
            rounds=9,
        ),
        failure=failure,
        files=None,
    )


def test_where_nothing_ran_there_are_predictions_and_what_does_not_fit() -> None:
    alone, split = candidates_of(known(too_large=SPLIT), RunResults())
    assert (alone.name, split.name) == ("single", SPLIT)
    assert (alone.failure, split.failure) == (None, TOO_LARGE)
    assert alone.predicted_ratio is None
    assert split.predicted is not None
    assert split.predicted_ratio is not None
    assert (split.measured, split.comparison) == (None, None)


def test_what_ran_says_itself_whether_it_failed() -> None:
    outcomes = {"single": outcome(500), SPLIT: outcome(None, failure=CRASHED)}
    alone, split = candidates_of(known(too_large="single"), RunResults(outcomes=outcomes))
    assert alone.failure is None
    assert split.failure is CRASHED


def test_a_ratio_that_cannot_be_is_a_broken_law_of_that_candidate_alone() -> None:
    right = {"single": outcome(500), SPLIT: outcome(600, 1.2)}
    wrong = {"single": outcome(500), SPLIT: outcome(600, 0.2)}
    assert [c.broken_laws for c in candidates_of(known(), RunResults(outcomes=right))] == [(), ()]
    alone, split = candidates_of(known(), RunResults(outcomes=wrong))
    assert alone.broken_laws == ()
    assert len(split.broken_laws) == 1


def test_what_does_not_fit_is_not_run_even_if_it_was_named() -> None:
    named = SimpleNamespace(candidates=(SPLIT,))
    assert [each.label for each in candidates_to_run(known(), named)] == [SPLIT]  # type: ignore[arg-type]
    assert candidates_to_run(known(too_large=SPLIT), named) == ()  # type: ignore[arg-type]


def test_what_is_there_to_be_understood_runs_briefly_if_it_is_brief_and_nothing_was_named() -> None:
    proposals = known().proposals
    split = replace(proposals.placements[SPLIT], label="alternating", family="alternating")
    answers = {"single": proposals.placements["single"], "alternating": split}
    found = predict(replace(proposals, answers=answers))
    asked: Any = SimpleNamespace(candidates=None, steps=4)
    assert candidates_to_run(found, asked) == ()
    assert candidate_to_run_briefly(found, asked) is split
    assert candidate_to_run_briefly(known(), asked) is None
    # It takes 200 ns and more, eight times five steps as long as the budget of 20 s.
    long: Any = SimpleNamespace(candidates=None, steps=10**8)
    assert candidate_to_run_briefly(found, long) is None
    named: Any = SimpleNamespace(candidates=("alternating",), steps=4)
    assert candidate_to_run_briefly(found, named) is None
    assert candidates_to_run(found, named) == (split,)


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("functional", "ranker"),
        ("functional_12", "ranker"),
        ("sequential_1", "ranker"),
        ("model", "ranker"),
        ("deepconn", "deepconn"),
        ("train_step", "train_step"),
        ("sequential_recommender", "sequential_recommender"),
    ],
)
def test_a_name_that_keras_made_up_gives_way_to_that_of_the_file(name: str, title: str) -> None:
    assert title_of(name, Path("models/ranker.py")) == title
