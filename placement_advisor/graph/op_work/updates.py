"""Updates of variables: assignments and the optimizer kinds.

A dense update reads and writes the variable and each of its slots and reads the gradient; all
have the gradient's shape. A sparse one does so for the rows that its gradient holds. An
assignment writes the variable and reads the value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from placement_advisor.graph.op_work.arithmetic import DIVIDE, POW, RSQRT, SQRT
from placement_advisor.graph.op_work.formula_parts import (
    Formula,
    bytes_of,
    bytes_of_all,
    elements,
    nothing,
)

if TYPE_CHECKING:
    from placement_advisor.graph.op_work.signature import Signature


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
    def arithmetic(signature: Signature) -> int:
        return flops * elements(signature.inputs[gradient])

    def traffic(signature: Signature) -> int:
        return (2 * states + 1) * bytes_of(signature.inputs[gradient])

    return Formula(arithmetic, traffic)


def _sparse(states: int, gradient: int, flops: int) -> Formula:
    dense = _dense(states, gradient, flops)

    def traffic(signature: Signature) -> int:
        return dense.bytes_accessed(signature) + bytes_of(signature.inputs[gradient + 1])

    return Formula(dense.flops, traffic)


def _assigned(signature: Signature) -> int:
    return 2 * bytes_of(signature.inputs[1])


def _assigned_parts(signature: Signature) -> int:
    return 2 * bytes_of_all(signature.inputs[1:])


_ACCUMULATE = _dense(1, 1, 1)

FORMULAS: dict[str, Formula] = {
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
    "AssignVariableOp": Formula(nothing, _assigned),
    "Assign": Formula(nothing, _assigned),
    "AssignVariableXlaConcatND": Formula(nothing, _assigned_parts),
    "AssignAddVariableOp": _ACCUMULATE,
    "AssignSubVariableOp": _ACCUMULATE,
    "AssignAdd": _ACCUMULATE,
    "AssignSub": _ACCUMULATE,
    # x[i] = v, x[i] += v, x[i] -= v on rows: (x, i, v), in place.
    "InplaceUpdate": Formula(nothing, lambda s: 2 * bytes_of(s.inputs[2])),
    "InplaceAdd": _dense(1, 2, 1),
    "InplaceSub": _dense(1, 2, 1),
}
