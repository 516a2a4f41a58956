"""Simulated steps of a batch that is split among the devices of a cluster."""

from placement_advisor.analysis.scaled_steps import simulator_of


def simulated(proposed, cluster, rings):
    """Simulate a split step."""
    simulator = simulator_of(proposed, cluster, rings)
    return simulator.outline(simulator.devices_of(proposed.placement))
