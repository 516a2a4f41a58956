"""The step of today under any placement: simulated, and what a record keeps of that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from placement_advisor.analysis.doubts import assumed_doubt
from placement_advisor.candidates import references
from placement_advisor.check.record import record
from placement_advisor.cost.roofline import roofline_by_place
from placement_advisor.simulator.schedule import shortages
from placement_advisor.simulator.sensitivity import Sensitivity
from placement_advisor.simulator.simulator import Simulator

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from placement_advisor.candidates.batch_split.split_graph import SplitGraph
    from placement_advisor.check.record import Record, Versions
    from placement_advisor.cost.table import CostTable
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.graph.placement import Placement
    from placement_advisor.machine.devices import Cluster
    from placement_advisor.simulator.schedule import Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """A step under a placement; ``shortages`` say of devices what memory is missing there."""

    record: Record
    shortages: Mapping[str, str]


class Predictor:
    """Predicts a step on a cluster under one placement after the other.

    A step may be the ``split`` of a graph: placements are of that, and held against the graph on
    one device.
    """

    def __init__(
        self,
        graph: OpGraph,
        costs: Mapping[str, CostTable],
        cluster: Cluster,
        *,
        versions: Versions,
        configured: str,
        alike: Sequence[Sequence[str]],
        split: SplitGraph | None = None,
    ) -> None:
        """Take a graph and costs; the rest goes into records."""
        self._graph, self._cluster = graph, cluster
        self._versions, self._configured, self._alike = versions, configured, alike
        self._simulator = self._unsplit = Simulator(graph, costs, cluster)
        if split is not None:
            self._graph = split.graph
            split_costs = roofline_by_place(split.graph, cluster)
            together = split.collective_of
            self._simulator = Simulator(split.graph, split_costs, cluster, collective_of=together)
        self._doubt = assumed_doubt(costs, cluster)
        self._alone = references.on_device(graph, cluster.device_names()[0])

    def schedule(self, placement: Placement) -> Schedule:
        """Return the simulated step."""
        return self._simulator.schedule(placement)

    def predict(self, placement: Placement, schedule: Schedule) -> Predicted:
        """Return what is to be known of a step under a placement."""
        ratio = None
        if placement.device_of != self._alone.device_of:
            sensitivity = Sensitivity(self._unsplit, self._alone, self._doubt)
            is_split = self._simulator is not self._unsplit
            ratio = sensitivity.ratio(placement, self._simulator if is_split else None)
        found = record(
            self._graph,
            placement,
            schedule,
            self._unsplit.step_ns(self._alone),
            ratio,
            versions=self._versions,
            configured=self._configured,
            alike=self._alike,
        )
        missing = shortages(schedule.peak_memory, self._cluster.devices)
        return Predicted(record=found, shortages={each.device.name: str(each) for each in missing})
