"""Steps so small that all their placements can be simulated, drawn to strain bounds.

What makes a bound say too much is rare in steps that are drawn evenly: a device that is busy to the
end of the step with nothing but what a bound counts. So figures come from few values, many of them
equal, with starts, ends and copies as long as ops; graphs are chains and stars as often as any; and
each kind of machine has its share: alike or not, copies by engines or by processors, wires shared
or not, hosts beside the devices, devices that are hosts of others, or neither.
"""

import random
from dataclasses import replace
from itertools import permutations

from placed_steps import groups, placed, price

from placement_advisor.graph.op import CONTROL_PORT, Edge, Op, Role
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.machine.devices import (
    NO_COPY_WORK,
    Basis,
    Cluster,
    CopyWork,
    Device,
    Dispatch,
    Link,
)

# A simulation takes 50 µs: thousands of steps are to be had in a minute.
_MOST_PLACEMENTS = 300
_BOTH = frozenset({"CPU", "GPU"})
_TIMES_NS = (0, 1, 7, 10, 10, 20, 40, 40, 90)
_SIZES = (None, 0, 1, 10, 40, 40)


def small_step(seed):
    """Draw a step; equal seeds give equal steps. It is placed on its first device."""
    draw = random.Random(seed)
    cluster = _cluster(draw)
    places = len(cluster.place_names())
    while True:
        graph = _graph(draw)
        if places ** len(set(groups(graph))) <= _MOST_PLACEMENTS:
            break
    computed = [op.name for op in graph.placed_ops if op.role is Role.FORWARD]
    # Handles and fed tensors may have a cost or none.
    priced = computed + [
        op.name for op in graph.placed_ops if op.role is not Role.FORWARD and draw.random() < 0.3
    ]
    first = {name: draw.choice(_TIMES_NS) for name in priced}
    kind = draw.choice(("alike", "alike", "slower", "any"))
    costs_on = {}
    for name in cluster.place_names()[1:] if kind != "alike" else ():
        slower = draw.choice((1, 2, 3))
        costs_on[name] = price(
            {
                op: time_ns * slower if kind == "slower" else draw.choice(_TIMES_NS)
                for op, time_ns in first.items()
            }
        )
    on_first = dict.fromkeys((op.name for op in graph.placed_ops), cluster.devices[0].name)
    return replace(placed(graph, on_first, first, cluster), costs_on=costs_on)


def _cluster(draw):
    names = "abc"[: draw.choice((1, 2, 2, 2, 2, 2, 3, 3))]
    hosts = draw.choice(("none", "none", "none", "beside", "among"))
    host_names = "xy"[: draw.choice((1, 1, 2))] if hosts == "beside" else ""
    launch_ns = draw.choice((0, 0, 3))
    # Devices of another machine begin when it does.
    far_ns = draw.choice(((None,), (None,), (None, 0, 30, 100)))
    devices = []
    for i, name in enumerate(names):
        cpus = host_names if hosts == "beside" else names[:1] if hosts == "among" and i else ""
        host = draw.choice((None, *cpus))
        devices.append(
            Device(
                name=name,
                kind="CPU" if host is None else "GPU",
                host=host,
                launch_overhead_ns=draw.choice((0, launch_ns)),
                remote_start_ns=draw.choice(far_ns),
                remote_end_ns=draw.choice(far_ns),
            )
        )
    if hosts == "among" and draw.random() < 0.3:
        devices.reverse()
    sorts = [_link(draw) for _ in range(draw.choice((1, 1, 2, 3)))]
    links = []
    for source, target in permutations([*names, *host_names], 2):
        sort = draw.choice(sorts)
        channel = draw.choice((None, "bus", "wire"))
        links.append(Link(source=source, target=target, channel=channel, **sort))
    times_ns = draw.choice(((0,), (0, 10, 40), (0, 5, 20, 60, 150)))
    return Cluster(
        devices=tuple(devices),
        links=tuple(links),
        hosts=tuple(
            Device(name=name, kind="CPU", launch_overhead_ns=launch_ns) for name in host_names
        ),
        dispatch=Dispatch(
            step_overhead_ns=draw.choice((0, 7)),
            partition_overhead_ns=draw.choice(times_ns),
            remote_start_ns=draw.choice(times_ns),
            remote_end_ns=draw.choice(times_ns),
            quantum_ns=draw.choice((0, 1, 40, 10_000)),
        ),
    )


def _link(draw):
    works = (
        NO_COPY_WORK,
        NO_COPY_WORK,
        CopyWork(per_copy_ns=10),
        CopyWork(per_copy_ns=3, ns_per_byte=0.5),
        CopyWork(ns_per_byte=1.0),
        CopyWork(per_copy_ns=40),
    )
    return {
        "basis": Basis.ASSUMED,
        "latency_ns": draw.choice((0, 0, 5, 40)),
        "bandwidth_bytes_per_s": draw.choice((0.3e9, 1e9, 1e12)),
        "curve": draw.choice(((), (), ((10, 5), (40, 90)))),
        "sender": draw.choice(works),
        "receiver": draw.choice(works),
        "request_ns": draw.choice((0, 0, 0, 30)),
    }


def _graph(draw):
    count = draw.randint(1, 6)
    shape = draw.choice(("chain", "star", "any", "any"))
    ops = []
    edges = []
    for i in range(count):
        name = f"op{i}"
        role = draw.choice((*[Role.FORWARD] * 8, Role.CONSTANT, Role.INPUT, Role.VARIABLE))
        variable = None
        if role is Role.VARIABLE:
            # A handle may not say that it is of itself, and variables have names as they like.
            variable = draw.choice((None, name, name, f"\0op{draw.randrange(count)}"))
        read = []
        if role is Role.FORWARD and ops:
            if shape == "chain":
                read = [ops[-1]]
            elif shape == "star":
                read = [ops[0]]
            else:
                read = draw.choices(ops, k=draw.choice((0, 1, 1, 2, 3)))
        for source in read:
            port = draw.randrange(CONTROL_PORT, len(source.output_bytes))
            if source.role is Role.VARIABLE:
                if variable not in (None, source.variable or source.name):
                    continue
                variable = source.variable or source.name
            size = None if port == CONTROL_PORT else source.output_bytes[port]
            edges.append(Edge(source.name, name, port, size))
        ops.append(
            Op(
                name,
                "MatMul",
                role,
                variable=variable,
                output_bytes=tuple(draw.choice(_SIZES) for _ in range(draw.choice((1, 1, 2)))),
                device_kinds=draw.choice((_BOTH, _BOTH, frozenset({"CPU"}))),
            )
        )
    return OpGraph(ops, edges)
