"""Convolutions and their gradients: 2 flops for every multiply-add of the direct method.

A convolution multiplies and adds once per output element, filter position and input channel of
its group. The shapes of output and filter say all of that, whatever padding, strides, dilations
and layout are: a filter is [space…, channels per group, outputs], and a depthwise one
[space…, channels, multiplier]. A gradient does as many multiply-adds as the convolution itself,
and a transposed convolution is the gradient by the input. Positions in the padding count as well.

TensorFlow keeps filters in an order that neither oneDNN nor cuDNN computes with: each run of a
convolution rearranges its filter first, and the gradient by the filter its result at the end. That
is one more reading and writing of the filter (TensorFlow's conv_ops.cc, TransformFilter; oneDNN's
reorders). Depthwise convolutions do not.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from placement_advisor.graph.op_work.formula_parts import (
    Formula,
    Rule,
    bytes_of,
    constant,
    elements,
    moved,
    shape_of,
)
from placement_advisor.graph.op_work.matrix import fused_flops_per_element

if TYPE_CHECKING:
    from placement_advisor.graph.op_work.signature import Signature

# Axes of the filter that an output element does not sum over.
_DENSE = 1
_DEPTHWISE = 2


def _forward(filter_index: int, kept_axes: int) -> Rule:
    def rule(signature: Signature) -> int:
        taps = _taps(shape_of(signature.inputs[filter_index]), kept_axes)
        return 2 * taps * elements(signature.outputs[0])

    return rule


def _fused(filter_index: int, kept_axes: int) -> Rule:
    convolution = _forward(filter_index, kept_axes)

    def rule(signature: Signature) -> int:
        fused = fused_flops_per_element(signature) * elements(signature.outputs[0])
        return convolution(signature) + fused

    return rule


def _biased(signature: Signature) -> int:
    return _convolution(signature) + elements(signature.outputs[0])


def _by_input(kept_axes: int) -> Rule:
    """Count the gradient by the input: (input sizes, filter, gradient)."""

    def rule(signature: Signature) -> int:
        taps = _taps(shape_of(signature.inputs[1]), kept_axes)
        return 2 * taps * elements(signature.inputs[2])

    return rule


def _by_filter(kept_axes: int) -> Rule:
    """Count the gradient by the filter: (input, filter sizes, gradient) to a filter."""

    def rule(signature: Signature) -> int:
        shape = signature.outputs[0].shape
        if shape is None:
            shape = tuple(int(size) for size in constant(signature, 1))
        taps = _taps(shape, kept_axes)
        return 2 * taps * elements(signature.inputs[2])

    return rule


def _by_filter_and_bias(signature: Signature) -> int:
    return _by_dense_filter(signature) + elements(signature.inputs[2])


def _moved_with_filter(index: int | None) -> Rule:
    """Move everything once and the filter, input ``index`` or else the result, twice more."""

    def rule(signature: Signature) -> int:
        filters = signature.outputs[0] if index is None else signature.inputs[index]
        return moved(signature) + 2 * bytes_of(filters)

    return rule


def _taps(filter_shape: tuple[int, ...], kept_axes: int) -> int:
    return prod(filter_shape[: len(filter_shape) - kept_axes])


_convolution = _forward(1, _DENSE)
_depthwise = _forward(1, _DEPTHWISE)
_by_dense_filter = _by_filter(_DENSE)
_QUANTIZED = (
    "QuantizedConv2D",
    "QuantizedConv2DAndRelu",
    "QuantizedConv2DAndReluAndRequantize",
    "QuantizedConv2DAndRequantize",
    "QuantizedConv2DPerChannel",
    "QuantizedConv2DWithBias",
    "QuantizedConv2DWithBiasAndRelu",
    "QuantizedConv2DWithBiasAndReluAndRequantize",
    "QuantizedConv2DWithBiasAndRequantize",
    "FusedQuantizedConv2D",
)

_FILTER_SECOND, _FILTER_THIRD, _FILTER_FOURTH = map(_moved_with_filter, (1, 2, 3))
_FILTER_MADE = _moved_with_filter(None)
_DENSE_FORWARD = Formula(_convolution, _FILTER_SECOND)
_DENSE_BY_INPUT = Formula(_by_input(_DENSE), _FILTER_SECOND)
_DENSE_BY_FILTER = Formula(_by_dense_filter, _FILTER_MADE)

FORMULAS: dict[str, Formula] = {
    **dict.fromkeys(("Conv", "Conv2D", "Conv3D", "PadWithConv2D", *_QUANTIZED), _DENSE_FORWARD),
    "Conv2DWithBias": Formula(_biased, _FILTER_SECOND),
    **dict.fromkeys(
        ("FusedConv2D", "FusedConv3D", "PadWithFusedConv2D"),
        Formula(_fused(1, _DENSE), _FILTER_SECOND),
    ),
    "FusedPadConv2D": Formula(_forward(2, _DENSE), _FILTER_THIRD),
    "FusedResizeAndPadConv2D": Formula(_forward(3, _DENSE), _FILTER_FOURTH),
    **{f"Conv{n}DBackpropInput{v}": _DENSE_BY_INPUT for n in (2, 3) for v in ("", "V2")},
    **{f"Conv{n}DBackpropFilter{v}": _DENSE_BY_FILTER for n in (2, 3) for v in ("", "V2")},
    "Conv2DBackpropFilterWithBias": Formula(_by_filter_and_bias, _FILTER_MADE),
    **dict.fromkeys(
        ("DepthwiseConv2dNative", "FusedQuantizedDepthwiseConv2D"), Formula(_depthwise, moved)
    ),
    "FusedDepthwiseConv2dNative": Formula(_fused(1, _DEPTHWISE), moved),
    "DepthwiseConv2dNativeBackpropInput": Formula(_by_input(_DEPTHWISE), moved),
    "DepthwiseConv2dNativeBackpropFilter": Formula(_by_filter(_DEPTHWISE), moved),
    # Morphological dilation adds and compares where a convolution multiplies and adds; its filter
    # is [height, width, channels].
    "Dilation2D": Formula(_forward(1, _DENSE), moved),
    "Dilation2DBackpropInput": Formula(_by_input(_DENSE), moved),
    "Dilation2DBackpropFilter": Formula(_by_filter(_DENSE), moved),
}
