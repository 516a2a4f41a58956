"""The search of one graph: pins hold, and what cannot be is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from placed_steps import op, pair, price

from placement_advisor.candidates.step_search import search_step
from placement_advisor.errors import PlacementError
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.solvers.effort import Effort

if TYPE_CHECKING:
    from placement_advisor.solvers.search_result import Found

NAMES = ("one", "two", "three")


def searched(**pinned: str) -> Found:
    """Return what is found for three ops of 100 ns that do not need one another."""
    cluster = pair()
    graph = OpGraph([op(name, 8) for name in NAMES], [])
    tables = price(dict.fromkeys(NAMES, 100)).everywhere(cluster)
    return search_step(graph, tables, cluster, Effort(units=0.05), pinned)


def test_two_of_three_ops_share_a_device() -> None:
    found = searched()
    assert found.objective_value == 200
    assert found.is_proven


def test_ops_stay_where_they_are_pinned() -> None:
    found = searched(one="b", two="b", three="b")
    assert found.device_of == dict.fromkeys(NAMES, "b")
    # Other placements take 200 ns; of those that keep to the pins none takes less.
    assert (found.objective_value, found.lower_bound, found.is_proven) == (300, 300, True)


def test_a_pin_of_what_there_is_not_is_refused() -> None:
    with pytest.raises(PlacementError, match="'four' is pinned to 'a', but is not in the graph"):
        searched(four="a")
    with pytest.raises(PlacementError, match="'one' is pinned to 'z'; there are a, b"):
        searched(one="z")
