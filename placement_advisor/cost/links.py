"""Links and devices of a testbed: from measured copies, or assumed where nothing may run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import accumulate
from statistics import median
from typing import TYPE_CHECKING

from placement_advisor.cost.lines import relative_line
from placement_advisor.cost.roofline import STAND_IN_CPU
from placement_advisor.errors import TestbedError
from placement_advisor.machine.calibration import ASLEEP_NS, REFERENCE_FLOPS
from placement_advisor.machine.devices import (
    NO_COPY_WORK,
    Basis,
    Cluster,
    CopyWork,
    Dispatch,
    Link,
    Sharing,
)
from placement_advisor.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Sequence

    Sample = tuple[int, int]
    from collections.abc import Iterable, Iterator

    from placement_advisor.machine.calibration import Calibration, CopyTiming, Network
    from placement_advisor.machine.devices import Device
    from placement_advisor.machine.testbed_plan import HostLink, HostShare


MIN_SIZES = 2
# Above any link of today. A fit that wants more has seen no effect of the size at all.
MAX_BANDWIDTH_BYTES_PER_S = 1e12

# Where nothing is measured: gRPC between two workers, rounded from what `advisor calibrate` found
# on the machine of docs/explanation/cost-model.md when this was written: 0.19 ms for 1 kB, 2.2 ms
# for 4 MB between idle ends; 0.05 and 0.07 ms, and 1.5 ms, of work for the core of either end. That
# the latency is not 0.19 but 0.15 ms has no recorded reason. All of it is labelled *assumed*
# wherever it is used, and a verdict from it has to survive twice and half as much
# (`ASSUMED_DOUBT`).
ASSUMED_LATENCY_NS = 150_000
ASSUMED_BANDWIDTH_BYTES_PER_S = 2.1e9
ASSUMED_COPY_WORK = CopyWork(per_copy_ns=60_000, ns_per_byte=0.35)
# From the same calibrations, rounded: a step of one worker takes 0.4 ms beside its ops; another
# worker keeps the first one busy for 0.24 ms, begins later and is known to have ended later; and an
# op thread keeps its core for 2.7 to 4.5 ms before the system's scheduler takes it away.
ASSUMED_DISPATCH = Dispatch(
    step_overhead_ns=400_000,
    partition_overhead_ns=240_000,
    remote_start_ns=150_000,
    remote_end_ns=150_000,
    quantum_ns=3_000_000,
)


def fit_link(source: str, target: str, samples: Sequence[Sample]) -> Link:
    """Return the link that fits samples of (bytes, ns) best, with latency ≥ 0 and bandwidth > 0.

    Least squares on (fit - measured) / measured of the median by size. Where the best line has a
    negative latency, the best one through the origin is taken; where larger copies are not
    slower, the best one at `MAX_BANDWIDTH_BYTES_PER_S`. Samples that are not positive come from
    the noise of a subtraction and are left out.

    Raises:
        TestbedError: the samples have fewer than two distinct sizes.
    """
    usable = [(size_bytes, time_ns) for size_bytes, time_ns in samples if time_ns > 0]
    sizes = {size_bytes for size_bytes, _ in usable}
    if len(sizes) < MIN_SIZES:
        raise TestbedError(
            f"link {source} → {target}: copies of {len(sizes)} distinct sizes were measured, "
            f"a fit needs {MIN_SIZES}",
            hint="measure again on a quieter machine",
        )
    # One point per size, its median: single copies are disturbed by whatever else runs.
    points = [
        (size, median(time_ns for other, time_ns in usable if other == size))
        for size in sorted(sizes)
    ]
    latency_ns, ns_per_byte = relative_line(
        points, least_slope=NS_PER_S / MAX_BANDWIDTH_BYTES_PER_S
    )
    return Link(
        source=source,
        target=target,
        latency_ns=round(latency_ns),
        bandwidth_bytes_per_s=NS_PER_S / ns_per_byte,
        basis=Basis.MEASURED,
    )


def assumed_cluster(count: int) -> Cluster:
    """Return ``count`` stand-in CPU workers, every pair linked both ways, nothing measured."""
    devices = tuple(replace(STAND_IN_CPU, name=f"worker:{i}") for i in range(count))
    links = tuple(
        Link(
            source=source.name,
            target=target.name,
            latency_ns=ASSUMED_LATENCY_NS,
            bandwidth_bytes_per_s=ASSUMED_BANDWIDTH_BYTES_PER_S,
            basis=Basis.ASSUMED,
            sender=ASSUMED_COPY_WORK,
            receiver=ASSUMED_COPY_WORK,
        )
        for source in devices
        for target in devices
        if source is not target
    )
    return Cluster(devices=devices, links=links, dispatch=ASSUMED_DISPATCH)


# What an op takes in a step of several workers, over what it takes alone in a profile. Judgement:
# of 27,207 runs in 19 recorded models, with the device and the machine to themselves, the median is
# 1.03; with those that something interrupted they take 1.05 to 1.2 times as long together
# (docs/explanation/cost-model.md).
SPLIT_RATIO = 1.04
# Halfway between copies that do not hinder each other and copies that take turns.
_SHARING_RATIO = 1.5


def calibrated_cluster(
    devices: Iterable[Device], calibration: Calibration, *, launch_overhead_ns: int = 0
) -> Cluster:
    """Return the cluster of these devices, all with one launch overhead.

    Raises:
        TestbedError: a link was measured at too few sizes.
    """
    # Starting another device and hearing of its end are one message each.
    one_way_ns = calibration.remote_ns // 2
    devices = tuple(replace(d, launch_overhead_ns=launch_overhead_ns) for d in devices)
    links = tuple(
        _link(source, target, timings, calibration.wake_ns)
        for (source, target), timings in sorted(calibration.links.items())
    )
    if calibration.network is not None:
        devices = tuple(_reached(device, calibration.network) for device in devices)
        links = tuple(_between_hosts(links, calibration, calibration.network))
    return Cluster(
        devices=devices,
        links=links,
        dispatch=Dispatch(
            step_overhead_ns=calibration.step_overhead_ns,
            partition_overhead_ns=calibration.partition_overhead_ns,
            remote_start_ns=one_way_ns,
            remote_end_ns=one_way_ns,
            quantum_ns=calibration.quantum_ns,
            asleep_ns=ASLEEP_NS,
        ),
        sharing=_sharing(calibration),
    )


def _sharing(calibration: Calibration) -> Sharing:
    memory = calibration.memory
    if memory is None:
        return Sharing()
    return Sharing(
        split_ratio=SPLIT_RATIO,
        memory_bytes_per_s=memory.bytes_per_s,
        memory_ratio=memory.ratio,
    )


def _reached(device: Device, network: Network) -> Device:
    """Return a device with its own start and end if it is on another host than the first."""
    remote_ns = network.remote_ns.get(network.host_of()[device.name])
    if remote_ns is None:
        return device
    return replace(device, remote_start_ns=remote_ns // 2, remote_end_ns=remote_ns // 2)


def _between_hosts(
    links: Iterable[Link], calibration: Calibration, network: Network
) -> Iterator[Link]:
    """Yield the links, those between hosts with the wire that they share and what requests take."""
    host_of, streams = network.host_of(), _streams(calibration, network)
    latency_ns = {(link.source, link.target): link.latency_ns for link in links}
    for link in links:
        source, target = host_of[link.source], host_of[link.target]
        if source == target:
            yield link
            continue
        seen = network.at_once.get((source, target))
        is_shared = seen is None or seen.ratio is None or seen.ratio > _SHARING_RATIO
        yield replace(
            link,
            channel=f"out of {source}" if is_shared else None,
            stream_bytes_per_s=streams.get(frozenset((source, target))),
            request_ns=latency_ns[link.target, link.source],
            # These are measured by round trips, whose ends sleep meanwhile.
            wake_ns=0,
        )


def _streams(calibration: Calibration, network: Network) -> dict[frozenset[str], float]:
    """Return how fast many copies one after the other went, by the two hosts."""
    host_of = network.host_of()
    return {
        frozenset(host_of[end] for end in ends): seen.size_bytes / seen.one_way_ns * NS_PER_S
        for ends, seen in calibration.both_ways.items()
        if seen.one_way_ns > 0
    }


def _link(source: str, target: str, timings: Sequence[CopyTiming], wake_ns: int) -> Link:
    copies = sorted((timing.size_bytes, timing.copy_ns) for timing in timings)
    link = fit_link(source, target, copies)
    seen = [(size_bytes, copy_ns) for size_bytes, copy_ns in copies if copy_ns > 0]
    slowest = accumulate((copy_ns for _, copy_ns in seen), max)
    return replace(
        link,
        curve=tuple((size, time_ns) for (size, _), time_ns in zip(seen, slowest, strict=True)),
        sender=_work([(timing.size_bytes, timing.send_ns) for timing in timings]),
        receiver=_work([(timing.size_bytes, timing.receive_ns) for timing in timings]),
        wake_ns=wake_ns,
    )


def _work(samples: Sequence[tuple[int, int | None]]) -> CopyWork:
    # What is not positive comes from the noise of a difference.
    points = [(size_bytes, core_ns) for size_bytes, core_ns in samples if core_ns]
    if not points:
        return NO_COPY_WORK
    fixed_ns, ns_per_byte = relative_line(points)
    return CopyWork(per_copy_ns=round(fixed_ns), ns_per_byte=ns_per_byte)


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
        line = replace(self.cluster.link(*ends), curve=())
        return line.transfer_ns(timing.size_bytes) / timing.copy_ns - 1

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
