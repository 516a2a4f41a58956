"""What `advisor search` answers: the best placement that was found, and a bound on any.

Times are simulated.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from placement_advisor import __version__
from placement_advisor.files.contract import (
    STRICT,
    ByName,
    Count,
    Filled,
    NotNegative,
    Ns,
    Text,
    like,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from placement_advisor.candidates.searched import SearchResult
    from placement_advisor.cost.table import CostTable
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.machine.devices import Cluster
    from placement_advisor.solvers.effort import Effort


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """What a device or host has to do by the placement."""

    name: Text
    work_ns: Ns
    """Ops, launches included."""
    ops: Count
    held_bytes: Count
    """Variables and op outputs."""
    capacity_bytes: Count | None
    """None without known limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """The best placement of an op graph for one step, and a bound on any."""

    __pydantic_config__: ClassVar = STRICT

    schema_version: Literal[2]
    advisor_version: Text
    graph_file: Text
    ops: Count
    machine: Text
    """As given, or the stand-in."""
    step_ns: Ns
    lower_bound_ns: Ns
    """Under the same costs."""
    proven: bool
    """Step equals bound."""
    stopped_by: Literal["proof", "effort", "clock"]
    """`clock`: runs may differ."""
    seconds: NotNegative
    """Reading and searching."""
    seed: Count
    effort_units: NotNegative | None
    """None without limit."""
    effort_units_spent: NotNegative
    time_limit_s: NotNegative | None
    """None without limit."""
    devices: Filled[Device]
    """Hosts last."""
    device_of: ByName[Text]

    @classmethod
    def of(
        cls,
        found: SearchResult,
        effort: Effort,
        graph: OpGraph,
        costs: Mapping[str, CostTable],
        cluster: Cluster,
        **asked: object,
    ) -> Search:
        """Return it as it is published; ``asked`` are its fields that the search does not know."""
        return like(
            cls,
            found,
            schema_version=2,
            advisor_version=__version__,
            ops=len(found.placement.device_of),
            proven=found.is_proven,
            stopped_by=found.stopped_by.value,
            seed=effort.seed,
            effort_units=None if math.isinf(effort.units) else effort.units,
            effort_units_spent=found.units,
            time_limit_s=effort.time_limit_s,
            devices=tuple(_devices(graph, costs, cluster, found.placement.device_of)),
            device_of=found.placement.device_of,
            **asked,
        )


def _devices(
    graph: OpGraph,
    costs: Mapping[str, CostTable],
    cluster: Cluster,
    device_of: Mapping[str, str],
) -> Iterator[Device]:
    for place in cluster.places():
        ops = [graph.op(name) for name, device in device_of.items() if device == place.name]
        if not ops and place in cluster.hosts:
            continue
        priced = [costs[place.name].costs.get(op.name) for op in ops]
        yield Device(
            name=place.name,
            work_ns=sum(place.busy_ns(cost.time_ns) for cost in priced if cost is not None),
            ops=len(ops),
            held_bytes=sum(op.parameter_bytes + sum(b or 0 for b in op.output_bytes) for op in ops),
            capacity_bytes=place.memory_bytes,
        )
