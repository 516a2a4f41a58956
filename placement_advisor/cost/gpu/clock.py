"""The clock that a power limit leaves a GPU in long kernels, and what chips before Maxwell reach.

Model: cards that live on the power of their slot hold their boost clock in short kernels; in long
ones they fall to what their power pays for, at so many flop/s for each watt. Cards with more power
keep their clock.

The record has no chip before Maxwell. Such a one has more cores in a multiprocessor than registers
and schedulers feed: a K40 at its boost clock reached 3.2e12 flop/s of 5.04e12 in large products, on
235 W. Other cards of that kind are taken to reach the lesser of that share of their peak and of
that much for each watt. A K80 is two GPUs with 150 W each: the watts decide.

Left out: temperature, which the record says nothing of. That a K40 takes all of its watts there,
and that convolutions reach what products do, is a judgement.

Sources: measurements of cuBLAS 7.0 in clBLAS, doc/performance/cuBLAS_7.0/Tesla_K40/sgemm.csv; Lai,
Seznec, Performance upper bound analysis and optimization of SGEMM on Fermi and Kepler GPUs, CGO
2013, doi:10.1109/CGO.2013.6494986.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from placement_advisor.cost.gpu.tiles import Figures
    from placement_advisor.machine.gpu_facts import GpuFacts

# What a PCIe slot gives at most. Cards beyond it have a connector of their own, and hundreds of W.
SLOT_WATTS = 75
# The record has such cards of 16 and 12 nm. Ada and later are made in 4 nm, and do about three
# times as much with a watt (82.6e12 flop/s with 450 W on RTX 4090, 14e12 with 250 W on V100).
# A judgement: no card of that kind is in the record.
ADA, FLOPS_SINCE_ADA = 8.9, 3
# The compute capability of the first chip of that generation.
MAXWELL = 5.0
K40_PEAK, K40_REACHED, K40_WATTS = 5.04e12, 3.2e12, 235
# What large products reach on the chips of the record, as their constants have it.
REACHED_SHARE = 0.88


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """What a card of `SLOT_WATTS` or less sustains: flop/s for each watt.

    Kernels of ``sustained_after_s`` run half of their time at that.
    """

    sustained_flops_per_joule: float
    sustained_after_s: float


def with_fed_cores(gpu: GpuFacts) -> GpuFacts:
    """Return the GPU with a peak of which products reach as much as on the chips of the record."""
    if gpu.capability >= MAXWELL:
        return gpu
    by_cores = gpu.peak_flops_per_s * K40_REACHED / K40_PEAK
    by_power = gpu.power_watts * K40_REACHED / K40_WATTS
    return replace(gpu, peak_flops_per_s=min(by_cores, by_power) / REACHED_SHARE)


def at_clock_s(boosted_s: Figures, gpu: GpuFacts, clock: Clock) -> Figures:
    """Return the seconds of kernels that would take ``boosted_s`` at the boost clock."""
    if gpu.power_watts > SLOT_WATTS:
        return boosted_s
    gain = FLOPS_SINCE_ADA if gpu.capability >= ADA else 1
    sustained = clock.sustained_flops_per_joule * gain * gpu.power_watts
    share = min(1.0, sustained / gpu.peak_flops_per_s)
    length = boosted_s / clock.sustained_after_s
    return boosted_s * (1 + length / share) / (1 + length)
