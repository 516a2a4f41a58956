"""The machine as the advisor sees it: devices, the links between them, and how copies behave.

A link is directed. A pair of devices without a link cannot exchange tensors.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from placement_advisor.errors import PlacementError
from placement_advisor.units import NS_PER_S


class Basis(StrEnum):
    """Where a number comes from."""

    MEASURED = "measured"
    ASSUMED = "assumed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One place where ops run, one at a time.

    ``name`` is what users see (``GPU:0``, ``worker:1``), ``kind`` what TensorFlow registers
    kernels for (``GPU``, ``CPU``). A peak or size that is not known is None.
    """

    name: str
    kind: str
    peak_flops_per_s: float | None = None
    memory_bandwidth_bytes_per_s: float | None = None
    memory_bytes: int | None = None
    launch_overhead_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A directed connection: a tensor takes ``latency_ns`` plus its size over the bandwidth."""

    source: str
    target: str
    latency_ns: int
    bandwidth_bytes_per_s: float
    basis: Basis

    def transfer_ns(self, size_bytes: int) -> int:
        """Return the time that one tensor needs on an otherwise idle link."""
        return self.latency_ns + round(size_bytes / self.bandwidth_bytes_per_s * NS_PER_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Devices in order, links between them, and how copies share a device's time.

    ``copies_occupy_devices`` is True where the processor that computes also moves the bytes
    (gRPC workers pinned to their cores), False where a copy engine does (GPUs).
    ``step_overhead_ns`` is what a step costs beside its ops: the round trip that starts and
    ends it.
    """

    devices: tuple[Device, ...]
    links: tuple[Link, ...]
    copies_occupy_devices: bool
    step_overhead_ns: int = 0

    def device_names(self) -> tuple[str, ...]:
        """Return the names in device order."""
        return tuple(device.name for device in self.devices)

    def link(self, source: str, target: str) -> Link:
        """Return the link from ``source`` to ``target``.

        Raises:
            PlacementError: no such link.
        """
        for link in self.links:
            if (link.source, link.target) == (source, target):
                return link
        known = ", ".join(f"{link.source} → {link.target}" for link in self.links)
        raise PlacementError(f"no link from {source!r} to {target!r}; the cluster has {known}")
