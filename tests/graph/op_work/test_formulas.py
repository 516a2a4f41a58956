"""Flops and bytes of kinds, counted by hand: a multiply-add is two flops, a number four bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from signatures import TABLE, UNKNOWN, VARIANT, counts, ints, tensor, variable, work

from placement_advisor.graph.op import WorkBasis
from placement_advisor.graph.op_work.elementwise import DIVIDE, ERF, EXP, SIGMOID, SQRT, TANH

if TYPE_CHECKING:
    from collections.abc import Iterable

    from placement_advisor.graph.op_work.signature import TensorSpec

# What a row of a table does not say.
ANY = object()
X = tensor(10, 100)
ROWS, PLACES = tensor(20, 8), ints(20)  # 640 and 80 bytes
LONGS, WORDS, LONG = tensor(20, dtype="int64"), tensor(20, dtype="string"), tensor(dtype="int64")
STATE, SCALAR, GRADIENT = variable(100), tensor(), tensor(100)
# 2 · N · H · W · K · K · C · F for a batch N of H × W results, K × K filters, C channels in and F
# out. The filter is rearranged: read and written once more.
N, H, W, K, C, F = 8, 28, 30, 3, 16, 32
CONV = 2 * N * H * W * K * K * C * F
IMAGE, FILTER, RESULT = tensor(N, H, W, C), tensor(K, K, C, F), tensor(N, H, W, F)
CONV_BYTES = 4 * (N * H * W * C + 3 * K * K * C * F + N * H * W * F)
DEPTH, DEPTH_RESULT = tensor(K, K, C, 2), tensor(N, H, W, 2 * C)
# Multiplier 2: 32 results per place, 9 multiply-adds each.
DEPTHWISE = 2 * N * H * W * 2 * C * 9
# 4 × 4 × 3 in windows of 2 × 2: 12 results of 4 places each.
PICTURE, POOLED = tensor(1, 4, 4, 3), tensor(1, 2, 2, 3)
WINDOW = {"ksize": [1, 2, 2, 1]}
# (2 × 3) · (3 × 5): 2 · 5 results, 3 multiply-adds each; 6 + 15 + 10 numbers.
LEFT, RIGHT, PRODUCT = tensor(2, 3), tensor(3, 5), tensor(2, 5)
# Batch normalization of 60 elements of 3 channels; vectors are scale, offset, mean and variance.
Y, VECTORS = tensor(4, 5, 3), [tensor(3)] * 4
# An LSTM has three gates, two tanh, products and sums of the state beside its products.
LSTM = 3 * SIGMOID + 2 * TANH + 8
FREE = """
Reshape Identity ReadVariableOp Shape NoOp Const VarHandleOp TensorListGetItem TensorListSetItem
StopGradient _Arg _Send
"""
SEEDS = [ints(2), tensor(1, dtype="int64"), tensor(2, dtype="int64"), ints()]


def row(
    kind: str,
    inputs: Iterable[TensorSpec],
    outputs: Iterable[TensorSpec],
    flops: object,
    size_bytes: object = ANY,
    **more: Any,
) -> Any:
    return pytest.param(kind, inputs, outputs, flops, size_bytes, more, id=kind)


@pytest.mark.parametrize(
    ("kind", "inputs", "outputs", "flops", "size_bytes", "more"),
    [
        # Elementwise: a broadcast side is read once.
        row("AddV2", [X, tensor(100)], [X], 1_000, 4 * 2_100),
        row("AddN", [X, X, X], [X], 2_000, 4 * 4_000),
        row("Relu", [X], [X], 1_000, 8_000),
        row("Tanh", [X], [X], 1_000 * TANH, 8_000),
        row("Exp", [X], [X], 1_000 * EXP, 8_000),
        row("Erf", [X], [X], 1_000 * ERF, 8_000),
        row("Sigmoid", [X], [X], 1_000 * SIGMOID, 8_000),
        row("Conv2D", [IMAGE, FILTER], [RESULT], CONV, CONV_BYTES),
        row("Sqrt", [X], [X], 1_000 * SQRT, 8_000),
        row("Cast", [X], [X], 1_000, 8_000),
        row("TanhGrad", [X, X], [X], 3_000, 12_000),
        # Maximum, difference, sum and product: 4; the loss puts out its gradient as well.
        row("Softmax", [X], [X], 1_000 * (4 + EXP), 8_000),
        row("SoftmaxCrossEntropyWithLogits", [X, X], [tensor(10), X], 1_000 * (8 + EXP), 4 * 3_010),
        row("SparseSoftmaxCrossEntropyWithLogits", [X, ints(10)], [tensor(10), X], ANY, 4 * 2_020),
        row("Sum", [X, ints()], [tensor(10)], 1_000, 4 * 1_011),
        row("Mean", [X, ints()], [tensor(10)], 1_000 + 10 * DIVIDE),
        # 1,000 comparisons, and 10 rows of 8 insertions into a heap of 8: log2(8) = 3 steps.
        row("TopKV2", [X, ints()], [tensor(10, 8), ints(10, 8)], 1_000 + 10 * 8 * 3),
        # Philox: 10 rounds of 10 operations give four numbers, 25 each; 5 to make a float of one.
        row("StatelessRandomUniformV2", SEEDS, [X], 30_000, 4_000),
        # Movement: a slice reads its part alone, its gradient fills the whole with zeros first.
        row("Transpose", [X, ints(2)], [tensor(100, 10)], 0, 8_008),
        row("ConcatV2", [X, X, ints()], [tensor(20, 100)], 0, 4 * 4_001),
        row("StridedSlice", [X, *[ints(2)] * 3], [tensor(10, 5)], 0, 400),
        row("StridedSliceGrad", [*[ints(2)] * 4, tensor(10, 5)], [X], 0, 4_400),
        row("Fill", [ints(2), tensor()], [X], 0, 4_000),
        row("TensorListStack", [VARIANT, ints(1)], [X], 0, 8_000),
        row("TensorListFromTensor", [X, ints(1)], [VARIANT], 0, 8_000),
        row("ResizeBilinear", [PICTURE, ints(2)], [tensor(1, 8, 8, 3)], 192 * 13, 4 * 242),
        # Linear algebra: textbook counts.
        row("Cholesky", [tensor(2, 300, 300)], [tensor(2, 300, 300)], 2 * 300**3 // 3),
        row("MatrixInverse", [tensor(2, 300, 300)], [tensor(2, 300, 300)], 2 * 2 * 300**3),
        row("MatrixDeterminant", [tensor(2, 300, 300)], [tensor(2)], 2 * 2 * 300**3 // 3),
        row(
            "FFT",
            [tensor(3, 1024, dtype="complex64")],
            [tensor(3, 1024, dtype="complex64")],
            3 * 5 * 1024 * 10,
            2 * 8 * 3 * 1024,
        ),
        # 20 rows of 8 numbers are read and written, 20 places read, however large the table is.
        row("GatherV2", [tensor(1_000, 8), PLACES, ints()], [ROWS], 0, 2 * 640 + 80),
        row("ResourceGather", [variable(1_000, 8), PLACES], [ROWS], 0, 2 * 640 + 80),
        row("ResourceGather", [TABLE, PLACES], [ROWS], 0, 2 * 640 + 80),
        row("ResourceGather", [TABLE, PLACES], [UNKNOWN], 0, None),
        # Zeros for 50 rows; then each row is read, and its target read and written.
        row(
            "UnsortedSegmentSum", [ROWS, PLACES, ints()], [tensor(50, 8)], 160, 1_600 + 3 * 640 + 80
        ),
        row("SegmentSum", [ROWS, PLACES], [tensor(5, 8)], 160, 640 + 80 + 160),
        row(
            "SparseSegmentMean",
            [tensor(1_000, 8), PLACES, PLACES],
            [tensor(5, 8)],
            160,
            640 + 80 + 80 + 160,
        ),
        # Into a tensor, which is copied first; into a variable, of which rows alone are touched.
        row(
            "TensorScatterAdd",
            [tensor(50, 8), ints(20, 1), ROWS],
            [tensor(50, 8)],
            160,
            2 * 1_600 + 3 * 640 + 80,
        ),
        row(
            "TensorScatterUpdate",
            [tensor(50, 8), ints(20, 1), ROWS],
            [tensor(50, 8)],
            0,
            2 * 1_600 + 2 * 640 + 80,
        ),
        row("ResourceScatterAdd", [variable(1_000, 8), PLACES, ROWS], [], 160, 3 * 640 + 80),
        row("ResourceScatterUpdate", [variable(1_000, 8), PLACES, ROWS], [], 0, 2 * 640 + 80),
        row("ResourceScatterSub", [variable(1_000, 8), PLACES, tensor()], [], 20 * 8),
        row("DynamicPartition", [ROWS, PLACES], [UNKNOWN, UNKNOWN], 0, 2 * 640 + 80),
        row(
            "DynamicStitch",
            [ints(5), ints(15), tensor(5, 8), tensor(15, 8)],
            [ROWS],
            0,
            80 + 2 * 640,
        ),
        # A hash table moves two cache lines per key; texts count as their string objects.
        row("LookupTableFindV2", [TABLE, LONGS, LONG], [LONGS], 20 * 20, 160 + 8 + 160 + 20 * 128),
        row("StringToHashBucketFast", [WORDS], [LONGS], ANY, 20 * 24 + 160),
        row("Unique", [PLACES], [UNKNOWN, PLACES], 20 * 20, 80 + 80 + 20 * 128),
        # 1,024 sorted values: 10 steps for each of 20.
        row("LowerBound", [tensor(1, 1024), tensor(1, 20)], [ints(1, 20)], 200),
        # Adam per element: m 3, v 4, variable 3, one root, one division.
        row(
            "ResourceApplyAdam",
            [*[STATE] * 3, *[SCALAR] * 6, GRADIENT],
            [],
            100 * (10 + SQRT + DIVIDE),
            7 * 400,
        ),
        # Updates pass over their states twice and over the gradient once.
        row("ResourceApplyGradientDescent", [STATE, SCALAR, GRADIENT], [], ANY, 3 * 400),
        row("ResourceApplyMomentum", [STATE, STATE, SCALAR, GRADIENT, SCALAR], [], ANY, 5 * 400),
        row("ResourceApplyAdagradV2", [*[STATE] * 2, *[SCALAR] * 2, GRADIENT], [], ANY, 5 * 400),
        row("ResourceApplyRMSProp", [*[STATE] * 3, *[SCALAR] * 4, GRADIENT], [], ANY, 7 * 400),
        row("ResourceApplyFtrl", [*[STATE] * 3, GRADIENT, *[SCALAR] * 4], [], ANY, 7 * 400),
        row("AssignAddVariableOp", [STATE, GRADIENT], [], ANY, 3 * 400),
        row("AssignVariableOp", [STATE, GRADIENT], [], ANY, 2 * 400),
        row("ApplyMomentum", [GRADIENT, GRADIENT, SCALAR, GRADIENT, SCALAR], [], ANY, 5 * 400),
        row(
            "ResourceSparseApplyAdagradV2",
            [*[variable(1_000, 8)] * 2, SCALAR, SCALAR, ROWS, PLACES],
            [],
            ANY,
            5 * 640 + 80,
        ),
        # Products: a transposed left side sums over its rows, a broadcast side is read once.
        row("MatMul", [LEFT, RIGHT], [PRODUCT], 60, 124),
        row("MatMul", [tensor(3, 2), RIGHT], [PRODUCT], 60, transpose_a=True),
        row("MatMul", [UNKNOWN, RIGHT], [UNKNOWN], None, None),
        row("MatMul", [LEFT, UNKNOWN], [PRODUCT], 60, None),
        row(
            "BatchMatMulV2",
            [tensor(7, 3, 2), tensor(7, 3, 5)],
            [tensor(7, 2, 5)],
            7 * 60,
            adj_x=True,
        ),
        row(
            "BatchMatMulV2",
            [tensor(8, 12, 128, 64), tensor(1, 1, 64, 128)],
            [tensor(8, 12, 128, 128)],
            2 * 8 * 12 * 128 * 128 * 64,
            4 * (8 * 12 * 128 * 64 + 64 * 128 + 8 * 12 * 128 * 128),
        ),
        row("_FusedMatMul", [LEFT, RIGHT, tensor(5)], [PRODUCT], None, 144, fused_ops=["NoneSuch"]),
        # 10 stored values times 4 columns. For each of them a row of the dense side is read, and a
        # row of the result read and written; indices and shape are of 8 bytes.
        row(
            "SparseTensorDenseMatMul",
            [tensor(10, 2, dtype="int64"), tensor(10), tensor(2, dtype="int64"), tensor(6, 4)],
            [tensor(5, 4)],
            2 * 10 * 4,
            (160 + 40 + 16) + 3 * 160 + 4 * 20,
        ),
        # Convolutions: both gradients multiply and add as often; channels first is the same.
        row("Conv2DBackpropInput", [ints(4), FILTER, RESULT], [IMAGE], CONV, CONV_BYTES + 16),
        row("Conv2DBackpropFilter", [IMAGE, ints(4), RESULT], [FILTER], CONV, CONV_BYTES + 16),
        row("Conv2DBackpropFilter", [IMAGE, ints(4), RESULT], [UNKNOWN], None, None),
        row(
            "Conv2DBackpropFilter",
            [IMAGE, ints(4), RESULT],
            [UNKNOWN],
            CONV,
            None,
            constants={1: [K, K, C, F]},
        ),
        row("Conv2D", [tensor(N, C, H, W), FILTER], [tensor(N, F, H, W)], CONV, data_format="NCHW"),
        # 7 × 7 with stride 2 on 11 × 11: 3 × 3 results of 2 filters on 1 channel.
        row(
            "Conv2D",
            [tensor(1, 11, 11, 1), tensor(7, 7, 1, 2)],
            [tensor(1, 3, 3, 2)],
            2 * 9 * 49 * 2,
            padding="VALID",
            strides=[1, 2, 2, 1],
        ),
        # Four groups: each filter sees a quarter of the channels.
        row("Conv2D", [IMAGE, tensor(K, K, C // 4, F)], [RESULT], CONV // 4),
        row(
            "Conv3D",
            [tensor(2, 5, 6, 7, 4), tensor(3, 3, 3, 4, 8)],
            [tensor(2, 5, 6, 7, 8)],
            2 * (2 * 5 * 6 * 7) * 27 * 4 * 8,
        ),
        row("DepthwiseConv2dNative", [IMAGE, DEPTH], [DEPTH_RESULT], DEPTHWISE),
        row(
            "DepthwiseConv2dNativeBackpropInput", [ints(4), DEPTH, DEPTH_RESULT], [IMAGE], DEPTHWISE
        ),
        row(
            "DepthwiseConv2dNativeBackpropFilter",
            [IMAGE, ints(4), DEPTH_RESULT],
            [DEPTH],
            DEPTHWISE,
        ),
        row("MaxPool", [PICTURE], [POOLED], 48, 4 * 60, **WINDOW),
        row("MaxPoolV2", [PICTURE, ints(4), ints(4)], [POOLED], 48, constants={1: [1, 2, 2, 1]}),
        row("MaxPoolGrad", [PICTURE, POOLED, POOLED], [PICTURE], 12 * 5, 4 * 120, **WINDOW),
        row("AvgPoolGrad", [ints(4), POOLED], [PICTURE], 12 * 5, **WINDOW),
        # In training: mean 1, variance 3, scale 2; the input is read twice.
        row(
            "FusedBatchNormV3",
            [Y, *VECTORS],
            [Y, *VECTORS],
            60 * 6,
            4 * (3 * 60 + 8 * 3),
            is_training=True,
        ),
        row(
            "FusedBatchNormV3", [Y, *VECTORS], [Y], 60 * 2, 4 * (2 * 60 + 4 * 3), is_training=False
        ),
        row("FusedBatchNormGradV3", [Y, Y], [Y], 60 * 10, 4 * 5 * 60, is_training=True),
        # Two LSTM layers of 16 units on 10 steps of 4 × 8; the second one reads 16 units.
        row(
            "CudnnRNNV3",
            [tensor(10, 4, 8), *[tensor(2, 4, 16)] * 2, tensor(2_000), ints(4)],
            [tensor(10, 4, 16)],
            40 * 16 * (2 * 4 * (8 + 16) + LSTM) + 40 * 16 * (2 * 4 * (16 + 16) + LSTM),
            rnn_mode="lstm",
            direction="unidirectional",
        ),
        # Plain Relu layers, two directions of two: 40 rows, 16 units, 3 flops beside the products.
        row(
            "CudnnRNNBackpropV3",
            [tensor(10, 4, 8), *[tensor(4, 4, 16)] * 2, tensor(2_000), ints(4)],
            [],
            2 * (2 * 40 * 16 * (2 * (8 + 16) + 3) + 2 * 40 * 16 * (2 * (32 + 16) + 3)),
            rnn_mode="rnn_relu",
            direction="bidirectional",
        ),
        row(
            "BlockLSTMV2",
            [LONG, tensor(10, 4, 8), *[tensor(4, 16)] * 2, tensor(24, 64)],
            [],
            2 * 40 * 24 * 64 + 40 * 16 * LSTM,
        ),
        row("SomebodysOwnOp", [variable(25)], [X], None, 100 + 4_000),
        row("SomebodysOwnOp", [TABLE], [X], None, None),
    ],
)
def test_a_kind_does_and_moves_what_is_counted_by_hand(
    kind: str,
    inputs: list[TensorSpec],
    outputs: list[TensorSpec],
    flops: object,
    size_bytes: object,
    more: dict[str, Any],
) -> None:
    found = counts(kind, inputs, outputs, **more)
    assert flops in (ANY, found[0])
    assert size_bytes in (ANY, found[1])


@pytest.mark.parametrize(
    ("equation", "shapes", "result", "flops"),
    [
        # A dense layer with 12 heads of 64; all is in order already.
        ("abc,cde->abde", [(8, 16, 7), (7, 12, 6)], (8, 16, 12, 6), 2 * (8 * 16) * 7 * (12 * 6)),
        ("i,j->ij", [(3,), (5,)], (3, 5), 15),
        ("ij->i", [(3, 5)], (3,), 15),
        ("ij->ji", [(3, 5)], (5, 3), 0),
        ("...ij,...jk->...ik", [(2, 3, 5, 7), (2, 3, 7, 11)], (2, 3, 5, 11), 2 * 6 * 5 * 7 * 11),
        ("ij,jk", [(3, 5), (5, 7)], (3, 7), 2 * 3 * 5 * 7),
        ("ijk->i", [(3, 5)], (3,), None),
    ],
)
def test_an_einsum_multiplies_and_adds_as_its_equation_says(
    equation: str, shapes: list[tuple[int, ...]], result: tuple[int, ...], flops: int | None
) -> None:
    inputs = [tensor(*shape) for shape in shapes]
    assert counts("Einsum", inputs, [tensor(*result)], equation=equation)[0] == flops


def test_an_einsum_passes_again_over_what_it_must_reorder() -> None:
    # Both operands are out of order, as c stands behind e and b; the product comes out as a c e b.
    keys, queries, scores = tensor(2, 7, 3, 5), tensor(2, 11, 3, 5), tensor(2, 3, 11, 7)
    found = counts("Einsum", [keys, queries], [scores], equation="aecd,abcd->acbe")
    flops = 2 * (2 * 3) * 11 * 7 * 5
    assert found == (flops, 3 * 4 * (2 * 7 * 3 * 5 + 2 * 11 * 3 * 5 + 2 * 3 * 11 * 7))


@pytest.mark.parametrize("kind", FREE.split())
def test_bookkeeping_costs_nothing_even_where_sizes_are_unknown(kind: str) -> None:
    assert counts(kind, [TABLE, UNKNOWN], [UNKNOWN]) == (0, 0)


def test_a_kind_without_a_formula_has_the_bytes_of_its_tensors_and_unknown_flops() -> None:
    found = work("SomebodysOwnOp", [X, X], [X])
    assert (found.flops, found.bytes_accessed, found.basis) == (None, 12_000, WorkBasis.SIZES)
