"""How long one kernel takes on a GPU that nobody can measure here.

Model: formulas (`matrix_products`, `convolutions`, `memory_bound`) over the kernel's dimensions and
the GPU's datasheet. Their constants are in `kernel_times.toml`: for each chip of the record those
fitted to it, for every other GPU those fitted to all chips at once, or to those that are like it.

The record is NeuSight's: forward kernels alone, float32, PyTorch 2.1, CUDA 12.1, cuDNN 8.9. Its
convolutions are all 3x3 with stride 1. Anything else is not covered.

Source: Lee, Phanishayee, Mahajan, Forecasting GPU Performance for Deep Learning Training and
Inference, ASPLOS 2025, doi:10.1145/3669940.3707265.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import cache, partial
from importlib import resources
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from placement_advisor.cost.gpu.clock import MAXWELL, Clock, with_fed_cores
from placement_advisor.cost.gpu.convolutions import (
    ConvolutionConstants,
    Convolutions,
    convolution_s,
    direct_s,
)
from placement_advisor.cost.gpu.matrix_products import ProductConstants, product_s
from placement_advisor.cost.gpu.memory_bound import (
    NormalisationConstants,
    SoftmaxConstants,
    StreamConstants,
    elementwise_s,
    layer_norm_s,
    softmax_s,
)
from placement_advisor.cost.gpu.tiles import Products, Tiling
from placement_advisor.machine.gpu_facts import gpus_matched_by
from placement_advisor.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from placement_advisor.cost.gpu.tiles import Figures
    from placement_advisor.machine.gpu_facts import GpuFacts

    # Constants of one op as the file has them.
    Constants: TypeAlias = Mapping[str, Any]
    # (dimensions of one kernel a row, GPU, constants, bytes/s that copies reach) -> seconds
    Rule: TypeAlias = Callable[[Figures, GpuFacts, Constants, float], Figures]

# Whose constants a chip has that is not in the record: for some ops, those of chips like it.
ALL_CHIPS = "all chips"
HBM_SINCE_VOLTA, OTHER_MEMORY = "HBM since Volta", "other memory"
SINCE_VOLTA, BEFORE_VOLTA = "since Volta", "before Volta"
# The compute capability of the first chip of that generation.
VOLTA = 7.0
# Columns that the record has of a convolution.
RECORDED_DIMENSIONS = 7


class KernelBasis(StrEnum):
    """What a time rests on.

    ``FITTED``: constants of the same chip. ``TRANSFERRED``: those of other chips. ``ASSUMED``: one
    or the other, for a kernel of a kind that the record does not have.
    """

    FITTED = "fitted"
    TRANSFERRED = "transferred"
    ASSUMED = "assumed"


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTime:
    """Time of one kernel, without its launch.

    ``within``: the factor that nine in ten such times were within, either way, of kernels of the
    record that the constants of their basis were not fitted to; None if it has none like it.
    """

    time_ns: int
    within: float | None
    basis: KernelBasis


def kernel_time(op: str, dims: tuple[int, ...], gpu: GpuFacts) -> KernelTime:
    """Return the time of one op of the record, float32, with dimensions as `OPS` has them.

    Raises:
        KeyError: the record has no such op.
    """
    known = shipped_constants()
    rows = np.array([dims], dtype=np.float64)
    seconds = kernel_s(op, rows, gpu, constants_for(op, gpu, known), copy_bandwidth(gpu, known))
    is_known = _is_like_the_record(op, dims)
    basis = kernel_errors(gpu)[op][0] if is_known else KernelBasis.ASSUMED
    return KernelTime(
        time_ns=round(float(seconds[0]) * NS_PER_S),
        within=known["within"][op][basis] if is_known else None,
        basis=basis,
    )


def kernel_errors(gpu: GpuFacts) -> dict[str, tuple[KernelBasis, float]]:
    """Return what times of each op rest on, and by how much these missed the record in the mean."""
    known = shipped_constants()
    bases = {
        op: KernelBasis.FITTED if op in known.get(gpu.chip, {}) else KernelBasis.TRANSFERRED
        for op in OPS
    }
    return {op: (basis, known["errors"][op][basis]) for op, basis in bases.items()}


def reached_bandwidth(gpu: GpuFacts) -> float:
    """Return what kernels reach that only move memory, in bytes/s.

    That is no less than on a GPU that this one matches in every figure.
    """
    return max(copy_bandwidth(each, shipped_constants()) for each in gpus_matched_by(gpu))


def kernel_s(
    op: str, dims: Figures, gpu: GpuFacts, constants: Constants, bandwidth: float
) -> Figures:
    """Return the seconds of kernels of one op, one a row of ``dims``; bandwidth in bytes/s."""
    return OPS[op](dims, gpu, constants, bandwidth)


def constants_for(op: str, gpu: GpuFacts, known: Mapping[str, Any]) -> Constants:
    """Return an op's constants: the chip's own, else those of what is most like it.

    Raises:
        KeyError: there are none for any chip.
    """
    for place in (gpu.chip, memory_group(gpu), generation(gpu)):
        if op in known.get(place, {}):
            constants: Constants = known[place][op]
            return constants
    of_all: Constants = known[ALL_CHIPS][op]
    return of_all


def copy_bandwidth(gpu: GpuFacts, known: Mapping[str, Any]) -> float:
    """Return what plain copies reach, in bytes/s: kernels that read one tensor and write one."""
    share: float = constants_for("relu", gpu, known)["bandwidth_share"]
    return gpu.memory_bandwidth_bytes_per_s * share


def memory_group(gpu: GpuFacts) -> str:
    """Return which GPUs draw like shares of their bandwidth.

    The memory controller that came with Volta draws more of its HBM2 than Pascal's; NVIDIA says so
    in its whitepaper on Volta.
    """
    is_hbm = gpu.memory.startswith("HBM") and gpu.capability >= VOLTA
    return HBM_SINCE_VOLTA if is_hbm else OTHER_MEMORY


def generation(gpu: GpuFacts) -> str:
    """Return which GPUs have like kernels for products with long rows, as the record shows.

    A K40 was as fast with rows of 4,000 as with those of 2,000, as chips since Volta are (`clock`).
    """
    return BEFORE_VOLTA if MAXWELL <= gpu.capability < VOLTA else SINCE_VOLTA


def _products(dims: Figures, gpu: GpuFacts, constants: Constants, bandwidth: float) -> Figures:
    """Time `[m, k] @ [k, n]`, of (count, m, k, n)."""
    count, m, k, n = dims.T
    parts = {"tiling": Tiling(**constants["tiling"]), "clock": Clock(**constants["clock"])}
    return product_s(
        Products(m=m, n=n, k=k, count=count),
        with_fed_cores(gpu),
        ProductConstants(**{**constants, **parts}),
        bandwidth,
    )


def _convolution(dims: Figures, gpu: GpuFacts, constants: Constants, bandwidth: float) -> Figures:
    """Time a forward convolution, of dimensions as `_convolutions` takes them."""
    parts = _convolution_constants(constants)
    return convolution_s(_convolutions(dims), with_fed_cores(gpu), parts, bandwidth)


def direct_convolution(
    dims: Figures, gpu: GpuFacts, constants: Constants, bandwidth: float
) -> Figures:
    """Return the seconds of convolutions by the direct algorithm, with constants of `conv`."""
    return direct_s(_convolutions(dims), gpu, _convolution_constants(constants), bandwidth)


def _convolution_constants(constants: Constants) -> ConvolutionConstants:
    tilings = {name: Tiling(**constants[name]) for name in ("direct", "f2", "f4")}
    parts = {**tilings, "clock": Clock(**constants["clock"])}
    return ConvolutionConstants(**{**constants, **parts})


def _convolutions(dims: Figures) -> Convolutions:
    """Return convolutions of the ten dimensions that `Convolutions` names.

    Or of the seven that the record has of square ones: batch, inputs, outputs, then along one axis
    filter, image, stride, and padding on each side.
    """
    columns = list(dims.T)
    if len(columns) == RECORDED_DIMENSIONS:
        *channels, filter_size, image, stride, padding = columns
        result = np.floor((image + 2 * padding - filter_size) / stride) + 1
        columns = [*channels, filter_size, filter_size, image, image, result, result, stride]
    names = (field.name for field in fields(Convolutions))
    return Convolutions(**dict(zip(names, columns, strict=True)))


def _elementwise(
    inputs: int, dims: Figures, gpu: GpuFacts, constants: Constants, _: float
) -> Figures:
    """Time an elementwise op, of (rows, length)."""
    rows, length = dims.T
    return elementwise_s(rows * length, inputs, gpu, StreamConstants(**constants))


def _softmax(dims: Figures, gpu: GpuFacts, constants: Constants, _: float) -> Figures:
    """Time softmax over rows, of (rows, length)."""
    rows, length = dims.T
    return softmax_s(rows, length, gpu, SoftmaxConstants(**constants))


def _layer_norm(dims: Figures, gpu: GpuFacts, constants: Constants, bandwidth: float) -> Figures:
    """Time layer normalisation over rows, of (rows, length)."""
    rows, length = dims.T
    return layer_norm_s(rows, length, gpu, NormalisationConstants(**constants), bandwidth)


# By name in the record. `bmm` is a product of many, with its own kernels.
OPS: Mapping[str, Rule] = {
    "linear": _products,
    "bmm": _products,
    "conv": _convolution,
    "add": partial(_elementwise, 2),
    "mul": partial(_elementwise, 2),
    "relu": partial(_elementwise, 1),
    "tanh": partial(_elementwise, 1),
    "gelu": partial(_elementwise, 1),
    "softmax": _softmax,
    "ln": _layer_norm,
}


def _is_like_the_record(op: str, dims: tuple[int, ...]) -> bool:
    """Return whether the record has such kernels: of convolutions, those that Winograd can do."""
    if op != "conv":
        return True
    return bool(_convolutions(np.array([dims])).has_winograd[0])


@cache
def shipped_constants() -> Mapping[str, Any]:
    """Return what the package's file has: constants by chip and op, and how far times are off."""
    path = resources.files("placement_advisor.cost.gpu") / "kernel_times.toml"
    return tomllib.loads(path.read_text(encoding="utf-8"))
