"""What the devices of one host share, by their slots: PCIe switches, sockets, and NVLinks.

Model: up to four devices of a host have lanes of their own to one socket. More hang in pairs on
PCIe switches, two of which hang on each socket, as in a DGX-1 and in other servers of eight cards;
the two of a pair share what leads to their socket, and all that goes from one socket to another
shares one wire. GPUs of SXM2 modules, more than four of them, are wired as in a DGX-1: each is
joined to the three others of its four, and to its like among the other four (*hybrid cube mesh*).
Bridges join pairs. What NVLink does not join uses PCIe.

Left out: servers with all cards below one socket, or with four on a switch: no text says which.

Source: NVIDIA DGX-1 with Tesla V100, system architecture (white paper, 2017), figures 3 and 4.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

_PER_SWITCH = 2
_PER_SOCKET = 4
_MESH = 8
# Between the like of two fours, and among a four, in links, where there are six for each device.
_DOUBLE = frozenset({(0, 3), (1, 2), (2, 3), (4, 7), (5, 6), (6, 7), (0, 4), (1, 5)})


class NvlinkWiring(StrEnum):
    """Which devices of a host NVLink joins: all, pairs, or those of a hybrid cube mesh."""

    ALL = "all"
    BRIDGES = "bridges"
    MESH = "mesh"
    DOUBLE_MESH = "double mesh"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostWires:
    """The wires of a host with so many devices."""

    devices: int
    nvlink: NvlinkWiring

    @property
    def _is_tree(self) -> bool:
        return self.devices > _PER_SOCKET

    @property
    def _is_mesh(self) -> bool:
        is_mesh = self.nvlink in (NvlinkWiring.MESH, NvlinkWiring.DOUBLE_MESH)
        return is_mesh and _PER_SOCKET < self.devices <= _MESH

    @property
    def nvlink_is_shared(self) -> bool:
        """Whether all copies of a device over NVLink queue for one wire."""
        return not self._is_mesh

    def into_switch(self, slot: int) -> str | None:
        """Return the name of the switch that a device hangs on, None if it hangs on no other."""
        return f"switch {slot // _PER_SWITCH}" if self._is_tree else None

    def socket(self, slot: int) -> int:
        """Return the number of the socket that a device hangs on."""
        return slot // _PER_SOCKET if self._is_tree else 0

    def share_switch(self, one: int, other: int) -> bool:
        """Return whether two devices hang on one switch."""
        return not self._is_tree or one // _PER_SWITCH == other // _PER_SWITCH

    def share_socket(self, one: int, other: int) -> bool:
        """Return whether two devices hang on one socket."""
        return self.socket(one) == self.socket(other)

    def nvlink_width(self, one: int, other: int) -> float:
        """Return how much of what their link gives two devices have; 0 if NVLink joins them not."""
        low, high = sorted((one, other))
        if self.nvlink is NvlinkWiring.BRIDGES:
            return float(low % _PER_SWITCH == 0 and high == low + 1)
        if not self._is_mesh:
            return 1.0
        if low // _PER_SOCKET != high // _PER_SOCKET and high - low != _PER_SOCKET:
            return 0.0
        if self.nvlink is NvlinkWiring.MESH:
            return 1.0
        # The figure of such a link is that of two.
        return 1.0 if (low, high) in _DOUBLE else 0.5
