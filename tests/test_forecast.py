"""How predictions of splits are corrected by what they measured."""

from __future__ import annotations

import pytest

from placement_advisor.analysis import Candidate
from placement_advisor.compare import Comparison
from placement_advisor.forecast import _corrections
from placement_advisor.measure import Interval
from placement_advisor.simulator.sensitivity import Doubt, PredictedRatio

DOUBT = Doubt(copies=1.5, launches=1.5, ops=1.1)


def candidate(
    name: str, predicted: float, measured: float | None, family: str | None = None
) -> Candidate:
    comparison = measured and Comparison(
        baseline="single",
        candidate=name,
        ratio=Interval(median=measured, low=measured, high=measured),
        rounds=9,
    )
    return Candidate(
        name=name,
        family=family or name,
        rationale="",
        placement=None,
        predicted=None,
        measured=None,
        comparison=comparison or None,
        failure=None,
        predicted_ratio=PredictedRatio(ratio=predicted, low=predicted, high=predicted, doubt=DOUBT),
    )


def test_a_split_that_did_not_run_is_corrected_by_the_median_of_those_that_did() -> None:
    found = _corrections(
        ["towers", "searched", "pipeline", "alternating", "searched for faster links"],
        [
            candidate("towers", 1.0, 1.1),
            candidate("searched", 0.8, 1.04),
            candidate("pipeline", 1.2, None),
            # Copies dominate it, which says little of splits that anybody would make.
            candidate("alternating", 2.0, 4.0),
            # Another graph: its error is not that of these.
            candidate("batch", 1.0, 3.0),
        ],
    )
    assert found == {
        "towers": pytest.approx(1.1),
        "searched": pytest.approx(1.3),
        "pipeline": pytest.approx(1.2),
        "alternating": pytest.approx(2.0),
        "searched for faster links": pytest.approx(1.2),
    }


def test_where_nothing_was_measured_nothing_is_corrected() -> None:
    assert _corrections(["towers"], [candidate("towers", 0.8, None)]) == {}


def test_where_only_splits_that_are_bad_on_purpose_ran_they_have_to_do() -> None:
    found = _corrections(["towers", "alternating"], [candidate("alternating", 2.0, 3.0)])
    assert found == {"towers": 1.5, "alternating": 1.5}
