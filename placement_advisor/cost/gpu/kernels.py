"""Times of GPU kernels: products of matrices, convolutions, and those that only move memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from placement_advisor.cost.gpu.tiles import (
    FLOAT32_BYTES,
    Clock,
    Products,
    Tiling,
    at_clock_s,
    tiled_s,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from placement_advisor.cost.gpu.tiles import Figures
    from placement_advisor.machine.gpu_facts import GpuFacts


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
class StreamConstants:
    """The share of the nominal bandwidth that an elementwise kernel draws.

    ``record_launch_s``: what launching took in the record; no part of the kernel's time.
    """

    bandwidth_share: float
    record_launch_s: float


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


def elementwise_s(
    elements: Figures, inputs: int, gpu: GpuFacts, constants: StreamConstants
) -> Figures:
    """Return the seconds of kernels that read so many tensors and write one."""
    moved = FLOAT32_BYTES * elements * (inputs + 1)
    return moved / (gpu.memory_bandwidth_bytes_per_s * constants.bandwidth_share)


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
