"""A cluster from what was measured on its testbed."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING

from placement_advisor.cost.lines import relative_line
from placement_advisor.cost.links import fit_link
from placement_advisor.machine.devices import NO_COPY_WORK, Cluster, CopyWork, Dispatch

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from placement_advisor.machine.calibration import Calibration, CopyTiming
    from placement_advisor.machine.devices import Device, Link


def calibrated_cluster(
    devices: Iterable[Device], calibration: Calibration, *, launch_overhead_ns: int = 0
) -> Cluster:
    """Return the cluster of these devices, all with one launch overhead.

    Raises:
        TestbedError: a link was measured at too few sizes.
    """
    # Starting another device and hearing of its end are one message each.
    one_way_ns = calibration.remote_ns // 2
    return Cluster(
        devices=tuple(replace(d, launch_overhead_ns=launch_overhead_ns) for d in devices),
        links=tuple(
            _link(source, target, timings)
            for (source, target), timings in sorted(calibration.links.items())
        ),
        dispatch=Dispatch(
            step_overhead_ns=calibration.step_overhead_ns,
            partition_overhead_ns=calibration.partition_overhead_ns,
            remote_start_ns=one_way_ns,
            remote_end_ns=one_way_ns,
            quantum_ns=calibration.quantum_ns,
        ),
    )


def _link(source: str, target: str, timings: Sequence[CopyTiming]) -> Link:
    copies = sorted((timing.size_bytes, timing.copy_ns) for timing in timings)
    link = fit_link(source, target, copies)
    seen = [(size_bytes, copy_ns) for size_bytes, copy_ns in copies if copy_ns > 0]
    slowest = accumulate((copy_ns for _, copy_ns in seen), max)
    return replace(
        link,
        curve=tuple((size, time_ns) for (size, _), time_ns in zip(seen, slowest, strict=True)),
        sender=_work([(timing.size_bytes, timing.send_ns) for timing in timings]),
        receiver=_work([(timing.size_bytes, timing.receive_ns) for timing in timings]),
    )


def _work(samples: Sequence[tuple[int, int | None]]) -> CopyWork:
    # What is not positive comes from the noise of a difference.
    points = [(size_bytes, core_ns) for size_bytes, core_ns in samples if core_ns]
    if not points:
        return NO_COPY_WORK
    fixed_ns, ns_per_byte = relative_line(points)
    return CopyWork(per_copy_ns=round(fixed_ns), ns_per_byte=ns_per_byte)
