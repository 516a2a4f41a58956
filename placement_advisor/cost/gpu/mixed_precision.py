"""What a step becomes under a policy of mixed precision (`keras.mixed_precision`).

Model: forward and backward pass compute in halves of float32, which half as many bytes hold; their
products and convolutions run on matrix units. Variables and their updates stay in float32, and
each variable that the forward pass reads is cast, as is its gradient.

Left out: what layers keep in float32 by themselves, and the scaling of the loss with float16.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.cost.gpu.kernel_times import reached_bandwidth
from placement_advisor.cost.gpu.matrix_units import AMPERE
from placement_advisor.graph.op import PASS_ROLES, Role
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.graph.op_work.kernels import MATRIX_FAMILIES, Arithmetic
from placement_advisor.units import NS_PER_S

if TYPE_CHECKING:
    from placement_advisor.graph.op import Op
    from placement_advisor.machine.devices import Device
    from placement_advisor.machine.gpu_facts import GpuFacts

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
