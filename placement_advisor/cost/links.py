"""Links: a line fitted to measured copies, or assumed where nothing may run.

Model: a copy takes a latency plus its size over a bandwidth. Real copies follow no single line
(buffers, chunks, caches), so the fit minimises *relative* errors, which keeps small copies right
as well as large ones, and `residuals` says how far off the line is.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from placement_advisor.cost.roofline import STAND_IN_CPU
from placement_advisor.devices import Basis, Cluster, Link
from placement_advisor.errors import TestbedError
from placement_advisor.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Sequence

    # Bytes and ns of one copy.
    Sample = tuple[int, int]

MIN_SIZES = 2
# Above any link of today. A fit that wants more has seen no effect of the size at all.
MAX_BANDWIDTH_BYTES_PER_S = 1e12

# gRPC between two idle workers on one machine took 0.24-0.37 ms for 4 kB and 11-17 ms for 16 MB
# when it was measured for this project; the middle of both.
ASSUMED_LATENCY_NS = 300_000
ASSUMED_BANDWIDTH_BYTES_PER_S = 1.2e9
# A step starts with one message to the workers and ends with one back.
ASSUMED_STEP_OVERHEAD_NS = 2 * ASSUMED_LATENCY_NS


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
    # With u = 1/t and v = x/t the relative error of latency + slope · x is latency·u + slope·v - 1.
    u = np.array([1 / time_ns for _, time_ns in points])
    v = np.array([size_bytes / time_ns for size_bytes, time_ns in points])
    # Columns of equal length keep the solver's rank decision free of units.
    scale = np.array([np.linalg.norm(u), np.linalg.norm(v)])
    solution = np.linalg.lstsq(np.column_stack([u, v]) / scale, np.ones(len(points)), rcond=None)[0]
    latency_ns, ns_per_byte = (float(x) for x in solution / scale)
    if latency_ns < 0:
        latency_ns, ns_per_byte = 0.0, float(v.sum() / (v @ v))
    least_ns_per_byte = NS_PER_S / MAX_BANDWIDTH_BYTES_PER_S
    if ns_per_byte < least_ns_per_byte:
        ns_per_byte = least_ns_per_byte
        latency_ns = max(0.0, float((u.sum() - ns_per_byte * (u @ v)) / (u @ u)))
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
        )
        for source in devices
        for target in devices
        if source is not target
    )
    return Cluster(
        devices=devices,
        links=links,
        copies_occupy_devices=True,
        step_overhead_ns=ASSUMED_STEP_OVERHEAD_NS,
    )
