"""Formulas for elementwise ops, reductions, random numbers and updates.

The first part counts the arithmetic of one function of one element; the formulas multiply these
counts by the number of elements.
"""

from math import log2
from typing import NamedTuple

from placement_advisor.graph.op_work.signature import (
    Formula,
    Signature,
    bytes_in,
    elements,
    elements_in,
    elements_out,
    of_kinds,
    read_from,
    shape_of,
    written,
)

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
    **of_kinds(
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
    **of_kinds("LeakyRelu Relu6 Sign", 2),
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
    **of_kinds(
        "Add AddV2 BiasAdd BiasAddV1 BitwiseAnd BitwiseOr BitwiseXor Equal Greater GreaterEqual "
        "LeftShift Less LessEqual LogicalAnd LogicalOr Maximum Minimum Mul NotEqual RightShift "
        "Sub",
        1,
    ),
    "ApproximateEqual": 3,
    "Atan2": ATAN + DIVIDE + 4,
    "Complex": 0,
    "Div": DIVIDE,
    **of_kinds("DivNoNan FloorDiv TruncateDiv Xdivy", DIVIDE + 1),
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
    **of_kinds("EluGrad InvGrad ReciprocalGrad Relu6Grad SigmoidGrad TanhGrad", 3),
    "LeakyReluGrad": 2,
    "ReluGrad": 2,
    "RsqrtGrad": 4,
    "SeluGrad": 4,
    "SoftplusGrad": EXP + DIVIDE + 1,
    "SoftsignGrad": DIVIDE + 3,
    "SqrtGrad": DIVIDE + 1,
}


def _added(signature: Signature) -> int:
    return (len(signature.inputs) - 1) * elements(signature.outputs[0])


# What is left: kinds with other numbers of inputs. Quantization scales, rounds and clips.
_OTHER: dict[str, int] = {
    "Betainc": 2 * INCOMPLETE_GAMMA,
    "Bitcast": 0,
    **of_kinds("Cast HostCast Select SelectV2", 1),
    "ClipByValue": 2,
    "Cross": 3,
    "Dequantize": 2,
    **of_kinds(
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

ELEMENTWISE_FORMULAS: dict[str, Formula] = {
    kind: Formula(flops * elements_out())
    for table in (UNARY, BINARY, GRADIENT, _OTHER)
    for kind, flops in table.items()
} | of_kinds("AddN AccumulateNV2", Formula(_added))


# Maximum, subtract, exponentiate, add, multiply by the inverse of the sum.
_SOFTMAX = 4 + EXP
# Subtract the logarithm of the sum in place of the product.
_LOG_SOFTMAX = 4 + EXP
# The loss: (log of the sum - logit) · label, added up; the gradient: softmax - label.
_CROSS_ENTROPY = _SOFTMAX + 4


def _ctc(signature: Signature) -> int:
    """Softmax over the classes, and the forward and backward recursion over the labels.

    Each recursion adds three paths in the logarithm per time step and label; labels are doubled
    by the blanks between them. All sequences count as long as the longest.
    """
    time, batch, classes = shape_of(signature.inputs[0])
    labels = 2 * elements(signature.inputs[2]) + batch
    return time * batch * classes * _SOFTMAX + 2 * time * labels * 2 * (EXP + LOG)


_ACTIVATIONS: dict[str, Formula] = {
    "Softmax": Formula(_SOFTMAX * elements_in(0)),
    "LogSoftmax": Formula(_LOG_SOFTMAX * elements_in(0)),
    "SparseSoftmax": Formula(_SOFTMAX * elements_in(1)),
    "SoftmaxCrossEntropyWithLogits": Formula(_CROSS_ENTROPY * elements_in(0)),
    "SparseSoftmaxCrossEntropyWithLogits": Formula(_SOFTMAX * elements_in(0)),
    **of_kinds("CTCLoss CTCLossV2", Formula(_ctc)),
    **of_kinds("CTCGreedyDecoder InTopK InTopKV2", Formula(elements_in(0))),
}


def _largest(signature: Signature) -> int:
    values, found = signature.inputs[0], shape_of(signature.outputs[0])
    kept = found[-1]
    insertions = max(1, round(log2(max(1, kept))))
    rows = elements(signature.outputs[0]) // kept if kept else 0
    return elements(values) + rows * kept * insertions


_REDUCTIONS: dict[str, Formula] = {
    **of_kinds(
        "Sum Prod Max Min All Any BiasAddGrad ArgMax ArgMin Cumsum Cumprod",
        Formula(elements_in(0)),
    ),
    "Mean": Formula(elements_in(0) + DIVIDE * elements_out()),
    "EuclideanNorm": Formula(2 * elements_in(0) + SQRT * elements_out()),
    "L2Loss": Formula(2 * elements_in(0)),
    "CumulativeLogsumexp": Formula((EXP + LOG + 3) * elements_in(0)),
    **of_kinds("TopK TopKV2 ApproxTopK", Formula(_largest)),
    # Selected by halving: about three comparisons per element (quickselect, on average).
    "NthElement": Formula(3 * elements_in(0)),
    # Counted first, then written: two passes; how many are true is not known before.
    "Where": Formula(elements_in(0), 2 * bytes_in(0)),
    **of_kinds("SparseReduceSum SparseReduceMax", Formula(elements_in(1))),
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


def _drawn(per_number: int) -> Formula:
    return Formula(per_number * elements_out(), written)


RANDOM_FORMULAS: dict[str, Formula] = {
    **of_kinds(
        "RandomUniform StatelessRandomUniform StatelessRandomUniformV2 "
        "StatelessRandomUniformFullInt StatelessRandomUniformFullIntV2 StatefulUniform "
        "StatefulUniformFullInt",
        _drawn(_UNIFORM),
    ),
    **of_kinds(
        "RandomUniformInt StatelessRandomUniformInt StatelessRandomUniformIntV2 StatefulUniformInt",
        _drawn(_UNIFORM_INT),
    ),
    **of_kinds(
        "RandomStandardNormal StatelessRandomNormal StatelessRandomNormalV2 "
        "StatefulStandardNormal StatefulStandardNormalV2",
        _drawn(_NORMAL),
    ),
    **of_kinds(
        "TruncatedNormal StatelessTruncatedNormal StatelessTruncatedNormalV2 "
        "StatefulTruncatedNormal ParameterizedTruncatedNormal "
        "StatelessParameterizedTruncatedNormal",
        _drawn(_TRUNCATED_NORMAL),
    ),
    **of_kinds("RandomGamma StatelessRandomGammaV2 StatelessRandomGammaV3", _drawn(_GAMMA)),
    **of_kinds("RandomPoisson RandomPoissonV2 StatelessRandomPoisson", _drawn(_POISSON)),
    # A Gumbel number is added to every logit for every sample: (logits, samples).
    **of_kinds(
        "Multinomial StatelessMultinomial",
        Formula(elements_in(0) + (_UNIFORM + LOG) * elements_out()),
    ),
    **of_kinds("RandomShuffle StatelessShuffle", Formula(_UNIFORM_INT * elements_in(0))),
    **of_kinds(
        "UniformCandidateSampler LogUniformCandidateSampler LearnedUnigramCandidateSampler "
        "FixedUnigramCandidateSampler AllCandidateSampler",
        _drawn(_UNIFORM + LOG),
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


def _dense(states: int, gradient: int, flops: int) -> Formula:
    return Formula(flops * elements_in(gradient), (2 * states + 1) * bytes_in(gradient))


def _sparse(states: int, gradient: int, flops: int) -> Formula:
    """The rows' places stand behind their gradient."""
    rows = (2 * states + 1) * bytes_in(gradient)
    return Formula(flops * elements_in(gradient), rows + bytes_in(gradient + 1))


_UPDATES: dict[str, Formula] = {
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
    **of_kinds("AssignVariableOp Assign", Formula(bytes_accessed=2 * bytes_in(1))),
    "AssignVariableXlaConcatND": Formula(bytes_accessed=2 * read_from(1)),
    **of_kinds("AssignAddVariableOp AssignSubVariableOp AssignAdd AssignSub", _dense(1, 1, 1)),
    # x[i] = v, x[i] += v, x[i] -= v on rows: (x, i, v), in place.
    "InplaceUpdate": Formula(bytes_accessed=2 * bytes_in(2)),
    **of_kinds("InplaceAdd InplaceSub", _dense(1, 2, 1)),
}

FORMULAS = ELEMENTWISE_FORMULAS | _ACTIVATIONS | _REDUCTIONS | RANDOM_FORMULAS | _UPDATES
