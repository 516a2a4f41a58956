"""Machines of many equal hosts, in levels, and the rings and trees that NCCL lays through them.

An example is `8x(16x(8xH100-NVLink4)-8xInfiniBand400)`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from math import inf, prod
from typing import TYPE_CHECKING

from placement_advisor.machine import presets
from placement_advisor.units import NS_PER_S

if TYPE_CHECKING:
    from placement_advisor.machine.devices import Cluster


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


# Far more than anybody trains one model on, and still a number whose products are exact.
MAX_IN_LEVELS = 1 << 20
_LEVEL = re.compile(r"([0-9]+)x\((.*)\)-(?:([0-9]+)x)?([^()]*)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A host, or a cluster that is simulated whole, and the ``levels`` above, innermost first."""

    label: str
    host: Cluster
    levels: tuple[Ring, ...] = ()

    @property
    def hosts(self) -> int:
        """How many of the host there are."""
        return prod(level.members for level in self.levels)

    def first_levels(self, hosts: int) -> tuple[Ring, ...]:
        """Return the levels of its first hosts: groups are filled one after the other.

        ``hosts`` is a number of whole groups of each level that it reaches beyond.

        Raises:
            ValueError: it is not.
        """
        found = []
        left = hosts
        for level in self.levels:
            members = min(left, level.members)
            if left % members:
                raise ValueError(f"{hosts} hosts fill no whole groups")
            left //= members
            found.append(replace(level, members=members))
        return tuple(level for level in found if level.members > 1)

    def device_counts(self) -> list[int]:
        """Return 1, 2, 4, … devices of a host and all of them, then so many hosts, doubled.

        Of a level, all members follow the last doubling that it holds.
        """
        devices = len(self.host.devices)
        counts = doubled(devices)
        below = devices
        for level in self.levels:
            counts += [below * members for members in doubled(level.members)[1:]]
            below *= level.members
        return counts


def doubled(most: int) -> list[int]:
    """Return 1, 2, 4, … and the most there are."""
    counts = [1 << power for power in range(most.bit_length())]
    return counts if counts[-1] == most else [*counts, most]


def read_machine(text: str) -> Machine:
    """Return the machine that ``text`` describes; everything about it is assumed.

    Raises:
        AdvisorError: the text says something else, or names what `hardware.toml` does not hold.
    """
    presets.check_length(text)
    levels: list[Ring] = []
    inner = text
    while found := _LEVEL.fullmatch(inner):
        units, inner, rails, network = found.groups()
        table = presets.hardware_figures()["links"][presets.network_named(text, network, rdma=True)]
        wires = presets.read_count(text, rails or "1", MAX_IN_LEVELS)
        levels.insert(
            0,
            Ring(
                members=presets.read_count(text, units, MAX_IN_LEVELS),
                bandwidth_bytes_per_s=table["bandwidth_bytes_per_s"] * wires,
                message_ns=table["latency_ns"],
                has_trees=True,
            ),
        )
    if "(" in inner and levels:
        raise presets.refused(text, f"no host, or no network, in {inner!r}")
    machine = Machine(label=text, host=presets.read_hardware(inner), levels=tuple(levels))
    if machine.hosts * len(machine.host.devices) > MAX_IN_LEVELS:
        raise presets.refused(text, f"more than {MAX_IN_LEVELS:,} devices")
    return machine
