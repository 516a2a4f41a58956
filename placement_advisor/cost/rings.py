"""What collectives of all devices cost on a machine, as NCCL runs them; all of it is assumed.

Model: NCCL lays rings through the devices, as many as the links carry, and each carries a part of
the tensor. Rings carry together what leaves the group of devices that is cut off worst: a device,
neighbours behind one switch, a socket, a host. Links of one channel carry together what the fastest
of them does. Between hosts, a hop takes at least what a message does. In a hierarchy each level has
a ring of its own (`Ring` has what it takes): within a host parts are added up, hosts exchange these
over what leads out of each, then groups of hosts, and what they have goes back down.

The place `ALL_DEVICES` runs the collectives, one at a time, beside what the devices compute. A
tensor is there as soon as its producer has ended and the collective is launched; readers know of
the result as late as of any copy.

Left out: that NCCL may find no rings as good; collectives beside copies over one wire; that levels
work side by side on the chunks of a large tensor.

Source: `machine/nccl_rings.py`; the times are those of NCCL's tuning, see `hardware.toml`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import repeat
from math import inf
from typing import TYPE_CHECKING

from placement_advisor.cost.table import CostBasis, CostTable, OpCost
from placement_advisor.machine.devices import Basis, CopyWork, Device, Link
from placement_advisor.machine.nccl_rings import NcclProtocol, Ring
from placement_advisor.machine.presets import hardware_figures

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from placement_advisor.graph.op import Op
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
    reduces: Iterable[Op], gathers: Iterable[Op], rings: Sequence[Ring]
) -> CostTable:
    """Return what all-reduces and all-gathers cost, by level: ``rings`` are the innermost first.

    What an all-gather makes is what the members of the innermost ring have together.
    """
    costs = {}
    for op in reduces:
        sizes = [op.output_bytes[0] or 0] * len(rings)
        costs[op.name] = _cost(Ring.reduce_ns, rings, sizes)
    for op in gathers:
        sizes = [op.output_bytes[0] or 0]
        for ring in rings[1:]:
            sizes.append(sizes[-1] * ring.members)
        costs[op.name] = _cost(Ring.gather_ns, rings, sizes)
    return CostTable(costs=costs)


def _cost(
    time_ns: Callable[[Ring, int, NcclProtocol], float],
    rings: Sequence[Ring],
    sizes_bytes: Sequence[int],
) -> OpCost:
    """Return the cost by the fastest protocol, level by level."""
    least_ns = min(
        protocol.start_ns + sum(map(time_ns, rings, sizes_bytes, repeat(protocol)))
        for protocol in _protocols()
    )
    return OpCost(time_ns=round(least_ns), basis=CostBasis.ROOFLINE)


@cache
def _protocols() -> tuple[NcclProtocol, ...]:
    """Return those of NCCL, of which it takes the fastest."""
    return tuple(
        NcclProtocol(start_ns=table["start_ns"], hop_ns=table["hop_ns"], sent=table["sent"])
        for table in hardware_figures()["collectives"].values()
    )


def ring_of_devices(cluster: Cluster) -> Ring:
    """Return the ring of all devices of a cluster; that of one moves nothing."""
    return Ring(
        members=len(cluster.devices),
        bandwidth_bytes_per_s=ring_bandwidth(cluster),
        # Within a host NCCL waits for no message of TensorFlow's.
        message_ns=max((link.request_ns for link in cluster.device_links()), default=0),
    )


def between_hosts(rings: Sequence[Ring]) -> tuple[Ring, ...]:
    """Return the rings of one device of each host, by those of all devices."""
    alone = replace(rings[0], members=1, bandwidth_bytes_per_s=inf)
    return alone, *rings[1:]


def ring_bandwidth(cluster: Cluster) -> float:
    """Return what rings through all devices carry together, in bytes per second.

    Without bound if there is one device.
    """
    names = cluster.device_names()
    links = cluster.device_links()
    return min(
        (
            _out_of(frozenset(names[first:last]), links)
            for first in range(len(names))
            for last in range(first + 1, len(names) + 1)
            if last - first < len(names)
        ),
        default=inf,
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
