"""Pooling over windows: one comparison or addition per output element and window position.

The gradient of a maximum finds the maximum again, then adds each gradient at its place; the
gradient of an average adds each gradient at every place of its window. Windows come from the
attribute or, in V2 kinds, from the input of that name. Fractional pooling covers its input once.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from placement_advisor.graph.op_work.formula_parts import (
    Formula,
    Rule,
    constant,
    elements,
    moved,
    per_input,
)

if TYPE_CHECKING:
    from placement_advisor.graph.op_work.signature import Signature


def _window(signature: Signature, input_index: int | None) -> int:
    sizes: Any = signature.attribute("ksize")
    if sizes is None and input_index is not None:
        sizes = constant(signature, input_index)
    return prod(int(size) for size in sizes)


def _pooled(window_input: int | None = None) -> Rule:
    def rule(signature: Signature) -> int:
        return _window(signature, window_input) * elements(signature.outputs[0])

    return rule


def _maximum_gradient(signature: Signature) -> int:
    pooled = elements(signature.inputs[1])
    return (_window(signature, 3) + 1) * pooled


def _average_gradient(signature: Signature) -> int:
    return (_window(signature, None) + 1) * elements(signature.inputs[1])


_FLOPS: dict[str, Rule] = {
    "AvgPool": _pooled(),
    "AvgPool3D": _pooled(),
    "MaxPool": _pooled(),
    "MaxPool3D": _pooled(),
    "MaxPoolV2": _pooled(1),
    "MaxPoolWithArgmax": _pooled(),
    "AvgPoolGrad": _average_gradient,
    "AvgPool3DGrad": _average_gradient,
    "MaxPoolGrad": _maximum_gradient,
    "MaxPoolGradV2": _maximum_gradient,
    "MaxPool3DGrad": _maximum_gradient,
    "MaxPoolGradGrad": _maximum_gradient,
    "MaxPoolGradGradV2": _maximum_gradient,
    "MaxPool3DGradGrad": _maximum_gradient,
    "MaxPoolGradWithArgmax": per_input(1, 1),
    "MaxPoolGradGradWithArgmax": per_input(1, 1),
    "FractionalAvgPool": per_input(1),
    "FractionalMaxPool": per_input(1),
    "FractionalAvgPoolGrad": per_input(1, 1),
    "FractionalMaxPoolGrad": per_input(2),
}

FORMULAS: dict[str, Formula] = {kind: Formula(rule, moved) for kind, rule in _FLOPS.items()}
