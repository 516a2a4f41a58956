"""How long kernels take in other numbers than plain float32: on matrix units, in half the bytes.

Model: the formulas and constants of float32. Bytes are those of the numbers, as if the memory were
faster and the caches larger. Products and convolutions run at the peak of matrix units, where a GPU
has some for these numbers, convolutions as direct ones; or without them, whichever is faster.
Filling the pipeline of a tile is waiting, and takes as long as in float32: more steps of units. A
card on the power of its slot keeps the same share of its clock.

No record has such kernels: all of it is assumed. Left out: sizes that units cannot take without
padding, Winograd kernels for units, converting between layouts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from placement_advisor.cost.gpu.kernel_times import (
    OPS,
    KernelBasis,
    KernelTime,
    constants_for,
    copy_bandwidth,
    direct_convolution,
    kernel_s,
    kernel_time,
    shipped_constants,
)
from placement_advisor.cost.gpu.tiles import FLOAT32_BYTES
from placement_advisor.graph.op_work.kernels import Arithmetic
from placement_advisor.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from placement_advisor.machine.gpu_facts import GpuFacts

# Of the record's ops, those that matrix units do.
ON_UNITS = {"linear": OPS["linear"], "bmm": OPS["bmm"], "conv": direct_convolution}
HALVES = frozenset({Arithmetic.FLOAT16, Arithmetic.BFLOAT16})
# The compute capability from which matrix units do bfloat16.
AMPERE = 8.0


def time_in(arithmetic: Arithmetic, op: str, dims: tuple[int, ...], gpu: GpuFacts) -> KernelTime:
    """Return the time of one op of the record, computed in these numbers.

    Raises:
        KeyError: the record has no such op.
    """
    unit_peak = _unit_peak(arithmetic, gpu) if op in ON_UNITS else None
    is_half = arithmetic in HALVES
    if not is_half and unit_peak is None:
        return kernel_time(op, dims, gpu)
    seen = _with_halves(gpu) if is_half else gpu
    known = shipped_constants()
    constants, bandwidth = constants_for(op, gpu, known), copy_bandwidth(seen, known)
    rows = np.array([dims], dtype=np.float64)
    seconds = kernel_s(op, rows, seen, constants, bandwidth)
    if unit_peak is not None:
        units = replace(seen, peak_flops_per_s=unit_peak)
        sped_up = _on_units(constants, unit_peak / gpu.peak_flops_per_s)
        seconds = np.minimum(seconds, ON_UNITS[op](rows, units, sped_up, bandwidth))
    return KernelTime(
        time_ns=round(float(seconds[0]) * NS_PER_S), within=None, basis=KernelBasis.ASSUMED
    )


def _unit_peak(arithmetic: Arithmetic, gpu: GpuFacts) -> float | None:
    """Return the peak of the units for these numbers, None if there are none."""
    if arithmetic is Arithmetic.DEFAULT:
        return gpu.tf32_flops_per_s
    has_units = arithmetic is Arithmetic.FLOAT16 or gpu.capability >= AMPERE
    return gpu.half_flops_per_s if arithmetic in HALVES and has_units else None


def _with_halves(gpu: GpuFacts) -> GpuFacts:
    """Return the GPU as it looks to numbers of two bytes that are counted as four."""
    more = FLOAT32_BYTES // 2
    return replace(
        gpu,
        memory_bandwidth_bytes_per_s=more * gpu.memory_bandwidth_bytes_per_s,
        l2_bytes=more * gpu.l2_bytes,
    )


def _on_units(constants: Mapping[str, Any], speedup: float) -> Mapping[str, Any]:
    """Return the constants of products, or of direct convolutions, at a peak so many times as high.

    The clock's are flop/s for a watt.
    """
    part = "tiling" if "tiling" in constants else "direct"
    tiling, clock = constants[part], constants["clock"]
    sustained = speedup * clock["sustained_flops_per_joule"]
    return {
        **constants,
        part: {**tiling, "filling_k": speedup * tiling["filling_k"]},
        "clock": {**clock, "sustained_flops_per_joule": sustained},
    }
