"""What runs next by what has run; what ran is made up."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from finding_evidence import measured_as
from foreseen import EFFORT, forecast

from placement_advisor.analysis.predictions import Predictions, predict
from placement_advisor.analysis.runs import CandidateRun, RunResults, corrected_predictions, refine
from placement_advisor.candidates.by_layer import NotApplicable
from placement_advisor.graph.placement import Placement
from placement_advisor.measurement.measurement import CandidateFailure, FailureKind

if TYPE_CHECKING:
    from collections.abc import Mapping

ALONE_NS = 1_000
SPLIT = "alternating-ops"
# Ops that take so long that half of them elsewhere is nearly twice as fast.
LONG_NS, SHORT_NS = 2_000, 1


def known(op_ns: int, *further: Placement, is_searched: bool = True) -> Predictions:
    """Foresee the single device, a split that is bad on purpose, and further ones."""
    found = forecast(op_ns=op_ns)
    answers = {**found.proposals.answers, **{each.label: each for each in further}}
    if is_searched:
        answers["searched"] = NotApplicable(family="searched", reason="none was better")
    return predict(replace(found.proposals, answers=answers))


def without(found: Predictions, label: str) -> Predictions:
    answers = {name: each for name, each in found.proposals.answers.items() if name != label}
    return predict(replace(found.proposals, answers=answers))


def half(label: str = "towers") -> Placement:
    names = ["root", *(f"op{i}" for i in range(8))]
    device_of = {name: "b" if i > 4 else "a" for i, name in enumerate(names)}
    return Placement(label=label, family="towers", device_of=device_of, rationale="")


def ran(ratios: Mapping[str, float], failed: Mapping[str, float] | None = None) -> RunResults:
    """Return results of splits that took so many times as long as the single device."""

    def outcome(ratio: float, failure: CandidateFailure | None) -> CandidateRun:
        measured = replace(
            measured_as(round(ratio * ALONE_NS)), rounds=((round(ratio * ALONE_NS),),) * 5
        )
        return CandidateRun(measured=measured, comparison=None, failure=failure, files=None)

    wrong = CandidateFailure(kind=FailureKind.WRONG_RESULT, message="differs")
    return RunResults(
        outcomes={
            "single": outcome(1.0, None),
            **{label: outcome(ratio, None) for label, ratio in ratios.items()},
            **{label: outcome(ratio, wrong) for label, ratio in (failed or {}).items()},
        }
    )


def test_a_split_that_was_not_run_runs_if_it_is_expected_to_be_faster_than_all_that_have() -> None:
    before = known(LONG_NS, half(), is_searched=False)
    found = refine(before, ran({SPLIT: 1.1}), EFFORT)
    assert found is not None
    assert found.placement == half()
    after = found.predictions.predicted["towers"]
    assert after.after_runs is not None
    assert after.after_runs.runs == 1
    # What was predicted before any run stays.
    assert replace(after, after_runs=None) == before.predicted["towers"]
    assert found.predictions.predicted.keys() == before.predicted.keys()


@pytest.mark.parametrize("is_searched", [True, False])
def test_nothing_runs_that_promises_less_than_what_has_run(is_searched: bool) -> None:
    before = known(LONG_NS, half(), is_searched=is_searched)
    assert refine(before, ran({SPLIT: 0.2}), EFFORT) is None


def test_nothing_runs_that_does_not_promise_to_be_worth_it() -> None:
    before = known(SHORT_NS, half())
    assert refine(before, ran({SPLIT: 3.0}), EFFORT) is None


def test_what_a_search_finds_joins_under_a_name_of_its_own() -> None:
    before = known(LONG_NS, replace(half("pipeline"), device_of={**half().device_of, "op6": "a"}))
    before = without(before, SPLIT)
    found = refine(before, ran({"pipeline": 0.95}), EFFORT)
    assert found is not None
    assert (found.placement.label, found.placement.family) == ("searched-2", "searched")
    assert set(found.placement.device_of.values()) == {"a", "b"}
    prediction = found.predictions.predicted["searched-2"]
    assert prediction.ratio is not None
    assert prediction.after_runs is not None
    assert found.predictions.proposals.placements["searched-2"] == found.placement
    again = refine(found.predictions, ran({"pipeline": 0.95, "searched-2": 0.99}), EFFORT)
    assert again is None or again.placement.label == "searched-3"


def test_without_a_run_of_a_split_nothing_is_learned() -> None:
    before = known(LONG_NS, half())
    for results in (RunResults(), ran({}), ran({}, failed={SPLIT: 0.1})):
        assert refine(before, results, EFFORT) is None
        assert corrected_predictions(before, results) == before


def test_a_split_that_fails_neither_teaches_nor_has_to_be_beaten() -> None:
    before = known(LONG_NS, half(), is_searched=False)
    found = refine(before, ran({SPLIT: 1.1}, failed={"searched": 0.01}), EFFORT)
    assert found is not None
    assert found.predictions.predicted["towers"].after_runs == (
        corrected_predictions(before, ran({SPLIT: 1.1})).predicted["towers"].after_runs
    )


def test_what_does_not_fit_does_not_run() -> None:
    before = known(LONG_NS, half(), is_searched=False)
    short = CandidateFailure(kind=FailureKind.DOES_NOT_FIT, message="lacks 1 MB")
    towers = replace(before.predicted["towers"], too_large=short)
    before = replace(before, predicted={**before.predicted, "towers": towers})
    assert refine(before, ran({SPLIT: 1.1}), EFFORT) is None


def test_in_the_end_all_that_has_not_run_is_predicted_by_what_has() -> None:
    before = known(LONG_NS, half())
    after = corrected_predictions(before, ran({SPLIT: 2.0}))
    assert after.predicted["single"] == before.predicted["single"]
    assert after.predicted[SPLIT] == before.predicted[SPLIT]
    ratio, expected = before.predicted["towers"].ratio, after.predicted["towers"].after_runs
    assert ratio is not None
    assert expected is not None
    # The split that ran took longer than predicted, and so will this one.
    assert expected.ratio > ratio.ratio
