"""Simulated steps of a batch that is split among the devices of a cluster."""

from placement_advisor.analysis.scaled_steps import simulator_of


def simulated(proposed, cluster, rings, *, op_factor=1.0):
    """Simulate a split step; ops of devices take ``op_factor`` times as long as usual."""
    simulator = simulator_of(proposed, cluster, rings)
    for device in cluster.device_names():
        simulator = simulator.scaled_at(device, op_factor)
    return simulator.outline(simulator.devices_of(proposed.placement))
