"""Placed steps for tests: a fixed diamond, and random ones for properties."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hypothesis import strategies as st

from placement_advisor.cost.table import CostBasis, CostTable, OpCost
from placement_advisor.devices import Basis, Cluster, Device, Link
from placement_advisor.graph import CONTROL_PORT, Edge, Op, OpGraph, Role
from placement_advisor.placement import Placement, placed_ops
from placement_advisor.simulate.engine import simulate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hypothesis.strategies import DrawFn

    from placement_advisor.simulate.schedule import Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedStep:
    graph: OpGraph
    placement: Placement
    costs: CostTable
    cluster: Cluster

    def simulate(self) -> Schedule:
        return simulate(self.graph, self.placement, self.costs, self.cluster)

    def on_one_device(self) -> PlacedStep:
        first = self.cluster.devices[0].name
        return replace(self, placement=place(dict.fromkeys(self.placement.device_of, first)))

    def with_free_copies(self) -> PlacedStep:
        links = tuple(
            replace(link, latency_ns=0, bandwidth_bytes_per_s=1e18) for link in self.cluster.links
        )
        return replace(self, cluster=replace(self.cluster, links=links))


def place(device_of: Mapping[str, str]) -> Placement:
    return Placement(label="a placement", family="test", device_of=device_of, rationale="")


def price(time_ns: Mapping[str, int]) -> CostTable:
    return CostTable(
        costs={
            name: OpCost(time_ns=time, basis=CostBasis.MEASURED) for name, time in time_ns.items()
        }
    )


def op(name: str, *output_bytes: int | None, kind: str = "MatMul", role: Role = Role.FORWARD) -> Op:
    return Op(name=name, kind=kind, role=role, output_bytes=output_bytes)


def edge(producer: str, consumer: str, size_bytes: int | None, *, port: int = 0) -> Edge:
    return Edge(producer=producer, consumer=consumer, port=port, size_bytes=size_bytes)


def control(producer: str, consumer: str) -> Edge:
    return Edge(producer=producer, consumer=consumer, port=CONTROL_PORT, size_bytes=None)


def pair(
    *,
    latency_ns: int = 10,
    bytes_per_ns: float = 1.0,
    copies_occupy_devices: bool = False,
    launch_overhead_ns: int = 0,
    step_overhead_ns: int = 0,
    count: int = 2,
) -> Cluster:
    """Return ``count`` devices named a, b, c …, linked alike in every direction."""
    names = "abcdef"[:count]
    return Cluster(
        devices=tuple(
            Device(name=name, kind="CPU", launch_overhead_ns=launch_overhead_ns) for name in names
        ),
        links=tuple(
            Link(
                source=source,
                target=target,
                latency_ns=latency_ns,
                bandwidth_bytes_per_s=bytes_per_ns * 1e9,
                basis=Basis.ASSUMED,
            )
            for source in names
            for target in names
            if source != target
        ),
        copies_occupy_devices=copies_occupy_devices,
        step_overhead_ns=step_overhead_ns,
    )


def diamond(**cluster: bool) -> PlacedStep:
    """Return src (50 ns) read by left (80) and right (100), both read by sink (20); right on b."""
    return PlacedStep(
        graph=OpGraph(
            [op("src", 100), op("left", 100), op("right", 100), op("sink", 4)],
            [
                edge("src", "left", 100),
                edge("src", "right", 100),
                edge("left", "sink", 100),
                edge("right", "sink", 100),
            ],
        ),
        placement=place({"src": "a", "left": "a", "right": "b", "sink": "a"}),
        costs=price({"src": 50, "left": 80, "right": 100, "sink": 20}),
        cluster=pair(**cluster),
    )


_SIZES = st.one_of(st.none(), st.integers(0, 2_000))


@st.composite
def placed_steps(draw: DrawFn, max_ops: int = 14) -> PlacedStep:
    """Draw a random DAG with constants, variables, control edges and several ports, placed."""
    cluster = pair(
        count=draw(st.integers(1, 3)),
        latency_ns=draw(st.integers(0, 300)),
        bytes_per_ns=draw(st.sampled_from([0.3, 1.0, 7.0])),
        copies_occupy_devices=draw(st.booleans()),
        launch_overhead_ns=draw(st.integers(0, 5)),
        step_overhead_ns=draw(st.integers(0, 50)),
    )
    devices = st.sampled_from(cluster.device_names())
    ops: list[Op] = []
    edges: list[Edge] = []
    device_of: dict[str, str] = {}
    for i in range(draw(st.integers(0, max_ops))):
        name = f"op{i}"
        sizes = tuple(draw(st.lists(_SIZES, min_size=1, max_size=2)))
        role = draw(
            st.sampled_from([Role.FORWARD] * 4 + [Role.CONSTANT, Role.INPUT, Role.VARIABLE])
        )
        variable = name if role is Role.VARIABLE else None
        kind = draw(st.sampled_from(["MatMul", "Identity"]))
        if role is Role.FORWARD and ops:
            for source in draw(st.lists(st.sampled_from(ops), max_size=4)):
                port = draw(st.integers(CONTROL_PORT, len(source.output_bytes) - 1))
                is_control = port == CONTROL_PORT
                if source.role is Role.VARIABLE:
                    if variable not in (None, source.name):
                        continue
                    variable, kind = source.name, "ReadVariableOp"
                size_bytes = None if is_control else source.output_bytes[port]
                edges.append(edge(source.name, name, size_bytes, port=port))
        ops.append(
            Op(
                name=name,
                kind=kind,
                role=role,
                variable=variable,
                output_bytes=sizes,
                parameter_bytes=1_000 if role is Role.VARIABLE else 0,
            )
        )
        if role is not Role.CONSTANT:
            device_of[name] = device_of.get(variable or "", "") or draw(devices)
    graph = OpGraph(ops, edges)
    computed = [o.name for o in placed_ops(graph) if o.role is Role.FORWARD]
    return PlacedStep(
        graph=graph,
        placement=place(device_of),
        costs=price({name: draw(st.integers(0, 200)) for name in computed}),
        cluster=cluster,
    )
