"""The clock that a power limit leaves a GPU in long kernels.

Model: cards that live on the power of their slot hold their boost clock in short kernels; in long
ones they fall to a share of it. Cards with more power keep it.

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """What a card of `SLOT_WATTS` or less holds: ``sustained_share`` of its boost clock.

    Kernels of ``sustained_after_s`` run half of their time at it.
    """

    sustained_share: float
    sustained_after_s: float


def at_clock_s(boosted_s: Figures, gpu: GpuFacts, clock: Clock) -> Figures:
    """Return the seconds of kernels that would take ``boosted_s`` at the boost clock."""
    if gpu.power_watts > SLOT_WATTS:
        return boosted_s
    length = boosted_s / clock.sustained_after_s
    return boosted_s * (1 + length / clock.sustained_share) / (1 + length)
