"""What `with tf.device` around layers really does: the backward pass stays on the first device.

The forward pass and the variables are split as in `towers`. `tf.GradientTape` and Keras' optimizers
are called outside the device scopes, so the backward pass and what optimizers compute carry no
device and land on the first one, whatever the forward pass says. Ops that take a variable run where
it is, as ever; slots stand with the variable that they serve, as Keras creates them.

Left out: splits by hand along other lines than towers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from placement_advisor.candidates import towers
from placement_advisor.candidates.busy_time import busy_ns
from placement_advisor.candidates.not_applicable import NotApplicable
from placement_advisor.graph.op_graph import Role
from placement_advisor.graph.placement import placed_ops
from placement_advisor.graph.roles import TRAINING_ROLES
from placement_advisor.units import counted, format_ns

if TYPE_CHECKING:
    from collections.abc import Mapping

    from placement_advisor.cost.table import CostTable
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.graph.placement import Placement
    from placement_advisor.machine.devices import Cluster

FAMILY = "towers-forward-only"


def propose(
    graph: OpGraph, costs: Mapping[str, CostTable], cluster: Cluster
) -> Placement | NotApplicable:
    """Return the towers with all backward ops on the first device.

    Not applicable without towers or without a backward pass.
    """
    if all(op.role is not Role.BACKWARD for op in graph.ops):
        return NotApplicable(family=FAMILY, reason="the step has no backward pass")
    split = towers.propose(graph, costs, cluster)
    if isinstance(split, NotApplicable):
        return NotApplicable(family=FAMILY, reason=f"as for towers: {split.reason}")
    first = cluster.devices[0].name
    left_behind = [
        op.name
        for op in placed_ops(graph)
        if op.role in TRAINING_ROLES and op.variable is None and split.device_of[op.name] != first
    ]
    work_ns = busy_ns(graph, costs, cluster)[first]
    time_ns = sum(work_ns.get(name, 0) for name in left_behind)
    return replace(
        split,
        label=FAMILY,
        family=FAMILY,
        device_of={**split.device_of, **dict.fromkeys(left_behind, first)},
        rationale=f"towers by `with tf.device`: {counted(len(left_behind), 'op')} of the backward "
        f"pass and the optimizer ({format_ns(time_ns)}) stay on {first}, whatever the forward "
        "pass says",
    )
