"""A forecast's bound and break-even, and how measurements correct predictions of splits."""

from __future__ import annotations

from dataclasses import replace

import pytest
from foreseen import DOUBT, EFFORT, forecast

from placement_advisor.analysis.analysis_result import Candidate
from placement_advisor.analysis.predictions import _corrections, bound_of, break_even_of
from placement_advisor.measurement.measurement import (
    CandidateFailure,
    Comparison,
    FailureKind,
    Interval,
)
from placement_advisor.simulator.sensitivity import CostUncertainty, PredictedRatio


def candidate(
    name: str, predicted: float, measured: float | None, family: str | None = None
) -> Candidate:
    comparison = measured and Comparison(
        baseline="single",
        ratio=Interval(median=measured, low=measured, high=measured),
        rounds=9,
    )
    return Candidate(
        name=name,
        family=family or name,
        rationale="",
        comparison=comparison or None,
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


def test_a_proof_says_how_far_it_goes_if_costs_are_wrong() -> None:
    firm = bound_of(forecast(op_ns=6, doubt=CostUncertainty(copies=1.1, launches=1, ops=1)))
    assert firm.proves_single
    assert firm.proves_single_if_wrong
    assert firm.costs_from == "assumed"
    wrong = bound_of(forecast(op_ns=6, doubt=CostUncertainty(copies=2, launches=1, ops=1)))
    assert wrong.proves_single
    assert not wrong.proves_single_if_wrong
    # With copies at half their cost, 3 in whole ns, the root's device is busy for 10 + 8 * 3 of 58.
    assert 0.03 < (wrong.most_to_gain_if_wrong or 0) <= 1 - 34 / 58
    none = bound_of(forecast(op_ns=60, doubt=CostUncertainty(copies=2, launches=1, ops=1)))
    assert (none.proves_single, none.most_to_gain_if_wrong) == (False, None)


def test_a_break_even_says_of_today_what_was_measured() -> None:
    known = forecast(op_ns=60, doubt=DOUBT)
    name = "alternating-ops"
    predicted = known.predicted[name].ratio
    assert predicted is not None
    found = break_even_of(known, [candidate(name, predicted.ratio, 1.5)], None, EFFORT)
    assert found is not None
    assert found.bandwidth is not None
    best = found.bandwidth.here.best
    assert found.corrections[name] == pytest.approx(1.5 / predicted.ratio)
    assert best.split != name or best.ratio == pytest.approx(1.5)


def test_a_split_that_failed_is_in_no_break_even() -> None:
    known = forecast(op_ns=60, doubt=DOUBT)
    wrong = candidate("alternating-ops", 0.5, None)
    wrong = replace(
        wrong, failure=CandidateFailure(kind=FailureKind.WRONG_RESULT, message="off by 2")
    )
    found = break_even_of(known, [wrong], None, EFFORT)
    told = () if found is None else found.sweeps()
    assert all(point.best.split != "alternating-ops" for sweep in told for point in sweep.points)
