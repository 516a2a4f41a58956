"""A cluster from what was measured on its testbed.

Model of several hosts: what leaves a host shares its network card, unless copies of two pairs of
devices at once were seen not to hinder each other. Copies that follow each other leave faster than
single ones, for each of which TCP gets up to speed: as fast as many were seen to. A device of
another host begins when the step's message has come, and asks for tensors by a message, which takes
as long as the smallest copy.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING

from placement_advisor.cost.lines import relative_line
from placement_advisor.cost.links import fit_link
from placement_advisor.machine.calibration import ASLEEP_NS
from placement_advisor.machine.devices import NO_COPY_WORK, Cluster, CopyWork, Dispatch, Sharing
from placement_advisor.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from placement_advisor.machine.calibration import Calibration, Network
    from placement_advisor.machine.copy_timings import CopyTiming
    from placement_advisor.machine.devices import Device, Link

# What an op takes in a step of several workers, over what it takes alone in a profile. Judgement:
# of 27,207 runs in 19 recorded models, with the device and the machine to themselves, the median is
# 1.03; with those that something interrupted they take 1.05 to 1.2 times as long together
# (`op_times`, before 0.2, docs/cost-model.md).
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
            # These are measured by errands, whose ends sleep meanwhile.
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
