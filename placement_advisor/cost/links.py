"""Links: a line fitted to measured copies, or assumed where nothing may run.

Model: a copy takes a latency plus its size over a bandwidth. Real copies follow no single line
(buffers, chunks, caches), so the fit minimises *relative* errors, which keeps small copies right
as well as large ones, and `residuals` says how far off the line is.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING

from placement_advisor.cost.lines import relative_line
from placement_advisor.cost.roofline import STAND_IN_CPU
from placement_advisor.errors import TestbedError
from placement_advisor.machine.devices import Basis, Cluster, CopyWork, Dispatch, Link
from placement_advisor.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Sequence

    # Bytes and ns of one copy.
    Sample = tuple[int, int]

MIN_SIZES = 2
# Above any link of today. A fit that wants more has seen no effect of the size at all.
MAX_BANDWIDTH_BYTES_PER_S = 1e12

# Where nothing is measured: gRPC between two workers, rounded from what `advisor calibrate` found
# on the machine of docs/cost-model.md when this was written: 0.19 ms for 1 kB, 2.2 ms for 4 MB
# between idle ends; 0.05 and 0.07 ms, and 1.5 ms, of work for the core of either end. That the
# latency is not 0.19 but 0.15 ms has no recorded reason. All of it is labelled *assumed* wherever
# it is used, and a verdict from it has to survive twice and half as much (`ASSUMED_DOUBT`).
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


def residuals(link: Link, samples: Sequence[Sample]) -> tuple[float, ...]:
    """Return (fit - measured) / measured of each sample, in their order.

    Raises:
        ValueError: a sample without a positive time.
    """
    if any(time_ns <= 0 for _, time_ns in samples):
        raise ValueError("a sample has no positive time")
    return tuple((link.transfer_ns(size) - time_ns) / time_ns for size, time_ns in samples)


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
