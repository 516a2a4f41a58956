"""What collectives of all devices cost on a machine, as NCCL runs them; all of it is assumed.

Model: NCCL lays rings through the devices, as many as the links carry, and each carries a part of
the tensor. An all-reduce among k devices moves 2 (k - 1) / k of its bytes over the rings, in
2 (k - 1) hops; an all-gather half of both. Rings carry together what leaves the group of devices
that is cut off worst: a device, neighbours behind one switch, a socket, a host. Links of one
channel carry together what the fastest of them does. Between hosts, a hop takes at least what a
message does.

The place `ALL_DEVICES` runs the collectives, one at a time, beside what the devices compute. A
tensor is there as soon as its producer has ended and the collective is launched; readers know of
the result as late as of any copy.

Left out: trees; that NCCL may find no rings as good; collectives beside copies over one wire.

Source: Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms (J. Parallel Distrib. Comput.
69, 2009); the times are those of NCCL's tuning, see `hardware.toml`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from placement_advisor.cost.table import CostBasis, CostTable, OpCost
from placement_advisor.machine.devices import Basis, CopyWork, Device, Link
from placement_advisor.machine.presets import hardware_figures
from placement_advisor.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Iterable

    from placement_advisor.graph.op_graph import Op
    from placement_advisor.machine.devices import Cluster

# The place of the collectives of all devices.
ALL_DEVICES = "all devices"
# From the end of a copy to the op that reads it: a judgement, see the latencies in `hardware.toml`.
_TOLD_NS = 10_000
# Faster than any memory: a collective takes its tensors where they are.
_IN_PLACE_BYTES_PER_S = 1e15


def with_collectives(cluster: Cluster) -> Cluster:
    """Return the cluster with the place of its collectives."""
    place = Device(
        name=ALL_DEVICES,
        kind="GPU",
        # No other op stands there.
        peak_flops_per_s=1.0,
        memory_bandwidth_bytes_per_s=_IN_PLACE_BYTES_PER_S,
    )
    links = []
    for end in cluster.places():
        launches = CopyWork(per_copy_ns=end.launch_overhead_ns if end.launches_ahead else 0)
        there = Link(
            source=end.name,
            target=ALL_DEVICES,
            latency_ns=0,
            bandwidth_bytes_per_s=_IN_PLACE_BYTES_PER_S,
            basis=Basis.ASSUMED,
            sender=launches,
        )
        back = replace(
            there, source=ALL_DEVICES, target=end.name, latency_ns=_TOLD_NS, sender=CopyWork()
        )
        links += [there, back]
    return replace(cluster, hosts=(*cluster.hosts, place), links=(*cluster.links, *links))


def collective_costs(
    reduces: Iterable[Op], gathers: Iterable[Op], cluster: Cluster, bandwidth: float
) -> CostTable:
    """Return what all-reduces and all-gathers among all devices of a cluster cost.

    ``bandwidth`` is what its rings carry (`ring_bandwidth`), in bytes per second.
    """
    further = len(cluster.devices) - 1
    costs = {}
    for hops, ops in ((2 * further, reduces), (further, gathers)):
        for op in ops:
            sent = (op.output_bytes[0] or 0) * hops / len(cluster.devices)
            time_ns = _time_ns(sent, hops, bandwidth, cluster)
            costs[op.name] = OpCost(time_ns=time_ns, basis=CostBasis.ROOFLINE)
    return CostTable(costs=costs)


def ring_bandwidth(cluster: Cluster) -> float:
    """Return what rings through all devices carry together, in bytes per second.

    Raises:
        ValueError: there is one device.
    """
    names = cluster.device_names()
    links = cluster.device_links()
    return min(
        _out_of(frozenset(names[first:last]), links)
        for first in range(len(names))
        for last in range(first + 1, len(names) + 1)
        if last - first < len(names)
    )


def _out_of(group: frozenset[str], links: Iterable[Link]) -> float:
    """Return what all links out of a group of devices carry together."""
    of_channel: dict[str, float] = {}
    for link in links:
        if link.source in group and link.target not in group:
            channel = link.channel or f"{link.source} → {link.target}"
            known = of_channel.get(channel, 0.0)
            of_channel[channel] = max(known, link.bandwidth_bytes_per_s)
    return sum(of_channel.values())


def _time_ns(sent_bytes: float, hops: int, bandwidth: float, cluster: Cluster) -> int:
    # Within a host NCCL waits for no message of TensorFlow's.
    message_ns = max((link.request_ns for link in cluster.device_links()), default=0)
    ways = hardware_figures()["collectives"].values()
    times_ns: list[float] = [
        way["start_ns"]
        + hops * max(way["hop_ns"], message_ns)
        + sent_bytes * way["sent"] / bandwidth * NS_PER_S
        for way in ways
    ]
    return round(min(times_ns))
