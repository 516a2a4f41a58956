"""How long a product of matrices takes on a GPU.

Model: tiles in waves (`tiles`), then writing the result, which little hides. Two things lengthen it
on some chips, as the record shows; the constants of others leave them near nothing. Where k is
long and weights and result are large, what tiles read takes longer with each doubling of k:
presumably since each row of an operand then lies in another page of memory. And where m is an odd
number of 64 rows, it takes longer as well: presumably the library then picks tiles of half the
height. Power limits lengthen the longest products (`clock`).

Left out: alignment, which the record shows no effect of, and transposed operands.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from placement_advisor.cost.gpu.clock import Clock, at_clock_s
from placement_advisor.cost.gpu.tiles import FLOAT32_BYTES, Products, Tiling, tiled_s

if TYPE_CHECKING:
    from placement_advisor.cost.gpu.tiles import Figures
    from placement_advisor.machine.gpu_facts import GpuFacts

# The finest tiles of the record; results are padded to them.
PADDED_TO = 64
# With fewer rows, far ones cost less than half; with fewer steps along k, half tiles do. Both read
# off the record of P100 and P4 by eye.
MANY_ROWS = 150
MANY_STEPS = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductConstants:
    """What the record says of the products of one library on one chip.

    ``scattered``: how much longer the bytes of operands take than those of a copy, as tiles read
    short pieces of many rows. ``writing``: how often the result's bytes cost their time beside the
    tiles. ``far_rows``: how often the bytes that tiles read of an operand cost their time, for each
    doubling of k beyond ``far_rows_k``, if the elements of weights times those of the result are
    above ``far_rows_size``. ``half_tiles``: the same for an odd number of half tiles along m, if n
    is above ``half_tiles_n``. ``record_launch_s``: what launching took in the record; no part of
    the kernel's time.
    """

    tiling: Tiling
    clock: Clock
    scattered: float
    writing: float
    far_rows: float
    far_rows_k: float
    far_rows_size: float
    half_tiles: float
    half_tiles_n: float
    record_launch_s: float


def product_s(
    products: Products, gpu: GpuFacts, constants: ProductConstants, bandwidth: float
) -> Figures:
    """Return the seconds of each kernel; ``bandwidth`` is what plain copies reach, in bytes/s."""
    result_bytes = FLOAT32_BYTES * products.count * products.m * products.n
    computing_s = (
        tiled_s(products, gpu, constants.tiling, bandwidth)
        + _reading_again(products, constants) / bandwidth
        + constants.writing * result_bytes / bandwidth
    )
    operand_bytes = products.size_bytes - result_bytes
    memory_s = (result_bytes + (1 + constants.scattered) * operand_bytes) / bandwidth
    # Both at once, and neither hides all of the other.
    time_s = (computing_s**4 + memory_s**4) ** 0.25
    slowed_s = at_clock_s(time_s, gpu, constants.clock)
    found: Figures = np.maximum(slowed_s, products.flops / gpu.peak_flops_per_s)
    return found


def _reading_again(products: Products, constants: ProductConstants) -> Figures:
    """Return the bytes that far rows and half tiles cost the time of."""
    m, n, k = products.m, products.n, products.k
    doublings = np.log2(1 + (k / constants.far_rows_k) ** 2) / 2
    size = (n * k) * (m * n)
    far_rows = doublings * m / (m + MANY_ROWS) * _above(size, constants.far_rows_size)
    is_odd = np.ceil(m / PADDED_TO) % 2
    half_tiles = is_odd * _above(n, constants.half_tiles_n) * _above(k, MANY_STEPS)
    times = constants.far_rows * far_rows + constants.half_tiles * half_tiles
    return times * _read_by_tiles(products)


def _above(value: Figures, middle: float) -> Figures:
    """Return a smooth step from 0 to 1 around the middle."""
    return 1 / (1 + (middle / value) ** 2)


def _read_by_tiles(products: Products) -> Figures:
    """Return the bytes of one operand that tiles of `PADDED_TO` rows and columns read."""
    tiles = np.ceil(products.m / PADDED_TO) * np.ceil(products.n / PADDED_TO) * products.count
    read: Figures = FLOAT32_BYTES * tiles * PADDED_TO * products.k
    return read
