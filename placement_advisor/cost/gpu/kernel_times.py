"""The time of one kernel on a GPU that nobody can measure here, in any precision."""

from __future__ import annotations

import tomllib
from dataclasses import fields, replace
from enum import StrEnum
from functools import cache, lru_cache, partial
from importlib import resources
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from placement_advisor.cost.gpu import kernels
from placement_advisor.cost.table import CostBasis, OpCost
from placement_advisor.graph.op import MATRIX_FAMILIES, PASS_ROLES, Arithmetic, KernelFamily, Role
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.machine.gpu_facts import GpuFacts, gpus_matched_by
from placement_advisor.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Constants: TypeAlias = Mapping[str, Any]
    Rule: TypeAlias = Callable[[kernels.Figures, GpuFacts, Constants, float], kernels.Figures]

    from placement_advisor.graph.op import Kernel, Op
    from placement_advisor.machine.devices import Device


# Whose constants a chip has that is not in the record: for some ops, those of chips like it.
ALL_CHIPS = "all chips"
HBM_SINCE_VOLTA, OTHER_MEMORY = "HBM since Volta", "other memory"
SINCE_VOLTA, BEFORE_VOLTA = "since Volta", "before Volta"
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
    is_hbm = gpu.memory.startswith("HBM") and gpu.capability >= kernels.VOLTA
    return HBM_SINCE_VOLTA if is_hbm else OTHER_MEMORY


def generation(gpu: GpuFacts) -> str:
    """Return which GPUs have like kernels for products with long rows, as the record shows.

    A K40 was as fast with rows of 4,000 as with those of 2,000, as chips since Volta are (`clock`).
    """
    return BEFORE_VOLTA if kernels.MAXWELL <= gpu.capability < kernels.VOLTA else SINCE_VOLTA


def _products(
    has_weights: bool, dims: kernels.Figures, gpu: GpuFacts, constants: Constants, bandwidth: float
) -> kernels.Figures:
    """Time `[m, k] @ [k, n]`, of (count, m, k, n)."""
    count, m, k, n = dims.T
    parts = {
        "tiling": kernels.Tiling(**constants["tiling"]),
        "clock": kernels.Clock(**constants["clock"]),
    }
    return kernels.product_s(
        kernels.Products(m=m, n=n, k=k, count=count),
        kernels.with_fed_cores(gpu),
        kernels.ProductConstants(**{**constants, **parts}),
        bandwidth,
        has_weights=has_weights,
    )


def _convolution(
    dims: kernels.Figures, gpu: GpuFacts, constants: Constants, bandwidth: float
) -> kernels.Figures:
    """Time a forward convolution, of dimensions as `_convolutions` takes them."""
    parts = _convolution_constants(constants)
    return kernels.convolution_s(_convolutions(dims), kernels.with_fed_cores(gpu), parts, bandwidth)


def direct_convolution(
    dims: kernels.Figures, gpu: GpuFacts, constants: Constants, bandwidth: float
) -> kernels.Figures:
    """Return the seconds of convolutions by the direct algorithm, with constants of `conv`."""
    return kernels.direct_s(_convolutions(dims), gpu, _convolution_constants(constants), bandwidth)


def _convolution_constants(constants: Constants) -> kernels.ConvolutionConstants:
    tilings = {name: kernels.Tiling(**constants[name]) for name in ("direct", "f2", "f4")}
    parts = {**tilings, "clock": kernels.Clock(**constants["clock"])}
    return kernels.ConvolutionConstants(**{**constants, **parts})


def _convolutions(dims: kernels.Figures) -> kernels.Convolutions:
    """Return convolutions of the ten dimensions that `Convolutions` names.

    Or of the seven that the record has of square ones: batch, inputs, outputs, then along one axis
    filter, image, stride, and padding on each side.
    """
    columns = list(dims.T)
    if len(columns) == RECORDED_DIMENSIONS:
        *channels, filter_size, image, stride, padding = columns
        result = np.floor((image + 2 * padding - filter_size) / stride) + 1
        columns = [*channels, filter_size, filter_size, image, image, result, result, stride]
    names = (field.name for field in fields(kernels.Convolutions))
    return kernels.Convolutions(**dict(zip(names, columns, strict=True)))


def _elementwise(
    inputs: int, dims: kernels.Figures, gpu: GpuFacts, constants: Constants, _: float
) -> kernels.Figures:
    """Time an elementwise op, of (rows, length)."""
    rows, length = dims.T
    return kernels.elementwise_s(rows * length, inputs, gpu, constants["bandwidth_share"])


def _by_rows(time_s: Callable[..., kernels.Figures], constants_type: type) -> Rule:
    """Return what times an op over rows, of (rows, length)."""
    return lambda dims, gpu, constants, bandwidth: time_s(
        *dims.T, gpu, constants_type(**constants), bandwidth
    )


# By name in the record. `bmm` is a product of many, with its own kernels.
OPS: Mapping[str, Rule] = {
    "linear": partial(_products, True),
    "bmm": partial(_products, False),
    "conv": _convolution,
    "add": partial(_elementwise, 2),
    "mul": partial(_elementwise, 2),
    "relu": partial(_elementwise, 1),
    "tanh": partial(_elementwise, 1),
    "gelu": partial(_elementwise, 1),
    "softmax": _by_rows(kernels.softmax_s, kernels.SoftmaxConstants),
    "ln": _by_rows(kernels.layer_norm_s, kernels.NormalisationConstants),
}


@cache
def shipped_constants() -> Mapping[str, Any]:
    """Return what the package's file has: constants by chip and op, and how far times are off."""
    path = resources.files("placement_advisor.cost.gpu") / "kernel_times.toml"
    return tomllib.loads(path.read_text(encoding="utf-8"))


# Of the record's ops, those that matrix units do.
ON_UNITS = {"linear": OPS["linear"], "bmm": OPS["bmm"], "conv": direct_convolution}
HALVES = frozenset({Arithmetic.FLOAT16, Arithmetic.BFLOAT16})
# The compute capability from which matrix units do bfloat16.
AMPERE = 8.0
# Matrix units want channels last. In training, Grappler and XLA (below Hopper) keep float32 with
# channels first, so cuDNN copies image, filter and result: each is read and written once more.
# Source: generic_layout_optimizer.cc, XLA's gpu layout_assignment.cc; NVIDIA, Convolutional Layers
# User's Guide.
_TRANSPOSES = 2


def kernel_time(
    op: str, dims: tuple[int, ...], gpu: GpuFacts, arithmetic: Arithmetic = Arithmetic.FLOAT32
) -> OpCost:
    """Return the time of one op of the record, without its launch, computed in these numbers.

    Dimensions are as `OPS` has them. ``within`` is that of kernels of the record that the constants
    of their basis were not fitted to; None for a kernel of a kind that it does not have.

    Raises:
        KeyError: the record has no such op.
    """
    unit_peak = _unit_peak(arithmetic, gpu) if op in ON_UNITS else None
    is_half = arithmetic in HALVES
    seen = _with_halves(gpu) if is_half else gpu
    known = shipped_constants()
    constants, bandwidth = constants_for(op, gpu, known), copy_bandwidth(seen, known)
    rows = np.array([dims], dtype=np.float64)
    seconds = OPS[op](rows, seen, constants, bandwidth)
    within: float | None = None
    if unit_peak is not None:
        units = replace(seen, peak_flops_per_s=unit_peak)
        sped_up = _on_units(constants, unit_peak / gpu.peak_flops_per_s)
        on_units = ON_UNITS[op](rows, units, sped_up, bandwidth)
        if op == "conv" and not is_half:
            on_units += _TRANSPOSES * _convolutions(rows).size_bytes / bandwidth
        seconds = np.minimum(seconds, on_units)
    # Of convolutions, the record has those that Winograd can do.
    elif not is_half and (op != "conv" or _convolutions(rows).has_winograd[0]):
        within = known["within"][op][kernel_errors(gpu)[op][0]]
    return OpCost(
        time_ns=round(float(seconds[0]) * NS_PER_S),
        basis=CostBasis.KERNEL_ASSUMED if within is None else CostBasis.KERNEL,
        within=within,
    )


def _unit_peak(arithmetic: Arithmetic, gpu: GpuFacts) -> float | None:
    """Return the peak of the units for these numbers, None if there are none."""
    if arithmetic is Arithmetic.DEFAULT:
        return gpu.tf32_flops_per_s
    has_units = arithmetic is Arithmetic.FLOAT16 or gpu.capability >= AMPERE
    return gpu.half_flops_per_s if arithmetic in HALVES and has_units else None


def _with_halves(gpu: GpuFacts) -> GpuFacts:
    """Return the GPU as it looks to numbers of two bytes that are counted as four."""
    more = kernels.FLOAT32_BYTES // 2
    return replace(
        gpu,
        memory_bandwidth_bytes_per_s=more * gpu.memory_bandwidth_bytes_per_s,
        l2_bytes=more * gpu.l2_bytes,
    )


def _on_units(constants: Mapping[str, Any], speedup: float) -> Mapping[str, Any]:
    """Return the constants of products, or of direct convolutions, at a peak so many times as high.

    The clock's are flop/s for a watt. Far rows cost nothing (`half_products.py`).
    """
    part = "tiling" if "tiling" in constants else "direct"
    tiling, clock = constants[part], constants["clock"]
    sustained = speedup * clock["sustained_flops_per_joule"]
    return {
        **constants,
        **dict.fromkeys(constants.keys() & {"far_rows"}, 0),
        part: {**tiling, "filling_k": speedup * tiling["filling_k"]},
        "clock": {**clock, "sustained_flops_per_joule": sustained},
    }


GRADIENTS = frozenset({KernelFamily.CONV_BY_INPUT, KernelFamily.CONV_BY_FILTER})
# How many times as long the gradient by the input takes with a stride, whose results are in several
# interleaved parts. Fitted to a half of DeepBench (tests/benchmarks/public_times.py).
STRIDED_BY_INPUT = 1.6


# A step has the same kernel many times.
@lru_cache(maxsize=10_000)
def kernel_cost(kernel: Kernel, gpu: GpuFacts) -> OpCost:
    """Return the cost of an op that is one kernel, without its launch."""
    time, *others = (_fastest(kernel, each) for each in gpus_matched_by(gpu))
    least_ns = min(each.time_ns for each in (time, *others))
    if kernel.family in GRADIENTS:
        return OpCost(time_ns=least_ns, basis=CostBasis.KERNEL_ASSUMED)
    return replace(time, time_ns=least_ns)


def _fastest(kernel: Kernel, gpu: GpuFacts) -> OpCost:
    """Return the time of the fastest of the kernels that libraries have for it."""
    ops = [KernelFamily.CONV if kernel.family in GRADIENTS else kernel.family]
    on_units = _unit_peak(kernel.arithmetic, gpu) is not None
    if kernel.family is KernelFamily.BMM and kernel.dims[0] == 1:
        # Those of single products split k, which those of many do not on A100.
        ops = [KernelFamily.LINEAR, *ops[on_units:]]
    times = (kernel_time(op, kernel.dims, gpu, kernel.arithmetic) for op in ops)
    time = min(times, key=lambda time: time.time_ns)
    if kernel.family is KernelFamily.CONV_BY_INPUT and kernel.dims[-1] > 1 and not on_units:
        return replace(time, time_ns=round(STRIDED_BY_INPUT * time.time_ns))
    return time


_WHOLE = frozenset({Arithmetic.DEFAULT, Arithmetic.FLOAT32})
# A variable is read in four bytes and written in two, its gradient the other way round.
_CASTS, _CAST_BYTES_SHARE = 2, 3


def policy_for(gpu: GpuFacts) -> Arithmetic | None:
    """Return the numbers that its matrix units compute in best, None if it has no such units."""
    if gpu.half_flops_per_s is None:
        return None
    return Arithmetic.BFLOAT16 if gpu.capability >= AMPERE else Arithmetic.FLOAT16


def computes_in_float32(graph: OpGraph) -> bool:
    """Whether products and convolutions of the step are in float32, and none in halves.

    Where some are in halves, the others are in float32 because somebody wants them so.
    """
    numbers = {
        op.kernel.arithmetic
        for op in graph.ops
        if op.kernel is not None and op.kernel.family in MATRIX_FAMILIES
    }
    return bool(numbers) and numbers <= _WHOLE


def with_policy(graph: OpGraph, policy: Arithmetic) -> OpGraph:
    """Return the step with forward and backward pass in these numbers."""
    return OpGraph(
        (_in(op, policy) if op.role in PASS_ROLES else op for op in graph.ops), graph.edges
    )


def casts_ns(graph: OpGraph, device: Device, gpu: GpuFacts) -> int:
    """Return what casting variables and their gradients takes, launches included."""
    read = {op.variable for op in graph.ops if op.role is Role.FORWARD and op.variable}
    variables = [op for op in graph.ops if op.role is Role.VARIABLE and op.variable in read]
    size_bytes = sum(op.parameter_bytes for op in variables)
    moved_ns = _CAST_BYTES_SHARE * size_bytes / reached_bandwidth(gpu) * NS_PER_S
    return round(moved_ns) + _CASTS * len(variables) * device.launch_overhead_ns


def _in(op: Op, policy: Arithmetic) -> Op:
    kernel = op.kernel
    if kernel is not None and kernel.arithmetic in _WHOLE:
        kernel = kernel._replace(arithmetic=policy)
    half = None if op.bytes_accessed is None else op.bytes_accessed // 2
    return op._replace(kernel=kernel, bytes_accessed=half)
