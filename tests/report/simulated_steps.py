"""Small simulations: the two towers of a recommender, on figures that a reader can follow."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sample_values import costs_of, links_between

from placement_advisor.cost.table import CostBasis, CostTable
from placement_advisor.graph.op import CONTROL_PORT, Edge, Op, Role
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.graph.placement import Placement
from placement_advisor.machine.devices import Cluster, CopyWork, Device, Dispatch
from placement_advisor.simulator.simulator import Origin, Simulation, simulation

if TYPE_CHECKING:
    from collections.abc import Mapping

US = 1_000
BOTH = frozenset({"CPU", "GPU"})


def _op(name: str, kind: str, *sizes: int | None, layer: str | None = None) -> Op:
    kinds = frozenset({"CPU"}) if kind == "LookupTableFindV2" else BOTH
    return Op(name=name, kind=kind, layer=layer, output_bytes=sizes, device_kinds=kinds)


def towers_graph(user_layer: str = "user") -> OpGraph:
    """Return a lookup whose two results feed a tower each, which meet in a product."""
    ops = [
        Op(name="ids", kind="Placeholder", role=Role.INPUT, output_bytes=(800,)),
        _op("lookup", "LookupTableFindV2", 1_600, 1_600, layer="lookup"),
        _op("user", "MatMul", 4_000, layer=user_layer),
        _op("item", "MatMul", None, layer="item"),
        _op("dot", "Mul", 400, layer="dot"),
        _op("count", "AssignAddVariableOp"),
    ]
    edges = [
        ("ids", "lookup", 0, 800),
        ("lookup", "user", 0, 1_600),
        ("lookup", "item", 1, 1_600),
        ("user", "dot", 0, 4_000),
        ("item", "dot", 0, None),
        ("dot", "count", CONTROL_PORT, None),
    ]
    return OpGraph(
        ops,
        [Edge(producer=p, consumer=c, port=port, size_bytes=size) for p, c, port, size in edges],
    )


PLACEMENT = Placement(
    label="towers",
    family="towers",
    device_of={
        "ids": "GPU:0",
        "lookup": "GPU:0",
        "user": "GPU:0",
        "item": "GPU:1",
        "dot": "GPU:0",
        "count": "GPU:1",
    },
    rationale="2 towers meet only at dot; one per device",
)


def two_gpus(memory_bytes: int | None = 16_000_000_000) -> Cluster:
    """Return two cards and a host that works on the copies it sends and receives."""
    names = ("GPU:0", "GPU:1", "CPU:0")
    return Cluster(
        devices=tuple(
            Device(
                name=name,
                kind="GPU",
                host="CPU:0",
                memory_bytes=memory_bytes,
                launch_overhead_ns=US,
            )
            for name in names[:2]
        ),
        hosts=(Device(name="CPU:0", kind="CPU"),),
        links=tuple(
            replace(link, sender=CopyWork(per_copy_ns=4 * US if link.source == "CPU:0" else 0))
            for link in links_between(names, 20 * US, channel="switch")
        ),
        dispatch=Dispatch(step_overhead_ns=100 * US),
    )


_TIMES_US = {"lookup": 30, "user": 200, "item": 180, "dot": 10, "count": 2}


def towers(
    *,
    cluster: Cluster | None = None,
    renamed: Mapping[str, str] | None = None,
    user_layer: str = "user",
) -> Simulation:
    """Simulate the towers, one on each card."""
    cluster = cluster or two_gpus()
    times_ns = {name: time_us * US for name, time_us in _TIMES_US.items()}
    rough = costs_of({"count": times_ns.pop("count")}, CostBasis.GUESSED)
    costs = CostTable(costs={**costs_of(times_ns, CostBasis.ROOFLINE).costs, **rough.costs})
    return simulation(
        towers_graph(user_layer),
        PLACEMENT,
        costs.everywhere(cluster),
        cluster,
        Origin(
            graph_file="towers.graph.json.gz",
            placement_file="placements/towers.json",
            machine="2xV100",
            renamed=renamed or {},
        ),
    )
