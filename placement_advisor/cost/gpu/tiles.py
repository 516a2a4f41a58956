"""Tiles in which GPU libraries compute products, and the clock that a power limit leaves a GPU."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from placement_advisor.machine.gpu_facts import GpuFacts

    Figures: TypeAlias = NDArray[np.float64]


# Into how many parts libraries split k.
SPLITS = (1, 2, 4, 8, 16)
FLOAT32_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Products:
    """Products of [m, k] and [k, n] matrices: for each entry ``count`` equal ones in one kernel."""

    m: Figures
    n: Figures
    k: Figures
    count: Figures

    @property
    def flops(self) -> Figures:
        """Two for each multiply-add."""
        return 2 * self.count * self.m * self.n * self.k

    @property
    def size_bytes(self) -> Figures:
        """Bytes of both operands and of the result."""
        return FLOAT32_BYTES * self.count * (self.m * self.k + self.k * self.n + self.m * self.n)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiling:
    """The tiles that kernels have, and what they cost.

    ``peak_shares``: by tile, as `128x64` for 128 columns (n) and 64 rows (m), the share of the peak
    that it reaches in full waves. ``filling_k``: steps along k that starting a tile costs.
    ``single_tile``: how much longer a multiprocessor takes that has a single tile to work on.
    ``adding_up_s``: what adding up the parts of a split takes beside its memory traffic.
    """

    peak_shares: Mapping[str, float]
    filling_k: float
    single_tile: float
    adding_up_s: float


def tiled_s(products: Products, gpu: GpuFacts, tiling: Tiling, bandwidth: float) -> Figures:
    """Return the seconds that the fastest tiles take; ``bandwidth`` is reached, in bytes/s."""
    tile_n, tile_m, share, split = _choices(tiling.peak_shares)
    tiles = np.ceil(products.n / tile_n) * np.ceil(products.m / tile_m) * products.count * split
    tiles_each = np.ceil(tiles / gpu.multiprocessors)
    steps = np.ceil(products.k / split) + tiling.filling_k
    step_s = 2 * tile_n * tile_m / (gpu.peak_flops_per_s / gpu.multiprocessors * share)
    computing_s = tiles_each * steps * step_s * (1 + tiling.single_tile / tiles_each)
    part_bytes = FLOAT32_BYTES * products.count * products.m * products.n
    adding_s = tiling.adding_up_s + (split + 1) * part_bytes / bandwidth
    found: Figures = (computing_s + np.where(split > 1, adding_s, 0)).min(axis=0)
    return found


def _choices(peak_shares: Mapping[str, float]) -> tuple[Figures, Figures, Figures, Figures]:
    """Return columns, rows, share and split of every choice, one below the other."""
    rows = [
        (*map(int, tile.split("x")), share, split)
        for tile, share in peak_shares.items()
        for split in SPLITS
    ]
    tile_n, tile_m, share, split = np.array(rows, dtype=np.float64).T[:, :, None]
    return tile_n, tile_m, share, split


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
