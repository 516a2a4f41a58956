"""Random numbers: what the generator and the shape of the distribution take per number.

The generator is Philox 4×32 in 10 rounds: 10 integer operations per round and block of four
numbers (two wide products, six others), so 25 per number, and 5 to turn one into a float. A
normal number takes half a Box–Muller step: a logarithm, a root, a sine and a cosine per two
numbers. Truncation at two deviations throws 4.6 % away.

Source: Salmon et al., Parallel random numbers: as easy as 1, 2, 3, SC 2011,
doi:10.1145/2063384.2063405.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.graph.op_work.arithmetic import EXP, LOG, SINE, SQRT
from placement_advisor.graph.op_work.formula_parts import (
    Formula,
    elements,
    moved,
    per_output,
    written,
)

if TYPE_CHECKING:
    from placement_advisor.graph.op_work.signature import Signature

_UNIFORM = 30
# A product and a shift map onto the interval of an integer distribution.
_UNIFORM_INT = _UNIFORM + 3
_NORMAL = _UNIFORM + (LOG + SQRT + 2 * SINE + 4) // 2
_TRUNCATED_NORMAL = round(_NORMAL / 0.954) + 2
# Marsaglia and Tsang: a normal and a uniform number, two logarithms, about 1.05 tries.
_GAMMA = round(1.05 * (_NORMAL + _UNIFORM + 2 * LOG + 10))
# Knuth or transformed rejection, by the rate; about two tries.
_POISSON = 2 * (2 * _UNIFORM + LOG + EXP)


def _categorical(signature: Signature) -> int:
    """Add a Gumbel number to every logit for every sample: (logits, samples)."""
    return elements(signature.inputs[0]) + elements(signature.outputs[0]) * (_UNIFORM + LOG)


def _shuffled(signature: Signature) -> int:
    return (_UNIFORM + 3) * elements(signature.inputs[0])


def _candidates(signature: Signature) -> int:
    return (_UNIFORM + LOG) * elements(signature.outputs[0])


def _drawn(per_number: int) -> Formula:
    return Formula(per_output(per_number), written)


FORMULAS: dict[str, Formula] = {
    **dict.fromkeys(
        (
            "RandomUniform",
            "StatelessRandomUniform",
            "StatelessRandomUniformV2",
            "StatelessRandomUniformFullInt",
            "StatelessRandomUniformFullIntV2",
            "StatefulUniform",
            "StatefulUniformFullInt",
        ),
        _drawn(_UNIFORM),
    ),
    **dict.fromkeys(
        (
            "RandomUniformInt",
            "StatelessRandomUniformInt",
            "StatelessRandomUniformIntV2",
            "StatefulUniformInt",
        ),
        _drawn(_UNIFORM_INT),
    ),
    **dict.fromkeys(
        (
            "RandomStandardNormal",
            "StatelessRandomNormal",
            "StatelessRandomNormalV2",
            "StatefulStandardNormal",
            "StatefulStandardNormalV2",
        ),
        _drawn(_NORMAL),
    ),
    **dict.fromkeys(
        (
            "TruncatedNormal",
            "StatelessTruncatedNormal",
            "StatelessTruncatedNormalV2",
            "StatefulTruncatedNormal",
            "ParameterizedTruncatedNormal",
            "StatelessParameterizedTruncatedNormal",
        ),
        _drawn(_TRUNCATED_NORMAL),
    ),
    **dict.fromkeys(
        ("RandomGamma", "StatelessRandomGammaV2", "StatelessRandomGammaV3"), _drawn(_GAMMA)
    ),
    **dict.fromkeys(
        ("RandomPoisson", "RandomPoissonV2", "StatelessRandomPoisson"), _drawn(_POISSON)
    ),
    "Multinomial": Formula(_categorical, moved),
    "StatelessMultinomial": Formula(_categorical, moved),
    "RandomShuffle": Formula(_shuffled, moved),
    "StatelessShuffle": Formula(_shuffled, moved),
    **dict.fromkeys(
        (
            "UniformCandidateSampler",
            "LogUniformCandidateSampler",
            "LearnedUnigramCandidateSampler",
            "FixedUnigramCandidateSampler",
            "AllCandidateSampler",
        ),
        Formula(_candidates, written),
    ),
}
