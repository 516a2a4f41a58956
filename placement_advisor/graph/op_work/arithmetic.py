"""Arithmetic per element of functions that are more than one addition or multiplication.

A count is the number of floating-point additions, multiplications, comparisons and selections in
the vectorised code that CPUs run (a fused multiply-add is 2); it says how much arithmetic there
is, not how fast it goes. Sources: the polynomials and rational functions in Eigen's packet math
(degrees of `pexp`, `plog`, `ptanh`, `perf`, `psincos`, `generic_pow` for 32-bit floats), and the
Newton–Raphson steps by which division and roots are refined (Goldschmidt, Newton; two steps).
"""

from __future__ import annotations

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
    "Abs": 1,
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
    "Ceil": 1,
    "CheckNumerics": 1,
    "CheckNumericsV2": 1,
    "ComplexAbs": 3 + SQRT,
    "Conj": 1,
    "Cos": SINE,
    "Cosh": SINH,
    "Digamma": DIGAMMA,
    "Elu": EXPM1 + 2,
    "Erf": ERF,
    "Erfc": ERFC,
    "Erfinv": ERFINV,
    "Exp": EXP,
    "Expm1": EXPM1,
    "Floor": 1,
    "FusedMish": EXP + LOG + TANH + 2,
    "Imag": 0,
    "Inv": DIVIDE,
    "Invert": 1,
    "IsFinite": 1,
    "IsInf": 1,
    "IsNan": 1,
    "LeakyRelu": 2,
    "Lgamma": LGAMMA,
    "Log": LOG,
    "Log1p": LOG1P,
    "LogicalNot": 1,
    "Ndtri": ERFINV + 2,
    "Neg": 1,
    "PopulationCount": 1,
    "Real": 0,
    "Reciprocal": DIVIDE,
    "Relu": 1,
    "Relu6": 2,
    "Rint": 1,
    "Round": 1,
    "Rsqrt": RSQRT,
    "Selu": EXPM1 + 3,
    "Sigmoid": SIGMOID,
    "Sign": 2,
    "Sin": SINE,
    "Sinh": SINH,
    "Softplus": EXP + LOG1P + 3,
    "Softsign": DIVIDE + 2,
    "Sqrt": SQRT,
    "Square": 1,
    "Swish": SIGMOID + 1,
    "Tan": TAN,
    "Tanh": TANH,
}

# Flops per output element of the kinds with two broadcast inputs.
BINARY: dict[str, int] = {
    "Add": 1,
    "AddV2": 1,
    "ApproximateEqual": 3,
    "Atan2": ATAN + DIVIDE + 4,
    "BiasAdd": 1,
    "BiasAddV1": 1,
    "BitwiseAnd": 1,
    "BitwiseOr": 1,
    "BitwiseXor": 1,
    "Complex": 0,
    "Div": DIVIDE,
    "DivNoNan": DIVIDE + 1,
    "Equal": 1,
    "FloorDiv": DIVIDE + 1,
    "FloorMod": DIVIDE + 3,
    "Greater": 1,
    "GreaterEqual": 1,
    "Igamma": INCOMPLETE_GAMMA,
    "Igammac": INCOMPLETE_GAMMA,
    "LeftShift": 1,
    "Less": 1,
    "LessEqual": 1,
    "LogicalAnd": 1,
    "LogicalOr": 1,
    "Maximum": 1,
    "Minimum": 1,
    "Mod": DIVIDE + 2,
    "Mul": 1,
    "MulNoNan": 2,
    "NextAfter": 4,
    "NotEqual": 1,
    "Polygamma": DIGAMMA + LGAMMA,
    "Pow": POW,
    "RealDiv": DIVIDE,
    "RightShift": 1,
    "SquaredDifference": 2,
    "Sub": 1,
    "TruncateDiv": DIVIDE + 1,
    "TruncateMod": DIVIDE + 2,
    "Xdivy": DIVIDE + 1,
    "Xlog1py": LOG1P + 2,
    "Xlogy": LOG + 2,
    "Zeta": 12 * POW,
}

# Flops per element of the gradients that take a value and the gradient that flows in.
GRADIENT: dict[str, int] = {
    "EluGrad": 3,
    "InvGrad": 3,
    "LeakyReluGrad": 2,
    "ReciprocalGrad": 3,
    "Relu6Grad": 3,
    "ReluGrad": 2,
    "RsqrtGrad": 4,
    "SeluGrad": 4,
    "SigmoidGrad": 3,
    "SoftplusGrad": EXP + DIVIDE + 1,
    "SoftsignGrad": DIVIDE + 3,
    "SqrtGrad": DIVIDE + 1,
    "TanhGrad": 3,
}
# The tanh form of Gelu: x·(1 + tanh(a·(x + b·x³)))/2.
_GELU_APPROXIMATE = TANH + 8
_GELU_EXACT = ERF + 4

# Flops per output element of what Grappler and oneDNN fuse behind a product or a convolution.
FUSED: dict[str, int] = {
    **UNARY,
    "BiasAdd": 1,
    "Add": 1,
    "BinaryAdd": 1,
    "Mul": 1,
    "Maximum": 1,
    "FusedBatchNorm": 2,
    "GeluApproximate": _GELU_APPROXIMATE,
    "GeluExact": _GELU_EXACT,
    "FusedHardSwish": 5,
    "_FusedHardSwish": 5,
    "_MklSwish": SIGMOID + 1,
    "_FusedSwish": SIGMOID + 1,
    "_MklFusedMish": UNARY["FusedMish"],
    "Quantize": 3,
    "Requantize": 3,
    "Dequantize": 2,
    "Sum": 1,
}
