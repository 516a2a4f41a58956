"""Times of GPU kernels: products of matrices, convolutions, and those that only move memory.

Products are computed in tiles; a power limit may leave a GPU less than its boost clock.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

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


# The finest tiles of the record; results are padded to them.
PADDED_TO = 64
# With fewer rows, far ones cost less than half; with fewer steps along k, half tiles do. Both read
# off the record of P100 and P4 by eye.
MANY_ROWS = 150
MANY_STEPS = 400
# Elements of a sector, which is what caches load at least, and of a piece along k.
SECTOR = 8
# How well computing and reading hide each other: 1 if not at all. Of 2, 3 and 4, this one tells the
# record best.
HIDING = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductConstants:
    """What the record says of the products of one library on one chip.

    ``scattered``: how much longer operands take whose rows lie along k than a copy of them, as
    tiles read short pieces of many rows. ``straddling``: how often the bytes that tiles read of
    them cost their time again, where each piece lies in two sectors. ``writing``: how often the
    result's bytes cost their time beside the tiles. ``far_rows``: as ``straddling``, for each
    doubling of k beyond ``far_rows_k``, if the elements of weights times those of the result are
    above ``far_rows_size``. ``half_tiles``: the same for an odd number of half tiles along m, if n
    is above ``half_tiles_n``. Products of many have neither. ``record_launch_s``: what launching
    took in the record; no part of the kernel's time.
    """

    tiling: Tiling
    clock: Clock
    scattered: float
    straddling: float
    writing: float
    record_launch_s: float
    far_rows: float = 0
    far_rows_k: float = 1
    far_rows_size: float = 1
    half_tiles: float = 0
    half_tiles_n: float = 1


def product_s(
    products: Products,
    gpu: GpuFacts,
    constants: ProductConstants,
    bandwidth: float,
    *,
    has_weights: bool,
) -> Figures:
    """Return the seconds of each kernel; ``bandwidth`` is what plain copies reach, in bytes/s.

    Weights lie with their rows along k (`[n, k]`), as the left operand does; other right operands
    lie across, and tiles read long pieces of them.
    """
    left_bytes = FLOAT32_BYTES * products.count * products.m * products.k
    right_bytes = FLOAT32_BYTES * products.count * products.k * products.n
    result_bytes = products.size_bytes - left_bytes - right_bytes
    computing_s = (
        tiled_s(products, gpu, constants.tiling, bandwidth)
        + _reading_again(products, constants) / bandwidth
        + constants.writing * result_bytes / bandwidth
    )
    scattered_bytes = left_bytes + right_bytes * has_weights
    memory_s = (products.size_bytes + constants.scattered * scattered_bytes) / bandwidth
    # Both at once, and neither hides all of the other. Memory has a clock of its own.
    slowed_s = at_clock_s(computing_s, gpu, constants.clock)
    time_s = (slowed_s**HIDING + memory_s**HIDING) ** (1 / HIDING)
    found: Figures = np.maximum(time_s, products.flops / gpu.peak_flops_per_s)
    return found


def _reading_again(products: Products, constants: ProductConstants) -> Figures:
    """Return the bytes that far rows, half tiles and pieces in two sectors cost the time of."""
    m, n, k = products.m, products.n, products.k
    doublings = np.log2(1 + (k / constants.far_rows_k) ** 2) / 2
    size = (n * k) * (m * n)
    far_rows = doublings * m / (m + MANY_ROWS) * _above(size, constants.far_rows_size)
    is_odd = np.ceil(m / PADDED_TO) % 2
    half_tiles = is_odd * _above(n, constants.half_tiles_n) * _above(k, MANY_STEPS)
    straddling = 1 - np.gcd(k.astype(np.int64), SECTOR) / SECTOR
    times = (
        constants.far_rows * far_rows
        + constants.half_tiles * half_tiles
        + constants.straddling * straddling
    )
    return times * _read_by_tiles(products)


def _above(value: Figures, middle: float) -> Figures:
    """Return a smooth step from 0 to 1 around the middle."""
    return 1 / (1 + (middle / value) ** 2)


def _read_by_tiles(products: Products) -> Figures:
    """Return the bytes of one operand that tiles of `PADDED_TO` rows and columns read."""
    tiles = np.ceil(products.m / PADDED_TO) * np.ceil(products.n / PADDED_TO) * products.count
    read: Figures = FLOAT32_BYTES * tiles * PADDED_TO * products.k
    return read


# Outputs along an axis, and multiplications, of one Winograd tile.
F2_OUTPUTS, F2_PRODUCTS = 2, 16
F4_OUTPUTS, F4_PRODUCTS = 4, 36
# The filter that Winograd kernels exist for, along an axis.
WINOGRAD_FILTER = 3
WINOGRAD_TAPS = WINOGRAD_FILTER**2
# Elements of FFT's tiles along an axis, and the smallest filter that it is taken into account for.
# On smaller ones, Winograd does with as few multiplications.
FFT_TILES = (16, 32)
FFT_FILTER = 5
# `Tiling.single_tile` of filters of 1x1, which are products of plain matrices; the record has none.
# Of 0.5, 1 and 2, this one tells a half of DeepBench best (tests/benchmarks/public_times.py).
PLAIN_SINGLE_TILE = 1.0
# Numbers of a complex one, and multiplications of a complex product.
COMPLEX, COMPLEX_PRODUCT = 2, 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Convolutions:
    """Forward convolutions; ``stride`` is the larger one of both axes."""

    batch: Figures
    inputs: Figures
    outputs: Figures
    filter_height: Figures
    filter_width: Figures
    image_height: Figures
    image_width: Figures
    result_height: Figures
    result_width: Figures
    stride: Figures

    @property
    def taps(self) -> Figures:
        """Weights between one input and one output."""
        return self.filter_height * self.filter_width

    @property
    def positions(self) -> Figures:
        """Elements of one output of all images."""
        return self.batch * self.result_height * self.result_width

    @property
    def filter_elements(self) -> Figures:
        """Weights of the filter."""
        return self.taps * self.inputs * self.outputs

    @property
    def size_bytes(self) -> Figures:
        """Bytes of image, filter and result."""
        images = self.batch * self.inputs * self.image_height * self.image_width
        results = self.outputs * self.positions
        return FLOAT32_BYTES * (images + results + self.filter_elements)

    @property
    def has_winograd(self) -> NDArray[np.bool_]:
        """Whether there are Winograd kernels: for filters of 3x3 and stride 1."""
        is_of_three = (self.filter_height == WINOGRAD_FILTER) & (
            self.filter_width == WINOGRAD_FILTER
        )
        found: NDArray[np.bool_] = is_of_three & (self.stride == 1)
        return found

    def direct(self) -> Products:
        """Return the product with the unfolded input."""
        one = np.ones_like(self.positions)
        return Products(m=self.outputs, n=self.positions, k=self.taps * self.inputs, count=one)

    def winograd(self, outputs: int, multiplications: int) -> Products:
        """Return the products of a Winograd algorithm with this many outputs along an axis."""
        rows, columns = np.ceil(self.result_height / outputs), np.ceil(self.result_width / outputs)
        tiles = self.batch * rows * columns
        count = np.full_like(tiles, multiplications)
        return Products(m=self.outputs, n=tiles, k=self.inputs, count=count)

    def has_fft(self, tile: int) -> NDArray[np.bool_]:
        """Whether FFT with tiles of this many elements along an axis is taken into account."""
        sizes = self.filter_height, self.filter_width
        is_large = np.minimum(*sizes) >= FFT_FILTER
        found: NDArray[np.bool_] = is_large & (np.maximum(*sizes) < tile) & (self.stride == 1)
        return found

    def fft(self, tile: int) -> Products:
        """Return the products of frequencies, of tiles that overlap by the filter."""
        heights = np.maximum(tile - self.filter_height + 1, 1)
        widths = np.maximum(tile - self.filter_width + 1, 1)
        tiles = self.batch * np.ceil(self.result_height / heights)
        tiles = tiles * np.ceil(self.result_width / widths)
        count = np.full_like(tiles, COMPLEX_PRODUCT * _frequencies(tile))
        return Products(m=self.outputs, n=tiles, k=self.inputs, count=count)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvolutionConstants:
    """What the record says of the convolutions of one library on one chip.

    ``reading``: how much of the time for the bytes of image, filter and result a single kernel
    does not hide. ``f2_filter`` and ``f4_filter``: how often transforming the filter costs the time
    of its bytes, ``f4_images`` the same for image and result. ``f4_start_s``: what the kernels of
    F4 take beside that. FFT has those of F4. ``record_launch_s``: what launching took in the
    record; no part of the kernel's time.
    """

    direct: Tiling
    f2: Tiling
    f4: Tiling
    clock: Clock
    reading: float
    f2_filter: float
    f4_filter: float
    f4_images: float
    f4_start_s: float
    record_launch_s: float


def convolution_s(
    shape: Convolutions, gpu: GpuFacts, constants: ConvolutionConstants, bandwidth: float
) -> Figures:
    """Return the seconds of each kernel; ``bandwidth`` is what plain copies reach, in bytes/s."""
    plain = replace(constants.direct, single_tile=PLAIN_SINGLE_TILE)
    plain_s = _Algorithms(shape, gpu, replace(constants, direct=plain), bandwidth).direct_s()
    boosted = _Algorithms(shape, gpu, constants, bandwidth)
    of_algorithms = [
        np.where(shape.taps == 1, plain_s, np.inf),
        boosted.direct_s(),
        np.where(shape.has_winograd, boosted.f2_s(), np.inf),
        np.where(shape.has_winograd, boosted.f4_s(), np.inf),
        *(np.where(shape.has_fft(tile), boosted.fft_s(tile), np.inf) for tile in FFT_TILES),
    ]
    return at_clock_s(np.min(of_algorithms, axis=0), gpu, constants.clock)


def direct_s(
    shape: Convolutions, gpu: GpuFacts, constants: ConvolutionConstants, bandwidth: float
) -> Figures:
    """Return the seconds of each kernel if it is a direct one."""
    boosted_s = _Algorithms(shape, gpu, constants, bandwidth).direct_s()
    return at_clock_s(boosted_s, gpu, constants.clock)


def _frequencies(tile: int) -> int:
    """Return how many complex numbers tell a tile of real ones; the others are their conjugates."""
    return tile * (tile // 2 + 1)


class _Algorithms(NamedTuple):
    """Seconds of convolutions at the boost clock, by each algorithm."""

    shape: Convolutions
    gpu: GpuFacts
    constants: ConvolutionConstants
    bandwidth: float

    def direct_s(self) -> Figures:
        return self._in_one_kernel(self.shape.direct(), self.constants.direct, 0)

    def f2_s(self) -> Figures:
        channels = self.shape.inputs * self.shape.outputs
        transformed = FLOAT32_BYTES * channels * (WINOGRAD_TAPS + 2 * F2_PRODUCTS)
        products = self.shape.winograd(F2_OUTPUTS, F2_PRODUCTS)
        return self._in_one_kernel(
            products, self.constants.f2, self.constants.f2_filter * transformed
        )

    def f4_s(self) -> Figures:
        return self._through_memory(self.shape.winograd(F4_OUTPUTS, F4_PRODUCTS), F4_PRODUCTS)

    def fft_s(self, tile: int) -> Figures:
        return self._through_memory(self.shape.fft(tile), COMPLEX * _frequencies(tile))

    def _through_memory(self, products: Products, numbers: int) -> Figures:
        """Return the time of products between kernels that transform.

        ``numbers`` is how many stand for a tile.
        """
        shape, constants = self.shape, self.constants
        filter_bytes = FLOAT32_BYTES * shape.inputs * shape.outputs * (shape.taps + 2 * numbers)
        tile_bytes = 2 * FLOAT32_BYTES * numbers * products.n * (shape.inputs + shape.outputs)
        image_bytes = shape.size_bytes + tile_bytes
        moved = constants.f4_filter * filter_bytes + constants.f4_images * image_bytes
        computing_s = np.maximum(
            tiled_s(products, self.gpu, constants.f4, self.bandwidth),
            products.flops / self.gpu.peak_flops_per_s,
        )
        time_s = computing_s + moved / self.bandwidth + constants.f4_start_s
        found: Figures = np.maximum(time_s, shape.size_bytes / self.bandwidth)
        return found

    def _in_one_kernel(
        self, products: Products, tiling: Tiling, transformed_bytes: Figures | int
    ) -> Figures:
        """Return the time of a kernel that reads and writes memory while it computes."""
        memory_s = self.shape.size_bytes / self.bandwidth
        computing_s = (
            tiled_s(products, self.gpu, tiling, self.bandwidth)
            + transformed_bytes / self.bandwidth
            + self.constants.reading * memory_s
        )
        limit_s = np.maximum(memory_s, products.flops / self.gpu.peak_flops_per_s)
        return np.maximum(computing_s, limit_s)


# Up to this length, one warp holds a row of softmax in registers; beyond, a block of threads reads
# it again and again (PyTorch, PersistentSoftmax.cuh and SoftMax.cu).
HELD_ROW = 1024
# What a thread reads at once.
VECTOR = 4
# A layer normalisation has this many threads for a row (PyTorch, layer_norm_kernel.cu).
NORMALISING_THREADS = 128
# Threads of a block at least.
WARP = 32
# Threads that a multiprocessor holds.
RESIDENT_THREADS = 2048
# The compute capability of the first chip with units of their own for integers (its whitepaper).
VOLTA = 7.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftmaxConstants:
    """What softmax takes beside a copy of its tensor.

    ``held``: instructions for an element of rows of up to `HELD_ROW`. ``again``: further ones for
    longer rows. ``idle``: further ones for threads without an element in a row's last step, for the
    square of their share of those with one. ``row_elements``: elements that a row costs on its own.
    ``record_launch_s``: what launching took in the record; no part of the kernel's time.
    """

    held: float
    again: float
    idle: float
    row_elements: float
    record_launch_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NormalisationConstants:
    """How many times as long layer normalisation takes as a copy of its tensor.

    ``held``: with rows that the caches hold until they are read again. ``again``: what reading them
    from memory again adds; the caches hold ``cache_reach`` times the level-2 cache. ``idle``: what
    threads without an element in a row's last step add, for their share of those with one.
    ``row_elements``: elements that a row costs on its own. ``record_launch_s``: what launching took
    in the record; no part of the kernel's time.
    """

    held: float
    again: float
    cache_reach: float
    idle: float
    row_elements: float
    record_launch_s: float


def elementwise_s(elements: Figures, inputs: int, gpu: GpuFacts, share: float) -> Figures:
    """Return the seconds of kernels that read so many tensors and write one.

    They draw a share of the nominal bandwidth.
    """
    moved = FLOAT32_BYTES * elements * (inputs + 1)
    return moved / (gpu.memory_bandwidth_bytes_per_s * share)


def softmax_s(
    rows: Figures, length: Figures, gpu: GpuFacts, constants: SoftmaxConstants, bandwidth: float
) -> Figures:
    """Return the seconds of softmax over rows; ``bandwidth`` is what copies reach, in bytes/s."""
    # A power of two, such that half of a row or more is read in vectors.
    threads = 2 ** np.ceil(np.log2(np.maximum(np.floor(length / VECTOR) / 2, WARP)))
    steps = np.ceil(length / (VECTOR * threads))
    idle = constants.idle * (steps * VECTOR * threads / length - 1) ** 2
    instructions = constants.held + np.where(length <= HELD_ROW, 0, constants.again + idle)
    # Two flop an instruction. Cores share their time with addresses and loops before Volta.
    per_s = gpu.peak_flops_per_s / (2 if gpu.capability >= VOLTA else 4)
    copies_s = _copies_s(rows, length + constants.row_elements, bandwidth)
    found: Figures = copies_s + rows * length * instructions / per_s
    return found


def layer_norm_s(
    rows: Figures,
    length: Figures,
    gpu: GpuFacts,
    constants: NormalisationConstants,
    bandwidth: float,
) -> Figures:
    """Return the seconds of layer normalisation; ``bandwidth`` is what copies reach, in bytes/s."""
    in_flight = gpu.multiprocessors * RESIDENT_THREADS / NORMALISING_THREADS
    overflow = in_flight * length * FLOAT32_BYTES / (constants.cache_reach * gpu.l2_bytes)
    missed = 1 / (1 + overflow**-4)
    steps = np.ceil(length / (VECTOR * NORMALISING_THREADS))
    idle = constants.idle * (steps * VECTOR * NORMALISING_THREADS / length - 1)
    passes = constants.held + constants.again * missed + idle + constants.row_elements / length
    return _copies_s(rows, length, bandwidth) * np.maximum(passes, 1)


def _copies_s(rows: Figures, length: Figures, bandwidth: float) -> Figures:
    """Return the seconds of reading and writing the tensor once."""
    return 2 * FLOAT32_BYTES * rows * length / bandwidth
