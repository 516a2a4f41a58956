import pytest
from drawn_cases import cases
from hypothesis import given
from hypothesis import strategies as st

from placement_advisor.graph.op import DIMENSIONS, Arithmetic, Kernel, KernelFamily, WorkBasis
from placement_advisor.graph.op_work.gpu_kernels import kernel_of
from placement_advisor.graph.op_work.signature import FREE as FREE_FORMULA
from placement_advisor.graph.op_work.signature import Signature, TensorSpec
from placement_advisor.graph.op_work.work import FORMULAS, work_of

ITEM_BYTES = {"float32": 4, "int32": 4, "int64": 8, "bool": 1, "uint8": 1, "complex64": 8}


def tensor(*shape, dtype="float32"):
    return TensorSpec(shape=shape, dtype=dtype, item_bytes=ITEM_BYTES.get(dtype))


def ints(*shape):
    return tensor(*shape, dtype="int32")


def variable(*shape):
    return TensorSpec(shape=shape, dtype="float32", item_bytes=4, is_handle=True)


UNKNOWN = TensorSpec(shape=None, dtype="float32", item_bytes=4)
TABLE = TensorSpec(shape=None, dtype="resource", item_bytes=None, is_handle=True)
VARIANT = TensorSpec(shape=(), dtype="variant", item_bytes=None)


def signature(kind, inputs, outputs=(), constants=None, **attributes):
    return Signature(
        kind=kind,
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        attribute=attributes.get,
        constant_input=(constants or {}).get,
    )


def counts(kind, inputs, outputs=(), constants=None, **attributes):
    """Return flops and bytes accessed."""
    found = work_of(signature(kind, inputs, outputs, constants, **attributes))
    return found.flops, found.bytes_accessed


# What a row of a table does not say.
ANY = object()
# As docs/reference/work-formulas.md has them.
DIVIDE, SQRT, EXP, LOG, TANH, POW = 8, 8, 23, 35, 30, 118
SIGMOID = EXP + DIVIDE + 2
X = tensor(10, 100)
ROWS, PLACES = tensor(20, 8), ints(20)  # 640 and 80 bytes
ZEROS, MANY = tensor(50, 8), tensor(1_000, 8)
LONGS, WORDS, LONG = tensor(20, dtype="int64"), tensor(20, dtype="string"), tensor(dtype="int64")
STATE, SCALAR, GRADIENT = variable(100), tensor(), tensor(100)
SPARSE = [*[variable(1_000, 8)] * 2, SCALAR, SCALAR, ROWS, PLACES]
ADAM = [*[STATE] * 3, *[SCALAR] * 6, GRADIENT]
# Indices, values and shape of 160, 40 and 16 bytes, and the dense side.
STORED = [tensor(10, 2, dtype="int64"), tensor(10), tensor(2, dtype="int64"), tensor(6, 4)]
VOLUMES = [tensor(2, 5, 6, 7, 4), tensor(3, 3, 3, 4, 8)]
WAVES = tensor(3, 1024, dtype="complex64")
# 2 · N · H · W · K · K · C · F for a batch N of H × W results, K × K filters, C channels in and F
# out. The filter is rearranged: read and written once more.
N, H, W, K, C, F = 8, 28, 30, 3, 16, 32
CONV = 2 * N * H * W * K * K * C * F
SIZES = {1: [K, K, C, F]}
IMAGE, FILTER, RESULT = tensor(N, H, W, C), tensor(K, K, C, F), tensor(N, H, W, F)
CONV_BYTES = 4 * (N * H * W * C + 3 * K * K * C * F + N * H * W * F)
DEPTH, DEPTH_RESULT = tensor(K, K, C, 2), tensor(N, H, W, 2 * C)
DEPTHWISE_CONV = "DepthwiseConv2dNative"
# Multiplier 2: 32 results per place, 9 multiply-adds each.
DEPTHWISE = 2 * N * H * W * 2 * C * 9
# 4 × 4 × 3 in windows of 2 × 2: 12 results of 4 places each.
PICTURE, POOLED = tensor(1, 4, 4, 3), tensor(1, 2, 2, 3)
WINDOW = {"ksize": [1, 2, 2, 1]}
# (2 × 3) · (3 × 5): 2 · 5 results, 3 multiply-adds each; 6 + 15 + 10 numbers.
LEFT, RIGHT, PRODUCT = tensor(2, 3), tensor(3, 5), tensor(2, 5)
# Batch normalization of 60 elements of 3 channels; vectors are scale, offset, mean and variance.
Y = tensor(4, 5, 3)
STATED = [Y, *[tensor(3)] * 4]
# An LSTM has three gates, two tanh, products and sums of the state beside its products.
LSTM, GRU = 3 * SIGMOID + 2 * TANH + 8, 2 * SIGMOID + TANH + 8
LSTM_INPUTS = [LONG, tensor(10, 4, 8), *[tensor(4, 16)] * 2, tensor(24, 64)]
GRU_INPUTS = [tensor(4, 8), tensor(4, 16), tensor(24, 32), tensor(24, 16)]
CTC = [tensor(5, 2, 4), tensor(3, 2, dtype="int64"), ints(3), ints(2)]
BOXES = [tensor(50, 4), tensor(50), ints()]
FREE = """
Reshape Identity ReadVariableOp Shape NoOp Const VarHandleOp TensorListGetItem TensorListSetItem
StopGradient _Arg _Send
"""
SEEDS = [ints(2), tensor(1, dtype="int64"), tensor(2, dtype="int64"), ints()]


def row(kind, inputs, outputs, flops, size_bytes=ANY, **more):
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
        row("Sigmoid", [X], [X], 1_000 * SIGMOID, 8_000),
        row("Cross", [X, X], [X], 1_000 * (2 + 1)),  # Two products and their difference.
        row("Where", [X], [UNKNOWN], 1_000, 2 * 4_000),
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
        # Two tries, each of two random numbers, a logarithm and an exponential.
        row("StatelessRandomPoisson", SEEDS, [X], 1_000 * 2 * (2 * 30 + LOG + EXP)),
        # Five times, two sequences of three labels in all and blanks around them, four classes.
        row("CTCLoss", CTC, [tensor(2)], 40 * (4 + EXP) + 2 * 5 * 8 * 2 * (LOG + EXP)),
        row("InplaceAdd", [X, ints(5), tensor(5, 100)], [X], 500, 3 * 2_000),
        # Movement: a slice reads its part alone, its gradient fills the whole with zeros first.
        row("Transpose", [X, ints(2)], [tensor(100, 10)], 0, 8_008),
        row("ConcatV2", [X, X, ints()], [tensor(20, 100)], 0, 4 * 4_001),
        row("StridedSlice", [X, *[ints(2)] * 3], [tensor(10, 5)], 0, 400),
        row("StridedSliceGrad", [*[ints(2)] * 4, tensor(10, 5)], [X], 0, 4_400),
        row("StridedSliceAssign", [X, *[ints(2)] * 3, tensor(10, 5)], [X], 0, 400),
        row("Fill", [ints(2), tensor()], [X], 0, 4_000),
        row("TensorListStack", [VARIANT, ints(1)], [X], 0, 8_000),
        row("TensorListFromTensor", [X, ints(1)], [VARIANT], 0, 8_000),
        # 16 places, each a multiply-add, and the weights.
        row("ResizeBicubic", [PICTURE, ints(2)], [tensor(1, 8, 8, 3)], 192 * (2 * 16 + 20)),
        row("ResizeBilinear", [PICTURE, ints(2)], [tensor(1, 8, 8, 3)], 192 * 13, 4 * 242),
        # Corners 4, width and height 4, areas and union 4, a division and a comparison.
        row("NonMaxSuppression", BOXES, [], 50 * 10 * (13 + DIVIDE), 4 * 250, constants={2: 10}),
        # Linear algebra: textbook counts, those of Svd by Golub and Van Loan.
        row("Svd", [tensor(2, 3, 5)], [], 2 * (14 * 5 * 9 + 8 * 27)),
        row("Svd", [tensor(2, 5, 3)], [], 2 * (4 * 5 * 9 - 4 * 9), compute_uv=False),
        row("Svd", [tensor(5, 3)], [], 4 * 25 * 3 + 8 * 5 * 9 + 9 * 27, full_matrices=True),
        row("SelfAdjointEigV2", [tensor(2, 4, 4)], [], 2 * 9 * 4**3),
        row("Cholesky", [tensor(2, 300, 300)], [tensor(2, 300, 300)], 2 * 300**3 // 3),
        row("MatrixInverse", [tensor(2, 300, 300)], [tensor(2, 300, 300)], 2 * 2 * 300**3),
        row("MatrixDeterminant", [tensor(2, 300, 300)], [tensor(2)], 2 * 2 * 300**3 // 3),
        row("IFFT", [WAVES], [WAVES], 3 * 5 * 1024 * 10),
        row("FFT", [WAVES], [WAVES], 3 * 5 * 1024 * 10, 2 * 8 * 3 * 1024),
        # 20 rows of 8 numbers are read and written, 20 places read, however large the table is.
        row("GatherV2", [MANY, PLACES, ints()], [ROWS], 0, 2 * 640 + 80),
        row("ResourceGather", [variable(1_000, 8), PLACES], [ROWS], 0, 2 * 640 + 80),
        row("ResourceGather", [TABLE, PLACES], [ROWS], 0, 2 * 640 + 80),
        row("ResourceGather", [TABLE, PLACES], [UNKNOWN], 0, None),
        # Zeros for 50 rows; then each row is read, and its target read and written.
        row("UnsortedSegmentSum", [ROWS, PLACES, ints()], [ZEROS], 160, 1_600 + 3 * 640 + 80),
        row("SegmentSum", [ROWS, PLACES], [tensor(5, 8)], 160, 640 + 80 + 160),
        row("SparseSegmentMean", [MANY, PLACES, PLACES], [tensor(5, 8)], 160, 640 + 2 * 80 + 160),
        # Into a tensor, which is copied first; into a variable, of which rows alone are touched.
        row("TensorScatterAdd", [ZEROS, PLACES, ROWS], [ZEROS], 160, 2 * 1_600 + 3 * 640 + 80),
        row("TensorScatterUpdate", [ZEROS, PLACES, ROWS], [ZEROS], 0, 2 * 1_600 + 2 * 640 + 80),
        row("ResourceScatterAdd", [variable(1_000, 8), PLACES, ROWS], [], 160, 3 * 640 + 80),
        row("ResourceScatterUpdate", [variable(1_000, 8), PLACES, ROWS], [], 0, 2 * 640 + 80),
        row("ResourceScatterSub", [variable(1_000, 8), PLACES, tensor()], [], 20 * 8),
        row("DynamicPartition", [ROWS, PLACES], [UNKNOWN, UNKNOWN], 0, 2 * 640 + 80),
        row("DynamicStitch", [PLACES, PLACES, ROWS, ROWS], [tensor(40, 8)], 0, 160 + 4 * 640),
        # A hash table moves two cache lines per key; texts count as their string objects.
        row("LookupTableFindV2", [TABLE, LONGS, LONG], [LONGS], 20 * 20, 160 + 8 + 160 + 20 * 128),
        row("StringToHashBucketFast", [WORDS], [LONGS], ANY, 20 * 24 + 160),
        row("UniqueV2", [PLACES, ints(1)], [UNKNOWN, PLACES], 20 * 20, 80 + 80 + 20 * 128),
        # 1,024 sorted values: 10 steps for each of 20.
        row("LowerBound", [tensor(1, 1024), tensor(1, 20)], [ints(1, 20)], 200),
        # Adam per element: m 3, v 4, variable 3, one root, one division.
        row("ResourceApplyAdam", ADAM, [], 100 * (10 + SQRT + DIVIDE), 7 * 400),
        # Updates pass over their states twice and over the gradient once.
        row("ResourceApplyGradientDescent", [STATE, SCALAR, GRADIENT], [], 200, 3 * 400),
        row("ResourceApplyMomentum", [STATE, STATE, SCALAR, GRADIENT, SCALAR], [], 400, 5 * 400),
        # The square is added to the state; rate · gradient · 1/√state is taken from the variable.
        row("ResourceApplyAdagrad", [STATE, STATE, SCALAR, GRADIENT], [], 100 * (2 + 3 + 7)),
        row("ApplyAdagradDA", [*[STATE] * 3, GRADIENT], [], 100 * (12 + SQRT + DIVIDE), 7 * 400),
        row("ResourceApplyAdagradV2", [*[STATE] * 2, *[SCALAR] * 2, GRADIENT], [], ANY, 5 * 400),
        row("ResourceApplyRMSProp", [*[STATE] * 3, *[SCALAR] * 4, GRADIENT], [], ANY, 7 * 400),
        row("ResourceApplyFtrl", [*[STATE] * 3, GRADIENT, *[SCALAR] * 4], [], ANY, 7 * 400),
        row("AssignAddVariableOp", [STATE, GRADIENT], [], ANY, 3 * 400),
        row("AssignVariableOp", [STATE, GRADIENT], [], ANY, 2 * 400),
        row("ApplyMomentum", [GRADIENT, GRADIENT, SCALAR, GRADIENT, SCALAR], [], ANY, 5 * 400),
        row("ResourceSparseApplyAdagradV2", SPARSE, [], ANY, 5 * 640 + 80),
        # Products: a transposed left side sums over its rows, a broadcast side is read once.
        row("MatMul", [LEFT, RIGHT], [PRODUCT], 60, 124),
        row("MatMul", [tensor(3, 2), RIGHT], [PRODUCT], 60, transpose_a=True),
        row("MatMul", [LEFT, UNKNOWN], [PRODUCT], 60, None),
        row("BatchMatMul", [tensor(7, 3, 2), tensor(7, 3, 5)], [tensor(7, 2, 5)], 420, adj_x=True),
        row("BatchMatMulV2", [tensor(9, 6, 4), tensor(4, 5)], [tensor(9, 6, 5)], 2_160, 4 * 506),
        row("_FusedMatMul", [LEFT, RIGHT, tensor(5)], [PRODUCT], None, 144, fused_ops=["NoneSuch"]),
        # 10 stored values times 4 columns. For each of them a row of the dense side is read, and a
        # row of the result read and written; indices and shape are of 8 bytes.
        row("SparseTensorDenseMatMul", STORED, [tensor(5, 4)], 2 * 10 * 4, 216 + 3 * 160 + 4 * 20),
        # Convolutions: both gradients multiply and add as often; channels first is the same.
        row("Conv2DBackpropInput", [ints(4), FILTER, RESULT], [IMAGE], CONV, CONV_BYTES + 16),
        row("Conv2DBackpropFilter", [IMAGE, ints(4), RESULT], [FILTER], CONV, CONV_BYTES + 16),
        row("Conv2DBackpropFilter", [IMAGE, ints(4), RESULT], [UNKNOWN], None, None),
        row("Conv2DBackpropFilter", [IMAGE, ints(4), RESULT], [UNKNOWN], CONV, constants=SIZES),
        row("Conv2D", [tensor(N, C, H, W), FILTER], [tensor(N, F, H, W)], CONV, data_format="NCHW"),
        # Four groups: each filter sees a quarter of the channels.
        row("Conv2D", [IMAGE, tensor(K, K, C // 4, F)], [RESULT], CONV // 4),
        row("Conv3D", VOLUMES, [tensor(2, 5, 6, 7, 8)], 2 * (2 * 5 * 6 * 7) * 27 * 4 * 8),
        row(DEPTHWISE_CONV, [IMAGE, DEPTH], [DEPTH_RESULT], DEPTHWISE),
        row(f"{DEPTHWISE_CONV}BackpropInput", [ints(4), DEPTH, DEPTH_RESULT], [IMAGE], DEPTHWISE),
        row(f"{DEPTHWISE_CONV}BackpropFilter", [IMAGE, ints(4), DEPTH_RESULT], [DEPTH], DEPTHWISE),
        row("MaxPool", [PICTURE], [POOLED], 48, 4 * 60, **WINDOW),
        row("MaxPoolV2", [PICTURE, ints(4), ints(4)], [POOLED], 48, constants={1: [1, 2, 2, 1]}),
        row("MaxPoolGrad", [PICTURE, POOLED, POOLED], [PICTURE], 12 * 5, 4 * 120, **WINDOW),
        row("AvgPoolGrad", [ints(4), POOLED], [PICTURE], 12 * 5, **WINDOW),
        # In training: mean 1, variance 3, scale 2; the input is read twice.
        row("FusedBatchNormV3", STATED, STATED, 360, 4 * (3 * 60 + 8 * 3), is_training=True),
        row("FusedBatchNorm", STATED, [Y], 120, 4 * (2 * 60 + 4 * 3), is_training=False),
        row("FusedBatchNormGradV3", [Y, Y], [Y], 60 * 10, 4 * 5 * 60, is_training=True),
        # Two LSTM layers of 16 units on 10 steps of 4 × 8; the second one reads 16 units.
        # Four gates of 16 × 16 weights lead from step to step, and are read 9 times more.
        row(
            "CudnnRNNV3",
            [tensor(10, 4, 8), *[tensor(2, 4, 16)] * 2, tensor(2_000), ints(4)],
            [tensor(10, 4, 16)],
            40 * 16 * (2 * 4 * (8 + 16) + LSTM) + 40 * 16 * (2 * 4 * (16 + 16) + LSTM),
            4 * (320 + 2 * 128 + 2_000 + 4 + 640 + 9 * 2 * 4 * 16 * 16),
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
        row("BlockLSTMV2", LSTM_INPUTS, [], 2 * 40 * 24 * 64 + 40 * 16 * LSTM),
        row("GRUBlockCellGrad", GRU_INPUTS, [], 2 * (2 * 4 * 24 * 48 + 4 * 16 * GRU)),
        # TensorFlow's default window goes 5 channels to either side.
        row("LRNGrad", [X, X, X], [X], 1_000 * (4 * 11 + POW + LOG + EXP)),
        row("SomebodysOwnOp", [variable(25)], [X], None, 100 + 4_000),
        row("SomebodysOwnOp", [TABLE], [X], None, None),
    ],
)
def test_a_kind_does_and_moves_what_is_counted(kind, inputs, outputs, flops, size_bytes, more):
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
def test_an_einsum_multiplies_and_adds_as_its_equation_says(equation, shapes, result, flops):
    inputs = [tensor(*shape) for shape in shapes]
    assert counts("Einsum", inputs, [tensor(*result)], equation=equation)[0] == flops


def test_an_einsum_passes_again_over_what_it_must_reorder():
    # Both operands are out of order, as c stands behind e and b; the product comes out as a c e b.
    keys, queries, scores = tensor(2, 7, 3, 5), tensor(2, 11, 3, 5), tensor(2, 3, 11, 7)
    found = counts("Einsum", [keys, queries], [scores], equation="aecd,abcd->acbe")
    flops = 2 * (2 * 3) * 11 * 7 * 5
    assert found == (flops, 3 * 4 * (2 * 7 * 3 * 5 + 2 * 11 * 3 * 5 + 2 * 3 * 11 * 7))


@pytest.mark.parametrize("kind", FREE.split())
def test_bookkeeping_costs_nothing_even_where_sizes_are_unknown(kind):
    assert counts(kind, [TABLE, UNKNOWN], [UNKNOWN]) == (0, 0)


# What the definition of a function holds, behind it.
DEFINITIONS = """
Acosh Log Sqrt|Angle Atan Div|Asinh Log Sqrt|Atan2 Atan Div|Atanh Log1p Div|ComplexAbs Sqrt|
Cosh Exp|DivNoNan Div|Elu Expm1|Erfc Erf Exp|FloorMod FloorDiv|Igamma Pow Lgamma|Lgamma Log Log|
RandomGamma RandomStandardNormal RandomUniform Log Log|RandomPoisson RandomUniform Log Exp|
Selu Expm1|Sigmoid Exp Div|Softplus Exp Log1p|SoftplusGrad Exp Div|Softsign Div|SqrtGrad Div|
Swish Sigmoid Mul|Tan Sin Cos Div|TruncatedNormal RandomStandardNormal|Xlog1py Log1p Mul
"""


@pytest.mark.parametrize("kinds", DEFINITIONS.split("|"))
def test_a_function_costs_no_less_than_what_its_definition_holds(kinds):
    whole, *parts = (counts(kind, [SCALAR] * 2, [SCALAR])[0] for kind in kinds.split())
    assert whole >= sum(parts)


FREE_KINDS = {kind for kind, formula in FORMULAS.items() if formula is FREE_FORMULA}
SHAPES = st.none() | st.lists(st.integers(0, 9), max_size=5).map(tuple)
SPECS = st.builds(
    TensorSpec,
    shape=SHAPES,
    dtype=st.sampled_from(["float32", "int32", "string", "variant", "resource"]),
    item_bytes=st.none() | st.sampled_from([1, 4, 8]),
    is_handle=st.booleans(),
)
VALUES = st.none() | st.one_of(
    st.booleans(),
    st.integers(-5, 9),
    st.floats(),
    st.text(max_size=8),
    st.lists(st.integers(-5, 9) | st.text(max_size=3), max_size=4),
    st.sampled_from(["ij,jk->ik", "...a,ab", "abc->", "lstm", "bidirectional", ",->", "->"]),
)


@st.composite
def signatures(draw):
    """Signatures that mostly contradict their kind, with any attributes and constants."""
    attributes = draw(st.dictionaries(st.just("equation") | st.just("ksize") | st.text(), VALUES))
    anything = draw(VALUES)
    return Signature(
        kind="",
        inputs=tuple(draw(st.lists(SPECS, max_size=6))),
        outputs=tuple(draw(st.lists(SPECS, max_size=4))),
        attribute=lambda name: attributes.get(name, anything),
        constant_input=lambda _: anything,
    )


@cases(60)
@given(signatures())
def test_any_signature_gives_counts_that_are_not_negative_or_unknown(drawn):
    for kind in (*FORMULAS, "SomebodysOwnOp"):
        found = work_of(drawn._replace(kind=kind))
        for count in (found.flops, found.bytes_accessed):
            assert count is None or (isinstance(count, int) and count >= 0), kind


def test_unknown_shapes_give_unknown_bytes_and_the_basis_says_whether_a_formula_was_there():
    for kind in FORMULAS.keys() - FREE_KINDS:
        found = work_of(signature(kind, [UNKNOWN] * 8, [UNKNOWN] * 4))
        assert found.bytes_accessed is None, kind
        assert found.flops in (None, 0), kind
    assert work_of(signature("Relu", [UNKNOWN], [UNKNOWN])).basis is WorkBasis.FORMULA
    assert work_of(signature("Unheard", [tensor(3)])).basis is WorkBasis.SIZES
    known = work_of(signature("AssignAddVariableOp", [variable(5), tensor(5)]))
    assert work_of(signature("AssignAddVariableOp", [TABLE, tensor(5)])) == known


BATCH_LINEAR = {
    "Relu": lambda n: ([tensor(n, 6)], [tensor(n, 6)], {}),
    "Softmax": lambda n: ([tensor(n, 6)], [tensor(n, 6)], {}),
    "MatMul": lambda n: ([tensor(n, 6), tensor(6, 3)], [tensor(n, 3)], {}),
    "Conv2D": lambda n: ([tensor(n, 8, 8, 3), tensor(3, 3, 3, 5)], [tensor(n, 8, 8, 5)], {}),
    "MaxPool": lambda n: ([tensor(n, 8, 8, 3)], [tensor(n, 4, 4, 3)], {"ksize": [1, 2, 2, 1]}),
    "FusedBatchNormV3": lambda n: ([tensor(n, 8, 3)], [tensor(n, 8, 3)], {}),
    "Einsum": lambda n: ([tensor(n, 6), tensor(6, 3)], [tensor(n, 3)], {"equation": "ab,bc->ac"}),
    "UnsortedSegmentSum": lambda n: ([tensor(n, 6), tensor(n, dtype="int32")], [tensor(9, 6)], {}),
    "Cholesky": lambda n: ([tensor(n, 6, 6)], [tensor(n, 6, 6)], {}),
}


@pytest.mark.parametrize("kind", BATCH_LINEAR)
@given(batch=st.integers(1, 64))
def test_twice_the_batch_takes_twice_the_flops(kind, batch):
    def flops(n):
        inputs, outputs, attributes = BATCH_LINEAR[kind](n)
        return work_of(signature(kind, inputs, outputs, **attributes)).flops

    once, twice = flops(batch), flops(2 * batch)
    assert once
    assert twice == 2 * once


def test_products_and_their_gradients_are_kernels_by_hand():
    forward = signature("MatMul", [tensor(4, 5), tensor(5, 6)], [tensor(4, 6)])
    assert kernel_of(forward) == Kernel(KernelFamily.BMM, (1, 4, 5, 6))
    by_weights = signature("MatMul", [tensor(4, 5), tensor(4, 6)], [tensor(5, 6)], transpose_a=True)
    assert kernel_of(by_weights) == Kernel(KernelFamily.BMM, (1, 5, 4, 6))
    by_input = signature("MatMul", [tensor(4, 6), tensor(5, 6)], [tensor(4, 5)], transpose_b=True)
    assert kernel_of(by_input) == Kernel(KernelFamily.LINEAR, (1, 4, 6, 5))
    sides = [tensor(1, 2, 3, 5, 4), tensor(3, 5, 6)]
    found = kernel_of(signature("BatchMatMulV2", sides, [tensor(1, 2, 3, 4, 6)], adj_x=True))
    assert found == Kernel(KernelFamily.BMM, (6, 4, 5, 6))
    x = tensor(4, 5, 6)
    assert kernel_of(signature("AddV2", [x, x], [x])) == Kernel(KernelFamily.ADD, (1, 120))
    assert kernel_of(signature("Relu", [x], [x])) == Kernel(KernelFamily.RELU, (1, 120))
    assert kernel_of(signature("Softmax", [x], [x])) == Kernel(KernelFamily.SOFTMAX, (20, 6))


SMALL_IMAGE, SMALL_FILTER = tensor(8, 30, 20, 3), tensor(1, 7, 3, 16)
SMALL_RESULT = tensor(8, 15, 10, 16)
DIMS = (8, 3, 16, 1, 7, 30, 20, 15, 10, 2)
CHANNELS_FIRST = {"strides": [1, 1, 2, 2], "data_format": "NCHW"}


@pytest.mark.parametrize(
    ("kind", "inputs", "output", "layout"),
    [
        ("Conv2D", [SMALL_IMAGE, SMALL_FILTER], SMALL_RESULT, {}),
        ("Conv2D", [tensor(8, 3, 30, 20), SMALL_FILTER], tensor(8, 16, 15, 10), CHANNELS_FIRST),
        ("Conv2DBackpropInput", [ints(4), SMALL_FILTER, SMALL_RESULT], SMALL_IMAGE, {}),
        ("Conv2DBackpropFilter", [SMALL_IMAGE, ints(4), SMALL_RESULT], SMALL_FILTER, {}),
    ],
)
def test_a_convolution_in_any_layout_has_the_sizes_of_its_gradients(kind, inputs, output, layout):
    found = kernel_of(signature(kind, inputs, [output], **({"strides": [1, 2, 2, 1]} | layout)))
    assert found.dims == DIMS
    assert len(DIMS) == len(DIMENSIONS[found.family])


def test_what_no_single_kernel_of_the_record_does_is_not_covered():
    grouped = [tensor(8, 30, 20, 6), SMALL_FILTER]
    assert kernel_of(signature("Conv2D", grouped, [SMALL_RESULT], strides=[1, 2, 2, 1])) is None
    dilated = {"strides": [1, 1, 1, 1], "dilations": [1, 2, 2, 1]}
    inputs = [SMALL_IMAGE, SMALL_FILTER]
    assert kernel_of(signature("Conv2D", inputs, [SMALL_RESULT], **dilated)) is None
    x = tensor(4, 5)
    assert kernel_of(signature("Mul", [x, tensor(5)], [x])) is None
    assert kernel_of(signature("Mul", [ints(4, 5), ints(4, 5)], [ints(4, 5)])) is None
    assert kernel_of(signature("Relu", [UNKNOWN], [UNKNOWN])) is None
    assert kernel_of(signature("MatMul", [tensor(0, 5), x], [tensor(0, 5)])) is None
    assert kernel_of(signature("MatMul", [tensor(2, 4, 5), x], [x])) is None
    assert kernel_of(signature("ReluGrad", [x, x], [x])) is None


def test_kernels_say_in_which_numbers_they_compute():
    x = tensor(4, 4)
    product, activation = signature("MatMul", [x, x], [x]), signature("Relu", [x], [x])
    plain = kernel_of(product, is_tf32_allowed=False)
    assert plain == Kernel(KernelFamily.BMM, (1, 4, 4, 4), Arithmetic.FLOAT32)
    assert kernel_of(activation, is_tf32_allowed=False) == kernel_of(activation)
    half = x._replace(dtype="bfloat16", item_bytes=2)
    found = kernel_of(signature("MatMul", [half, half], [half]), is_tf32_allowed=False)
    assert found == Kernel(KernelFamily.BMM, (1, 4, 4, 4), Arithmetic.BFLOAT16)
