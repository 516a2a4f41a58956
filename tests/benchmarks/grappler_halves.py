"""What Grappler's rewrite for mixed precision computes in float16.

Products and convolutions are allowed; what only runs well in float32 is denied, and so is what
follows it. Ops between allowed ones are inferred; clear ones, which compute nothing, do as their
neighbours do. An op on no list stays in float32. A tensor that halves alone read is cast where it
is written: XLA fuses the cast.

Source: TensorFlow 1.15, `auto_mixed_precision.cc` and the lists of `auto_mixed_precision_lists.h`,
of which those are named here that a step of the benchmarks has.
"""

from placement_advisor.graph.op import PASS_ROLES, Arithmetic
from placement_advisor.graph.op_graph import OpGraph

_ALLOWED = "BatchMatMulV2 Conv2D Conv2DBackpropFilter Conv2DBackpropInput Einsum MatMul"
_DENIED = "Exp L2Loss Log Mean Pow Softmax SparseSoftmaxCrossEntropyWithLogits Sum"
_INFERRED = """
AddN AddV2 BiasAdd BiasAddGrad Erf Erfc FusedBatchNormGradV3 FusedBatchNormV3 Mul Prod RealDiv Sqrt
Sub Tanh TanhGrad
"""
_CLEAR = """
BroadcastTo ConcatV2 ExpandDims Fill GatherV2 Identity Max MaxPool MaxPoolGrad Maximum Neg Pack Pad
Relu ReluGrad Reshape SelectV2 Slice Split Squeeze StridedSlice StridedSliceGrad Tile Transpose
Unpack ZerosLike
"""


def with_halves(graph):
    """Return the step with float16 where the rewrite puts it."""
    allowed, denied, inferred, clear = (
        {op.name for op in graph.ops if op.kind in kinds.split() and op.role in PASS_ROLES}
        for kinds in (_ALLOWED, _DENIED, _INFERRED, _CLEAR)
    )
    denied = _reached(graph, denied, inferred | clear, is_forward=True)
    open_ = (allowed | inferred | clear) - denied
    behind, before = (_reached(graph, allowed, open_, is_forward=way) for way in (True, False))
    halves = allowed | (inferred & behind & before)
    for way in (True, False):
        halves |= _reached(graph, halves, clear - denied, is_forward=way)
    written = halves | {op.name for op in graph.ops if _is_read_in(halves, graph, op)}
    edges = [
        edge._replace(size_bytes=edge.size_bytes // 2)
        if edge.producer in written and edge.size_bytes is not None
        else edge
        for edge in graph.edges
    ]
    return OpGraph(
        [_in_halves(op, op.name in halves, op.name in written) for op in graph.ops], edges
    )


def _reached(graph, start, through, *, is_forward):
    """Return the start and what is reached from it through these ops alone."""
    reached, open_ = set(start), list(start)
    while open_:
        name = open_.pop()
        edges = graph.outputs_of(name) if is_forward else graph.inputs_of(name)
        for edge in edges:
            other = edge.consumer if is_forward else edge.producer
            if not edge.is_control and other in through and other not in reached:
                reached.add(other)
                open_.append(other)
    return reached


def _is_read_in(halves, graph, op):
    edges = graph.outputs_of(op.name)
    return op.role in PASS_ROLES and bool(edges) and all(edge.consumer in halves for edge in edges)


def _in_halves(op, is_half, is_written):
    if is_written:
        sizes = (None if size is None else size // 2 for size in op.output_bytes)
        op = op._replace(output_bytes=tuple(sizes))
    if not is_half:
        return op
    kernel = op.kernel and op.kernel._replace(arithmetic=Arithmetic.FLOAT16)
    return op._replace(kernel=kernel, bytes_accessed=op.bytes_accessed and op.bytes_accessed // 2)
