"""Machines of many equal hosts, in levels: `8x(16x(8xH100-NVLink4)-8xInfiniBand400)-Ethernet100`.

Model: the innermost brackets hold a host, as `read_hardware` takes it. Each bracket around it is a
`Level`: so many equal units, each with an uplink of its own to all others of the level, which all
devices of the unit share. Several equal wires make one uplink: `8xInfiniBand400` is one for each
of eight devices.

Left out: uplinks that are oversubscribed further up than a level says; other jobs on them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING

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
MAX_DEVICES = 1 << 20
_LEVEL = re.compile(r"([0-9]+)x\((.*)\)-(?:([0-9]+)x)?([^()]*)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """``units`` equal hosts or groups of hosts; what leads out of each carries so much one way."""

    units: int
    bandwidth_bytes_per_s: float
    message_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A host, or a cluster that is simulated whole, and the ``levels`` above, innermost first."""

    label: str
    host: Cluster
    levels: tuple[Level, ...] = ()

    @property
    def hosts(self) -> int:
        """How many of the host there are."""
        return prod(level.units for level in self.levels)

    def first_levels(self, hosts: int) -> tuple[Level, ...]:
        """Return the levels of its first hosts: groups are filled one after the other.

        ``hosts`` is a number of whole groups of each level that it reaches beyond.

        Raises:
            ValueError: it is not.
        """
        found = []
        left = hosts
        for level in self.levels:
            units = min(left, level.units)
            if left % units:
                raise ValueError(f"{hosts} hosts fill no whole groups")
            left //= units
            found.append(replace(level, units=units))
        return tuple(level for level in found if level.units > 1)

    def device_counts(self) -> list[int]:
        """Return 1, 2, 4, … devices of a host and all of them, then so many hosts, doubled.

        Of a level, all units follow the last doubling that it holds.
        """
        devices = len(self.host.devices)
        counts = doubled(devices)
        below = devices
        for level in self.levels:
            counts += [below * units for units in doubled(level.units)[1:]]
            below *= level.units
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
    levels: list[Level] = []
    inner = text
    while found := _LEVEL.fullmatch(inner):
        units, inner, rails, network = found.groups()
        table = hardware_figures()["links"][network_named(text, network, rdma=True)]
        wires = read_count(text, rails or "1", MAX_DEVICES)
        levels.insert(
            0,
            Level(
                units=read_count(text, units, MAX_DEVICES),
                bandwidth_bytes_per_s=table["bandwidth_bytes_per_s"] * wires,
                message_ns=table["latency_ns"],
            ),
        )
    if "(" in inner and levels:
        raise refused(text, f"no host, or no network, in {inner!r}")
    machine = Machine(label=text, host=read_hardware(inner), levels=tuple(levels))
    if machine.hosts * len(machine.host.devices) > MAX_DEVICES:
        raise refused(text, f"more than {MAX_DEVICES:,} devices")
    return machine
