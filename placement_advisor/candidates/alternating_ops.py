"""The device changes at every op: the worst on purpose, an end of the scale.

Ops take devices in turn, in topological order. What holds, reads or updates one variable or table
can only stand together and takes one turn, that of its first op.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.candidates.not_applicable import NotApplicable
from placement_advisor.graph.placement import Placement, placed_ops

if TYPE_CHECKING:
    from collections.abc import Mapping

    from placement_advisor.cost.table import CostTable
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.machine.devices import Cluster

FAMILY = "alternating-ops"
MIN_TURNS = 2


def propose(
    graph: OpGraph, costs: Mapping[str, CostTable], cluster: Cluster
) -> Placement | NotApplicable:
    """Return the placement that changes device at every op.

    Not applicable to a step of a single op, or of ops that all share one variable.
    """
    del costs  # The same for any cost.
    devices = cluster.device_names()
    device_of: dict[str, str] = {}
    home_of: dict[str, str] = {}
    turns = 0
    for op in placed_ops(graph):
        if op.variable is not None and op.variable in home_of:
            device_of[op.name] = home_of[op.variable]
            continue
        device_of[op.name] = devices[turns % len(devices)]
        turns += 1
        if op.variable is not None:
            home_of[op.variable] = device_of[op.name]
    if turns < MIN_TURNS:
        return NotApplicable(
            family=FAMILY, reason="the step has no two ops between which the device could change"
        )
    return Placement(
        label=FAMILY,
        family=FAMILY,
        device_of=device_of,
        rationale=f"the device changes at each of {turns:,} ops, those of one variable counted "
        "once: bad on purpose, to show what copies cost",
    )
