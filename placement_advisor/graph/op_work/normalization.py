"""Normalisation: statistics of a tensor, then every element scaled and shifted by them.

Statistics must be complete before the first element can be scaled. Training therefore reads its
input twice, and the gradient reads the input and the gradient that flows in twice; inference,
which is given the statistics, reads its input once.

Flops per element: mean 1; variance 3 (subtract, square, add); scale and shift 2. The gradient
sums the incoming gradient (1) and its product with the centred input (3), then combines the
three terms (6).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.graph.op_work.arithmetic import EXP, LOG, POW
from placement_advisor.graph.op_work.formula_parts import (
    Formula,
    bytes_of,
    bytes_of_all,
    elements,
    moved,
    per_output,
)

if TYPE_CHECKING:
    from placement_advisor.graph.op_work.signature import Signature

_STATISTICS = 4
_SCALE = 2
_GRADIENT = 10
_GRADIENT_GIVEN_STATISTICS = 7
# Inputs and outputs of batch normalization and of its gradient, without that reserve space.
_TENSORS = 5


def _is_training(signature: Signature) -> bool:
    return signature.attribute("is_training") is not False  # TensorFlow's default is to train.


def _forward(signature: Signature) -> int:
    per_element = _SCALE + (_STATISTICS if _is_training(signature) else 0)
    return per_element * elements(signature.inputs[0])


def _moved(signature: Signature) -> int:
    """Move all but the third reserve space, which cuDNN alone fills, with a size of its own."""
    inputs, outputs = signature.inputs[:_TENSORS], signature.outputs[:_TENSORS]
    return bytes_of_all(inputs) + bytes_of_all(outputs)


def _forward_bytes(signature: Signature) -> int:
    again = bytes_of(signature.inputs[0]) if _is_training(signature) else 0
    return _moved(signature) + again


def _forward_with_activation(signature: Signature) -> int:
    """Add the side input, if any, and the activation, a Relu if it is not the identity."""
    extra = int(signature.attribute("num_side_inputs") or 0)
    extra += signature.attribute("activation_mode") not in (None, "Identity")
    return _forward(signature) + extra * elements(signature.inputs[0])


def _gradient(signature: Signature) -> int:
    per_element = _GRADIENT if _is_training(signature) else _GRADIENT_GIVEN_STATISTICS
    return per_element * elements(signature.inputs[1])


def _gradient_bytes(signature: Signature) -> int:
    again = bytes_of(signature.inputs[0]) + bytes_of(signature.inputs[1])
    return _moved(signature) + again


def _layer(signature: Signature) -> int:
    return (_STATISTICS + _SCALE) * elements(signature.inputs[0])


def _layer_bytes(signature: Signature) -> int:
    return moved(signature) + bytes_of(signature.inputs[0])


def _local_response(signature: Signature) -> int:
    """Square, sum over a sliding window (one in, one out), raise to a power, multiply."""
    return (5 + POW) * elements(signature.outputs[0])


def _local_response_gradient(signature: Signature) -> int:
    radius = signature.attribute("depth_radius")
    window = 2 * int(5 if radius is None else radius) + 1  # TensorFlow's default radius is 5.
    return (4 * window + POW + LOG + EXP) * elements(signature.outputs[0])


_BATCH = Formula(_forward, _forward_bytes)
_BATCH_EX = Formula(_forward_with_activation, _forward_bytes)
_BATCH_GRADIENT = Formula(_gradient, _gradient_bytes)
_LAYER = Formula(_layer, _layer_bytes)

FORMULAS: dict[str, Formula] = {
    "FusedBatchNorm": _BATCH,
    "FusedBatchNormV2": _BATCH,
    "FusedBatchNormV3": _BATCH,
    "FusedBatchNormEx": _BATCH_EX,
    "FusedBatchNormGrad": _BATCH_GRADIENT,
    "FusedBatchNormGradV2": _BATCH_GRADIENT,
    "FusedBatchNormGradV3": _BATCH_GRADIENT,
    "FusedBatchNormGradEx": _BATCH_GRADIENT,
    "LayerNorm": _LAYER,
    "FusedInstanceNorm": _LAYER,
    "BatchNormWithGlobalNormalization": Formula(per_output(_SCALE), moved),
    "LRN": Formula(_local_response, moved),
    "LRNGrad": Formula(_local_response_gradient, moved),
}
