"""`placement_advisor.make_parallel`, on logical CPUs: shares side by side, the same results."""

import numpy as np
import pytest
from pairs import pairs

from placement_advisor.processes.calls import RemoteModule

parallel_live = RemoteModule("parallel_live")
TOLERANCE = 2e-5
STEPS = (
    "tape_step",
    "looked_up",
    "keras_step",
    "summed_loss",
    "gan",
    "tied",
    "filled",
    "recurrent",
)


def computed(child, name, *how):
    """Run a step alone and parallel; both compute and learn the same. Return where ops ran."""
    found = child.call(parallel_live.run_both_ways, name, *how)
    for ours, theirs in zip(found["found"], found["expected"], strict=True):
        assert ours == pytest.approx(theirs, rel=TOLERANCE, abs=TOLERANCE)
    assert max(found["differences"]) <= TOLERANCE
    assert found["moved"] > 100 * TOLERANCE
    return found


@pytest.mark.parametrize(("name", "ratios"), pairs(STEPS, [[1, 1], [3, 1], [2, 1, 1]]))
def test_a_parallel_step_computes_and_learns_what_the_step_alone_does(child, name, ratios):
    ran_on = set(computed(child, name, ratios)["ran on"])
    replicas = range(len(ratios))
    own = {(f"replica_{i}", f"CPU:{i}") for i in replicas}
    # What looks rows up stands with the variable.
    assert own <= ran_on <= own | {(f"replica_{i}", "CPU:0") for i in replicas}


@pytest.mark.parametrize(("optimizer", "ratios"), pairs(["sgd", "adam"], [[1, 1], [3, 1]]))
def test_where_replicas_take_statistics_their_finished_gradients_are_averaged(
    child, optimizer, ratios
):
    found = child.call(parallel_live.learnt_from_shares, optimizer, ratios)
    assert len(found) == 8
    assert max(found.values()) <= 1e-3, found


@pytest.mark.parametrize(
    ("name", "ratios"), pairs(["looked_up", "tape_step", "gan", "keras_step"], [[1, 1], [3, 1]])
)
def test_each_share_is_laid_out_on_a_group_as_the_placement_says(child, name, ratios):
    ran_on = set(computed(child, name, ratios, 5)["ran on"])
    own = {("replica_0", "CPU:0"), ("replica_0", "CPU:1")}
    own |= {("replica_1", "CPU:2"), ("replica_1", "CPU:3")}
    looked_up = {("replica_1", "CPU:0"), ("replica_1", "CPU:1")}
    assert own <= ran_on <= own | looked_up


@pytest.mark.parametrize(
    ("name", "variables"),
    [("gan", "spread"), ("keras_step", "spread"), ("keras_step", "host"), ("looked_up", "host")],
)
def test_variables_may_stand_elsewhere_than_on_the_first_device(child, name, variables):
    merged_on = computed(child, name, [1, 1], None, variables)["merged on"]
    assert merged_on == (["CPU:0", "CPU:1"] if variables == "spread" else ["CPU:0"])


@pytest.mark.parametrize(
    ("gives_inputs", "weighted"), [(True, False), (False, False), (False, True)]
)
def test_fit_trains_with_the_parallel_step(child, gives_inputs, weighted):
    found = child.call(parallel_live.fit_parallel, gives_inputs, weighted)
    assert found["parallel"] == pytest.approx(found["own"], rel=TOLERANCE)
    assert found["parallel weights"] == pytest.approx(found["own weights"], rel=1e-3, abs=1e-4)
    assert found["own on"] == []
    assert "CPU:1" in found["parallel on"]


def test_without_inputs_the_first_call_splits_the_step(child):
    found = child.call(parallel_live.first_calls)
    assert max(found["off"]) <= 1e-6
    refused = found["refused"]
    assert "for inputs of shape (8, 4), not (6, 4)" in refused["other size"]
    assert "a tensor of shape (None, 4), whose size is not known" in refused["open size"]
    assert "output 0 ('Max') cannot be put" in refused["cannot be split"]


def test_what_cannot_be_split_is_said_with_its_reason(child):
    said = child.call(parallel_live.refusals)
    assert [(reason, message) for reason, message in said if reason not in message] == []


def test_replicas_that_share_a_seed_draw_numbers_of_their_own(child):
    masks = child.call(parallel_live.masks, [1, 1, 1])
    assert all(set(mask) == {0.0, 2.0} for mask in masks)
    assert len(set(map(tuple, masks))) == 3


def test_another_order_of_samples_changes_nothing_but_rounding(child):
    """Outputs with a part for each sample come back in the order of the batch."""
    for as_it_is, reordered in child.call(parallel_live.reordered).values():
        assert any(np.ndim(value) for value in as_it_is.outputs)
        for one, other in zip(as_it_is.outputs, reordered.outputs, strict=True):
            assert other == pytest.approx(one, rel=1e-4)
        for name, value in as_it_is.state.items():
            assert reordered.state[name] == pytest.approx(value, rel=1e-4)
        assert any(
            not np.array_equal(one.value, other.value)
            for name, given in as_it_is.given.items()
            for one, other in zip(given, reordered.given[name], strict=True)
        ), "sums were added up in the same order"


@pytest.mark.parametrize("loses_a_share", [False, True])
def test_a_tie_that_goes_the_other_way_is_unverified_and_a_lost_share_wrong(child, loses_a_share):
    found = child.call(parallel_live.verified_tie, loses_a_share)
    assert bool(found.wrong) == loses_a_share
    if loses_a_share:
        assert found.relative_difference > 0.1
    else:
        assert found.unverified == ("squares",)


# From the values that there are, twice, then from others.
@pytest.mark.parametrize(
    ("runs", "is_wrong"), [([1, 2], False), ([1, 2, 3], False), ([1], True), ([1, 2, 3, 4], True)]
)
def test_what_differs_from_some_values_alone_is_no_mistake_unless_by_chance(child, runs, is_wrong):
    found = child.call(parallel_live.verified_where_one_number_differs, runs)
    assert bool(found.wrong) == is_wrong
    assert is_wrong or found.unverified == ()


@pytest.mark.parametrize("looking_changes_it", [False, True])
def test_state_is_put_back_each_time_only_where_looking_changes_it(child, looking_changes_it):
    kinds, resets = child.call(parallel_live.found_and_resets, looking_changes_it)
    assert kinds == ["Sum"]
    # Two steps, from exact and from rounded values: as each is made, and before it is looked at.
    assert resets > 4 if looking_changes_it else resets == 4
