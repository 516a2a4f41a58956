"""What share of a CPU's peak the kernels of a kind can reach at best.

A roofline's flat roof is the peak of vectorised multiply-adds, which a large MatMul calibrates.
Kernels that are built otherwise stay below it however large their tensors are; Williams et al.
call such lower roofs *ceilings*. Which kinds they are, and how low, was read from TensorFlow's CPU
kernels and measured on one pinned core with AVX-512: 132 Gflop/s for MatMul, 16 GB/s for AddV2.
Only kinds that stand clearly below are listed.

Left out: GPUs, whose kernels differ, and CPUs with narrower vectors, where a scalar kernel loses
less: at 8 lanes, such times come out up to twice too long.

Source: Williams, Waterman, Patterson, Roofline, CACM 52(4), 2009, doi:10.1145/1498765.1498785.
"""

from __future__ import annotations

from placement_advisor.graph.op_work import elementwise, layers, movement
from placement_advisor.graph.op_work.movement import SPARSE_SEGMENTS

# Eigen's products of matrices, which triangular solutions call in place of oneDNN's: 51 to 78 of
# 132 Gflop/s.
PLAIN_PRODUCT_SHARE = 1 / 2
# The same for many small matrices, with operands that Einsum transposes first: 4 to 30 of 150
# Gflop/s on the shapes of attention.
BATCHED_PRODUCT_SHARE = 1 / 5
# Vectorised, but along rows: 12 to 40 of 131 Gop/s at rows of 100 and more, less below.
SHORT_ROW_SHARE = 1 / 8
# One number at a time in place of 16: loops over library functions, generators, unblocked
# factorisations, texts. Measured 4 to 16 Gop/s.
SCALAR_SHARE = 1 / 16
# The same, and a comparison with the label for each number: 3.9 of 131 Gop/s.
LABELLED_SHARE = SCALAR_SHARE / 2
# Scalar, and about a dozen operations for addresses and bounds around each counted one: Eigen
# evaluates a row of a tensor as an expression, element by element. Measured 0.5 to 1.2 Gop/s.
INDEXED_SHARE = SCALAR_SHARE / 12
# Each operation waits for the one before it or for a branch that depends on the data, about 10
# cycles, in which the vector units would do 640 flops. Measured 0.1 to 0.2 Gop/s.
SERIAL_SHARE = 1 / 640

_COMBINATIONS = ("Add", "Sub", "Min", "Max")
_SPARSE_UPDATES = (
    "Adadelta Adagrad AdagradDA AdagradV2 CenteredRMSProp Ftrl FtrlV2 KerasMomentum Momentum "
    "ProximalAdagrad ProximalGradientDescent RMSProp"
)
_SCALAR = """
Betainc Cosh Digamma Erfinv Expm1 FloorMod Igamma IgammaGradA Igammac Lgamma Mod Ndtri Polygamma Pow
Sinh SoftmaxCrossEntropyWithLogits Softplus Tan TruncateMod Zeta CombinedNonMaxSuppression
NonMaxSuppression NonMaxSuppressionV2 NonMaxSuppressionV3 NonMaxSuppressionV4 NonMaxSuppressionV5
"""
_INDEXED = (
    "ArgMax ArgMin Bincount CTCLoss CTCLossV2 DenseBincount ScatterNd SparseTensorDenseMatMul"
)
_SERIAL = "Bucketize Cumprod Cumsum LowerBound NthElement TopK TopKV2 UpperBound Where"

CPU_PEAK_SHARES: dict[str, float] = {
    **dict.fromkeys(
        (*layers.LINEAR_ALGEBRA_FORMULAS, *elementwise.RANDOM_FORMULAS, *movement.TEXT_FORMULAS),
        SCALAR_SHARE,
    ),
    "MatrixTriangularSolve": PLAIN_PRODUCT_SHARE,
    "Einsum": BATCHED_PRODUCT_SHARE,
    "SparseSoftmaxCrossEntropyWithLogits": LABELLED_SHARE,
    **dict.fromkeys(("Softmax", "LogSoftmax"), SHORT_ROW_SHARE),
    **dict.fromkeys(_SCALAR.split(), SCALAR_SHARE),
    **{f"ResourceSparseApply{name}": SCALAR_SHARE for name in _SPARSE_UPDATES.split()},
    **dict.fromkeys(_INDEXED.split(), INDEXED_SHARE),
    **{f"UnsortedSegment{name}": INDEXED_SHARE for name in ("Sum", "Max", "Min", "Prod")},
    **{
        f"{name}{form}": INDEXED_SHARE
        for name in SPARSE_SEGMENTS
        for form in ("", "WithNumSegments", "Grad", "GradV2")
    },
    **{f"ResourceScatter{name}": INDEXED_SHARE for name in (*_COMBINATIONS, "Mul", "Div")},
    **{f"TensorScatter{name}": INDEXED_SHARE for name in _COMBINATIONS},
    **{f"ResourceScatterNd{name}": INDEXED_SHARE for name in _COMBINATIONS},
    **dict.fromkeys(_SERIAL.split(), SERIAL_SHARE),
}
