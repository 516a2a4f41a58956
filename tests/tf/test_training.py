"""Steps of a training of the user's own are recorded: what is written, printed, and what it costs.

Trainings run in children. What a profile of GPUs says is not tried here: none has been recorded.
"""

import re

import pytest

import placement_advisor
from placement_advisor.processes.calls import RemoteModule

training_live = RemoteModule("training_live")
# What docs/how-to/training.md promises.
MOST_NS_PER_STEP = 20_000


@pytest.fixture
def fit(child, tmp_path):
    """Return a function that trains with the callback, and says what it printed and wrote."""
    return lambda asked: child.call(training_live.fit, str(tmp_path), asked)


def test_the_callback_records_a_fit_on_one_device(fit, tmp_path):
    found = fit({})
    empty, compute, copies, following = found["printed"].splitlines()
    assert empty == ""
    assert re.fullmatch(
        r"compute  \S+ [\d.]+ [mµn]s \([\d.]+ %\) of a step of [\d.]+ [mµ]s \(steps 3 to 6\)",
        compute,
    )
    assert copies == "copies   none seen: CPUs of one process hand tensors on as pointers"
    graph = tmp_path / "graph.json.gz"
    assert following.startswith(f"next     advisor profile {tmp_path} --graph {graph}; for a ver")
    assert following.endswith(f"--hardware devices.toml --costs {tmp_path} --batch-size 32")
    # Four steps, the first left out; the last batch of the epoch is smaller, so its size is open.
    assert found["steps"] == {3}
    assert found["first product bytes"] == (32 * 256 * 4,)
    assert found["joined"] > 0.9
    assert found["own step"] is None


def test_the_callback_records_a_fit_on_several_devices(fit):
    found = fit({"devices": 3})
    assert found["printed"].count("\n") == 4, found["printed"]
    assert found["joined"] > 0.9


@pytest.mark.parametrize("count", [4096, 4000])
def test_the_callback_records_a_replica_of_a_mirrored_fit(fit, count):
    found = fit({"devices": 2, "mirrored": True, "count": count, "size": 512})
    assert found["printed"].count("\n") == 4, found["printed"]
    assert found["first product bytes"] == (256 * 256 * 4,)
    for layer in ("hidden_0", "hidden_1"):
        assert any(layer in name and name.endswith("/Relu") for name in found["known"]), found
    assert sum("gradient_tape" in name and "MatMul" in name for name in found["known"]) >= 4


def test_training_learns_the_same_with_the_callback_on_the_batch_that_is_given(fit, child):
    found = fit({"epochs": 3, "batch_size": 24})
    assert found["loss"] == child.call(training_live.losses_without, 3)
    assert found["printed"].count("next  ") == 1
    # It needs no look at the model.
    assert found["first product bytes"] == (24 * 256 * 4,)


def test_a_training_that_ends_early_says_so(fit):
    found = fit({"steps": (40, 50)})
    assert found["printed"] == (
        "\nplacement-advisor recorded nothing: training ended after step 16, before step 40\n"
    )
    assert "(steps 15 to 16)" in fit({"steps": (15, 50)})["printed"]


def test_what_cannot_be_told_apart_and_steps_that_are_none_are_refused(child, tmp_path):
    several, none = child.call(training_live.refusals, str(tmp_path))
    assert several.startswith("ModelError: ")
    assert "steps_per_execution=4" in several
    said = "ValueError: steps are {}, not (first, last) counted from 1".format
    assert none == [said((0, 3)), said((5, 4))] * 2


def test_another_profiler_is_left_alone(child, tmp_path):
    told = child.call(training_live.under_another_profiler, str(tmp_path))
    assert told.startswith("\nplacement-advisor recorded nothing: the profiler did not start: ")


def test_a_loop_of_ones_own_is_recorded(child, tmp_path):
    found = child.call(training_live.own_loop, str(tmp_path))
    compute, _, following = found["printed"].splitlines()
    assert "(steps 2 to 6)" in compute
    assert "--graph" in following
    assert found["steps"] == {4}
    assert found["joined"] > 0.9
    assert found["losses"] == sorted(found["losses"], reverse=True)


def test_ops_that_run_as_cheaper_ones_are_recorded_all_the_same(child, tmp_path):
    others, not_joined = child.call(training_live.rewritten, str(tmp_path))
    assert not_joined == []
    assert {"power": "Square", "root": "Sqrt", "thrice": "Mul", "sum": "Sub"}.items() <= (
        others.items()
    )


def test_a_loop_that_fails_ends_the_recording_and_says_nothing(child, tmp_path):
    told = child.call(training_live.failing_loop, str(tmp_path))
    assert told == "division by zero: "


def test_a_step_that_is_not_recorded_costs_next_to_nothing(child, tmp_path):
    found = child.call(training_live.ns_outside, str(tmp_path), 20_000)
    assert found["callback"] <= MOST_NS_PER_STEP, found
    assert found["loop"] <= MOST_NS_PER_STEP, found


def test_the_door_says_what_it_has():
    assert dir(placement_advisor.keras) == ["PlacementProfiler"]
    with pytest.raises(AttributeError, match="no attribute 'PlacementProfile'"):
        _ = placement_advisor.keras.PlacementProfile
