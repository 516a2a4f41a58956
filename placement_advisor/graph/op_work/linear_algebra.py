"""Factorisations and solutions of dense systems, and Fourier transforms: textbook counts.

Matrices are m × n; the leading dimensions are a batch. Iterative methods count as many sweeps as
the textbook does.

Source: Golub, Van Loan, Matrix Computations, 4th ed., chapters 3 to 8 (Cholesky 4.2, LU 3.2, QR
5.2, SVD 8.6, symmetric eigenvalues 8.3, eigenvalues 7.5); Cooley, Tukey for 5·N·log2 N.
"""

from __future__ import annotations

from math import log2, prod
from typing import TYPE_CHECKING

from placement_advisor.graph.op_work.formula_parts import Formula, elements, moved, shape_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from placement_advisor.graph.op_work.formula_parts import Rule
    from placement_advisor.graph.op_work.signature import Signature


def _per_matrix(count: Callable[[int, int], float]) -> Rule:
    """Count for each matrix of the first input, given its rows and columns."""

    def rule(signature: Signature) -> int:
        *batch, rows, columns = shape_of(signature.inputs[0])
        return round(prod(batch) * count(rows, columns))

    return rule


def _lu(_: int, n: int) -> float:
    return 2 / 3 * n**3


def _svd(signature: Signature) -> int:
    *batch, rows, columns = shape_of(signature.inputs[0])
    m, n = max(rows, columns), min(rows, columns)
    if signature.attribute("compute_uv") is False:
        flops = 4 * m * n**2 - 4 / 3 * n**3
    elif signature.attribute("full_matrices"):
        flops = 4 * m**2 * n + 8 * m * n**2 + 9 * n**3
    else:
        flops = 14 * m * n**2 + 8 * n**3
    return round(prod(batch) * flops)


def _qr(signature: Signature) -> int:
    """Count the factorisation and, as much again, forming Q."""
    *batch, rows, columns = shape_of(signature.inputs[0])
    m, n = max(rows, columns), min(rows, columns)
    return round(prod(batch) * 4 * n**2 * (m - n / 3))


def _eigen(with_vectors: float, values_alone: float) -> Rule:
    def rule(signature: Signature) -> int:
        *batch, n, _ = shape_of(signature.inputs[0])
        is_alone = signature.attribute("compute_v") is False
        return round(prod(batch) * (values_alone if is_alone else with_vectors) * n**3)

    return rule


def _solved(signature: Signature) -> int:
    """Factorise (LU), then substitute forward and back for each right side."""
    *batch, n, _ = shape_of(signature.inputs[0])
    return round(prod(batch) * 2 / 3 * n**3) + 2 * n * elements(signature.inputs[1])


def _substituted(signature: Signature) -> int:
    return shape_of(signature.inputs[0])[-1] * elements(signature.inputs[1])


def _least_squares(signature: Signature) -> int:
    """Form and factorise the normal equations (Cholesky), then substitute."""
    *batch, rows, n = shape_of(signature.inputs[0])
    sides = shape_of(signature.inputs[1])[-1]
    flops = rows * n**2 + n**3 / 3 + 2 * sides * (rows * n + n**2)
    return round(prod(batch) * flops)


def _fourier(dimensions: int, flops_per_step: float) -> Rule:
    """Count 5·N·log2 N per complex transform of N points, half of it for real numbers."""

    def rule(signature: Signature) -> int:
        shapes = (shape_of(signature.inputs[0]), shape_of(signature.outputs[0]))
        shape = max(shapes, key=prod)
        points = prod(shape[-dimensions:])
        steps = log2(points) if points > 1 else 0
        return round(prod(shape) * steps * flops_per_step)

    return rule


_FLOPS: dict[str, Rule] = {
    "Cholesky": _per_matrix(lambda _, n: n**3 / 3),
    # Three triangular products and a solution (Murray, 2016, arXiv:1602.07527).
    "CholeskyGrad": _per_matrix(lambda _, n: 2 * n**3),
    "Lu": _per_matrix(_lu),
    "MatrixDeterminant": _per_matrix(_lu),
    "LogMatrixDeterminant": _per_matrix(_lu),
    "MatrixInverse": _per_matrix(lambda _, n: 2 * n**3),
    "MatrixSolve": _solved,
    "MatrixSolveLs": _least_squares,
    "MatrixTriangularSolve": _substituted,
    "Qr": _qr,
    "Svd": _svd,
    "SelfAdjointEigV2": _eigen(9, 4 / 3),
    "Eig": _eigen(25, 10),
    **{
        f"{kind}{size}": _fourier(dimensions, 5.0)
        for kind in ("FFT", "IFFT")
        for size, dimensions in (("", 1), ("2D", 2), ("3D", 3))
    },
    **{
        f"{kind}{size}": _fourier(dimensions, 2.5)
        for kind in ("RFFT", "IRFFT")
        for size, dimensions in (("", 1), ("2D", 2), ("3D", 3))
    },
}

FORMULAS: dict[str, Formula] = {kind: Formula(rule, moved) for kind, rule in _FLOPS.items()}
