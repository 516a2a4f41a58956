from hypothesis import given
from hypothesis import strategies as st

from placement_advisor.candidates.choose import to_run
from placement_advisor.candidates.families import FAMILIES

PREDICTED = {
    "single": 100, "towers": 90, "towers-forward-only": 120, "pipeline": 80,
    "parameters-on-host": 95, "alternating": 200, "alternating-ops": 400,
}  # fmt: skip


def test_the_baseline_towers_alternating_and_the_best_three_by_prediction_run():
    assert to_run(PREDICTED) == (
        "single", "towers", "pipeline", "parameters-on-host", "alternating",
    )  # fmt: skip


def test_a_single_on_another_kind_of_device_runs_where_it_is_among_the_best():
    assert "single-cpu" in to_run({**PREDICTED, "single-cpu": 85})
    assert "single-cpu" not in to_run({**PREDICTED, "single-cpu": 99})


def test_what_is_bad_on_purpose_does_not_run_for_being_fast():
    assert "alternating-ops" not in to_run(
        {"single": 100, "alternating": 200, "alternating-ops": 9}
    )


def test_of_equal_predictions_the_earlier_runs():
    ties = dict.fromkeys(PREDICTED, 100)
    assert to_run(ties) == (
        "single", "towers", "towers-forward-only", "pipeline", "alternating",
    )  # fmt: skip


def test_the_families_that_always_run_exist():
    assert {"single", "towers", "alternating"} <= set(FAMILIES)


@given(st.dictionaries(st.sampled_from([*FAMILIES, "single-cpu"]), st.integers(0, 9)))
def test_the_best_by_prediction_always_runs_and_few_do(predicted):
    chosen = to_run(predicted)
    assert [label for label in predicted if label in chosen] == list(chosen)
    assert len(chosen) <= 6
    meant = {"single", "alternating", "alternating-ops"}
    splits = {label: ns for label, ns in predicted.items() if label not in meant}
    if splits:
        assert min(splits, key=splits.__getitem__) in chosen
