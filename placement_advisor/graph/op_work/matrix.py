"""Products of matrices: 2 flops for every multiply-add.

An Einsum's kernel brings each operand into the order batch, free, contracted labels, multiplies
batches of matrices, and brings the product into the order asked for: an operand or product that
is not in order yet is read and written once more.

Source: tensorflow/core/kernels/linalg/einsum_op_impl.h describes these steps.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from placement_advisor.graph.op_work.arithmetic import FUSED
from placement_advisor.graph.op_work.formula_parts import (
    Formula,
    Rule,
    UnknownSizeError,
    bytes_of,
    elements,
    item_bytes_of,
    moved,
    shape_of,
)

if TYPE_CHECKING:
    from placement_advisor.graph.op_work.signature import Signature

_ELLIPSIS = "."
_PAIR = 2


def fused_flops_per_element(signature: Signature) -> int:
    """Return the flops per output element of what is fused behind the product.

    Raises:
        UnknownSizeError: it is not known what a fused op computes.
    """
    flops = 0
    for name in signature.attribute("fused_ops") or ():
        if name not in FUSED:
            raise UnknownSizeError
        flops += FUSED[name]
    return flops


def _product(*flags: str) -> Rule:
    """Count a product whose left side is transposed where one of the flags is set."""

    def rule(signature: Signature) -> int:
        is_transposed = any(signature.attribute(flag) for flag in flags)
        inner = shape_of(signature.inputs[0])[-2 if is_transposed else -1]
        return 2 * inner * elements(signature.outputs[0])

    return rule


_matmul = _product("transpose_a")
_batch_matmul = _product("adj_x")


def _fused_matmul(signature: Signature) -> int:
    fused = fused_flops_per_element(signature) * elements(signature.outputs[0])
    return _matmul(signature) + fused


def _fused_batch_matmul(signature: Signature) -> int:
    fused = fused_flops_per_element(signature) * elements(signature.outputs[0])
    return _batch_matmul(signature) + fused


def _sparse_dense(signature: Signature) -> int:
    """Multiply-add once per stored value and column of the dense side."""
    is_adjoint = bool(signature.attribute("adjoint_b"))
    columns = shape_of(signature.inputs[3])[-2 if is_adjoint else -1]
    return 2 * elements(signature.inputs[1]) * columns


def _sparse_dense_bytes(signature: Signature) -> int:
    """Read a row of the dense side and pass over a row of the result per stored value."""
    indices, values, shape, dense = signature.inputs
    row_bytes = _sparse_dense(signature) // 2 * item_bytes_of(dense)
    stored = bytes_of(indices) + bytes_of(values) + bytes_of(shape)
    return stored + 3 * row_bytes + bytes_of(signature.outputs[0])


class _Equation(NamedTuple):
    """``copied``: which operands, then whether the product, take a pass to come into order."""

    operands: tuple[str, ...]
    is_summed: bool
    copied: tuple[bool, ...]


@lru_cache(maxsize=1024)
def _parsed(equation: str) -> _Equation:
    text = equation.replace(" ", "").replace("...", _ELLIPSIS)
    left, arrow, product = text.partition("->")
    operands = tuple(left.split(","))
    labels = "".join(operands)
    if not arrow:  # What appears once stays, in alphabetic order.
        product = "".join(label for label in sorted(labels) if labels.count(label) == 1)
    copied: tuple[bool, ...] = ()
    if len(operands) == _PAIR:
        first, second = operands
        copied = (
            not _is_in_order(first, second, product),
            not _is_in_order(second, first, product),
            product != _natural_product(first, second, product),
        )
    return _Equation(operands, any(label not in product for label in labels), copied)


def _label_sizes(signature: Signature, equation: _Equation) -> dict[str, int]:
    """Return the size of each label; the ellipsis counts as one label of all its dimensions."""
    sizes: dict[str, int] = {}
    for labels, spec in zip(equation.operands, signature.inputs, strict=True):
        shape = shape_of(spec)
        if _ELLIPSIS in labels:
            start = labels.index(_ELLIPSIS)
            hidden = len(shape) - len(labels) + 1
            size = prod(shape[start : start + hidden])
            shape = (*shape[:start], size, *shape[start + hidden :])
        for label, size in zip(labels, shape, strict=True):
            sizes[label] = max(size, sizes.get(label, 1)) if size else 0
    return sizes


def _einsum(signature: Signature) -> int:
    equation = _parsed(signature.attribute("equation"))
    points = prod(_label_sizes(signature, equation).values())
    return points * (len(equation.operands) - 1 + equation.is_summed)


def _einsum_bytes(signature: Signature) -> int:
    equation = _parsed(signature.attribute("equation"))
    tensors = (*signature.inputs, *signature.outputs)
    again = sum(
        bytes_of(spec)
        for spec, is_copied in zip(tensors, equation.copied, strict=False)
        if is_copied
    )
    return moved(signature) + 2 * again


def _is_in_order(labels: str, other: str, product: str) -> bool:
    """Whether an operand is batch, free, contracted or batch, contracted, free already."""
    # 0 batch, 1 free, 2 contracted
    types = [0 if x in other and x in product else 1 if x in product else 2 for x in labels]
    swapped = [{1: 2, 2: 1}.get(kind, kind) for kind in types]
    return types == sorted(types) or swapped == sorted(swapped)


def _natural_product(left: str, right: str, product: str) -> str:
    """Return the labels of the product of matrices in the order in which it comes out."""
    batch = [x for x in left if x in right and x in product]
    free = [x for x in left if x not in right and x in product]
    return "".join([*batch, *free, *(x for x in right if x not in left and x in product)])


_QUANTIZED = (
    "QuantizedMatMul",
    "QuantizedMatMulWithBias",
    "QuantizedMatMulWithBiasAndDequantize",
    "QuantizedMatMulWithBiasAndRelu",
    "QuantizedMatMulWithBiasAndReluAndRequantize",
    "QuantizedMatMulWithBiasAndRequantize",
)

FORMULAS: dict[str, Formula] = {
    "MatMul": Formula(_matmul, moved),
    "SparseMatMul": Formula(_matmul, moved),
    "FusedMatMul": Formula(_fused_matmul, moved),
    **{kind: Formula(_matmul, moved) for kind in _QUANTIZED},
    "BatchMatMul": Formula(_batch_matmul, moved),
    "BatchMatMulV2": Formula(_batch_matmul, moved),
    "BatchMatMulV3": Formula(_batch_matmul, moved),
    "FusedBatchMatMulV2": Formula(_fused_batch_matmul, moved),
    "Einsum": Formula(_einsum, _einsum_bytes),
    "SparseTensorDenseMatMul": Formula(_sparse_dense, _sparse_dense_bytes),
}
