"""Small simulations: the two towers of a recommender, on figures that a reader can follow."""

from dataclasses import replace

from sample_values import costs_of, links_between

from placement_advisor.cost.table import CostBasis
from placement_advisor.graph.op import CONTROL_PORT, Edge, Op, Role
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.graph.placement import Placement
from placement_advisor.machine.devices import Cluster, CopyWork, Device, Dispatch
from placement_advisor.simulator.simulator import Simulator

US = 1_000
BOTH = frozenset({"CPU", "GPU"})


def _op(name, kind, *sizes, layer=None):
    kinds = frozenset({"CPU"}) if kind == "LookupTableFindV2" else BOTH
    return Op(name, kind, layer=layer, output_bytes=sizes, device_kinds=kinds)


def towers_graph(user_layer="user"):
    """Return a lookup whose two results feed a tower each, which meet in a product."""
    ops = [
        Op("ids", "Placeholder", Role.INPUT, output_bytes=(800,)),
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
    return OpGraph(ops, [Edge(p, c, port, size) for p, c, port, size in edges])


PLACEMENT = Placement(
    label="towers",
    family="towers",
    device_of={
        **dict.fromkeys(("ids", "lookup", "user", "dot"), "GPU:0"),
        **dict.fromkeys(("item", "count"), "GPU:1"),
    },
    rationale="2 towers meet only at dot; one per device",
)


def _two_gpus():
    """Return two cards and a host that works on the copies it sends and receives."""
    names = ("GPU:0", "GPU:1", "CPU:0")
    return Cluster(
        devices=tuple(
            Device(name=name, kind="GPU", host="CPU:0", launch_overhead_ns=US) for name in names[:2]
        ),
        hosts=(Device(name="CPU:0", kind="CPU"),),
        links=tuple(
            replace(link, sender=CopyWork(per_copy_ns=4 * US if link.source == "CPU:0" else 0))
            for link in links_between(names, 20 * US, channel="switch")
        ),
        dispatch=Dispatch(step_overhead_ns=100 * US),
    )


_TIMES_US = {"lookup": 30, "user": 200, "item": 180, "dot": 10, "count": 2}


def towers():
    """Return the schedule of the towers, one on each card."""
    cluster = _two_gpus()
    costs = costs_of(
        {name: time_us * US for name, time_us in _TIMES_US.items()}, CostBasis.ROOFLINE
    )
    return Simulator(towers_graph(), costs.everywhere(cluster), cluster).schedule(PLACEMENT)
