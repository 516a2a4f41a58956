"""Kinds that move elements and compute nothing.

What takes a part of its input reads only that part; what repeats its input writes more than it
reads; padding and gradients of slices write zeros beside what they copy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.graph.op_work.formula_parts import (
    Formula,
    bytes_of,
    copied_out,
    moved,
    nothing,
    written,
)

if TYPE_CHECKING:
    from placement_advisor.graph.op_work.signature import Signature


def _slice_gradient_bytes(signature: Signature) -> int:
    """Fill the output with zeros, then copy the gradient into its part: (…, gradient)."""
    return bytes_of(signature.outputs[0]) + 2 * bytes_of(signature.inputs[-1])


def _slice_update_bytes(signature: Signature) -> int:
    """Copy the tensor, then the value into its part: (tensor, begin, end, strides, value)."""
    value = 2 * bytes_of(signature.inputs[4])
    return bytes_of(signature.inputs[0]) + bytes_of(signature.outputs[0]) + value


def _slice_assign_bytes(signature: Signature) -> int:
    return 2 * bytes_of(signature.inputs[4])


_MOVE = Formula(nothing, moved)
_TAKE = Formula(nothing, copied_out)
_FILL = Formula(nothing, written)

FORMULAS: dict[str, Formula] = {
    **dict.fromkeys(
        (
            "BatchToSpace",
            "BatchToSpaceND",
            "BroadcastTo",
            "Concat",
            "ConcatV2",
            "ConjugateTranspose",
            "Copy",
            "CopyHost",
            "CopyOp",
            "CudnnRNNCanonicalToParams",
            "CudnnRNNCanonicalToParamsV2",
            "CudnnRNNParamsToCanonical",
            "CudnnRNNParamsToCanonicalV2",
            "DataFormatVecPermute",
            "DataFormatDimMap",
            "DeepCopy",
            "DepthToSpace",
            "Diag",
            "ExtractImagePatches",
            "ExtractVolumePatches",
            "MatrixBandPart",
            "MatrixDiag",
            "MatrixDiagV2",
            "MatrixDiagV3",
            "MatrixSetDiag",
            "MatrixSetDiagV2",
            "MatrixSetDiagV3",
            "MirrorPad",
            "MirrorPadGrad",
            "OneHot",
            "Pack",
            "Pad",
            "PadV2",
            "ParallelConcat",
            "Reverse",
            "ReverseSequence",
            "ReverseV2",
            "Roll",
            "Snapshot",
            "SpaceToBatch",
            "SpaceToBatchND",
            "SpaceToDepth",
            "Split",
            "SplitV",
            "Tile",
            "TileGrad",
            "Transpose",
            "UnravelIndex",
        ),
        _MOVE,
    ),
    **dict.fromkeys(("Slice", "StridedSlice", "Unpack"), _TAKE),
    **dict.fromkeys(("Fill", "ZerosLike", "OnesLike", "Range", "LinSpace", "Empty"), _FILL),
    "DiagPart": _TAKE,
    "MatrixDiagPart": _TAKE,
    "MatrixDiagPartV2": _TAKE,
    "MatrixDiagPartV3": _TAKE,
    "StridedSliceGrad": Formula(nothing, _slice_gradient_bytes),
    "TensorStridedSliceUpdate": Formula(nothing, _slice_update_bytes),
    "ResourceStridedSliceAssign": Formula(nothing, _slice_assign_bytes),
    "StridedSliceAssign": Formula(nothing, _slice_assign_bytes),
    "RaggedTensorToTensor": _MOVE,
    "RaggedTensorToSparse": _MOVE,
    "RaggedRange": _FILL,
    "RaggedGather": _TAKE,
    "RaggedFillEmptyRows": _MOVE,
    "SparseSplit": _MOVE,
    "SparseReshape": _MOVE,
    "SparseConcat": _MOVE,
    "SparseReorder": _MOVE,
    "SparseSlice": _MOVE,
    "SparseFillEmptyRows": _MOVE,
}
