"""What a calibration found, put together for reports and for a cluster file.

The lines of a cluster stand beside what they were fitted to. Left out: models.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from placement_advisor.cost.links import residuals
from placement_advisor.cost.roofline import STAND_IN_CPU
from placement_advisor.machine.calibration import REFERENCE_FLOPS
from placement_advisor.units import NS_PER_S

if TYPE_CHECKING:
    from placement_advisor.machine.calibration import Calibration
    from placement_advisor.machine.copy_timings import CopyTiming
    from placement_advisor.machine.devices import Cluster, Device
    from placement_advisor.machine.testbed_plan import HostLink, HostShare

# Stands at the top of a cluster file, where its figures come from.
CLUSTER_FILE_HEAD = """\
# Written by `advisor calibrate`, for --hardware. Links, dispatch and launch overheads are measured;
# a CPU's peak is the speed of a small product of matrices, its memory bandwidth is assumed.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationSummary:
    """One calibration of a testbed, and the cluster that was made of it.

    ``description`` says in words what the testbed is, ``kept_in`` where the calibration lies for
    runs to come (None if that place cannot be written), ``cluster_file`` where its cluster does
    (None if none was asked for). Over several ``hosts``, ``link`` says how tensors travel.
    """

    testbed: str
    description: str
    tensorflow_version: str
    fingerprint: str
    calibration: Calibration
    cluster: Cluster
    kept_in: str | None
    cluster_file: str | None
    warnings: tuple[str, ...] = ()
    hosts: tuple[HostShare, ...] = ()
    link: HostLink | None = None

    def links(self) -> dict[tuple[str, str], str]:
        """Return the links that were measured, with what they join in words.

        Over several hosts each stands for all links between the same two hosts, or within one.
        """
        network = self.calibration.network
        if network is None:
            return {ends: _arrow(*ends) for ends in self.calibration.links}
        host_of = network.host_of()
        return {
            (source, target): _arrow(source, target)
            if host_of[source] == host_of[target]
            else _arrow(host_of[source], host_of[target])
            for source, target in network.measured()
        }

    def residual(self, ends: tuple[str, str], timing: CopyTiming) -> float | None:
        """Return (line - measured) / measured of one copy, None if noise hid its time."""
        if timing.copy_ns <= 0:
            return None
        link = replace(self.cluster.link(*ends), curve=())
        return residuals(link, [(timing.size_bytes, timing.copy_ns)])[0]

    def flops_per_s(self, device: str) -> float | None:
        """Return how fast the reference product is, None if noise hid its time."""
        time_ns = self.calibration.reference_ns[device]
        return REFERENCE_FLOPS / time_ns * NS_PER_S if time_ns > 0 else None


def _arrow(source: str, target: str) -> str:
    return f"{source} → {target}"


def with_peaks(cluster: Cluster, calibration: Calibration) -> Cluster:
    """Return the cluster with what a prediction needs that measures no op.

    A CPU's peak is the speed of the reference product, its memory bandwidth is assumed. Such a
    small product says nothing about a GPU's peak, so that a GPU's stays unknown.
    """

    def known(device: Device) -> Device:
        time_ns = calibration.reference_ns[device.name]
        if device.kind != "CPU" or time_ns <= 0:
            return device
        return replace(
            device,
            peak_flops_per_s=REFERENCE_FLOPS / time_ns * NS_PER_S,
            memory_bandwidth_bytes_per_s=STAND_IN_CPU.memory_bandwidth_bytes_per_s,
        )

    return replace(cluster, devices=tuple(known(device) for device in cluster.devices))
