"""Machines of many equal hosts, in levels: `8x(16x(8xH100-NVLink4)-8xInfiniBand400)-Ethernet100`.

Model: the innermost brackets hold a host, as `read_hardware` takes it. Each bracket around it is a
level: a `Ring` of so many equal members, each with an uplink of its own to the others, which all
devices of the member share. Several equal wires make one uplink: `8xInfiniBand400` is one
for each of eight devices. Figures of one's own, and what joins all uplinks, stand in a cluster file
(`cluster_file.py`).

Left out: other jobs on the uplinks.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING

from placement_advisor.machine.nccl_rings import Ring
from placement_advisor.machine.presets import (
    check_length,
    hardware_figures,
    network_named,
    read_count,
    read_hardware,
    refused,
)

if TYPE_CHECKING:
    from placement_advisor.machine.devices import Cluster

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
    check_length(text)
    levels: list[Ring] = []
    inner = text
    while found := _LEVEL.fullmatch(inner):
        units, inner, rails, network = found.groups()
        table = hardware_figures()["links"][network_named(text, network, rdma=True)]
        wires = read_count(text, rails or "1", MAX_IN_LEVELS)
        levels.insert(
            0,
            Ring(
                members=read_count(text, units, MAX_IN_LEVELS),
                bandwidth_bytes_per_s=table["bandwidth_bytes_per_s"] * wires,
                message_ns=table["latency_ns"],
                has_trees=True,
            ),
        )
    if "(" in inner and levels:
        raise refused(text, f"no host, or no network, in {inner!r}")
    machine = Machine(label=text, host=read_hardware(inner), levels=tuple(levels))
    if machine.hosts * len(machine.host.devices) > MAX_IN_LEVELS:
        raise refused(text, f"more than {MAX_IN_LEVELS:,} devices")
    return machine
