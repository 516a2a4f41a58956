"""Everything on the first device: what every split is compared with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.placement import Placement, placed_ops

if TYPE_CHECKING:
    from collections.abc import Sequence

    from placement_advisor.cost.table import CostTable
    from placement_advisor.graph import OpGraph

FAMILY = "single"


def propose(graph: OpGraph, costs: CostTable, devices: Sequence[str]) -> Placement:
    """Return the placement of all ops on the first device."""
    del costs  # The same for any cost.
    return Placement(
        label=FAMILY,
        family=FAMILY,
        device_of={op.name: devices[0] for op in placed_ops(graph)},
        rationale=f"everything on {devices[0]}",
    )
