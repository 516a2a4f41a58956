import subprocess
import sys

import pytest
from step_graphs import Call, deepconn, training_step

from placement_advisor.candidates.families import FAMILIES, check_names, propose
from placement_advisor.errors import AdvisorError
from placement_advisor.placement import placed_ops


def test_single_puts_every_op_on_the_first_device():
    graph, costs = training_step(deepconn())
    placement = propose(["single"], graph, costs, ("d0", "d1"))["single"]
    assert placement.device_of == {op.name: "d0" for op in placed_ops(graph)}
    assert placement.rationale == "everything on d0"


def test_alternating_changes_device_at_every_layer_down_one_tower_then_down_the_next():
    graph, costs = training_step(deepconn())
    layers = propose(["alternating"], graph, costs, ("d0", "d1"))["alternating"].by_layer(graph)
    order = [
        *("lookup", "embedding", "item_conv", "item_pool", "item_flat", "item_dense"),
        *("lookup@2", "embedding@2", "user_conv", "user_pool", "user_flat", "user_dense"),
        *("rating", "loss"),
    ]
    assert [layers[layer] for layer in order] == ["d0", "d1"] * 7


def test_alternating_takes_all_devices_in_turn():
    calls = [Call(name="a", feeds=("in:x",)), *(
        Call(name=b, feeds=(a,)) for a, b in ("ab", "bc", "cd")
    )]  # fmt: skip
    graph, costs = training_step(calls)
    layers = propose(["alternating"], graph, costs, ("d0", "d1", "d2"))["alternating"].by_layer(
        graph
    )
    assert [layers[name] for name in "abcd"] == ["d0", "d1", "d2", "d0"]


def test_alternating_needs_two_layers():
    graph, costs = training_step([Call(name="only", feeds=("in:x",))])
    answer = propose(["alternating"], graph, costs, ("d0", "d1"))["alternating"]
    assert answer.reason == "the step has no two layers between which the device could change"


def test_proposals_come_in_the_order_asked_for():
    graph, costs = training_step(deepconn())
    assert list(propose(["towers", "single"], graph, costs, ("d0", "d1"))) == ["towers", "single"]


def test_an_unknown_family_names_the_known_ones():
    with pytest.raises(AdvisorError, match=r"'tower'; there are single, towers, alternating$"):
        check_names(["single", "tower"])
    check_names(list(FAMILIES))


def test_names_are_checked_without_networkx():
    code = (
        "import sys; import placement_advisor.candidates.families as f; f.check_names(['single']);"
        "assert not {'networkx', 'tensorflow', 'matplotlib'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
