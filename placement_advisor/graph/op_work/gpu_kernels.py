"""Which kernel a GPU runs for an op, and the dimensions that its time depends on.

Covered: products of matrices, 2-D convolutions and their gradients, the elementwise kinds of which
a record of kernels exists, softmax; in float32 and in halves of it. A kind is covered only where
one kernel does it: an elementwise op whose inputs are broadcast, groups and dilations of
convolutions are not.
Whatever layout the trace has, dimensions are those of the convolution itself.
"""

from collections.abc import Callable
from math import prod
from typing import TypeAlias

from placement_advisor.graph.op import MATRIX_FAMILIES, Arithmetic, Kernel, KernelFamily
from placement_advisor.graph.op_work import signature as op_signature

Dimensions: TypeAlias = Callable[[op_signature.Signature], tuple[int, ...]]
_DEFAULT_LAYOUT = "NHWC"

_ARITHMETIC_OF = {
    "float32": Arithmetic.DEFAULT,
    "float16": Arithmetic.FLOAT16,
    "bfloat16": Arithmetic.BFLOAT16,
}


def kernel_of(signature: op_signature.Signature, *, is_tf32_allowed: bool = True) -> Kernel | None:
    """Return the kernel of an op, None if it is not covered or a dimension is unknown or 0.

    ``is_tf32_allowed`` is what `tf.config.experimental.enable_tensor_float_32_execution` set.
    """
    rule = _RULES.get(signature.kind)
    if rule is None:
        return None
    family, dims_of = rule
    if family is KernelFamily.LINEAR and not signature.attribute("transpose_b"):
        family = KernelFamily.BMM
    try:
        arithmetic = _ARITHMETIC_OF.get(signature.outputs[0].dtype)
        if arithmetic is None:
            return None
        dims = dims_of(signature)
    except op_signature.CONTRADICTIONS:
        return None
    if arithmetic is Arithmetic.DEFAULT and family in MATRIX_FAMILIES and not is_tf32_allowed:
        arithmetic = Arithmetic.FLOAT32
    return Kernel(family, dims, arithmetic) if min(dims) > 0 else None


def _matmul(signature: op_signature.Signature) -> tuple[int, ...]:
    rows, columns = op_signature.shape_of(signature.inputs[0])
    if signature.attribute("transpose_a"):
        rows, columns = columns, rows
    return 1, rows, columns, op_signature.shape_of(signature.outputs[0])[1]


def _batch_matmul(signature: op_signature.Signature) -> tuple[int, ...]:
    summed = op_signature.shape_of(signature.inputs[0])[-2 if signature.attribute("adj_x") else -1]
    *batch, rows, columns = op_signature.shape_of(signature.outputs[0])
    return prod(batch), rows, summed, columns


def _convolution(image: int, weights: int, result: int) -> Dimensions:
    """Return the rule for convolutions, and gradients of some, without groups and dilations.

    The three are places among the op's inputs; -1 is its output.
    """

    def dimensions(signature: op_signature.Signature) -> tuple[int, ...]:
        tensors = (*signature.inputs, signature.outputs[0])
        image_shape, filter_shape, result_shape = (
            op_signature.shape_of(tensors[place]) for place in (image, weights, result)
        )
        layout = signature.attribute("data_format") or _DEFAULT_LAYOUT
        batch, channels, height, width = (layout.index(axis) for axis in "NCHW")
        filter_height, filter_width, inputs, outputs = filter_shape
        dilations = signature.attribute("dilations") or (1,)
        if image_shape[channels] != inputs or max(dilations) > 1:
            raise op_signature.UnknownSizeError
        strides = signature.attribute("strides")
        return (
            *(image_shape[batch], inputs, outputs, filter_height, filter_width),
            *(image_shape[height], image_shape[width], result_shape[height], result_shape[width]),
            max(strides[height], strides[width]),
        )

    return dimensions


def _alike(signature: op_signature.Signature) -> tuple[int, ...]:
    """Return one row of all op_signature.elements, of inputs that are as large as the output."""
    length = op_signature.elements(signature.outputs[0])
    if any(op_signature.elements(spec) != length for spec in signature.inputs):
        raise op_signature.UnknownSizeError
    return 1, length


def _last_axis(signature: op_signature.Signature) -> tuple[int, ...]:
    *rows, length = op_signature.shape_of(signature.outputs[0])
    return prod(rows), length


_RULES: dict[str, tuple[KernelFamily, Dimensions]] = {
    "MatMul": (KernelFamily.LINEAR, _matmul),
    **{f"BatchMatMul{v}": (KernelFamily.BMM, _batch_matmul) for v in ("", "V2", "V3")},
    "Conv2D": (KernelFamily.CONV, _convolution(0, 1, -1)),
    **dict.fromkeys(
        ("Conv2DBackpropInput", "Conv2DBackpropInputV2"),
        (KernelFamily.CONV_BY_INPUT, _convolution(-1, 1, 2)),
    ),
    **dict.fromkeys(
        ("Conv2DBackpropFilter", "Conv2DBackpropFilterV2"),
        (KernelFamily.CONV_BY_FILTER, _convolution(0, -1, 2)),
    ),
    "Add": (KernelFamily.ADD, _alike),
    "AddV2": (KernelFamily.ADD, _alike),
    "Mul": (KernelFamily.MUL, _alike),
    "Relu": (KernelFamily.RELU, _alike),
    "Tanh": (KernelFamily.TANH, _alike),
    "Softmax": (KernelFamily.SOFTMAX, _last_axis),
}
