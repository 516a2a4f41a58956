"""How long a forward convolution takes on a GPU.

Model: four algorithms, of which the fastest is taken. The *direct* one is a product of the filter
[outputs, taps] with the unfolded input [taps, positions], which is unfolded on the way. For 3x3
filters and stride 1, *Winograd* does with fewer multiplications: 16 for each 2x2 outputs in one
kernel (F2), or 36 for each 4x4 outputs as 36 products of matrices (F4), between kernels that
transform the input, the filter and the result through memory. For larger filters and stride 1,
*FFT* does the same with the complex frequencies of tiles of 16x16 or 32x32 elements. Each counts
its own flops.

The record has none by FFT: its products and transforms are assumed to be as good as those of F4.

Left out: groups, dilations, other layouts than NCHW, libraries that pick a slower one, and the
memory between kernels.

Sources: Lavin, Gray, Fast Algorithms for Convolutional Neural Networks, CVPR 2016,
doi:10.1109/CVPR.2016.435; Mathieu, Henaff, LeCun, Fast Training of Convolutional Networks through
FFTs, ICLR 2014, arXiv:1312.5851; cuDNN's `CUDNN_CONVOLUTION_FWD_ALGO_FFT_TILING`, whose kernels are
named after their tiles.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from placement_advisor.cost.gpu.clock import Clock, at_clock_s
from placement_advisor.cost.gpu.tiles import FLOAT32_BYTES, Products, Tiling, tiled_s

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from placement_advisor.cost.gpu.tiles import Figures
    from placement_advisor.machine.gpu_facts import GpuFacts

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
    of_algorithms = [
        _boosted_direct_s(shape, gpu, constants, bandwidth),
        _f2_s(shape, gpu, constants, bandwidth),
        _f4_s(shape, gpu, constants, bandwidth),
        *(_fft_s(shape, tile, gpu, constants, bandwidth) for tile in FFT_TILES),
    ]
    return at_clock_s(np.min(of_algorithms, axis=0), gpu, constants.clock)


def direct_s(
    shape: Convolutions, gpu: GpuFacts, constants: ConvolutionConstants, bandwidth: float
) -> Figures:
    """Return the seconds of each kernel if it is a direct one."""
    return at_clock_s(_boosted_direct_s(shape, gpu, constants, bandwidth), gpu, constants.clock)


def _boosted_direct_s(
    shape: Convolutions, gpu: GpuFacts, constants: ConvolutionConstants, bandwidth: float
) -> Figures:
    products = shape.direct()
    computing_s = tiled_s(products, gpu, constants.direct, bandwidth)
    return _in_one_kernel(shape, products, computing_s, gpu, constants, bandwidth)


def _f2_s(
    shape: Convolutions, gpu: GpuFacts, constants: ConvolutionConstants, bandwidth: float
) -> Figures:
    products = shape.winograd(F2_OUTPUTS, F2_PRODUCTS)
    transformed = FLOAT32_BYTES * shape.inputs * shape.outputs * (WINOGRAD_TAPS + 2 * F2_PRODUCTS)
    computing_s = (
        tiled_s(products, gpu, constants.f2, bandwidth)
        + constants.f2_filter * transformed / bandwidth
    )
    time_s = _in_one_kernel(shape, products, computing_s, gpu, constants, bandwidth)
    return np.where(shape.has_winograd, time_s, np.inf)


def _f4_s(
    shape: Convolutions, gpu: GpuFacts, constants: ConvolutionConstants, bandwidth: float
) -> Figures:
    products = shape.winograd(F4_OUTPUTS, F4_PRODUCTS)
    time_s = _through_memory(shape, products, F4_PRODUCTS, gpu, constants, bandwidth)
    return np.where(shape.has_winograd, time_s, np.inf)


def _fft_s(
    shape: Convolutions, tile: int, gpu: GpuFacts, constants: ConvolutionConstants, bandwidth: float
) -> Figures:
    numbers = COMPLEX * _frequencies(tile)
    time_s = _through_memory(shape, shape.fft(tile), numbers, gpu, constants, bandwidth)
    return np.where(shape.has_fft(tile), time_s, np.inf)


def _frequencies(tile: int) -> int:
    """Return how many complex numbers tell a tile of real ones; the others are their conjugates."""
    return tile * (tile // 2 + 1)


def _through_memory(
    shape: Convolutions,
    products: Products,
    numbers: int,
    gpu: GpuFacts,
    constants: ConvolutionConstants,
    bandwidth: float,
) -> Figures:
    """Return the time of products between kernels that transform.

    ``numbers`` is how many stand for a tile.
    """
    filter_bytes = FLOAT32_BYTES * shape.inputs * shape.outputs * (shape.taps + 2 * numbers)
    tile_bytes = 2 * FLOAT32_BYTES * numbers * products.n * (shape.inputs + shape.outputs)
    image_bytes = shape.size_bytes + tile_bytes
    moved = constants.f4_filter * filter_bytes + constants.f4_images * image_bytes
    computing_s = np.maximum(
        tiled_s(products, gpu, constants.f4, bandwidth), products.flops / gpu.peak_flops_per_s
    )
    time_s = computing_s + moved / bandwidth + constants.f4_start_s
    found: Figures = np.maximum(time_s, shape.size_bytes / bandwidth)
    return found


def _in_one_kernel(
    shape: Convolutions,
    products: Products,
    computing_s: Figures,
    gpu: GpuFacts,
    constants: ConvolutionConstants,
    bandwidth: float,
) -> Figures:
    """Return the time of a kernel that reads and writes memory while it computes."""
    memory_s = shape.size_bytes / bandwidth
    limit_s = np.maximum(memory_s, products.flops / gpu.peak_flops_per_s)
    return np.maximum(computing_s + constants.reading * memory_s, limit_s)
