"""Ops that a GPU runs in the kernel of another one, since TensorFlow rewrites the graph by default.

Grappler's remapper makes one op (`_FusedConv2D`) of a convolution, the addition of its bias and
Relu. On a GPU it does so for these three alone, in float32, if the filter is larger than 1 both
ways, nothing else reads what lies between, and no control edge leads to or from it. On CPUs it
fuses more; a trace has none of it, since no graph optimizer runs before.

Left out: placements that tear the three, and what else such a kernel takes than a convolution.

Source: TensorFlow's remapper.cc (`IsGpuCompatible`, `FindContractionWithBiasAndActivation`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.graph.op_work.kernels import DIMENSIONS, Arithmetic, KernelFamily

if TYPE_CHECKING:
    from placement_advisor.graph.op import Op
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.graph.op_work.kernels import Kernel

_FLOAT32 = frozenset({Arithmetic.DEFAULT, Arithmetic.FLOAT32})


def fused_into_convolutions(graph: OpGraph) -> frozenset[str]:
    """Return the names of ops that take no time of their own."""
    fused: set[str] = set()
    for op in graph.ops:
        if op.kind != "Conv2D" or op.kernel is None or not _is_fused_kind(op.kernel):
            continue
        bias = _only_reader(graph, op, "BiasAdd")
        relu = None if bias is None else _only_reader(graph, bias, "Relu")
        if bias is not None and relu is not None and not _is_ordered(graph, relu):
            fused |= {bias.name, relu.name}
    return frozenset(fused)


def _is_fused_kind(kernel: Kernel) -> bool:
    if kernel.arithmetic not in _FLOAT32:
        return False
    sizes = dict(zip(DIMENSIONS[KernelFamily.CONV], kernel.dims, strict=True))
    return sizes["filter_height"] > 1 and sizes["filter_width"] > 1


def _only_reader(graph: OpGraph, op: Op, kind: str) -> Op | None:
    """Return what reads an op, None if it is of another kind, one of several, or ordered."""
    readers = graph.outputs_of(op.name)
    if len(readers) != 1 or _is_ordered(graph, op):
        return None
    reader = graph.op(readers[0].consumer)
    return reader if reader.kind == kind else None


def _is_ordered(graph: OpGraph, op: Op) -> bool:
    edges = (*graph.inputs_of(op.name), *graph.outputs_of(op.name))
    return any(edge.is_control for edge in edges)
