"""Formulas for elementwise ops, reductions, random numbers and updates.

The first part counts the arithmetic of one function of one element; the formulas multiply these
counts by the number of elements.
"""

from __future__ import annotations

from math import log2
from typing import NamedTuple

from placement_advisor.graph.op_work import signature as op_signature

# Reciprocal estimate, two Newton steps of 3 flops, one product, one select for infinities.
DIVIDE = 8
SQRT = 8
RSQRT = 7
# Clamp 2, reduction by ln 2 in two parts 5, polynomial of degree 6 12, scaling by 2^n 4.
EXP = 23
# Mantissa and exponent 6, polynomial of degree 8 on x³ and x² 20, exponent·ln 2 4, edge cases 5.
LOG = 35
EXPM1 = EXP + DIVIDE + 9
LOG1P = LOG + 8
# Clamp 2, x² 1, odd numerator of degree 13 13, even denominator of degree 6 6, one division.
TANH = 22 + DIVIDE
# Numerator and denominator of degree 8 to 10, one division, clamp.
ERF = 22 + DIVIDE
ERFC = ERF + EXP
SIGMOID = EXP + DIVIDE + 2
# Reduction by pi/2 in three parts 10, two polynomials of degree 7 14, quadrant and sign 6.
SINE = 30
TAN = 2 * SINE + DIVIDE
ATAN = 24 + DIVIDE
ASIN = 20 + SQRT
SINH = 2 * EXP + 3
# Logarithm in two words of precision 70, product 8, exponential of two words 40.
POW = 118
# Lanczos' sum of eight terms with a division each, two logarithms.
LGAMMA = 8 * (DIVIDE + 2) + 2 * LOG
# Recurrence to the asymptotic range, then a series, a logarithm and divisions.
DIGAMMA = 10 * DIVIDE + LOG + 14
# Two polynomials of degree 8 or a logarithm and a root (Giles).
ERFINV = LOG + SQRT + 2 * 18
# Series of about twenty terms with a division each, a power and a logarithm of gamma.
INCOMPLETE_GAMMA = 20 * (DIVIDE + 3) + POW + LGAMMA

# Flops per element of the kinds with one input and one output of the same shape.
UNARY: dict[str, int] = {
    **op_signature.of_kinds(
        "Abs Ceil CheckNumerics CheckNumericsV2 Conj Floor Invert IsFinite IsInf IsNan LogicalNot "
        "Neg PopulationCount Relu Rint Round Square",
        1,
    ),
    "Acos": ASIN + 1,
    "Acosh": LOG + SQRT + 3,
    "Angle": ATAN + DIVIDE,
    "Asin": ASIN,
    "Asinh": LOG + SQRT + 4,
    "Atan": ATAN,
    "Atanh": LOG1P + DIVIDE + 2,
    "BesselI0": EXP + 40,
    "BesselI0e": 40,
    "BesselI1": EXP + 40,
    "BesselI1e": 40,
    "ComplexAbs": 3 + SQRT,
    "Cos": SINE,
    "Cosh": SINH,
    "Digamma": DIGAMMA,
    "Elu": EXPM1 + 2,
    "Erf": ERF,
    "Erfc": ERFC,
    "Erfinv": ERFINV,
    "Exp": EXP,
    "Expm1": EXPM1,
    "Imag": 0,
    "Inv": DIVIDE,
    **op_signature.of_kinds("LeakyRelu Relu6 Sign", 2),
    "Lgamma": LGAMMA,
    "Log": LOG,
    "Log1p": LOG1P,
    "Ndtri": ERFINV + 2,
    "Real": 0,
    "Reciprocal": DIVIDE,
    "Rsqrt": RSQRT,
    "Selu": EXPM1 + 3,
    "Sigmoid": SIGMOID,
    "Sin": SINE,
    "Sinh": SINH,
    "Softplus": EXP + LOG1P + 3,
    "Softsign": DIVIDE + 2,
    "Sqrt": SQRT,
    "Swish": SIGMOID + 1,
    "Tan": TAN,
    "Tanh": TANH,
}

# Flops per output element of the kinds with two broadcast inputs.
BINARY: dict[str, int] = {
    **op_signature.of_kinds(
        "Add AddV2 BiasAdd BiasAddV1 BitwiseAnd BitwiseOr BitwiseXor Equal Greater GreaterEqual "
        "LeftShift Less LessEqual LogicalAnd LogicalOr Maximum Minimum Mul NotEqual RightShift "
        "Sub",
        1,
    ),
    "ApproximateEqual": 3,
    "Atan2": ATAN + DIVIDE + 4,
    "Complex": 0,
    "Div": DIVIDE,
    **op_signature.of_kinds("DivNoNan FloorDiv TruncateDiv Xdivy", DIVIDE + 1),
    "FloorMod": DIVIDE + 3,
    "Igamma": INCOMPLETE_GAMMA,
    "Igammac": INCOMPLETE_GAMMA,
    "Mod": DIVIDE + 2,
    "MulNoNan": 2,
    "NextAfter": 4,
    "Polygamma": DIGAMMA + LGAMMA,
    "Pow": POW,
    "RealDiv": DIVIDE,
    "SquaredDifference": 2,
    "TruncateMod": DIVIDE + 2,
    "Xlog1py": LOG1P + 2,
    "Xlogy": LOG + 2,
    "Zeta": 12 * POW,
}

# Flops per element of the gradients that take a value and the gradient that flows in.
GRADIENT: dict[str, int] = {
    **op_signature.of_kinds("EluGrad InvGrad ReciprocalGrad Relu6Grad SigmoidGrad TanhGrad", 3),
    "LeakyReluGrad": 2,
    "ReluGrad": 2,
    "RsqrtGrad": 4,
    "SeluGrad": 4,
    "SoftplusGrad": EXP + DIVIDE + 1,
    "SoftsignGrad": DIVIDE + 3,
    "SqrtGrad": DIVIDE + 1,
}


def _added(signature: op_signature.Signature) -> int:
    return (len(signature.inputs) - 1) * op_signature.elements(signature.outputs[0])


# What is left: kinds with other numbers of inputs. Quantization scales, rounds and clips.
_OTHER: dict[str, int] = {
    "Betainc": 2 * INCOMPLETE_GAMMA,
    "Bitcast": 0,
    **op_signature.of_kinds("Cast HostCast Select SelectV2", 1),
    "ClipByValue": 2,
    "Cross": 3,
    "Dequantize": 2,
    **op_signature.of_kinds(
        "FakeQuantWithMinMaxArgs FakeQuantWithMinMaxVars FakeQuantWithMinMaxVarsPerChannel "
        "QuantizeAndDequantizeV2 QuantizeAndDequantizeV3 QuantizeAndDequantizeV4",
        6,
    ),
    "FakeQuantWithMinMaxArgsGradient": 3,
    "FakeQuantWithMinMaxVarsGradient": 5,
    "FakeQuantWithMinMaxVarsPerChannelGradient": 5,
    "IgammaGradA": 2 * INCOMPLETE_GAMMA,
    "QuantizeV2": 4,
}

ELEMENTWISE_FORMULAS: dict[str, op_signature.Formula] = {
    kind: op_signature.Formula(op_signature.per_output(flops), op_signature.moved)
    for table in (UNARY, BINARY, GRADIENT, _OTHER)
    for kind, flops in table.items()
} | {
    "AddN": op_signature.Formula(_added, op_signature.moved),
    "AccumulateNV2": op_signature.Formula(_added, op_signature.moved),
}


# Maximum, subtract, exponentiate, add, multiply by the inverse of the sum.
_SOFTMAX = 4 + EXP
# Subtract the logarithm of the sum in place of the product.
_LOG_SOFTMAX = 4 + EXP
# The loss: (log of the sum - logit) · label, added up; the gradient: softmax - label.
_CROSS_ENTROPY = _SOFTMAX + 4


def _ctc(signature: op_signature.Signature) -> int:
    """Softmax over the classes, and the forward and backward recursion over the labels.

    Each recursion adds three paths in the logarithm per time step and label; labels are doubled
    by the blanks between them. All sequences count as long as the longest.
    """
    time, batch, classes = op_signature.shape_of(signature.inputs[0])
    labels = 2 * op_signature.elements(signature.inputs[2]) + batch
    return time * batch * classes * _SOFTMAX + 2 * time * labels * 2 * (EXP + LOG)


def _softmax_of_sparse(signature: op_signature.Signature) -> int:
    return _SOFTMAX * op_signature.elements(signature.inputs[1])


_ACTIVATIONS: dict[str, op_signature.Formula] = {
    "Softmax": op_signature.Formula(op_signature.per_input(_SOFTMAX), op_signature.moved),
    "LogSoftmax": op_signature.Formula(op_signature.per_input(_LOG_SOFTMAX), op_signature.moved),
    "SparseSoftmax": op_signature.Formula(_softmax_of_sparse, op_signature.moved),
    "SoftmaxCrossEntropyWithLogits": op_signature.Formula(
        op_signature.per_input(_CROSS_ENTROPY), op_signature.moved
    ),
    "SparseSoftmaxCrossEntropyWithLogits": op_signature.Formula(
        op_signature.per_input(_SOFTMAX), op_signature.moved
    ),
    "CTCLoss": op_signature.Formula(_ctc, op_signature.moved),
    "CTCLossV2": op_signature.Formula(_ctc, op_signature.moved),
    **op_signature.of_kinds(
        "CTCGreedyDecoder InTopK InTopKV2",
        op_signature.Formula(op_signature.per_input(1), op_signature.moved),
    ),
}


def _mean(signature: op_signature.Signature) -> int:
    return op_signature.elements(signature.inputs[0]) + DIVIDE * op_signature.elements(
        signature.outputs[0]
    )


def _norm(signature: op_signature.Signature) -> int:
    return 2 * op_signature.elements(signature.inputs[0]) + SQRT * op_signature.elements(
        signature.outputs[0]
    )


def _largest(signature: op_signature.Signature) -> int:
    values, found = signature.inputs[0], op_signature.shape_of(signature.outputs[0])
    kept = found[-1]
    insertions = max(1, round(log2(max(1, kept))))
    rows = op_signature.elements(signature.outputs[0]) // kept if kept else 0
    return op_signature.elements(values) + rows * kept * insertions


def _nth(signature: op_signature.Signature) -> int:
    """Select by halving: about three comparisons per element (quickselect, on average)."""
    return 3 * op_signature.elements(signature.inputs[0])


def _true_places_bytes(signature: op_signature.Signature) -> int:
    """Count first, then write the places: two passes; how many are true is not known before."""
    return 2 * op_signature.bytes_of(signature.inputs[0])


_SUM = op_signature.Formula(op_signature.per_input(1), op_signature.moved)

_REDUCTIONS: dict[str, op_signature.Formula] = {
    **op_signature.of_kinds(
        "Sum Prod Max Min All Any BiasAddGrad ArgMax ArgMin Cumsum Cumprod", _SUM
    ),
    "Mean": op_signature.Formula(_mean, op_signature.moved),
    "EuclideanNorm": op_signature.Formula(_norm, op_signature.moved),
    "L2Loss": op_signature.Formula(op_signature.per_input(2), op_signature.moved),
    "CumulativeLogsumexp": op_signature.Formula(
        op_signature.per_input(EXP + LOG + 3), op_signature.moved
    ),
    **op_signature.of_kinds(
        "TopK TopKV2 ApproxTopK", op_signature.Formula(_largest, op_signature.moved)
    ),
    "NthElement": op_signature.Formula(_nth, op_signature.moved),
    "Where": op_signature.Formula(op_signature.per_input(1), _true_places_bytes),
    "SparseReduceSum": op_signature.Formula(op_signature.per_input(1, 1), op_signature.moved),
    "SparseReduceMax": op_signature.Formula(op_signature.per_input(1, 1), op_signature.moved),
}


_UNIFORM = 30
# A product and a shift map onto the interval of an integer distribution.
_UNIFORM_INT = _UNIFORM + 3
_NORMAL = _UNIFORM + (LOG + SQRT + 2 * SINE + 4) // 2
_TRUNCATED_NORMAL = round(_NORMAL / 0.954) + 2
# Marsaglia and Tsang: a normal and a uniform number, two logarithms, about 1.05 tries.
_GAMMA = round(1.05 * (_NORMAL + _UNIFORM + 2 * LOG + 10))
# Knuth or transformed rejection, by the rate; about two tries.
_POISSON = 2 * (2 * _UNIFORM + LOG + EXP)


def _categorical(signature: op_signature.Signature) -> int:
    """Add a Gumbel number to every logit for every sample: (logits, samples)."""
    return op_signature.elements(signature.inputs[0]) + op_signature.elements(
        signature.outputs[0]
    ) * (_UNIFORM + LOG)


def _shuffled(signature: op_signature.Signature) -> int:
    return (_UNIFORM + 3) * op_signature.elements(signature.inputs[0])


def _candidates(signature: op_signature.Signature) -> int:
    return (_UNIFORM + LOG) * op_signature.elements(signature.outputs[0])


def _drawn(per_number: int) -> op_signature.Formula:
    return op_signature.Formula(op_signature.per_output(per_number), op_signature.written)


RANDOM_FORMULAS: dict[str, op_signature.Formula] = {
    **op_signature.of_kinds(
        "RandomUniform StatelessRandomUniform StatelessRandomUniformV2 "
        "StatelessRandomUniformFullInt StatelessRandomUniformFullIntV2 StatefulUniform "
        "StatefulUniformFullInt",
        _drawn(_UNIFORM),
    ),
    **op_signature.of_kinds(
        "RandomUniformInt StatelessRandomUniformInt StatelessRandomUniformIntV2 StatefulUniformInt",
        _drawn(_UNIFORM_INT),
    ),
    **op_signature.of_kinds(
        "RandomStandardNormal StatelessRandomNormal StatelessRandomNormalV2 "
        "StatefulStandardNormal StatefulStandardNormalV2",
        _drawn(_NORMAL),
    ),
    **op_signature.of_kinds(
        "TruncatedNormal StatelessTruncatedNormal StatelessTruncatedNormalV2 "
        "StatefulTruncatedNormal ParameterizedTruncatedNormal "
        "StatelessParameterizedTruncatedNormal",
        _drawn(_TRUNCATED_NORMAL),
    ),
    **op_signature.of_kinds(
        "RandomGamma StatelessRandomGammaV2 StatelessRandomGammaV3", _drawn(_GAMMA)
    ),
    **op_signature.of_kinds(
        "RandomPoisson RandomPoissonV2 StatelessRandomPoisson", _drawn(_POISSON)
    ),
    "Multinomial": op_signature.Formula(_categorical, op_signature.moved),
    "StatelessMultinomial": op_signature.Formula(_categorical, op_signature.moved),
    "RandomShuffle": op_signature.Formula(_shuffled, op_signature.moved),
    "StatelessShuffle": op_signature.Formula(_shuffled, op_signature.moved),
    **op_signature.of_kinds(
        "UniformCandidateSampler LogUniformCandidateSampler LearnedUnigramCandidateSampler "
        "FixedUnigramCandidateSampler AllCandidateSampler",
        op_signature.Formula(_candidates, op_signature.written),
    ),
}


class _Optimizer(NamedTuple):
    """``states``: variable and slots. ``gradient``, ``sparse_gradient``: which input it is."""

    states: int
    gradient: int
    sparse_gradient: int | None
    flops: int


# Flops per element, from the update rules as TensorFlow documents each op.
_OPTIMIZERS: dict[str, _Optimizer] = {
    # m += (g - m)(1 - b1): 3; v += (g² - v)(1 - b2): 4; var -= rate · m / (√v + e): 3.
    "Adam": _Optimizer(3, 9, None, 10 + SQRT + DIVIDE),
    "AdamWithAmsgrad": _Optimizer(4, 10, None, 11 + SQRT + DIVIDE),
    "AdaMax": _Optimizer(3, 8, None, 9 + DIVIDE),
    # accum += g²: 2; var -= rate · g / √accum: 3.
    "Adagrad": _Optimizer(2, 3, 3, 5 + RSQRT),
    "AdagradV2": _Optimizer(2, 4, 4, 6 + SQRT + DIVIDE),
    "AdagradDA": _Optimizer(3, 3, 3, 12 + SQRT + DIVIDE),
    "Adadelta": _Optimizer(3, 6, 6, 14 + SQRT + RSQRT),
    "AddSign": _Optimizer(2, 6, None, 9),
    "PowerSign": _Optimizer(2, 6, None, 9 + POW),
    "GradientDescent": _Optimizer(1, 2, None, 2),
    # accum = accum · momentum + g; var -= rate · accum.
    "Momentum": _Optimizer(2, 3, 3, 4),
    "KerasMomentum": _Optimizer(2, 3, 3, 4),
    # ms += (g² - ms)(1 - rho): 4; mom = mom · momentum + rate · g / √(ms + e): 5; var -= mom: 1.
    "RMSProp": _Optimizer(3, 7, 7, 10 + RSQRT),
    "CenteredRMSProp": _Optimizer(4, 8, 8, 15 + RSQRT),
    "Ftrl": _Optimizer(3, 3, 3, 14 + 2 * POW + DIVIDE),
    "FtrlV2": _Optimizer(3, 3, 3, 16 + 2 * POW + DIVIDE),
    "ProximalGradientDescent": _Optimizer(1, 4, 4, 8 + DIVIDE),
    "ProximalAdagrad": _Optimizer(2, 5, 5, 10 + RSQRT + DIVIDE),
}


def _dense(states: int, gradient: int, flops: int) -> op_signature.Formula:
    def arithmetic(signature: op_signature.Signature) -> int:
        return flops * op_signature.elements(signature.inputs[gradient])

    def traffic(signature: op_signature.Signature) -> int:
        return (2 * states + 1) * op_signature.bytes_of(signature.inputs[gradient])

    return op_signature.Formula(arithmetic, traffic)


def _sparse(states: int, gradient: int, flops: int) -> op_signature.Formula:
    dense = _dense(states, gradient, flops)

    def traffic(signature: op_signature.Signature) -> int:
        return dense.bytes_accessed(signature) + op_signature.bytes_of(
            signature.inputs[gradient + 1]
        )

    return op_signature.Formula(dense.flops, traffic)


def _assigned(signature: op_signature.Signature) -> int:
    return 2 * op_signature.bytes_of(signature.inputs[1])


def _assigned_parts(signature: op_signature.Signature) -> int:
    return 2 * op_signature.bytes_of_all(signature.inputs[1:])


_ACCUMULATE = _dense(1, 1, 1)

_UPDATES: dict[str, op_signature.Formula] = {
    **{
        f"{prefix}{name}": _dense(rule.states, rule.gradient, rule.flops)
        for name, rule in _OPTIMIZERS.items()
        for prefix in ("ResourceApply", "Apply")
    },
    **{
        f"{prefix}{name}": _sparse(rule.states, rule.sparse_gradient, rule.flops)
        for name, rule in _OPTIMIZERS.items()
        for prefix in ("ResourceSparseApply", "SparseApply")
        if rule.sparse_gradient is not None
    },
    "AssignVariableOp": op_signature.Formula(op_signature.nothing, _assigned),
    "Assign": op_signature.Formula(op_signature.nothing, _assigned),
    "AssignVariableXlaConcatND": op_signature.Formula(op_signature.nothing, _assigned_parts),
    **op_signature.of_kinds(
        "AssignAddVariableOp AssignSubVariableOp AssignAdd AssignSub", _ACCUMULATE
    ),
    # x[i] = v, x[i] += v, x[i] -= v on rows: (x, i, v), in place.
    "InplaceUpdate": op_signature.Formula(
        op_signature.nothing, lambda s: 2 * op_signature.bytes_of(s.inputs[2])
    ),
    "InplaceAdd": _dense(1, 2, 1),
    "InplaceSub": _dense(1, 2, 1),
}

FORMULAS = ELEMENTWISE_FORMULAS | _ACTIVATIONS | _REDUCTIONS | RANDOM_FORMULAS | _UPDATES
