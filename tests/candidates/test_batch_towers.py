"""Towers within replicas: when there are any, and where everything goes."""

from __future__ import annotations

import pytest
from step_graphs import Call, cluster_of, deepconn, training_step

from placement_advisor.candidates import towers
from placement_advisor.candidates.by_layer import NotApplicable
from placement_advisor.graph.placement import Placement

FOUR = ("d0", "d1", "d2", "d3")


def within_a_pair(calls: list[Call], *devices: str) -> Placement | NotApplicable:
    graph, costs = training_step(calls)
    cluster = cluster_of(*devices)
    return towers.within_a_pair(graph, costs.everywhere(cluster), cluster)


def test_a_pair_is_laid_out_as_towers_on_two_devices() -> None:
    graph, costs = training_step(deepconn())
    two = cluster_of("d0", "d1")
    alone = towers.propose_towers(graph, costs.everywhere(two), two)
    found = within_a_pair(deepconn(), *FOUR)
    assert isinstance(found, Placement)
    assert isinstance(alone, Placement)
    assert found.device_of == alone.device_of
    assert set(found.device_of.values()) == {"d0", "d1"}
    assert (found.label, found.family) == ("batch-towers", "batch-towers")


@pytest.mark.parametrize("count", [1, 2, 3])
def test_two_pairs_need_four_devices(count: int) -> None:
    found = within_a_pair(deepconn(), *FOUR[:count])
    assert isinstance(found, NotApplicable)
    assert found.reason == f"two pairs of devices are 4, and there are {count}"


def test_without_towers_there_are_none_within_replicas() -> None:
    found = within_a_pair([Call(name="only", feeds=("in:x",))], *FOUR)
    assert isinstance(found, NotApplicable)
    assert found.family == "batch-towers"
    assert found.reason.startswith("no layer joins two independent towers")


def test_what_devices_get_is_added_up_by_pairs() -> None:
    assert towers.by_pair([3, 2, 1, 1]) == [5, 2]
    assert towers.by_pair([1, 1, 1, 1, 9]) == [2, 2]
