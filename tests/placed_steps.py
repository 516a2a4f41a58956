"""Placed steps for tests: a fixed diamond, and random ones for properties."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import permutations, product

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from sample_values import costs_of, links_between

from placement_advisor.cost.table import CostBasis, CostTable
from placement_advisor.graph.op import CONTROL_PORT, Edge, Op, Role
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.graph.placement import Placement
from placement_advisor.machine.devices import (
    NO_COPY_WORK,
    Basis,
    Cluster,
    CopyWork,
    Device,
    Dispatch,
    Link,
    Sharing,
)
from placement_advisor.simulator.simulator import Simulator


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedStep:
    """``costs`` hold everywhere but on the devices of ``costs_on``."""

    graph: OpGraph
    placement: Placement
    costs: CostTable
    cluster: Cluster
    costs_on: Mapping[str, CostTable] = field(default_factory=dict)

    def simulate(self):
        return self.simulator().schedule(self.placement)

    def simulator(self):
        return Simulator(self.graph, self.all_costs(), self.cluster)

    def all_costs(self):
        return {**self.costs.everywhere(self.cluster), **self.costs_on}

    def on_one_device(self):
        first = self.cluster.devices[0].name
        return replace(self, placement=place(dict.fromkeys(self.placement.device_of, first)))

    def placements(self):
        """Yield every placement: the number of the place of each op, those of a variable alike."""
        places, of_op = len(self.cluster.place_names()), groups(self.graph)
        for chosen in product(range(places), repeat=len(set(of_op))):
            yield np.array(chosen, np.int64)[of_op]

    def with_links(self, **changes):
        links = tuple(replace(link, **changes) for link in self.cluster.links)
        return replace(self, cluster=replace(self.cluster, links=links))


def groups(graph):
    """Return by op the number of its group: ops of one variable together, others alone."""
    found = {}
    keys = [
        op.name if op.variable is None and op.role is Role.VARIABLE else op.variable or i
        for i, op in enumerate(graph.placed_ops)
    ]
    return [found.setdefault(key, len(found)) for key in keys]


def place(device_of):
    return Placement(label="a placement", family="test", device_of=device_of, rationale="")


def price(time_ns):
    return costs_of(time_ns, CostBasis.MEASURED)


def placed(graph, device_of, time_ns, cluster=None):
    where, costs = place(device_of), price(time_ns)
    return PlacedStep(graph=graph, placement=where, costs=costs, cluster=cluster or pair())


def op(name, *output_bytes, kind="MatMul", role=Role.FORWARD):
    return Op(name, kind, role, output_bytes=output_bytes)


def edge(producer, consumer, size_bytes, *, port=0):
    return Edge(producer, consumer, port, size_bytes)


def control(producer, consumer):
    return Edge(producer, consumer, CONTROL_PORT, None)


def wired(ops, edges, cluster=None):
    """Return a step of ops by name: device, ns (None without a cost), and bytes of each output.

    ``edges`` are `a -> b`, `a:1 -> b` of another output than the first, `^a -> b` for control.
    """
    sizes = {name: output_bytes for name, (_, _, *output_bytes) in ops.items()}
    found = []
    for each in filter(None, edges.split(", ")):
        source, consumer = each.split(" -> ")
        if source.startswith("^"):
            found.append(control(source[1:], consumer))
        else:
            producer, _, port = source.partition(":")
            size = sizes[producer][int(port or 0)]
            found.append(edge(producer, consumer, size, port=int(port or 0)))
    return placed(
        OpGraph([op(name, *output_bytes) for name, output_bytes in sizes.items()], found),
        {name: device for name, (device, *_) in ops.items()},
        {name: ns for name, (_, ns, *_) in ops.items() if ns is not None},
        cluster or pair(),
    )


AT_ONCE = Dispatch()


def pair(
    *,
    latency_ns=10,
    bytes_per_ns=1.0,
    work=NO_COPY_WORK,
    launch_overhead_ns=0,
    dispatch=AT_ONCE,
    count=2,
    channel=None,
):
    """Return ``count`` devices named a, b, c …, linked alike in every direction."""
    names = "abcdefgh"[:count]
    return Cluster(
        devices=tuple(
            Device(name=name, kind="CPU", launch_overhead_ns=launch_overhead_ns) for name in names
        ),
        links=links_between(
            names,
            latency_ns,
            bandwidth_bytes_per_s=bytes_per_ns * 1e9,
            channel=channel,
            sender=work,
            receiver=work,
        ),
        dispatch=dispatch,
    )


def launching_ahead(launch_ns, **cluster):
    """Return a `pair` of devices that launch ahead."""
    plain = pair(launch_overhead_ns=launch_ns, **cluster)
    devices = tuple(replace(device, launches_ahead=True) for device in plain.devices)
    return replace(plain, devices=devices)


# Half of the time that a link of `pair` gives a tensor, at each end.
HALF_EACH = CopyWork(per_copy_ns=5, ns_per_byte=0.5)


def star(readers, *, op_ns, work, latency_ns=0, **cluster):
    """Return a root of 10 ns that so many ops read, each by a tensor of its own."""
    names = [f"op{i}" for i in range(readers)]
    ops = {"root": ("a", 10, *[4] * readers), **dict.fromkeys(names, ("a", op_ns, 4))}
    edges = ", ".join(f"root:{i} -> {name}" for i, name in enumerate(names))
    return wired(ops, edges, pair(latency_ns=latency_ns, work=work, **cluster))


def clock(readers=20):
    """Return a root whose every reader takes 6 ns, and 7 ns to send to."""
    return star(readers, op_ns=6, work=HALF_EACH, latency_ns=20)


def diamond(**cluster):
    """Return src (50 ns) read by left (80) and right (100), both read by sink (20); right on b."""
    left, right = ("a", 80, 100), ("b", 100, 100)
    ops = {"src": ("a", 50, 100), "left": left, "right": right, "sink": ("a", 20, 4)}
    return wired(ops, "src -> left, src -> right, left -> sink, right -> sink", pair(**cluster))


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What is drawn for a step: any figures, or such as let much happen at one moment."""

    sizes: SearchStrategy[int | None]
    times_ns: SearchStrategy[int]
    overheads_ns: SearchStrategy[int]
    bandwidths: SearchStrategy[float]
    curves: SearchStrategy[tuple[tuple[int, int], ...]]
    copy_work: SearchStrategy[CopyWork]


_ANY = Figures(
    sizes=st.one_of(st.none(), st.integers(0, 2_000)),
    times_ns=st.integers(0, 200),
    overheads_ns=st.integers(0, 90),
    bandwidths=st.sampled_from([0.3e9, 1e9, 7e9]),
    curves=st.sampled_from([(), ((100, 90), (1_000, 400), (1_500, 3_000))]),
    copy_work=st.one_of(
        st.just(NO_COPY_WORK),
        st.builds(
            CopyWork,
            per_copy_ns=st.sampled_from([0, 7, 60]),
            ns_per_byte=st.sampled_from([0.0, 0.13, 1.5]),
        ),
    ),
)
_TIED = Figures(
    sizes=st.sampled_from([None, 0, 50, 100]),
    times_ns=st.sampled_from([0, 0, 50, 100]),
    overheads_ns=st.sampled_from([0, 50]),
    bandwidths=st.just(1e9),
    curves=st.sampled_from([(), ((50, 50), (100, 150))]),
    copy_work=st.sampled_from([NO_COPY_WORK, CopyWork(per_copy_ns=50), CopyWork(ns_per_byte=1)]),
)


@st.composite
def clusters(draw, figures=_ANY, *, hosts=True):
    """Draw uneven devices and links, some with copy work, some on shared channels."""
    host_names = "xy"[: draw(st.integers(1, 2))] if hosts else ""
    launch_ns = st.integers(0, 5) if figures is _ANY else st.just(0)
    devices = []
    for name in "abc"[: draw(st.integers(1, 3))]:
        host = draw(st.sampled_from([None, *host_names]))
        kind = "CPU" if host is None else "GPU"
        overhead_ns = draw(launch_ns)
        devices.append(
            Device(
                name=name,
                kind=kind,
                host=host,
                launch_overhead_ns=overhead_ns,
                launches_ahead=kind == "GPU" and draw(st.booleans()),
                remote_start_ns=draw(st.none() | figures.overheads_ns),
                remote_end_ns=draw(st.none() | figures.overheads_ns),
            )
        )
    sorts = draw(
        st.lists(
            st.builds(
                Link,
                source=st.just(""),
                target=st.just(""),
                latency_ns=figures.times_ns,
                bandwidth_bytes_per_s=figures.bandwidths,
                basis=st.just(Basis.ASSUMED),
                channel=st.sampled_from([None, "wire", "bus"]),
                curve=figures.curves,
                sender=figures.copy_work,
                receiver=figures.copy_work,
                request_ns=st.just(0) | figures.times_ns,
                wake_ns=st.just(0) | figures.times_ns,
                stream_bytes_per_s=st.none() | figures.bandwidths,
            ),
            min_size=1,
            max_size=3,
        )
    )
    names = [*(device.name for device in devices), *host_names]
    return Cluster(
        devices=tuple(devices),
        links=tuple(
            replace(draw(st.sampled_from(sorts)), source=source, target=target)
            for source, target in permutations(names, 2)
        ),
        hosts=tuple(
            Device(name=name, kind="CPU", launch_overhead_ns=draw(launch_ns)) for name in host_names
        ),
        dispatch=draw(
            st.builds(
                Dispatch,
                step_overhead_ns=figures.overheads_ns,
                partition_overhead_ns=figures.overheads_ns,
                remote_start_ns=figures.overheads_ns,
                remote_end_ns=figures.overheads_ns,
                quantum_ns=st.sampled_from([0, 1, 40, 100, 250, 10_000]),
                asleep_ns=st.sampled_from([0, 1, 50, 200]),
            )
        ),
        sharing=draw(
            st.builds(
                Sharing,
                split_ratio=st.sampled_from([1.0, 1.04, 1.5]),
                memory_bytes_per_s=st.sampled_from([1e6, 1e9, 1e12]),
                memory_ratio=st.sampled_from([1.0, 1.7, 3.0]),
                exchange_loss=st.sampled_from([0.0, 0.5, 1.0]),
            )
        ),
    )


@st.composite
def placed_steps(draw, max_ops=14, *, hosts=False):
    """Draw a random DAG with constants, variables, control edges and several ports, placed.

    With ``hosts`` some devices are GPUs, and some ops have no kernel for those.
    """
    figures = draw(st.sampled_from([_ANY, _TIED]))
    cluster = draw(clusters(figures, hosts=hosts))
    devices = st.sampled_from(cluster.place_names())
    roles = [Role.FORWARD] * 4 + [Role.CONSTANT, Role.INPUT, Role.VARIABLE]
    kernels = [frozenset({"CPU"})] + [frozenset({"CPU", "GPU"})] * 3
    ops = []
    edges = []
    device_of = {}
    for i in range(draw(st.integers(0, max_ops))):
        name = f"op{i}"
        sizes = tuple(draw(st.lists(figures.sizes, min_size=1, max_size=2)))
        role = draw(st.sampled_from(roles))
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
                name,
                kind,
                role,
                variable=variable,
                output_bytes=sizes,
                bytes_accessed=draw(st.sampled_from([None, 0, 30, 10_000])),
                parameter_bytes=1_000 if role is Role.VARIABLE else 0,
                device_kinds=draw(st.sampled_from(kernels)) if hosts else kernels[0],
            )
        )
        if role is not Role.CONSTANT:
            device_of[name] = device_of.get(variable or "", "") or draw(devices)
    graph = OpGraph(ops, edges)
    computed = [o.name for o in graph.placed_ops if o.role is Role.FORWARD]
    count = 1 + draw(st.booleans())
    tables = [price({name: draw(figures.times_ns) for name in computed}) for _ in range(count)]
    return PlacedStep(
        graph=graph,
        placement=place(device_of),
        costs=tables[0],
        cluster=cluster,
        costs_on=dict.fromkeys(cluster.device_names()[1:], tables[-1]),
    )
