"""The clock that a power limit leaves a GPU in long kernels.

Model: cards that live on the power of their slot hold their boost clock in short kernels; in long
ones they fall to what their power pays for, at so many flop/s for each watt. Cards with more power
keep their clock.

Left out: temperature, which the record says nothing of.
"""

from __future__ import annotations

from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """What a card of `SLOT_WATTS` or less sustains: flop/s for each watt.

    Kernels of ``sustained_after_s`` run half of their time at that.
    """

    sustained_flops_per_joule: float
    sustained_after_s: float


def at_clock_s(boosted_s: Figures, gpu: GpuFacts, clock: Clock) -> Figures:
    """Return the seconds of kernels that would take ``boosted_s`` at the boost clock."""
    if gpu.power_watts > SLOT_WATTS:
        return boosted_s
    gain = FLOPS_SINCE_ADA if gpu.capability >= ADA else 1
    sustained = clock.sustained_flops_per_joule * gain * gpu.power_watts
    share = min(1.0, sustained / gpu.peak_flops_per_s)
    length = boosted_s / clock.sustained_after_s
    return boosted_s * (1 + length / share) / (1 + length)
