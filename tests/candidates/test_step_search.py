"""The search of one graph: pins hold, and what cannot be is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from placed_steps import PlacedStep, edge, op, pair, place, placed_steps, price

from placement_advisor.candidates.searched import SearchResult, search_step
from placement_advisor.errors import PlacementError
from placement_advisor.graph.op import Op, Role
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.graph.placement import placed_ops
from placement_advisor.solvers.effort import Effort

if TYPE_CHECKING:
    from placement_advisor.machine.devices import Cluster

NAMES = ("one", "two", "three")


def searched(**pinned: str) -> SearchResult:
    """Return what is found for three ops of 100 ns that do not need one another."""
    cluster = pair()
    graph = OpGraph([op(name, 8) for name in NAMES], [])
    tables = price(dict.fromkeys(NAMES, 100)).everywhere(cluster)
    return search_step(graph, tables, cluster, Effort(units=0.05), pinned)


def test_two_of_three_ops_share_a_device() -> None:
    found = searched()
    assert found.step_ns == 200
    assert found.is_proven


def test_ops_stay_where_they_are_pinned() -> None:
    found = searched(one="b", two="b", three="b")
    assert found.placement.device_of == dict.fromkeys(NAMES, "b")
    # Other placements take 200 ns; of those that keep to the pins none takes less.
    assert (found.step_ns, found.lower_bound_ns, found.is_proven) == (300, 300, True)


def test_a_pin_of_what_there_is_not_is_refused() -> None:
    with pytest.raises(PlacementError, match="'four' is pinned to 'a', but is not in the graph"):
        searched(four="a")
    with pytest.raises(PlacementError, match="'one' is pinned to 'z'; there are a, b"):
        searched(one="z")


def of_one_variable(*, variable: str | None) -> tuple[OpGraph, Cluster]:
    """Return a variable, two ops that read it, of which one has no GPU kernel, and two GPUs."""
    both = frozenset({"CPU", "GPU"})
    held = Op("v", "VarHandleOp", Role.VARIABLE, variable=variable, device_kinds=both)
    plain = op("plain", 8)._replace(variable="v", device_kinds=both)
    host_only = op("host only", 8)._replace(variable="v")
    edges = [edge("v", each.name, None) for each in (plain, host_only)]
    three = pair(count=3)
    *devices, host = three.devices
    gpus = tuple(replace(device, kind="GPU", host=host.name) for device in devices)
    return OpGraph([held, plain, host_only], edges), replace(three, devices=gpus, hosts=(host,))


def test_a_pinned_variable_takes_its_ops_along_whether_or_not_it_is_named_twice() -> None:
    for variable in ("v", None):
        graph, cluster = of_one_variable(variable=variable)
        tables = price({"plain": 100, "host only": 100}).everywhere(cluster)
        found = search_step(graph, tables, cluster, Effort(units=0.05), {"v": "b"})
        assert found.placement.device_of == dict.fromkeys(("v", "plain", "host only"), "b")
        with pytest.raises(PlacementError, match="both have to be with variable 'v'"):
            search_step(graph, tables, cluster, Effort(units=0.05), {"v": "b", "plain": "a"})


@given(placed_steps(max_ops=6, hosts=True), st.data())
def test_any_one_op_can_be_pinned_anywhere(step: PlacedStep, data: Any) -> None:
    unnamed = (o._replace(variable=None) if o.role is Role.VARIABLE else o for o in step.graph.ops)
    graph = OpGraph(unnamed, step.graph.edges)
    if not placed_ops(graph):
        return
    pinned = data.draw(st.sampled_from([o.name for o in placed_ops(graph)]))
    where = data.draw(st.sampled_from(step.cluster.place_names()))
    found = search_step(graph, step.all_costs(), step.cluster, Effort(units=0.01), {pinned: where})
    placement = place(found.placement.device_of)
    assert placement.device_of[pinned] == where
    assert step.simulator().step_ns(placement) == found.step_ns
