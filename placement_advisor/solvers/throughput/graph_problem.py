"""What an op graph and a cluster ask of a search for throughput.

Model: what a step computes is the work of the device; an op without a kernel there runs on the
device's host, whose time counts for the device, which waits for it. The output of an op is copied
over the slowest link of the cluster, all its ports as one tensor. An op needs memory for its
outputs and its variables. Grouped are the ops of a layer, forward, backward and update, and those
that hold, read or update a variable: with the layer that reads it, or by themselves if several do.

Left out: control edges; that links differ; memory that a step gives free before its end; samples
that are under way at the same time and need memory of their own.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from placement_advisor.graph.membership import membership
from placement_advisor.graph.placement import placed_ops
from placement_advisor.graph.roles import COST_FREE_ROLES, TRAINING_ROLES
from placement_advisor.solvers.problem import Pool, Problem

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from placement_advisor.cost.table import CostTable
    from placement_advisor.graph.op_graph import Op, OpGraph
    from placement_advisor.machine.devices import Cluster, Device


def throughput_problem(graph: OpGraph, costs: Mapping[str, CostTable], cluster: Cluster) -> Problem:
    """Return the problem, with times in ns; ``costs`` are those of every device and host."""
    ops = placed_ops(graph)
    number = {op.name: i for i, op in enumerate(ops)}
    edges = {
        (number[edge.producer], number[edge.consumer]): None
        for edge in graph.edges
        if not edge.is_control and edge.producer in number
    }
    return Problem(
        ops=tuple(op.name for op in ops),
        edges=tuple(edges),
        copy_time=tuple(_copy_ns(graph, op, cluster) for op in ops),
        size_bytes=tuple(op.parameter_bytes + sum(b or 0 for b in op.output_bytes) for op in ops),
        backward=frozenset(i for i, op in enumerate(ops) if op.role in TRAINING_ROLES),
        groups=_groups(graph, ops),
        pools=_pools(ops, cluster, costs),
    )


def with_hosts(problem: Problem, costs: Mapping[str, CostTable], cluster: Cluster) -> Problem:
    """Return the problem with hosts among its devices, where single steps may run ops as well."""
    pools = (
        Pool(
            devices=(host.name,),
            work=tuple(
                float(host.busy_ns(cost.time_ns)) if cost is not None else 0.0
                for op in problem.ops
                for cost in [costs[host.name].costs.get(op)]
            ),
            capacity_bytes=host.memory_bytes,
        )
        for host in cluster.hosts
    )
    return replace(problem, pools=(*problem.pools, *pools))


def _copy_ns(graph: OpGraph, op: Op, cluster: Cluster) -> float:
    """Return the time of all tensors of an op that any op reads."""
    sizes = {e.port: e.size_bytes or 0 for e in graph.outputs_of(op.name) if not e.is_control}
    if not cluster.links:
        return 0.0
    return float(max(sum(map(link.transfer_ns, sizes.values())) for link in cluster.links))


def _pools(ops: Sequence[Op], cluster: Cluster, costs: Mapping[str, CostTable]) -> tuple[Pool, ...]:
    """Return the devices, those that are alike together."""
    place = {each.name: each for each in cluster.places()}
    alike: dict[tuple[Device, Device | None], list[str]] = defaultdict(list)
    for device in cluster.devices:
        host = place.get(device.host) if device.host is not None else None
        alike[device.bare(), None if host is None else host.bare()].append(device.name)
    pools = []
    for names in alike.values():
        device = place[names[0]]
        host = place.get(device.host) if device.host is not None else None
        pools.append(
            Pool(
                devices=tuple(names),
                work=tuple(_work_ns(op, device, host, costs) for op in ops),
                capacity_bytes=device.memory_bytes,
            )
        )
    return tuple(pools)


def _work_ns(
    op: Op, device: Device, host: Device | None, costs: Mapping[str, CostTable]
) -> float | None:
    """Return the time of an op on a device or its host, None if neither has a kernel for it."""
    if op.role in COST_FREE_ROLES:
        return 0.0
    for place in (device, host):
        if place is not None and place.kind in op.device_kinds:
            return float(place.busy_ns(costs[place.name].time_ns(op.name)))
    return None


def _groups(graph: OpGraph, ops: Sequence[Op]) -> tuple[tuple[int, ...], ...]:
    member = membership(graph)
    groups: dict[tuple[str, str], list[int]] = defaultdict(list)
    for i, op in enumerate(ops):
        layer = member.layer_of.get(op.name) or op.layer
        if op.variable is not None:
            readers = member.readers.get(op.variable, ())
            layer = readers[0] if len(readers) == 1 else None
        if layer is not None:
            groups["layer", layer].append(i)
        elif op.variable is not None:
            groups["variable", op.variable].append(i)
        else:
            groups["op", op.name].append(i)
    return tuple(map(tuple, groups.values()))
