"""Times of collectives: those of `tf.distribute` that were timed, and rings of NCCL (assumed)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from itertools import repeat
from math import inf
from typing import TYPE_CHECKING, Annotated

from annotated_types import Gt, Lt

from placement_advisor.cost.lines import relative_line
from placement_advisor.cost.table import CostBasis, CostTable, OpCost
from placement_advisor.files.contract import Ns
from placement_advisor.files.untrusted import MAX_NS
from placement_advisor.machine.devices import Basis, Cluster, CopyWork, Device, Dispatch, Link
from placement_advisor.machine.hierarchy import NcclProtocol, Ring
from placement_advisor.machine.presets import hardware_figures
from placement_advisor.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from placement_advisor.graph.op import Op


# No link is taken to be faster than that: 10 TB/s.
_LEAST_NS_PER_BYTE = 1e-4


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveTimes:
    """What a step pays for ``call_ns`` once, a collective for ``launch_ns`` on every device.

    ``hop_ns`` and ``ns_per_byte`` are those of what one replica sends to the next.
    """

    call_ns: Ns
    launch_ns: Ns
    hop_ns: Ns
    ns_per_byte: Annotated[float, Gt(0.0), Lt(MAX_NS)]

    def on(self, cluster: Cluster) -> Cluster:
        """Return the cluster as replicas use it: its links carry collectives, and nothing else."""

        def carrying(link: Link) -> Link:
            return Link(
                source=link.source,
                target=link.target,
                latency_ns=self.hop_ns,
                bandwidth_bytes_per_s=NS_PER_S / self.ns_per_byte,
                basis=Basis.MEASURED,
                channel=link.channel,
            )

        changed = cluster.with_device_links(carrying)
        return replace(changed, dispatch=Dispatch(step_overhead_ns=self.call_ns))


def fit_collectives(
    all_reduces: Sequence[tuple[int, float]],
    all_gathers: Sequence[tuple[int, float]],
    *,
    replicas: int,
    call_ns: float,
) -> CollectiveTimes:
    """Return what explains times of single collectives, as (bytes that a replica sends on, ns).

    Raises:
        ValueError: no times, or some that are not positive.
    """
    reduce_ns, reduce_slope = relative_line(all_reduces, least_slope=_LEAST_NS_PER_BYTE)
    gather_ns, gather_slope = relative_line(all_gathers, least_slope=_LEAST_NS_PER_BYTE)
    rounds_ns = max(0.0, reduce_ns - gather_ns)  # The k - 1 hops that an all-reduce has more.
    return CollectiveTimes(
        call_ns=round(call_ns),
        launch_ns=round(max(0.0, gather_ns - rounds_ns)),
        hop_ns=round(rounds_ns / (replicas - 1)),
        ns_per_byte=(reduce_slope + gather_slope) / 2,
    )


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
