"""Formulas for products, convolutions, pooling, normalization, recurrence and transforms.

A multiply-add is 2 flops; convolutions count the direct method. Factorizations, solutions of
dense systems and Fourier transforms take textbook counts.
"""

from __future__ import annotations

from functools import lru_cache
from math import log2, prod
from typing import TYPE_CHECKING, Any, NamedTuple

from placement_advisor.graph.op_work.elementwise import EXP, LOG, POW, SIGMOID, TANH
from placement_advisor.graph.op_work.signature import (
    Count,
    Formula,
    Rule,
    Signature,
    bytes_in,
    bytes_of,
    bytes_of_all,
    bytes_out,
    constant,
    elements,
    elements_in,
    elements_out,
    item_bytes_of,
    moved,
    of_kinds,
    shape_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable


_ELLIPSIS = "."
_PAIR = 2


def _product(flag: str) -> Rule:
    """Count a product whose left side is transposed where the flag is set."""

    def inner(signature: Signature) -> int:
        return shape_of(signature.inputs[0])[-2 if signature.attribute(flag) else -1]

    return 2 * Rule(inner) * elements_out()


def _sparse_dense(signature: Signature) -> int:
    """Multiply-add once per stored value and column of the dense side."""
    is_adjoint = bool(signature.attribute("adjoint_b"))
    columns = shape_of(signature.inputs[3])[-2 if is_adjoint else -1]
    return 2 * elements(signature.inputs[1]) * columns


def _sparse_dense_bytes(signature: Signature) -> int:
    """Read a row of the dense side and pass over a row of the result per stored value."""
    *stored, dense = signature.inputs
    row_bytes = _sparse_dense(signature) // 2 * item_bytes_of(dense)
    return sum(map(bytes_of, stored)) + 3 * row_bytes + bytes_of(signature.outputs[0])


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


_QUANTIZED_PRODUCTS = """
QuantizedMatMul QuantizedMatMulWithBias QuantizedMatMulWithBiasAndDequantize
QuantizedMatMulWithBiasAndRelu QuantizedMatMulWithBiasAndReluAndRequantize
QuantizedMatMulWithBiasAndRequantize
"""

_PRODUCTS: dict[str, Formula] = {
    **of_kinds(f"MatMul SparseMatMul {_QUANTIZED_PRODUCTS}", Formula(_product("transpose_a"))),
    **of_kinds("BatchMatMul BatchMatMulV2 BatchMatMulV3", Formula(_product("adj_x"))),
    "Einsum": Formula(_einsum, _einsum_bytes),
    "SparseTensorDenseMatMul": Formula(_sparse_dense, _sparse_dense_bytes),
}


# Axes of the filter that an output element does not sum over.
_DENSE = 1
_DEPTHWISE = 2


def _taps(place: int, kept_axes: int) -> Rule:
    """Count what an output element sums over, of a filter at a place among the inputs."""
    return Rule(lambda signature: _summed_over(shape_of(signature.inputs[place]), kept_axes))


def _taps_made(kept_axes: int) -> Rule:
    """Count the same of a filter whose gradient is made: (input, filter sizes, gradient)."""

    def taps(signature: Signature) -> int:
        shape = signature.outputs[0].shape
        if shape is None:
            shape = tuple(int(size) for size in constant(signature, 1))
        return _summed_over(shape, kept_axes)

    return Rule(taps)


def _summed_over(filter_shape: tuple[int, ...], kept_axes: int) -> int:
    return prod(filter_shape[: len(filter_shape) - kept_axes])


def _forward(filter_place: int, kept_axes: int) -> Rule:
    return 2 * _taps(filter_place, kept_axes) * elements_out()


def _by_input(kept_axes: int) -> Rule:
    """Count the gradient by the input: (input sizes, filter, gradient)."""
    return 2 * _taps(1, kept_axes) * elements_in(2)


def _by_filter(kept_axes: int) -> Rule:
    return 2 * _taps_made(kept_axes) * elements_in(2)


_DENSE_CONVOLUTIONS = """
Conv Conv2D Conv3D QuantizedConv2D QuantizedConv2DAndRelu QuantizedConv2DAndReluAndRequantize
QuantizedConv2DAndRequantize QuantizedConv2DPerChannel QuantizedConv2DWithBias
QuantizedConv2DWithBiasAndRelu QuantizedConv2DWithBiasAndReluAndRequantize
QuantizedConv2DWithBiasAndRequantize
"""

# The filter is moved twice more, to come into order.
_DENSE_BY_INPUT = Formula(_by_input(_DENSE), moved + 2 * bytes_in(1))
_DENSE_BY_FILTER = Formula(_by_filter(_DENSE), moved + 2 * bytes_out())

_CONVOLUTIONS: dict[str, Formula] = {
    **of_kinds(_DENSE_CONVOLUTIONS, Formula(_forward(1, _DENSE), moved + 2 * bytes_in(1))),
    "FusedPadConv2D": Formula(_forward(2, _DENSE), moved + 2 * bytes_in(2)),
    "FusedResizeAndPadConv2D": Formula(_forward(3, _DENSE), moved + 2 * bytes_in(3)),
    **{f"Conv{n}DBackpropInput{v}": _DENSE_BY_INPUT for n in (2, 3) for v in ("", "V2")},
    **{f"Conv{n}DBackpropFilter{v}": _DENSE_BY_FILTER for n in (2, 3) for v in ("", "V2")},
    "DepthwiseConv2dNative": Formula(_forward(1, _DEPTHWISE)),
    "DepthwiseConv2dNativeBackpropInput": Formula(_by_input(_DEPTHWISE)),
    "DepthwiseConv2dNativeBackpropFilter": Formula(_by_filter(_DEPTHWISE)),
    # Morphological dilation adds and compares where a convolution multiplies and adds; its filter
    # is [height, width, channels].
    "Dilation2D": Formula(_forward(1, _DENSE)),
    "Dilation2DBackpropInput": Formula(_by_input(_DENSE)),
    "Dilation2DBackpropFilter": Formula(_by_filter(_DENSE)),
}


def _window(sizes_place: int | None = None) -> Rule:
    """Count the places of a window, whose sizes are an attribute or else an input."""

    def places(signature: Signature) -> int:
        sizes: Any = signature.attribute("ksize")
        if sizes is None and sizes_place is not None:
            sizes = constant(signature, sizes_place)
        return prod(int(size) for size in sizes)

    return Rule(places)


_POOLING: dict[str, Formula] = {
    **of_kinds(
        "AvgPool AvgPool3D MaxPool MaxPool3D MaxPoolWithArgmax",
        Formula(_window() * elements_out()),
    ),
    "MaxPoolV2": Formula(_window(1) * elements_out()),
    **of_kinds("AvgPoolGrad AvgPool3DGrad", Formula(_window() * elements_in(1) + elements_in(1))),
    **of_kinds(
        "MaxPoolGrad MaxPoolGradV2 MaxPool3DGrad MaxPoolGradGrad MaxPoolGradGradV2 "
        "MaxPool3DGradGrad",
        Formula(_window(3) * elements_in(1) + elements_in(1)),
    ),
    **of_kinds(
        "MaxPoolGradWithArgmax MaxPoolGradGradWithArgmax FractionalAvgPoolGrad",
        Formula(elements_in(1)),
    ),
    **of_kinds("FractionalAvgPool FractionalMaxPool", Formula(elements_in(0))),
    "FractionalMaxPoolGrad": Formula(2 * elements_in(0)),
}


_STATISTICS = 4
_SCALE = 2
_GRADIENT = 7
_GRADIENT_OF_STATISTICS = 3
# Inputs and outputs of batch normalization and of its gradient, without the reserve space.
_TENSORS = 5
# TensorFlow's default is to train.
_TRAINS = Rule(lambda signature: signature.attribute("is_training") is not False)


def _without_reserve(signature: Signature) -> int:
    """Move all but the third reserve space, which cuDNN alone fills, with a size of its own."""
    return bytes_of_all((*signature.inputs[:_TENSORS], *signature.outputs[:_TENSORS]))


_MOVED = Rule(_without_reserve)


def _local_response_gradient(signature: Signature) -> int:
    radius = signature.attribute("depth_radius")
    window = 2 * int(5 if radius is None else radius) + 1  # TensorFlow's default radius is 5.
    return (4 * window + POW + LOG + EXP) * elements(signature.outputs[0])


_NORMALIZATION: dict[str, Formula] = {
    **of_kinds(
        "FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3",
        Formula(
            _SCALE * elements_in(0) + _STATISTICS * _TRAINS * elements_in(0),
            _MOVED + _TRAINS * bytes_in(0),
        ),
    ),
    **of_kinds(
        "FusedBatchNormGrad FusedBatchNormGradV2 FusedBatchNormGradV3",
        Formula(
            _GRADIENT * elements_in(1) + _GRADIENT_OF_STATISTICS * _TRAINS * elements_in(1),
            _MOVED + bytes_in(0) + bytes_in(1),
        ),
    ),
    "LayerNorm": Formula((_STATISTICS + _SCALE) * elements_in(0), moved + bytes_in(0)),
    "BatchNormWithGlobalNormalization": Formula(_SCALE * elements_out()),
    # Square, sum over a sliding window (one in, one out), raise to a power, multiply.
    "LRN": Formula((5 + POW) * elements_out()),
    "LRNGrad": Formula(_local_response_gradient),
}


# (gates, flops per unit and step beside the products)
_LSTM = (4, 3 * SIGMOID + 2 * TANH + 8)
_GRU = (3, 2 * SIGMOID + TANH + 8)
_CELLS: dict[str, tuple[int, int]] = {
    "lstm": _LSTM,
    "gru": _GRU,
    "rnn_relu": (1, 3),
    "rnn_tanh": (1, 2 + TANH),
}


def _cudnn(signature: Signature) -> int:
    """Count a stack of layers: (input [time, batch, features], state [layers, batch, units])."""
    gates, per_unit = _CELLS[signature.attribute("rnn_mode") or "lstm"]
    *steps, features = shape_of(signature.inputs[0])
    stacked, _, units = shape_of(signature.inputs[1])
    directions = 2 if signature.attribute("direction") == "bidirectional" else 1
    rows = steps[0] * steps[1]
    flops = 0
    for layer in range(stacked // directions):
        width = features if layer == 0 else directions * units
        flops += directions * rows * units * (2 * gates * (width + units) + per_unit)
    return flops


def _cudnn_bytes(signature: Signature) -> int:
    """Read the weights from each step to the next in all steps, everything else once."""
    gates, _ = _CELLS[signature.attribute("rnn_mode") or "lstm"]
    stacked, _, units = shape_of(signature.inputs[1])
    again = shape_of(signature.inputs[0])[0] - 1
    weights = stacked * gates * units**2 * item_bytes_of(signature.inputs[0])
    return moved(signature) + again * weights


def _block_lstm(signature: Signature) -> int:
    """Count (length, x [time, batch, features], state, state, w [features + units, 4·units])."""
    time, batch, _ = shape_of(signature.inputs[1])
    return _lstm_steps(time * batch, shape_of(signature.inputs[4]))


def _lstm_cell(signature: Signature) -> int:
    """Count (x [batch, features], state, state, w [features + units, 4·units])."""
    return _lstm_steps(shape_of(signature.inputs[0])[0], shape_of(signature.inputs[3]))


def _lstm_steps(rows: int, weights: tuple[int, ...]) -> int:
    gates, per_unit = _LSTM
    inner, outer = weights
    return rows * (2 * inner * outer + per_unit * (outer // gates))


def _gru_cell(signature: Signature) -> int:
    """Count (x, state, w_ru [features + units, 2·units], w_c [features + units, units])."""
    batch = shape_of(signature.inputs[0])[0]
    units = shape_of(signature.inputs[3])[1]
    weights = elements(signature.inputs[2]) + elements(signature.inputs[3])
    return batch * (2 * weights + _GRU[1] * units)


_BLOCK_LSTM, _CUDNN = Rule(_block_lstm), Rule(_cudnn)

_RECURRENT: dict[str, Formula] = {
    **of_kinds("CudnnRNN CudnnRNNV2 CudnnRNNV3", Formula(_CUDNN, _cudnn_bytes)),
    **of_kinds(
        "CudnnRNNBackprop CudnnRNNBackpropV2 CudnnRNNBackpropV3",
        Formula(2 * _CUDNN, _cudnn_bytes),
    ),
    **of_kinds("BlockLSTM BlockLSTMV2", Formula(_BLOCK_LSTM)),
    **of_kinds("BlockLSTMGrad BlockLSTMGradV2", Formula(2 * _BLOCK_LSTM)),
    "LSTMBlockCell": Formula(_lstm_cell),
    # The activations' gradients alone: the products are MatMuls of their own.
    "LSTMBlockCellGrad": Formula(_LSTM[1] * elements_in(1)),
    "GRUBlockCell": Formula(_gru_cell),
    "GRUBlockCellGrad": Formula(2 * Rule(_gru_cell)),
}


def _per_matrix(count: Callable[[int, int], float]) -> Rule:
    """Count for each matrix of the first input, given its longer and shorter side."""

    def rule(signature: Signature) -> int:
        *batch, rows, columns = shape_of(signature.inputs[0])
        return round(prod(batch) * count(max(rows, columns), min(rows, columns)))

    return Rule(rule)


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


def _eigen(with_vectors: float, values_alone: float) -> Count:
    def rule(signature: Signature) -> int:
        *batch, n, _ = shape_of(signature.inputs[0])
        is_alone = signature.attribute("compute_v") is False
        return round(prod(batch) * (values_alone if is_alone else with_vectors) * n**3)

    return rule


def _solved(signature: Signature) -> int:
    """Factorise (LU), then substitute forward and back for each right side."""
    *batch, n, _ = shape_of(signature.inputs[0])
    return round(prod(batch) * 2 / 3 * n**3) + 2 * n * elements(signature.inputs[1])


def _least_squares(signature: Signature) -> int:
    """Form and factorise the normal equations (Cholesky), then substitute."""
    *batch, rows, n = shape_of(signature.inputs[0])
    sides = shape_of(signature.inputs[1])[-1]
    flops = rows * n**2 + n**3 / 3 + 2 * sides * (rows * n + n**2)
    return round(prod(batch) * flops)


def _fourier(dimensions: int, flops_per_step: float) -> Count:
    """Count 5·N·log2 N per complex transform of N points, half of it for real numbers."""

    def rule(signature: Signature) -> int:
        tensors = signature.inputs[0], signature.outputs[0]
        shape = max(map(shape_of, tensors), key=prod)
        points = prod(shape[-dimensions:])
        steps = log2(points) if points > 1 else 0
        return round(prod(shape) * steps * flops_per_step)

    return rule


_LINEAR_ALGEBRA_FLOPS: dict[str, Count] = {
    "Cholesky": _per_matrix(lambda _, n: n**3 / 3),
    # Three triangular products and a solution (Murray, 2016, arXiv:1602.07527).
    "CholeskyGrad": _per_matrix(lambda _, n: 2 * n**3),
    **of_kinds("Lu MatrixDeterminant LogMatrixDeterminant", _per_matrix(lambda _, n: 2 / 3 * n**3)),
    "MatrixInverse": _per_matrix(lambda _, n: 2 * n**3),
    "MatrixSolve": _solved,
    "MatrixSolveLs": _least_squares,
    "MatrixTriangularSolve": (
        Rule(lambda signature: shape_of(signature.inputs[0])[-1]) * elements_in(1)
    ),
    # The factorisation and, as much again, forming Q.
    "Qr": _per_matrix(lambda m, n: 4 * n**2 * (m - n / 3)),
    "Svd": _svd,
    "SelfAdjointEigV2": _eigen(9, 4 / 3),
    "Eig": _eigen(25, 10),
    **{
        f"{kind}{size}": _fourier(dimensions, flops_per_step)
        for kind, flops_per_step in (("FFT", 5.0), ("IFFT", 5.0), ("RFFT", 2.5), ("IRFFT", 2.5))
        for size, dimensions in (("", 1), ("2D", 2), ("3D", 3))
    },
}

LINEAR_ALGEBRA_FORMULAS: dict[str, Formula] = {
    kind: Formula(flops) for kind, flops in _LINEAR_ALGEBRA_FLOPS.items()
}

FORMULAS = (
    _PRODUCTS | _CONVOLUTIONS | _POOLING | _NORMALIZATION | _RECURRENT | LINEAR_ALGEBRA_FORMULAS
)
