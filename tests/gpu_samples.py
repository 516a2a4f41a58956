"""A GPU of round numbers, and constants with which a kernel's time can be redone by hand."""

import numpy as np

from placement_advisor.cost.gpu.kernels import Clock, Tiling
from placement_advisor.machine.gpu_facts import GpuFacts

GPU = GpuFacts(
    chip="round",
    capability=7.0,
    multiprocessors=4,
    peak_flops_per_s=4e9,
    memory_bandwidth_bytes_per_s=1e9,
    memory="HBM2",
    l2_bytes=1_000_000,
    power_watts=250.0,
    base_clock_mhz=1000,
    boost_clock_mhz=1200,
)
CLOCK = Clock(sustained_flops_per_joule=2e9 / 70, sustained_after_s=1e-3)
# Fine tiles at peak, nothing beside.
IDEAL = Tiling(peak_shares={"1x1": 1.0}, filling_k=0, single_tile=0, adding_up_s=1.0)


def numbers(**sizes):
    """Return each size as the array of one kernel."""
    return {name: np.array([size], dtype=np.float64) for name, size in sizes.items()}
