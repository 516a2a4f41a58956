"""Formulas for ops that move data: copies, gathers, scatters, lists, texts, tables, images."""

from __future__ import annotations

from math import log2, prod
from typing import TYPE_CHECKING

from placement_advisor.graph.op_work.elementwise import DIVIDE
from placement_advisor.graph.op_work.signature import (
    FREE,
    Formula,
    Rule,
    bytes_of,
    bytes_of_all,
    constant,
    copied_out,
    elements,
    item_bytes_of,
    moved,
    nothing,
    of_kinds,
    per_input,
    per_output,
    shape_of,
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

_MOVES: dict[str, Formula] = {
    **of_kinds(
        "BatchToSpace BatchToSpaceND BroadcastTo Concat ConcatV2 ConjugateTranspose Copy CopyHost "
        "CopyOp CudnnRNNCanonicalToParams CudnnRNNCanonicalToParamsV2 CudnnRNNParamsToCanonical "
        "CudnnRNNParamsToCanonicalV2 DataFormatVecPermute DataFormatDimMap DeepCopy DepthToSpace "
        "Diag ExtractImagePatches ExtractVolumePatches MatrixBandPart MatrixDiag MatrixDiagV2 "
        "MatrixDiagV3 MatrixSetDiag MatrixSetDiagV2 MatrixSetDiagV3 MirrorPad MirrorPadGrad "
        "OneHot Pack Pad PadV2 ParallelConcat Reverse ReverseSequence ReverseV2 Roll Snapshot "
        "SpaceToBatch SpaceToBatchND SpaceToDepth Split SplitV Tile TileGrad Transpose "
        "UnravelIndex RaggedTensorToTensor RaggedTensorToSparse RaggedFillEmptyRows SparseSplit "
        "SparseReshape SparseConcat SparseReorder SparseSlice SparseFillEmptyRows",
        _MOVE,
    ),
    **of_kinds(
        "Slice StridedSlice Unpack DiagPart MatrixDiagPart MatrixDiagPartV2 MatrixDiagPartV3 "
        "RaggedGather",
        _TAKE,
    ),
    **of_kinds("Fill ZerosLike OnesLike Range LinSpace Empty RaggedRange", _FILL),
    "StridedSliceGrad": Formula(nothing, _slice_gradient_bytes),
    "TensorStridedSliceUpdate": Formula(nothing, _slice_update_bytes),
    "ResourceStridedSliceAssign": Formula(nothing, _slice_assign_bytes),
    "StridedSliceAssign": Formula(nothing, _slice_assign_bytes),
}


def _copied_in(index: int) -> Rule:
    """Read an input and write as much."""

    def rule(signature: Signature) -> int:
        return 2 * bytes_of(signature.inputs[index])

    return rule


def _copied_first_out(signature: Signature) -> int:
    return 2 * bytes_of(signature.outputs[0])


# Kinds that hand the buffer of their one tensor on, as it is.
ALIAS_KINDS = frozenset(
    {
        "DebugGradientIdentity",
        "DebugIdentity",
        "DebugIdentityV2",
        "EnsureShape",
        "ExpandDims",
        "GuaranteeConst",
        "Identity",
        "PreventGradient",
        "RefIdentity",
        "Reshape",
        "Squeeze",
        "StopGradient",
    }
)
# Kinds whose output is the variable's own buffer; TensorFlow copies it only when it is written.
VARIABLE_READ_KINDS = frozenset({"ReadVariableOp"})
_SEVERAL_ALIASES = """
ArrayToList CopyToMesh IdentityN ListToArray OptionalFromValue OptionalGetValue
PlaceholderWithDefault ReadVariablesOp
"""
_SHAPES = """
BroadcastArgs BroadcastGradientArgs ConcatOffset DeviceIndex IsVariableInitialized LookupTableSize
LookupTableSizeV2 OptionalHasValue Rank ResourceCountUpTo RngReadAndSkip RngSkip Shape ShapeN Size
StatelessRandomGetAlg StatelessRandomGetKeyCounter StatelessRandomGetKeyCounterAlg TensorArraySize
TensorArraySizeV2 TensorArraySizeV3 TensorListElementShape TensorListLength TensorMapSize
VarIsInitializedOp VariableShape
"""
_SOURCES = """
AnonymousHashTable AnonymousMutableDenseHashTable AnonymousMutableHashTable
AnonymousMutableHashTableOfTensors AnonymousSeedGenerator Arg Const DeviceArg DeviceRetval
EagerConst EmptyTensorList EmptyTensorMap FakeParam HashTable HashTableV2 HostConst ImmutableConst
MutableDenseHashTable MutableDenseHashTableV2 MutableHashTable MutableHashTableOfTensors
MutableHashTableOfTensorsV2 MutableHashTableV2 MutexV2 OptionalNone Placeholder PlaceholderV2 Retval
Stack StackV2 TemporaryVariable TensorArray TensorArrayV2 TensorArrayV3 TensorListReserve
VarHandleOp VarHandlesOp Variable VariableV2
"""
# A copy between devices is a transfer, which the links price.
_ORDER = """
Abort Assert ConsumeMutexLock ControlTrigger DestroyResourceOp DestroyTemporaryVariable
DisableCopyOnRead Enter Exit HostRecv HostSend LoopCond Merge MutexLock NextIteration NoOp Print
PrintV2 Recv RefEnter RefExit RefMerge RefNextIteration RefSwitch Send StackClose StackCloseV2
Switch SwitchN TensorArrayClose TensorArrayCloseV2 TensorArrayCloseV3 Timestamp ToBool
"""
_ITEMS = """
StackPop StackPopV2 StackPush StackPushV2 TensorArrayGrad TensorArrayGradV2 TensorArrayGradV3
TensorArrayGradWithShape TensorArrayRead TensorArrayReadV2 TensorArrayReadV3 TensorArrayWrite
TensorArrayWriteV2 TensorArrayWriteV3 TensorListConcatLists TensorListGetItem TensorListPopBack
TensorListPushBack TensorListPushBackBatch TensorListResize TensorListSetItem TensorMapErase
TensorMapHasKey TensorMapInsert TensorMapLookup
"""
# TensorArray kinds come in three versions with the same inputs.
_VERSIONS = ("", "V2", "V3")

_BOOKKEEPING: dict[str, Formula] = {
    **dict.fromkeys(ALIAS_KINDS | VARIABLE_READ_KINDS, FREE),
    **{
        kind: FREE
        for kinds in (_SEVERAL_ALIASES, _SHAPES, _SOURCES, _ORDER, _ITEMS)
        for kind in kinds.split()
    },
    **of_kinds("TensorListStack TensorListGather TensorArrayPack", Formula(nothing, copied_out)),
    **dict.fromkeys(
        ("TensorListConcat", "TensorListConcatV2"), Formula(nothing, _copied_first_out)
    ),
    **of_kinds(
        "TensorListFromTensor TensorListScatter TensorListScatterV2 TensorListSplit",
        Formula(nothing, _copied_in(0)),
    ),
    "TensorListScatterIntoExistingList": Formula(nothing, _copied_in(1)),
    **{f"TensorArrayGather{v}": Formula(nothing, copied_out) for v in _VERSIONS},
    **{f"TensorArrayConcat{v}": Formula(nothing, _copied_first_out) for v in _VERSIONS},
    **{f"TensorArrayScatter{v}": Formula(nothing, _copied_in(2)) for v in _VERSIONS},
    **{f"TensorArraySplit{v}": Formula(nothing, _copied_in(1)) for v in _VERSIONS},
    "TensorArrayUnpack": Formula(nothing, _copied_in(1)),
}


CACHE_LINE_BYTES = 64
# Hash 10, slot 3, comparison and step to the entry 7, on short keys.
PROBE_FLOPS = 20


def probed_bytes(keys: int) -> int:
    """Return the bytes that looking keys up in a hash table moves."""
    return 2 * CACHE_LINE_BYTES * keys


def _gathered(signature: Signature) -> int:
    return copied_out(signature) + bytes_of(signature.inputs[1])


def _summed_anywhere(data: int, places: int) -> Rule:
    """Fill the output, then add each row of the data at its place."""

    def rule(signature: Signature) -> int:
        rows, indices = signature.inputs[data], signature.inputs[places]
        return 3 * bytes_of(rows) + bytes_of(indices) + bytes_of(signature.outputs[0])

    return rule


def _scattered_copy(passes: int) -> Rule:
    """Copy the tensor, then take rows to their places: (tensor, indices, updates)."""

    def rule(signature: Signature) -> int:
        tensor, indices, updates = signature.inputs[:3]
        rows = passes * bytes_of(updates) + bytes_of(indices)
        return bytes_of(tensor) + bytes_of(signature.outputs[0]) + rows

    return rule


def _scattered_in_place(passes: int) -> Rule:
    """Take rows to their places in a variable: (variable, indices, updates)."""

    def rule(signature: Signature) -> int:
        _, indices, updates = signature.inputs[:3]
        places = elements(indices) * item_bytes_of(indices)
        return passes * _addressed(signature) * item_bytes_of(updates) + places

    return rule


def _addressed(signature: Signature) -> int:
    """Return how many elements of the variable a scatter addresses; one update may serve all."""
    variable, indices, updates = signature.inputs[:3]
    if updates.shape == () and variable.shape is not None:
        return elements(indices) * prod(variable.shape[1:])
    return elements(updates)


def _picked_rows(signature: Signature) -> int:
    """Return the elements of the rows that the indices pick: (data, indices, …)."""
    return elements(signature.inputs[1]) * prod(shape_of(signature.inputs[0])[1:])


def _sparse_segment_bytes(signature: Signature) -> int:
    read = _picked_rows(signature) * item_bytes_of(signature.inputs[0])
    return read + bytes_of_all(signature.inputs[1:]) + bytes_of_all(signature.outputs)


def _sparse_segment_gradient_bytes(signature: Signature) -> int:
    """Read a row of the gradient and pass over a row of the output per index."""
    rows = _picked_rows(signature) * item_bytes_of(signature.inputs[0])
    return 3 * rows + bytes_of_all(signature.inputs[1:]) + bytes_of_all(signature.outputs)


def _unique_flops(signature: Signature) -> int:
    return PROBE_FLOPS * elements(signature.inputs[0])


def _unique_bytes(signature: Signature) -> int:
    """Look every value up and write its place; how many are unique is not known before."""
    values, places = signature.inputs[0], signature.outputs[1]
    return bytes_of(values) + bytes_of(places) + probed_bytes(elements(values))


def _difference_bytes(signature: Signature) -> int:
    left, right = signature.inputs
    return bytes_of(left) + bytes_of(right) + probed_bytes(elements(left) + elements(right))


def _difference_flops(signature: Signature) -> int:
    return PROBE_FLOPS * (elements(signature.inputs[0]) + elements(signature.inputs[1]))


def _searched(signature: Signature) -> int:
    """Halve the sorted row for every value: (sorted, values)."""
    length = shape_of(signature.inputs[0])[-1]
    return elements(signature.inputs[1]) * max(1, round(log2(max(1, length))))


def _bucketized(signature: Signature) -> int:
    boundaries = len(signature.attribute("boundaries"))
    return elements(signature.inputs[0]) * max(1, round(log2(max(1, boundaries))))


def _partitioned_bytes(signature: Signature) -> int:
    """Read and write all data once; how they divide over the outputs is not known before."""
    return 2 * bytes_of(signature.inputs[0]) + bytes_of(signature.inputs[1])


def _stitched_bytes(signature: Signature) -> int:
    """Read all data and their places, write all data: (indices…, data…)."""
    half = len(signature.inputs) // 2
    return bytes_of_all(signature.inputs) + bytes_of_all(signature.inputs[half:])


def _binned_bytes(signature: Signature) -> int:
    """Read the values and weights; the bins are small and written once."""
    return bytes_of(signature.inputs[0]) + bytes_of_all((*signature.inputs[2:], *signature.outputs))


def _sparse_sum(signature: Signature) -> int:
    """Merge two lists of values: (indices, values, shape) twice."""
    return elements(signature.inputs[1]) + elements(signature.inputs[4])


def _sparse_dense_bytes(signature: Signature) -> int:
    """Read an element of the dense side per stored value: (indices, values, shape, dense)."""
    indices, values = signature.inputs[:2]
    return bytes_of(indices) + 3 * bytes_of(values)


_GATHER = Formula(nothing, _gathered)
_SEGMENT = Formula(per_input(1), moved)
_UNSORTED = Formula(per_input(1), _summed_anywhere(0, 1))
_SPARSE_SEGMENT = Formula(_picked_rows, _sparse_segment_bytes)
_SPARSE_SEGMENT_GRADIENT = Formula(_picked_rows, _sparse_segment_gradient_bytes)
_SCATTER_NEW = Formula(per_input(1, 1), _summed_anywhere(1, 0))
_COMBINE_COPY = Formula(per_input(1, 2), _scattered_copy(3))
_ASSIGN_COPY = Formula(nothing, _scattered_copy(2))
_COMBINE = Formula(_addressed, _scattered_in_place(3))
_ASSIGN = Formula(nothing, _scattered_in_place(2))
_UNIQUE = Formula(_unique_flops, _unique_bytes)
_COMBINATIONS = ("Add", "Sub", "Mul", "Div", "Min", "Max")
SPARSE_SEGMENTS = ("SparseSegmentSum", "SparseSegmentMean", "SparseSegmentSqrtN")

_GATHERS: dict[str, Formula] = {
    **of_kinds("Gather GatherV2 GatherNd ResourceGather ResourceGatherNd", _GATHER),
    **{f"Segment{name}": _SEGMENT for name in ("Sum", "Mean", "Max", "Min", "Prod")},
    **{f"Segment{name}V2": _SEGMENT for name in ("Sum", "Max", "Min", "Prod")},
    **{f"UnsortedSegment{name}": _UNSORTED for name in ("Sum", "Max", "Min", "Prod")},
    **dict.fromkeys(SPARSE_SEGMENTS, _SPARSE_SEGMENT),
    **{f"{name}WithNumSegments": _SPARSE_SEGMENT for name in SPARSE_SEGMENTS},
    **{f"{name}Grad": _SPARSE_SEGMENT_GRADIENT for name in SPARSE_SEGMENTS},
    **{f"{name}GradV2": _SPARSE_SEGMENT_GRADIENT for name in SPARSE_SEGMENTS},
    "ScatterNd": _SCATTER_NEW,
    "ScatterNdNonAliasingAdd": _COMBINE_COPY,
    **{f"TensorScatter{name}": _COMBINE_COPY for name in ("Add", "Sub", "Min", "Max")},
    "TensorScatterUpdate": _ASSIGN_COPY,
    **{
        f"{prefix}{name}": _COMBINE
        for prefix in ("ResourceScatter", "Scatter")
        for name in _COMBINATIONS
    },
    **{
        f"{prefix}{name}": _COMBINE
        for prefix in ("ResourceScatterNd", "ScatterNd")
        for name in ("Add", "Sub", "Min", "Max")
    },
    **{
        f"{prefix}Update": _ASSIGN
        for prefix in ("ResourceScatter", "Scatter", "ResourceScatterNd", "ScatterNd")
    },
    **of_kinds("Unique UniqueV2 UniqueWithCounts UniqueWithCountsV2", _UNIQUE),
    "ListDiff": Formula(_difference_flops, _difference_bytes),
    "LowerBound": Formula(_searched, moved),
    "UpperBound": Formula(_searched, moved),
    "Bucketize": Formula(_bucketized, moved),
    "DynamicPartition": Formula(nothing, _partitioned_bytes),
    "DynamicStitch": Formula(nothing, _stitched_bytes),
    "ParallelDynamicStitch": Formula(nothing, _stitched_bytes),
    "Bincount": Formula(per_input(1), _binned_bytes),
    "DenseBincount": Formula(per_input(1), _binned_bytes),
    **of_kinds(
        "SparseBincount RaggedBincount RaggedFillEmptyRowsGrad SparseFillEmptyRowsGrad",
        Formula(per_input(1, 1), moved),
    ),
    "InvertPermutation": Formula(nothing, moved),
    "SparseToDense": Formula(nothing, _summed_anywhere(2, 0)),
    "SparseAdd": Formula(_sparse_sum, moved),
    **{
        f"SparseDenseCwise{name}": Formula(per_input(flops, 1), _sparse_dense_bytes)
        for name, flops in (("Add", 1), ("Mul", 1), ("Div", DIVIDE))
    },
    "HistogramFixedWidth": Formula(per_input(5), moved),
}


_HASH = 56
_REWRITE = 170
_MATCH = 640
_PRINT = 400
_PARSE = 240


def _looked_up(signature: Signature) -> int:
    """Probe the table for every key: (table, keys, default)."""
    hashing = _HASH if signature.inputs[1].dtype == "string" else 0
    return (PROBE_FLOPS + hashing) * elements(signature.inputs[1])


def _looked_up_bytes(signature: Signature) -> int:
    keys = signature.inputs[1]
    tensors = bytes_of_all(signature.inputs[1:]) + bytes_of_all(signature.outputs)
    return tensors + probed_bytes(elements(keys))


def _split(signature: Signature) -> int:
    """Copy each word; their number is known only where the output's shape is."""
    return _REWRITE * elements(signature.outputs[1])


def _split_bytes(signature: Signature) -> int:
    return bytes_of(signature.inputs[0]) + bytes_of_all(signature.outputs)


def _crossed(signature: Signature) -> int:
    """Hash each crossed value; their number is known only where the output's shape is."""
    return _HASH * elements(signature.outputs[1])


def _joined(signature: Signature) -> int:
    return _REWRITE * sum(elements(spec) for spec in signature.inputs)


def _reduced(signature: Signature) -> int:
    return _REWRITE * elements(signature.inputs[0])


def _on_texts(operations: int) -> Formula:
    return Formula(per_input(operations), moved)


_LOOKUP = Formula(_looked_up, _looked_up_bytes)

TEXT_FORMULAS: dict[str, Formula] = {
    **of_kinds(
        "LookupTableFind LookupTableFindV2 LookupTableInsert LookupTableInsertV2 "
        "LookupTableImport LookupTableImportV2 LookupTableRemoveV2",
        _LOOKUP,
    ),
    "StringToHashBucket": _on_texts(_HASH),
    "StringToHashBucketFast": _on_texts(_HASH),
    "TensorToHashBucketFast": _on_texts(_PRINT),
    # SipHash mixes every word of a text several times over.
    "StringToHashBucketStrong": _on_texts(4 * _HASH),
    "StringLength": _on_texts(2),
    **of_kinds("StringLower StringUpper StringStrip Substr UnicodeTranscode", _on_texts(_REWRITE)),
    **of_kinds(
        "RegexReplace StaticRegexReplace RegexFullMatch StaticRegexFullMatch", _on_texts(_MATCH)
    ),
    "AsString": Formula(per_output(_PRINT), moved),
    "StringToNumber": _on_texts(_PARSE),
    "StringJoin": Formula(_joined, moved),
    "ReduceJoin": Formula(_reduced, moved),
    "StringSplit": Formula(_split, _split_bytes),
    "StringSplitV2": Formula(_split, _split_bytes),
    **of_kinds("SparseCross SparseCrossV2 SparseCrossHashed", Formula(_crossed, moved)),
    "DecodeRaw": Formula(per_output(0), moved),
}


_BILINEAR = 13
_BICUBIC = 2 * 16 + 20
# Corners 4, width and height 4, areas and union 4, one division and a comparison.
_OVERLAP = 13 + DIVIDE


def _suppressed(signature: Signature) -> int:
    boxes = shape_of(signature.inputs[0])[0]
    return boxes * min(boxes, int(constant(signature, 2))) * _OVERLAP


def _suppressed_bytes(signature: Signature) -> int:
    """Read boxes and scores; how many are selected is not known before."""
    return bytes_of_all(signature.inputs[:2])


def _suppressed_per_class(signature: Signature) -> int:
    batch, boxes, classes = shape_of(signature.inputs[1])
    return batch * classes * boxes * min(boxes, int(constant(signature, 2))) * _OVERLAP


_IMAGES: dict[str, Formula] = {
    **of_kinds(
        "ResizeBilinear ScaleAndTranslate CropAndResize", Formula(per_output(_BILINEAR), moved)
    ),
    **of_kinds(
        "ResizeBilinearGrad ScaleAndTranslateGrad CropAndResizeGradImage CropAndResizeGradBoxes",
        Formula(per_input(_BILINEAR), moved),
    ),
    "ResizeBicubic": Formula(per_output(_BICUBIC), moved),
    "ResizeBicubicGrad": Formula(per_input(_BICUBIC), moved),
    "ResizeArea": Formula(per_input(2), moved),
    "ResizeNearestNeighbor": Formula(nothing, moved),
    "ResizeNearestNeighborGrad": Formula(per_input(1), moved),
    "ImageProjectiveTransformV2": Formula(per_output(_BILINEAR + 12 + DIVIDE), moved),
    "ImageProjectiveTransformV3": Formula(per_output(_BILINEAR + 12 + DIVIDE), moved),
    "AdjustContrast": Formula(per_output(3), moved),
    "AdjustContrastv2": Formula(per_output(3), moved),
    "AdjustHue": Formula(per_output(DIVIDE + 10), moved),
    "AdjustSaturation": Formula(per_output(DIVIDE + 10), moved),
    "RGBToHSV": Formula(per_output(DIVIDE + 4), moved),
    "HSVToRGB": Formula(per_output(8), moved),
    **of_kinds(
        "NonMaxSuppression NonMaxSuppressionV2 NonMaxSuppressionV3 NonMaxSuppressionV4 "
        "NonMaxSuppressionV5",
        Formula(_suppressed, _suppressed_bytes),
    ),
    "CombinedNonMaxSuppression": Formula(_suppressed_per_class, moved),
}

FORMULAS = _MOVES | _BOOKKEEPING | _GATHERS | TEXT_FORMULAS | _IMAGES
