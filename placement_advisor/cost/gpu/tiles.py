"""Products of matrices as libraries for GPUs compute them: in tiles.

Model: the result is cut into tiles, each computed by one group of threads that walks along k. Tiles
run in waves over the multiprocessors, so that the last wave, and tiles at the edges, are part
empty. A tile of a shape reaches a share of a multiprocessor's peak; filling its pipeline costs as
much as some more steps along k, and few tiles for each multiprocessor hide less of what they wait
for. Where there are few tiles, k is split among several of them, whose parts are then added up. Of
all shapes and splits, the fastest is taken.

Left out: that libraries do not always find the fastest, and memory: `matrix_products` adds it.

Source: Kerr, Merrill, Demouth, Tran, CUTLASS: Fast Linear Algebra in CUDA C++, NVIDIA, 2017.
"""

from __future__ import annotations

from dataclasses import dataclass
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
