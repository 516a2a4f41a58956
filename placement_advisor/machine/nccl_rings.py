"""Rings and trees that NCCL lays through devices, hosts or groups of hosts, and what they take.

Model: around a ring of k members, in neighbour order, each sends to the next at the same time. An
all-reduce of S bytes takes 2 (k - 1) hops of S / k from each, so 2 (k - 1) S / k leave a member one
way; an all-gather half of both. Between hosts a pair of trees takes 2 log k hops instead, and each
member sends 2 S; the faster one is taken, as NCCL does.

Members are joined by the *core* of their level: the switches between their uplinks. What is below
one switch alone is a level further in, so all that members send each other crosses the core:
2 (k - 1) S of an all-reduce, around the ring as through trees, which have k - 1 edges. A core that
carries less than all uplinks together is *oversubscribed*; those who send at the same time share
it. So bytes take as long as the slower way does: those of a member over its uplink, or all of them
over the core.

Left out: what goes on to levels further out, which crosses this core at another time; paths through
a core that hashes assign unevenly, so this is a best case; other jobs on it.

Source: Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms (J. Parallel Distrib. Comput.
69, 2009); Sanders, Speck and Träff, Two-tree algorithms for full bandwidth broadcast, reduction and
scan (Parallel Comput. 35, 2009); oversubscription as of Al-Fares, Loukissas and Vahdat, A scalable,
commodity data center network architecture (SIGCOMM 2008). That the bytes over a core simply add up
is our own derivation.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from placement_advisor.units import NS_PER_S


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclProtocol:
    """How NCCL sends: once ``start_ns``, ``hop_ns`` for each hop, and bytes ``sent`` times."""

    start_ns: int
    hop_ns: int
    sent: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Ring:
    """``members`` that exchange: devices of a cluster, hosts of a group, or groups.

    What leads out of each carries ``bandwidth_bytes_per_s`` one way, what joins all of them
    ``core_bandwidth_bytes_per_s``, and a hop takes a message at least. ``has_trees`` where NCCL may
    lay trees through them instead: between hosts.
    """

    members: int
    bandwidth_bytes_per_s: float
    core_bandwidth_bytes_per_s: float = inf
    message_ns: int = 0
    has_trees: bool = False

    def reduce_ns(self, size_bytes: int, protocol: NcclProtocol) -> float:
        """Return how long an all-reduce of a tensor takes, without its start."""
        hop_ns = max(protocol.hop_ns, self.message_ns)
        further = self.members - 1
        sent_bytes = size_bytes * protocol.sent
        all_bytes = 2 * further * sent_bytes
        ring_ns = 2 * further * hop_ns + self._carried_ns(all_bytes / self.members, all_bytes)
        if not self.has_trees:
            return ring_ns
        depth = further.bit_length()
        return min(ring_ns, 2 * depth * hop_ns + self._carried_ns(2 * sent_bytes, all_bytes))

    def gather_ns(self, all_bytes: int, protocol: NcclProtocol) -> float:
        """Return how long it takes until each has what all have together, without the start."""
        further = self.members - 1
        sent_bytes = further * all_bytes * protocol.sent
        hops_ns = further * max(protocol.hop_ns, self.message_ns)
        return hops_ns + self._carried_ns(sent_bytes / self.members, sent_bytes)

    def _carried_ns(self, member_bytes: float, all_bytes: float) -> float:
        """Return how long bytes take that leave a member, and those of all through the core."""
        member_s = member_bytes / self.bandwidth_bytes_per_s
        core_s = all_bytes / self.core_bandwidth_bytes_per_s
        return max(member_s, core_s) * NS_PER_S
