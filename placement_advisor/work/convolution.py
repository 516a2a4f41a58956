"""Convolutions and their gradients: 2 flops for every multiply-add of the direct method.

A convolution multiplies and adds once per output element, filter position and input channel of
its group. The shapes of output and filter say all of that, whatever padding, strides, dilations
and layout are: a filter is [space…, channels per group, outputs], and a depthwise one
[space…, channels, multiplier]. A gradient does as many multiply-adds as the convolution itself,
and a transposed convolution is the gradient by the input. Positions in the padding count as well.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from placement_advisor.work.matrix import fused_flops_per_element
from placement_advisor.work.rules import (
    Formula,
    Rule,
    constant,
    elements,
    moved,
    shape_of,
)

if TYPE_CHECKING:
    from placement_advisor.work.signature import Signature

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

_FLOPS: dict[str, Rule] = {
    "Conv": _convolution,
    "Conv2D": _convolution,
    "Conv3D": _convolution,
    "Conv2DWithBias": _biased,
    "FusedConv2D": _fused(1, _DENSE),
    "FusedConv3D": _fused(1, _DENSE),
    "FusedPadConv2D": _forward(2, _DENSE),
    "FusedResizeAndPadConv2D": _forward(3, _DENSE),
    "PadWithConv2D": _convolution,
    "PadWithFusedConv2D": _fused(1, _DENSE),
    **dict.fromkeys(_QUANTIZED, _convolution),
    "Conv2DBackpropInput": _by_input(_DENSE),
    "Conv2DBackpropInputV2": _by_input(_DENSE),
    "Conv3DBackpropInput": _by_input(_DENSE),
    "Conv3DBackpropInputV2": _by_input(_DENSE),
    "Conv2DBackpropFilter": _by_dense_filter,
    "Conv2DBackpropFilterV2": _by_dense_filter,
    "Conv3DBackpropFilter": _by_dense_filter,
    "Conv3DBackpropFilterV2": _by_dense_filter,
    "Conv2DBackpropFilterWithBias": _by_filter_and_bias,
    "DepthwiseConv2dNative": _depthwise,
    "FusedDepthwiseConv2dNative": _fused(1, _DEPTHWISE),
    "FusedQuantizedDepthwiseConv2D": _depthwise,
    "DepthwiseConv2dNativeBackpropInput": _by_input(_DEPTHWISE),
    "DepthwiseConv2dNativeBackpropFilter": _by_filter(_DEPTHWISE),
    # Morphological dilation adds and compares where a convolution multiplies and adds; its filter
    # is [height, width, channels].
    "Dilation2D": _forward(1, _DENSE),
    "Dilation2DBackpropInput": _by_input(_DENSE),
    "Dilation2DBackpropFilter": _by_filter(_DENSE),
}

FORMULAS: dict[str, Formula] = {kind: Formula(rule, moved) for kind, rule in _FLOPS.items()}
