"""Formulas for ops of layers: products, convolutions, pooling, normalization, recurrence.

A multiply-add is 2 flops; convolutions count the direct method. Factorizations, solutions of
dense systems and Fourier transforms take textbook counts.
"""

from __future__ import annotations

from functools import lru_cache
from math import log2, prod
from typing import TYPE_CHECKING, Any, NamedTuple

from placement_advisor.graph.op_work import signature as op_signature
from placement_advisor.graph.op_work.elementwise import EXP, LOG, POW, SIGMOID, TANH

if TYPE_CHECKING:
    from collections.abc import Callable


_ELLIPSIS = "."
_PAIR = 2


def _product(*flags: str) -> op_signature.Rule:
    """Count a product whose left side is transposed where one of the flags is set."""

    def rule(signature: op_signature.Signature) -> int:
        is_transposed = any(signature.attribute(flag) for flag in flags)
        inner = op_signature.shape_of(signature.inputs[0])[-2 if is_transposed else -1]
        return 2 * inner * op_signature.elements(signature.outputs[0])

    return rule


_matmul = _product("transpose_a")
_batch_matmul = _product("adj_x")


def _sparse_dense(signature: op_signature.Signature) -> int:
    """Multiply-add once per stored value and column of the dense side."""
    is_adjoint = bool(signature.attribute("adjoint_b"))
    columns = op_signature.shape_of(signature.inputs[3])[-2 if is_adjoint else -1]
    return 2 * op_signature.elements(signature.inputs[1]) * columns


def _sparse_dense_bytes(signature: op_signature.Signature) -> int:
    """Read a row of the dense side and pass over a row of the result per stored value."""
    indices, values, shape, dense = signature.inputs
    row_bytes = _sparse_dense(signature) // 2 * op_signature.item_bytes_of(dense)
    stored = (
        op_signature.bytes_of(indices)
        + op_signature.bytes_of(values)
        + op_signature.bytes_of(shape)
    )
    return stored + 3 * row_bytes + op_signature.bytes_of(signature.outputs[0])


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


def _label_sizes(signature: op_signature.Signature, equation: _Equation) -> dict[str, int]:
    """Return the size of each label; the ellipsis counts as one label of all its dimensions."""
    sizes: dict[str, int] = {}
    for labels, spec in zip(equation.operands, signature.inputs, strict=True):
        shape = op_signature.shape_of(spec)
        if _ELLIPSIS in labels:
            start = labels.index(_ELLIPSIS)
            hidden = len(shape) - len(labels) + 1
            size = prod(shape[start : start + hidden])
            shape = (*shape[:start], size, *shape[start + hidden :])
        for label, size in zip(labels, shape, strict=True):
            sizes[label] = max(size, sizes.get(label, 1)) if size else 0
    return sizes


def _einsum(signature: op_signature.Signature) -> int:
    equation = _parsed(signature.attribute("equation"))
    points = prod(_label_sizes(signature, equation).values())
    return points * (len(equation.operands) - 1 + equation.is_summed)


def _einsum_bytes(signature: op_signature.Signature) -> int:
    equation = _parsed(signature.attribute("equation"))
    tensors = (*signature.inputs, *signature.outputs)
    again = sum(
        op_signature.bytes_of(spec)
        for spec, is_copied in zip(tensors, equation.copied, strict=False)
        if is_copied
    )
    return op_signature.moved(signature) + 2 * again


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

_PRODUCTS: dict[str, op_signature.Formula] = {
    "MatMul": op_signature.Formula(_matmul, op_signature.moved),
    "SparseMatMul": op_signature.Formula(_matmul, op_signature.moved),
    **op_signature.of_kinds(_QUANTIZED_PRODUCTS, op_signature.Formula(_matmul, op_signature.moved)),
    **op_signature.of_kinds(
        "BatchMatMul BatchMatMulV2 BatchMatMulV3",
        op_signature.Formula(_batch_matmul, op_signature.moved),
    ),
    "Einsum": op_signature.Formula(_einsum, _einsum_bytes),
    "SparseTensorDenseMatMul": op_signature.Formula(_sparse_dense, _sparse_dense_bytes),
}


# Axes of the filter that an output element does not sum over.
_DENSE = 1
_DEPTHWISE = 2


def _convolution_forward(filter_index: int, kept_axes: int) -> op_signature.Rule:
    def rule(signature: op_signature.Signature) -> int:
        taps = _taps(op_signature.shape_of(signature.inputs[filter_index]), kept_axes)
        return 2 * taps * op_signature.elements(signature.outputs[0])

    return rule


def _by_input(kept_axes: int) -> op_signature.Rule:
    """Count the gradient by the input: (input sizes, filter, gradient)."""

    def rule(signature: op_signature.Signature) -> int:
        taps = _taps(op_signature.shape_of(signature.inputs[1]), kept_axes)
        return 2 * taps * op_signature.elements(signature.inputs[2])

    return rule


def _by_filter(kept_axes: int) -> op_signature.Rule:
    """Count the gradient by the filter: (input, filter sizes, gradient) to a filter."""

    def rule(signature: op_signature.Signature) -> int:
        shape = signature.outputs[0].shape
        if shape is None:
            shape = tuple(int(size) for size in op_signature.constant(signature, 1))
        taps = _taps(shape, kept_axes)
        return 2 * taps * op_signature.elements(signature.inputs[2])

    return rule


def _moved_with_filter(index: int | None) -> op_signature.Rule:
    """Move everything once and the filter, input ``index`` or else the result, twice more."""

    def rule(signature: op_signature.Signature) -> int:
        filters = signature.outputs[0] if index is None else signature.inputs[index]
        return op_signature.moved(signature) + 2 * op_signature.bytes_of(filters)

    return rule


def _taps(filter_shape: tuple[int, ...], kept_axes: int) -> int:
    return prod(filter_shape[: len(filter_shape) - kept_axes])


_convolution = _convolution_forward(1, _DENSE)
_depthwise = _convolution_forward(1, _DEPTHWISE)
_by_dense_filter = _by_filter(_DENSE)
_DENSE_CONVOLUTIONS = """
Conv Conv2D Conv3D QuantizedConv2D QuantizedConv2DAndRelu QuantizedConv2DAndReluAndRequantize
QuantizedConv2DAndRequantize QuantizedConv2DPerChannel QuantizedConv2DWithBias
QuantizedConv2DWithBiasAndRelu QuantizedConv2DWithBiasAndReluAndRequantize
QuantizedConv2DWithBiasAndRequantize
"""

_FILTER_SECOND, _FILTER_THIRD, _FILTER_FOURTH = map(_moved_with_filter, (1, 2, 3))
_FILTER_MADE = _moved_with_filter(None)
_DENSE_FORWARD = op_signature.Formula(_convolution, _FILTER_SECOND)
_DENSE_BY_INPUT = op_signature.Formula(_by_input(_DENSE), _FILTER_SECOND)
_DENSE_BY_FILTER = op_signature.Formula(_by_dense_filter, _FILTER_MADE)

_CONVOLUTIONS: dict[str, op_signature.Formula] = {
    **op_signature.of_kinds(_DENSE_CONVOLUTIONS, _DENSE_FORWARD),
    "FusedPadConv2D": op_signature.Formula(_convolution_forward(2, _DENSE), _FILTER_THIRD),
    "FusedResizeAndPadConv2D": op_signature.Formula(
        _convolution_forward(3, _DENSE), _FILTER_FOURTH
    ),
    **{f"Conv{n}DBackpropInput{v}": _DENSE_BY_INPUT for n in (2, 3) for v in ("", "V2")},
    **{f"Conv{n}DBackpropFilter{v}": _DENSE_BY_FILTER for n in (2, 3) for v in ("", "V2")},
    "DepthwiseConv2dNative": op_signature.Formula(_depthwise, op_signature.moved),
    "DepthwiseConv2dNativeBackpropInput": op_signature.Formula(
        _by_input(_DEPTHWISE), op_signature.moved
    ),
    "DepthwiseConv2dNativeBackpropFilter": op_signature.Formula(
        _by_filter(_DEPTHWISE), op_signature.moved
    ),
    # Morphological dilation adds and compares where a convolution multiplies and adds; its filter
    # is [height, width, channels].
    "Dilation2D": op_signature.Formula(_convolution_forward(1, _DENSE), op_signature.moved),
    "Dilation2DBackpropInput": op_signature.Formula(_by_input(_DENSE), op_signature.moved),
    "Dilation2DBackpropFilter": op_signature.Formula(_by_filter(_DENSE), op_signature.moved),
}


def _window(signature: op_signature.Signature, input_index: int | None) -> int:
    sizes: Any = signature.attribute("ksize")
    if sizes is None and input_index is not None:
        sizes = op_signature.constant(signature, input_index)
    return prod(int(size) for size in sizes)


def _pooled(window_input: int | None = None) -> op_signature.Rule:
    def rule(signature: op_signature.Signature) -> int:
        return _window(signature, window_input) * op_signature.elements(signature.outputs[0])

    return rule


def _maximum_gradient(signature: op_signature.Signature) -> int:
    pooled = op_signature.elements(signature.inputs[1])
    return (_window(signature, 3) + 1) * pooled


def _average_gradient(signature: op_signature.Signature) -> int:
    return (_window(signature, None) + 1) * op_signature.elements(signature.inputs[1])


_POOLING_FLOPS: dict[str, op_signature.Rule] = {
    **op_signature.of_kinds("AvgPool AvgPool3D MaxPool MaxPool3D MaxPoolWithArgmax", _pooled()),
    "MaxPoolV2": _pooled(1),
    "AvgPoolGrad": _average_gradient,
    "AvgPool3DGrad": _average_gradient,
    **op_signature.of_kinds(
        "MaxPoolGrad MaxPoolGradV2 MaxPool3DGrad MaxPoolGradGrad MaxPoolGradGradV2 "
        "MaxPool3DGradGrad",
        _maximum_gradient,
    ),
    **op_signature.of_kinds(
        "MaxPoolGradWithArgmax MaxPoolGradGradWithArgmax FractionalAvgPoolGrad",
        op_signature.per_input(1, 1),
    ),
    "FractionalAvgPool": op_signature.per_input(1),
    "FractionalMaxPool": op_signature.per_input(1),
    "FractionalMaxPoolGrad": op_signature.per_input(2),
}

_POOLING: dict[str, op_signature.Formula] = {
    kind: op_signature.Formula(rule, op_signature.moved) for kind, rule in _POOLING_FLOPS.items()
}


_STATISTICS = 4
_SCALE = 2
_GRADIENT = 10
_GRADIENT_GIVEN_STATISTICS = 7
# Inputs and outputs of batch normalization and of its gradient, without that reserve space.
_TENSORS = 5


def _is_training(signature: op_signature.Signature) -> bool:
    return signature.attribute("is_training") is not False  # TensorFlow's default is to train.


def _normalization_forward(signature: op_signature.Signature) -> int:
    per_element = _SCALE + (_STATISTICS if _is_training(signature) else 0)
    return per_element * op_signature.elements(signature.inputs[0])


def _moved(signature: op_signature.Signature) -> int:
    """Move all but the third reserve space, which cuDNN alone fills, with a size of its own."""
    inputs, outputs = signature.inputs[:_TENSORS], signature.outputs[:_TENSORS]
    return op_signature.bytes_of_all(inputs) + op_signature.bytes_of_all(outputs)


def _forward_bytes(signature: op_signature.Signature) -> int:
    again = op_signature.bytes_of(signature.inputs[0]) if _is_training(signature) else 0
    return _moved(signature) + again


def _normalization_gradient(signature: op_signature.Signature) -> int:
    per_element = _GRADIENT if _is_training(signature) else _GRADIENT_GIVEN_STATISTICS
    return per_element * op_signature.elements(signature.inputs[1])


def _gradient_bytes(signature: op_signature.Signature) -> int:
    again = op_signature.bytes_of(signature.inputs[0]) + op_signature.bytes_of(signature.inputs[1])
    return _moved(signature) + again


def _layer(signature: op_signature.Signature) -> int:
    return (_STATISTICS + _SCALE) * op_signature.elements(signature.inputs[0])


def _layer_bytes(signature: op_signature.Signature) -> int:
    return op_signature.moved(signature) + op_signature.bytes_of(signature.inputs[0])


def _local_response(signature: op_signature.Signature) -> int:
    """Square, sum over a sliding window (one in, one out), raise to a power, multiply."""
    return (5 + POW) * op_signature.elements(signature.outputs[0])


def _local_response_gradient(signature: op_signature.Signature) -> int:
    radius = signature.attribute("depth_radius")
    window = 2 * int(5 if radius is None else radius) + 1  # TensorFlow's default radius is 5.
    return (4 * window + POW + LOG + EXP) * op_signature.elements(signature.outputs[0])


_BATCH = op_signature.Formula(_normalization_forward, _forward_bytes)
_BATCH_GRADIENT = op_signature.Formula(_normalization_gradient, _gradient_bytes)
_LAYER = op_signature.Formula(_layer, _layer_bytes)

_NORMALIZATION: dict[str, op_signature.Formula] = {
    **op_signature.of_kinds("FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3", _BATCH),
    **op_signature.of_kinds(
        "FusedBatchNormGrad FusedBatchNormGradV2 FusedBatchNormGradV3",
        _BATCH_GRADIENT,
    ),
    "LayerNorm": _LAYER,
    "BatchNormWithGlobalNormalization": op_signature.Formula(
        op_signature.per_output(_SCALE), op_signature.moved
    ),
    "LRN": op_signature.Formula(_local_response, op_signature.moved),
    "LRNGrad": op_signature.Formula(_local_response_gradient, op_signature.moved),
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


def _cudnn(signature: op_signature.Signature) -> int:
    """Count a stack of layers: (input [time, batch, features], state [layers, batch, units])."""
    gates, per_unit = _CELLS[signature.attribute("rnn_mode") or "lstm"]
    *steps, features = op_signature.shape_of(signature.inputs[0])
    stacked, _, units = op_signature.shape_of(signature.inputs[1])
    directions = 2 if signature.attribute("direction") == "bidirectional" else 1
    rows = steps[0] * steps[1]
    flops = 0
    for layer in range(stacked // directions):
        width = features if layer == 0 else directions * units
        flops += directions * rows * units * (2 * gates * (width + units) + per_unit)
    return flops


def _cudnn_bytes(signature: op_signature.Signature) -> int:
    """Read the weights from each step to the next in all steps, everything else once."""
    gates, _ = _CELLS[signature.attribute("rnn_mode") or "lstm"]
    stacked, _, units = op_signature.shape_of(signature.inputs[1])
    again = op_signature.shape_of(signature.inputs[0])[0] - 1
    weights = stacked * gates * units**2 * op_signature.item_bytes_of(signature.inputs[0])
    return op_signature.moved(signature) + again * weights


def _block_lstm(signature: op_signature.Signature) -> int:
    """Count (length, x [time, batch, features], state, state, w [features + units, 4·units])."""
    time, batch, _ = op_signature.shape_of(signature.inputs[1])
    return _lstm_steps(time * batch, op_signature.shape_of(signature.inputs[4]))


def _lstm_cell(signature: op_signature.Signature) -> int:
    """Count (x [batch, features], state, state, w [features + units, 4·units])."""
    return _lstm_steps(
        op_signature.shape_of(signature.inputs[0])[0], op_signature.shape_of(signature.inputs[3])
    )


def _lstm_steps(rows: int, weights: tuple[int, ...]) -> int:
    gates, per_unit = _LSTM
    inner, outer = weights
    return rows * (2 * inner * outer + per_unit * (outer // gates))


def _gru_cell(signature: op_signature.Signature) -> int:
    """Count (x, state, w_ru [features + units, 2·units], w_c [features + units, units])."""
    batch = op_signature.shape_of(signature.inputs[0])[0]
    units = op_signature.shape_of(signature.inputs[3])[1]
    weights = op_signature.elements(signature.inputs[2]) + op_signature.elements(
        signature.inputs[3]
    )
    return batch * (2 * weights + _GRU[1] * units)


def _recurrent_gradient(forward: op_signature.Rule) -> op_signature.Rule:
    def rule(signature: op_signature.Signature) -> int:
        return 2 * forward(signature)

    return rule


def _lstm_cell_gradient(signature: op_signature.Signature) -> int:
    """Count the activations' gradients alone: the products are MatMuls of their own."""
    return _LSTM[1] * op_signature.elements(signature.inputs[1])


_BLOCK = op_signature.Formula(_block_lstm, op_signature.moved)
_BLOCK_GRADIENT = op_signature.Formula(_recurrent_gradient(_block_lstm), op_signature.moved)
_CUDNN = op_signature.Formula(_cudnn, _cudnn_bytes)
_CUDNN_GRADIENT = op_signature.Formula(_recurrent_gradient(_cudnn), _cudnn_bytes)

_RECURRENT: dict[str, op_signature.Formula] = {
    **{f"CudnnRNN{version}": _CUDNN for version in ("", "V2", "V3")},
    **{f"CudnnRNNBackprop{version}": _CUDNN_GRADIENT for version in ("", "V2", "V3")},
    **op_signature.of_kinds("BlockLSTM BlockLSTMV2", _BLOCK),
    **op_signature.of_kinds("BlockLSTMGrad BlockLSTMGradV2", _BLOCK_GRADIENT),
    "LSTMBlockCell": op_signature.Formula(_lstm_cell, op_signature.moved),
    "LSTMBlockCellGrad": op_signature.Formula(_lstm_cell_gradient, op_signature.moved),
    "GRUBlockCell": op_signature.Formula(_gru_cell, op_signature.moved),
    "GRUBlockCellGrad": op_signature.Formula(_recurrent_gradient(_gru_cell), op_signature.moved),
}


def _per_matrix(count: Callable[[int, int], float]) -> op_signature.Rule:
    """Count for each matrix of the first input, given its rows and columns."""

    def rule(signature: op_signature.Signature) -> int:
        *batch, rows, columns = op_signature.shape_of(signature.inputs[0])
        return round(prod(batch) * count(rows, columns))

    return rule


def _lu(_: int, n: int) -> float:
    return 2 / 3 * n**3


def _svd(signature: op_signature.Signature) -> int:
    *batch, rows, columns = op_signature.shape_of(signature.inputs[0])
    m, n = max(rows, columns), min(rows, columns)
    if signature.attribute("compute_uv") is False:
        flops = 4 * m * n**2 - 4 / 3 * n**3
    elif signature.attribute("full_matrices"):
        flops = 4 * m**2 * n + 8 * m * n**2 + 9 * n**3
    else:
        flops = 14 * m * n**2 + 8 * n**3
    return round(prod(batch) * flops)


def _qr(signature: op_signature.Signature) -> int:
    """Count the factorisation and, as much again, forming Q."""
    *batch, rows, columns = op_signature.shape_of(signature.inputs[0])
    m, n = max(rows, columns), min(rows, columns)
    return round(prod(batch) * 4 * n**2 * (m - n / 3))


def _eigen(with_vectors: float, values_alone: float) -> op_signature.Rule:
    def rule(signature: op_signature.Signature) -> int:
        *batch, n, _ = op_signature.shape_of(signature.inputs[0])
        is_alone = signature.attribute("compute_v") is False
        return round(prod(batch) * (values_alone if is_alone else with_vectors) * n**3)

    return rule


def _solved(signature: op_signature.Signature) -> int:
    """Factorise (LU), then substitute forward and back for each right side."""
    *batch, n, _ = op_signature.shape_of(signature.inputs[0])
    return round(prod(batch) * 2 / 3 * n**3) + 2 * n * op_signature.elements(signature.inputs[1])


def _substituted(signature: op_signature.Signature) -> int:
    return op_signature.shape_of(signature.inputs[0])[-1] * op_signature.elements(
        signature.inputs[1]
    )


def _least_squares(signature: op_signature.Signature) -> int:
    """Form and factorise the normal equations (Cholesky), then substitute."""
    *batch, rows, n = op_signature.shape_of(signature.inputs[0])
    sides = op_signature.shape_of(signature.inputs[1])[-1]
    flops = rows * n**2 + n**3 / 3 + 2 * sides * (rows * n + n**2)
    return round(prod(batch) * flops)


def _fourier(dimensions: int, flops_per_step: float) -> op_signature.Rule:
    """Count 5·N·log2 N per complex transform of N points, half of it for real numbers."""

    def rule(signature: op_signature.Signature) -> int:
        shapes = (
            op_signature.shape_of(signature.inputs[0]),
            op_signature.shape_of(signature.outputs[0]),
        )
        shape = max(shapes, key=prod)
        points = prod(shape[-dimensions:])
        steps = log2(points) if points > 1 else 0
        return round(prod(shape) * steps * flops_per_step)

    return rule


_LINEAR_ALGEBRA_FLOPS: dict[str, op_signature.Rule] = {
    "Cholesky": _per_matrix(lambda _, n: n**3 / 3),
    # Three triangular products and a solution (Murray, 2016, arXiv:1602.07527).
    "CholeskyGrad": _per_matrix(lambda _, n: 2 * n**3),
    **op_signature.of_kinds("Lu MatrixDeterminant LogMatrixDeterminant", _per_matrix(_lu)),
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

LINEAR_ALGEBRA_FORMULAS: dict[str, op_signature.Formula] = {
    kind: op_signature.Formula(rule, op_signature.moved)
    for kind, rule in _LINEAR_ALGEBRA_FLOPS.items()
}

FORMULAS = (
    _PRODUCTS | _CONVOLUTIONS | _POOLING | _NORMALIZATION | _RECURRENT | LINEAR_ALGEBRA_FORMULAS
)
