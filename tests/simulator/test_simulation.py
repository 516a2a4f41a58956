from __future__ import annotations

import pytest

from placement_advisor.cost.table import CostBasis, CostTable, OpCost
from placement_advisor.graph.op import Op
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.graph.placement import Placement
from placement_advisor.machine.devices import Cluster, Device
from placement_advisor.simulator.simulator import Origin, Simulation, simulation


def simulated(*costs: OpCost) -> Simulation:
    """Return what is told of ops of these costs, one after the other on one device."""
    graph = OpGraph([Op(name=f"op{i}", kind="MatMul") for i in range(len(costs))], [])
    table = CostTable(costs={op.name: cost for op, cost in zip(graph.ops, costs, strict=True)})
    placement = Placement(
        label="single", family="single", device_of={op.name: "a" for op in graph.ops}, rationale=""
    )
    cluster = Cluster(devices=(Device(name="a", kind="CPU"),), links=())
    origin = Origin(graph_file="", placement_file="", machine="", renamed={})
    return simulation(graph, placement, {"a": table}, cluster, origin)


def test_shares_of_the_time_say_where_costs_come_from() -> None:
    measured = OpCost(time_ns=500, basis=CostBasis.MEASURED)
    again = OpCost(time_ns=200, basis=CostBasis.MEASURED)
    guessed = OpCost(time_ns=300, basis=CostBasis.GUESSED)
    # 500 + 200 of 1,000 ns are measured.
    found = simulated(measured, guessed, again).basis_shares
    assert found[CostBasis.MEASURED] == pytest.approx(0.7)
    assert found[CostBasis.GUESSED] == pytest.approx(0.3)
    assert sum(found.values()) == pytest.approx(1)


def test_a_step_that_takes_no_time_has_no_shares() -> None:
    found = simulated(OpCost(time_ns=0, basis=CostBasis.MEASURED)).basis_shares
    assert set(found) == set(CostBasis)
    assert set(found.values()) == {0}
