"""Simulated steps of a batch that is split among the devices of a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.analysis.scaled_steps import simulator_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from placement_advisor.candidates.batch_split.data_parallel import DataParallel
    from placement_advisor.machine.devices import Cluster
    from placement_advisor.machine.hierarchy import Ring
    from placement_advisor.simulator.arrays import ScheduleArrays


def simulated(
    proposed: DataParallel, cluster: Cluster, rings: Sequence[Ring], *, op_factor: float = 1.0
) -> ScheduleArrays:
    """Simulate a split step; ops of devices take ``op_factor`` times as long as usual."""
    simulator = simulator_of(proposed, cluster, rings)
    for device in cluster.device_names():
        simulator = simulator.scaled_at(device, op_factor)
    return simulator.outline(simulator.devices_of(proposed.placement))
