"""Reductions, scans and sorts.

A reduction adds or compares every input element once; a mean divides once per output element. A
scan does one addition per element. The largest k of a row of n take n comparisons and k
insertions into a heap of k; all in order take n·log2(n).
"""

from __future__ import annotations

from math import log2
from typing import TYPE_CHECKING

from placement_advisor.graph.op_work.arithmetic import DIVIDE, EXP, LOG, SQRT
from placement_advisor.graph.op_work.formula_parts import (
    Formula,
    bytes_of,
    elements,
    moved,
    per_input,
    shape_of,
)

if TYPE_CHECKING:
    from placement_advisor.graph.op_work.signature import Signature


def _mean(signature: Signature) -> int:
    return elements(signature.inputs[0]) + DIVIDE * elements(signature.outputs[0])


def _norm(signature: Signature) -> int:
    return 2 * elements(signature.inputs[0]) + SQRT * elements(signature.outputs[0])


def _largest(signature: Signature) -> int:
    values, found = signature.inputs[0], shape_of(signature.outputs[0])
    kept = found[-1]
    insertions = max(1, round(log2(max(1, kept))))
    rows = elements(signature.outputs[0]) // kept if kept else 0
    return elements(values) + rows * kept * insertions


def _nth(signature: Signature) -> int:
    """Select by halving: about three comparisons per element (quickselect, on average)."""
    return 3 * elements(signature.inputs[0])


def _true_places_bytes(signature: Signature) -> int:
    """Count first, then write the places: two passes; how many are true is not known before."""
    return 2 * bytes_of(signature.inputs[0])


_SUM = Formula(per_input(1), moved)

FORMULAS: dict[str, Formula] = {
    **dict.fromkeys(("Sum", "Prod", "Max", "Min", "All", "Any", "BiasAddGrad"), _SUM),
    "Mean": Formula(_mean, moved),
    "EuclideanNorm": Formula(_norm, moved),
    "L2Loss": Formula(per_input(2), moved),
    "ArgMax": _SUM,
    "ArgMin": _SUM,
    "Cumsum": _SUM,
    "Cumprod": _SUM,
    "CumulativeLogsumexp": Formula(per_input(EXP + LOG + 3), moved),
    "TopK": Formula(_largest, moved),
    "TopKV2": Formula(_largest, moved),
    "ApproxTopK": Formula(_largest, moved),
    "NthElement": Formula(_nth, moved),
    "Where": Formula(per_input(1), _true_places_bytes),
    "SparseReduceSum": Formula(per_input(1, 1), moved),
    "SparseReduceMax": Formula(per_input(1, 1), moved),
}
