"""What a split of the batch costs by figures of devices, and by what was recorded of the step."""

from __future__ import annotations

import pytest
from sample_values import costs_of
from split_steps import split_towers

from placement_advisor.analysis.step_costs import split_costs_from_unsplit
from placement_advisor.analysis.target_costs import RECORDED_UNCERTAINTY, StepCosts
from placement_advisor.candidates.batch_split.split_graph import split_graph
from placement_advisor.cost.roofline import roofline_by_place
from placement_advisor.cost.table import CostBasis, CostSource, CostTable
from placement_advisor.machine.presets import read_hardware
from placement_advisor.tf.answers import TracedSplit

TRACES = split_towers(hosts=2, samples=4)
CLUSTER = read_hardware("2xT4")
FIGURES = roofline_by_place(TRACES.whole, CLUSTER)
REPLICAS = ("replica_0/left/product", "replica_1/left/product")


def priced(recorded_ns: dict[str, int]):
    recorded = costs_of(recorded_ns, CostBasis.MEASURED)
    table = CostTable(costs={**FIGURES["GPU:0"].costs, **recorded.costs})
    prices = StepCosts(
        cluster=CLUSTER,
        costs=FIGURES | dict.fromkeys(CLUSTER.device_names(), table),
        source=CostSource.RECORDED,
        doubt=RECORDED_UNCERTAINTY,
    )
    parts = (TRACES.whole, TRACES.replicas, TRACES.wiring, TRACES.outputs, TRACES.targets)
    alike = TRACES.weak(2)
    weak = (alike.whole, alike.replicas, alike.wiring, alike.outputs, alike.targets)
    split = TracedSplit(
        graphs={"batch": split_graph(*parts)},
        weak={"batch": split_graph(*weak)},
        samples=(4, 4),
        shares={},
        own=(),
    )
    return split_costs_from_unsplit(split, prices, TRACES.whole)


def test_of_what_was_recorded_a_share_costs_the_part_that_figures_tell() -> None:
    by_figures = priced({}).costs["batch"]["GPU:1"]
    whole_ns = FIGURES["GPU:0"].time_ns("left/product")
    found = priced({"left/product": 10 * whole_ns, "join": 0})
    for name in REPLICAS:
        # Half of the samples take about half as long.
        assert 0.4 * whole_ns < by_figures.time_ns(name) < 0.6 * whole_ns
        expected_ns = pytest.approx(10 * by_figures.time_ns(name), abs=5)
        assert found.costs["batch"]["GPU:1"].time_ns(name) == expected_ns
        assert found.costs["batch"]["GPU:1"].costs[name].basis is not CostBasis.MEASURED
        assert found.weak_costs["batch"]["GPU:1"].time_ns(name) == 10 * whole_ns
    # What was fused into another op is so in each share.
    assert found.costs["batch"]["GPU:0"].time_ns("replica_1/join") == 0
    others = {name for name in by_figures.costs if name not in REPLICAS and "join" not in name}
    assert all(found.costs["batch"]["GPU:1"].costs[n] == by_figures.costs[n] for n in others)
    # The host was not recorded.
    assert found.costs["batch"]["CPU:0"] == priced({}).costs["batch"]["CPU:0"]


def test_without_a_recording_all_is_by_figures() -> None:
    parts = (TRACES.whole, TRACES.replicas, TRACES.wiring, TRACES.outputs, TRACES.targets)
    assert priced({}).costs["batch"] == roofline_by_place(split_graph(*parts).graph, CLUSTER)
