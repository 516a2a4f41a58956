"""Softmax and the losses built on it; activations of single elements stand in `arithmetic.py`.

Softmax finds the row maximum, exponentiates the difference, sums, and scales. The losses go over
the logits once more for the loss itself and put out the gradient with it. A row is small enough
to stay in the cache between these passes, so that it is read once and written once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.graph.op_work.arithmetic import EXP, LOG
from placement_advisor.graph.op_work.formula_parts import (
    Formula,
    elements,
    moved,
    per_input,
    shape_of,
)

if TYPE_CHECKING:
    from placement_advisor.graph.op_work.signature import Signature

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


def _softmax_of_sparse(signature: Signature) -> int:
    return _SOFTMAX * elements(signature.inputs[1])


FORMULAS: dict[str, Formula] = {
    "Softmax": Formula(per_input(_SOFTMAX), moved),
    "LogSoftmax": Formula(per_input(_LOG_SOFTMAX), moved),
    "SparseSoftmax": Formula(_softmax_of_sparse, moved),
    "SoftmaxCrossEntropyWithLogits": Formula(per_input(_CROSS_ENTROPY), moved),
    "SparseSoftmaxCrossEntropyWithLogits": Formula(per_input(_SOFTMAX), moved),
    "CTCLoss": Formula(_ctc, moved),
    "CTCLossV2": Formula(_ctc, moved),
    "CTCGreedyDecoder": Formula(per_input(1), moved),
    "InTopK": Formula(per_input(1), moved),
    "InTopKV2": Formula(per_input(1), moved),
}
