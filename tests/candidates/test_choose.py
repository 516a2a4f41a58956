from hypothesis import given
from hypothesis import strategies as st

from placement_advisor.candidates.families import (
    ALWAYS_RUN,
    BEST_BY_PREDICTION,
    NAMES,
    RUN_BRIEFLY,
    TO_UNDERSTAND,
    to_run,
)

PREDICTED = {
    "single": 100, "towers": 90, "towers-forward-only": 120, "pipeline": 80,
    "parameters-on-host": 95, "alternating": 200, "alternating-ops": 400,
}  # fmt: skip


def test_the_baseline_towers_and_the_best_by_prediction_run():
    assert to_run(PREDICTED) == ("single", "towers", "pipeline", "parameters-on-host")


def test_those_that_people_make_by_hand_take_no_place_from_the_best_others():
    predicted = {
        "single": 100, "towers": 90, "pipeline": 76, "alternating": 143,
        "searched": 78, "batch": 70, "variables-spread": 74, "mirrored": 72,
    }  # fmt: skip
    assert to_run(predicted) == tuple(label for label in predicted if label != "alternating")


def test_a_single_on_another_kind_of_device_runs_where_it_is_among_the_best():
    assert "single-cpu" in to_run({**PREDICTED, "single-cpu": 85})
    assert "single-cpu" not in to_run({**PREDICTED, "searched": 79, "single-cpu": 99})


def test_what_is_there_to_be_understood_does_not_run_for_being_fast():
    assert {"alternating", "alternating-ops", "towers-forward-only"} == TO_UNDERSTAND
    fast = dict.fromkeys(TO_UNDERSTAND, 9)
    assert to_run({"single": 100, **fast}) == ("single",)


def test_what_has_no_chance_to_win_takes_no_time_but_the_best_is_tried():
    # Two predictions are apart by their errors in a case of twenty: e^(1.645 * √2 * 0.12) = 1.32.
    losing = {"single": 100, "pipeline": 131, "searched": 133, "parameters-on-host": 300}
    assert to_run(losing) == ("single", "pipeline")
    assert to_run({**losing, "pipeline": 400}) == ("single", "searched")


def test_of_equal_predictions_the_earlier_runs():
    ties = dict.fromkeys(["single", "pipeline", "parameters-on-host", "single-cpu", "searched"], 7)
    assert to_run(ties) == ("single", "pipeline", "parameters-on-host", "single-cpu")


def test_the_families_that_are_named_exist():
    assert {*ALWAYS_RUN, *TO_UNDERSTAND, RUN_BRIEFLY} <= set(NAMES)
    assert not ALWAYS_RUN & TO_UNDERSTAND


@given(st.dictionaries(st.sampled_from([*NAMES, "single-cpu"]), st.integers(0, 99)))
def test_the_best_by_prediction_always_runs_and_few_do(predicted):
    chosen = to_run(predicted)
    assert [label for label in predicted if label in chosen] == list(chosen)
    assert len(chosen) <= len(ALWAYS_RUN) + BEST_BY_PREDICTION
    splits = [label for label in predicted if label not in {"single", *TO_UNDERSTAND}]
    if splits:
        assert min(splits, key=predicted.__getitem__) in chosen
