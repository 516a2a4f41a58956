"""Steps of a batch that is split among the devices of a cluster, simulated with all ops."""

from placement_advisor.analysis.scaled_steps import costs_of_collectives, slowest_of_used
from placement_advisor.cost import collectives
from placement_advisor.cost.roofline import roofline_by_place
from placement_advisor.simulator.simulator import Simulator


def simulator_of(proposed, cluster, rings):
    """Return what simulates such a step.

    The cluster is one of as many equal ones as ``rings`` say, by level: all do the same at once,
    and differ in what their collectives wait for alone.
    """
    split, placement = proposed
    costs = roofline_by_place(split.graph, cluster)
    last, slower = slowest_of_used(set(placement.device_of.values()), cluster, rings)
    costs[last] = costs[last].scaled(slower)
    costs[collectives.ALL_DEVICES] = costs_of_collectives(split.graph.ops, split, rings)
    there = collectives.with_collectives(cluster)
    return Simulator(split.graph, costs, there, collective_of=split.collective_of)


def simulated(proposed, cluster, rings):
    """Simulate a split step."""
    simulator = simulator_of(proposed, cluster, rings)
    return simulator.outline(simulator.devices_of(proposed.placement))
