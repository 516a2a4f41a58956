"""Kinds that compute each output element from the elements at its place, broadcast or not.

Every distinct input is read once and the output written once; a broadcast input counts as small
as it is. Arithmetic per element stands in `arithmetic.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.graph.op_work import arithmetic
from placement_advisor.graph.op_work.formula_parts import Formula, elements, moved, per_output

if TYPE_CHECKING:
    from placement_advisor.graph.op_work.signature import Signature


def _added(signature: Signature) -> int:
    return (len(signature.inputs) - 1) * elements(signature.outputs[0])


def _composed(signature: Signature) -> int:
    """Count the chain of unary ops that Grappler put into one."""
    names = signature.attribute("op_names") or ()
    return sum(arithmetic.UNARY[name] for name in names) * elements(signature.outputs[0])


# What is left: kinds with other numbers of inputs. Quantization scales, rounds and clips.
_OTHER: dict[str, int] = {
    "Betainc": 2 * arithmetic.INCOMPLETE_GAMMA,
    "Bitcast": 0,
    "Cast": 1,
    "ClipByValue": 2,
    "Cross": 3,
    "Dequantize": 2,
    "FakeQuantWithMinMaxArgs": 6,
    "FakeQuantWithMinMaxArgsGradient": 3,
    "FakeQuantWithMinMaxVars": 6,
    "FakeQuantWithMinMaxVarsGradient": 5,
    "FakeQuantWithMinMaxVarsPerChannel": 6,
    "FakeQuantWithMinMaxVarsPerChannelGradient": 5,
    "HostCast": 1,
    "IgammaGradA": 2 * arithmetic.INCOMPLETE_GAMMA,
    "QuantizeAndDequantizeV2": 6,
    "QuantizeAndDequantizeV3": 6,
    "QuantizeAndDequantizeV4": 6,
    "QuantizeV2": 4,
    "Select": 1,
    "SelectV2": 1,
}

FORMULAS: dict[str, Formula] = {
    kind: Formula(per_output(flops), moved)
    for table in (arithmetic.UNARY, arithmetic.BINARY, arithmetic.GRADIENT, _OTHER)
    for kind, flops in table.items()
} | {
    "AddN": Formula(_added, moved),
    "AccumulateNV2": Formula(_added, moved),
    "UnaryOpsComposition": Formula(_composed, moved),
}
