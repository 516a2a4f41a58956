"""Costs of ops on a GPU whose datasheet is known, by the times of their kernels.

Gradients of convolutions are in no record: they are taken to last as long as the convolution. That
covers each one's flops, not that other kernels compute them. Nor is what matrix units do.

Constants of two chips were fitted apart, and small kernels can come out slower on the better one.
So an op takes no longer on a GPU than on one that it matches in every figure of the datasheet.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from placement_advisor.cost.gpu.kernel_times import KernelBasis
from placement_advisor.cost.gpu.matrix_units import time_in
from placement_advisor.cost.table import CostBasis, OpCost
from placement_advisor.graph.op_work.kernels import KernelFamily
from placement_advisor.machine.gpu_facts import gpus_matched_by

if TYPE_CHECKING:
    from placement_advisor.graph.op_work.kernels import Kernel
    from placement_advisor.machine.gpu_facts import GpuFacts

_GRADIENTS = frozenset({KernelFamily.CONV_BY_INPUT, KernelFamily.CONV_BY_FILTER})


# A step has the same kernel many times.
@lru_cache(maxsize=10_000)
def kernel_cost(kernel: Kernel, gpu: GpuFacts) -> OpCost:
    """Return the cost of an op that is one kernel, without its launch."""
    is_gradient = kernel.family in _GRADIENTS
    op = KernelFamily.CONV if is_gradient else kernel.family
    time = time_in(kernel.arithmetic, op, kernel.dims, gpu)
    least_ns = min(
        time_in(kernel.arithmetic, op, kernel.dims, each).time_ns for each in gpus_matched_by(gpu)
    )
    is_assumed = is_gradient or time.basis is KernelBasis.ASSUMED
    return OpCost(
        time_ns=least_ns,
        basis=CostBasis.KERNEL_ASSUMED if is_assumed else CostBasis.KERNEL,
        within=None if is_assumed else time.within,
    )
