"""Formulas for ops that move data: copies, gathers, scatters, lists, texts, tables, images."""

from math import log2, prod

from placement_advisor.graph.op_work.elementwise import DIVIDE
from placement_advisor.graph.op_work.signature import (
    FREE,
    Formula,
    Rule,
    Signature,
    bytes_in,
    bytes_of_all,
    bytes_out,
    constant,
    elements,
    elements_in,
    elements_out,
    item_bytes_of,
    of_kinds,
    read_from,
    shape_of,
    written,
)

# It reads only what it puts out.
_TAKEN = 2 * written
_FILL = Formula(bytes_accessed=written)

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
        Formula(),
    ),
    **of_kinds(
        "Slice StridedSlice Unpack DiagPart MatrixDiagPart MatrixDiagPartV2 MatrixDiagPartV3 "
        "RaggedGather",
        Formula(bytes_accessed=_TAKEN),
    ),
    **of_kinds("Fill ZerosLike OnesLike Range LinSpace Empty RaggedRange", _FILL),
    # The output is filled with zeros, then the gradient copied into its part: (…, gradient).
    "StridedSliceGrad": Formula(bytes_accessed=bytes_out() + 2 * bytes_in(-1)),
    # The tensor is copied, then the value into its part: (tensor, begin, end, strides, value).
    "TensorStridedSliceUpdate": Formula(bytes_accessed=bytes_in(0) + bytes_out() + 2 * bytes_in(4)),
    **of_kinds(
        "ResourceStridedSliceAssign StridedSliceAssign", Formula(bytes_accessed=2 * bytes_in(4))
    ),
}


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

_BOOKKEEPING: dict[str, Formula] = {
    **dict.fromkeys(ALIAS_KINDS | VARIABLE_READ_KINDS, FREE),
    **of_kinds(_SEVERAL_ALIASES + _SHAPES + _SOURCES + _ORDER + _ITEMS, FREE),
    **of_kinds(
        "TensorListStack TensorListGather TensorArrayPack TensorArrayGather TensorArrayGatherV2 "
        "TensorArrayGatherV3",
        Formula(bytes_accessed=_TAKEN),
    ),
    **of_kinds(
        "TensorListConcat TensorListConcatV2 TensorArrayConcat TensorArrayConcatV2 "
        "TensorArrayConcatV3",
        Formula(bytes_accessed=2 * bytes_out()),
    ),
    # They read an input and write as much.
    **of_kinds(
        "TensorListFromTensor TensorListScatter TensorListScatterV2 TensorListSplit",
        Formula(bytes_accessed=2 * bytes_in(0)),
    ),
    **of_kinds(
        "TensorListScatterIntoExistingList TensorArraySplit TensorArraySplitV2 "
        "TensorArraySplitV3 TensorArrayUnpack",
        Formula(bytes_accessed=2 * bytes_in(1)),
    ),
    **of_kinds(
        "TensorArrayScatter TensorArrayScatterV2 TensorArrayScatterV3",
        Formula(bytes_accessed=2 * bytes_in(2)),
    ),
}


# Looking a key up in a hash table moves two cache lines.
_PROBE_BYTES = 2 * 64
# Hash 10, slot 3, comparison and step to the entry 7, on short keys.
_PROBE_FLOPS = 20


def _summed_anywhere(data: int, places: int) -> Rule:
    """Fill the output, then add each row of the data at its place."""
    return 3 * bytes_in(data) + bytes_in(places) + bytes_out()


def _scattered_copy(passes: int) -> Rule:
    """Copy the tensor, then take rows to their places: (tensor, indices, updates)."""
    return bytes_in(0) + bytes_out() + passes * bytes_in(2) + bytes_in(1)


def _scattered_in_place(passes: int) -> Rule:
    """Take rows to their places in a variable: (variable, indices, updates)."""
    rows = Rule(lambda signature: _addressed(signature) * item_bytes_of(signature.inputs[2]))
    return passes * rows + bytes_in(1)


def _addressed(signature: Signature) -> int:
    """Return how many elements of the variable a scatter addresses; one update may serve all."""
    variable, indices, updates = signature.inputs[:3]
    if updates.shape == () and variable.shape is not None:
        return elements(indices) * prod(variable.shape[1:])
    return elements(updates)


def _picked(signature: Signature) -> int:
    """Return the elements of the rows that the indices pick: (data, indices, …)."""
    return elements(signature.inputs[1]) * prod(shape_of(signature.inputs[0])[1:])


_PICKED_BYTES = Rule(lambda signature: _picked(signature) * item_bytes_of(signature.inputs[0]))


def _searched(signature: Signature) -> int:
    """Halve the sorted row for every value: (sorted, values)."""
    length = shape_of(signature.inputs[0])[-1]
    return elements(signature.inputs[1]) * max(1, round(log2(max(1, length))))


def _bucketized(signature: Signature) -> int:
    boundaries = len(signature.attribute("boundaries"))
    return elements(signature.inputs[0]) * max(1, round(log2(max(1, boundaries))))


def _stitched_bytes(signature: Signature) -> int:
    """Read all data and their places, write all data: (indices…, data…)."""
    half = len(signature.inputs) // 2
    return bytes_of_all(signature.inputs) + bytes_of_all(signature.inputs[half:])


_SEGMENT = Formula(elements_in(0))
_UNSORTED = Formula(elements_in(0), _summed_anywhere(0, 1))
_SPARSE_SEGMENT = Formula(_picked, _PICKED_BYTES + read_from(1) + written)
# A row of the gradient is read, and passed over in the output, for each index.
_SPARSE_SEGMENT_GRADIENT = Formula(_picked, 3 * _PICKED_BYTES + read_from(1) + written)
_COMBINE_COPY = Formula(elements_in(2), _scattered_copy(3))
_COMBINE = Formula(_addressed, _scattered_in_place(3))
_ASSIGN = Formula(bytes_accessed=_scattered_in_place(2))
_BOTH_LISTS = elements_in(0) + elements_in(1)
_COMBINATIONS = ("Add", "Sub", "Mul", "Div", "Min", "Max")
SPARSE_SEGMENTS = ("SparseSegmentSum", "SparseSegmentMean", "SparseSegmentSqrtN")

_GATHERS: dict[str, Formula] = {
    **of_kinds(
        "Gather GatherV2 GatherNd ResourceGather ResourceGatherNd",
        Formula(bytes_accessed=_TAKEN + bytes_in(1)),
    ),
    **{f"Segment{name}": _SEGMENT for name in ("Sum", "Mean", "Max", "Min", "Prod")},
    **{f"Segment{name}V2": _SEGMENT for name in ("Sum", "Max", "Min", "Prod")},
    **{f"UnsortedSegment{name}": _UNSORTED for name in ("Sum", "Max", "Min", "Prod")},
    **dict.fromkeys(SPARSE_SEGMENTS, _SPARSE_SEGMENT),
    **{f"{name}WithNumSegments": _SPARSE_SEGMENT for name in SPARSE_SEGMENTS},
    **{f"{name}Grad": _SPARSE_SEGMENT_GRADIENT for name in SPARSE_SEGMENTS},
    **{f"{name}GradV2": _SPARSE_SEGMENT_GRADIENT for name in SPARSE_SEGMENTS},
    "ScatterNd": Formula(elements_in(1), _summed_anywhere(1, 0)),
    "ScatterNdNonAliasingAdd": _COMBINE_COPY,
    **{f"TensorScatter{name}": _COMBINE_COPY for name in ("Add", "Sub", "Min", "Max")},
    "TensorScatterUpdate": Formula(bytes_accessed=_scattered_copy(2)),
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
    # Every value is looked up and its place written; how many are unique is not known before.
    **of_kinds(
        "Unique UniqueV2 UniqueWithCounts UniqueWithCountsV2",
        Formula(
            _PROBE_FLOPS * elements_in(0),
            bytes_in(0) + bytes_out(1) + _PROBE_BYTES * elements_in(0),
        ),
    ),
    "ListDiff": Formula(
        _PROBE_FLOPS * _BOTH_LISTS, bytes_in(0) + bytes_in(1) + _PROBE_BYTES * _BOTH_LISTS
    ),
    **of_kinds("LowerBound UpperBound", Formula(_searched)),
    "Bucketize": Formula(_bucketized),
    # All data are read and written once; how they divide is not known before.
    "DynamicPartition": Formula(bytes_accessed=2 * bytes_in(0) + bytes_in(1)),
    **of_kinds("DynamicStitch ParallelDynamicStitch", Formula(bytes_accessed=_stitched_bytes)),
    # Values and weights are read; the bins are small and written once.
    **of_kinds(
        "Bincount DenseBincount", Formula(elements_in(0), bytes_in(0) + read_from(2) + written)
    ),
    **of_kinds(
        "SparseBincount RaggedBincount RaggedFillEmptyRowsGrad SparseFillEmptyRowsGrad",
        Formula(elements_in(1)),
    ),
    "InvertPermutation": Formula(),
    "SparseToDense": Formula(bytes_accessed=_summed_anywhere(2, 0)),
    # Two lists of values are merged: (indices, values, shape) twice.
    "SparseAdd": Formula(elements_in(1) + elements_in(4)),
    # An element of the dense side is read per stored value: (indices, values, shape, dense).
    **{
        f"SparseDenseCwise{name}": Formula(flops * elements_in(1), bytes_in(0) + 3 * bytes_in(1))
        for name, flops in (("Add", 1), ("Mul", 1), ("Div", DIVIDE))
    },
    "HistogramFixedWidth": Formula(5 * elements_in(0)),
}


_HASH = 56
_REWRITE = 170
_MATCH = 640
_PRINT = 400
_PARSE = 240


def _looked_up(signature: Signature) -> int:
    """Probe the table for every key: (table, keys, default)."""
    hashing = _HASH if signature.inputs[1].dtype == "string" else 0
    return (_PROBE_FLOPS + hashing) * elements(signature.inputs[1])


def _joined(signature: Signature) -> int:
    return _REWRITE * sum(elements(spec) for spec in signature.inputs)


def _on_texts(operations: int) -> Formula:
    return Formula(operations * elements_in(0))


TEXT_FORMULAS: dict[str, Formula] = {
    **of_kinds(
        "LookupTableFind LookupTableFindV2 LookupTableInsert LookupTableInsertV2 "
        "LookupTableImport LookupTableImportV2 LookupTableRemoveV2",
        Formula(_looked_up, read_from(1) + written + _PROBE_BYTES * elements_in(1)),
    ),
    **of_kinds("StringToHashBucket StringToHashBucketFast", _on_texts(_HASH)),
    "TensorToHashBucketFast": _on_texts(_PRINT),
    # SipHash mixes every word of a text several times over.
    "StringToHashBucketStrong": _on_texts(4 * _HASH),
    "StringLength": _on_texts(2),
    **of_kinds("StringLower StringUpper StringStrip Substr UnicodeTranscode", _on_texts(_REWRITE)),
    **of_kinds(
        "RegexReplace StaticRegexReplace RegexFullMatch StaticRegexFullMatch", _on_texts(_MATCH)
    ),
    "AsString": Formula(_PRINT * elements_out()),
    "StringToNumber": _on_texts(_PARSE),
    "StringJoin": Formula(_joined),
    "ReduceJoin": _on_texts(_REWRITE),
    # Each word is copied, each crossed value hashed; their number is known only where the output's
    # shape is.
    **of_kinds(
        "StringSplit StringSplitV2", Formula(_REWRITE * elements_out(1), bytes_in(0) + written)
    ),
    **of_kinds("SparseCross SparseCrossV2 SparseCrossHashed", Formula(_HASH * elements_out(1))),
    "DecodeRaw": Formula(0 * elements_out()),
}


_BILINEAR = 13
_BICUBIC = 2 * 16 + 20
# Corners 4, width and height 4, areas and union 4, one division and a comparison.
_OVERLAP = 13 + DIVIDE


def _suppressed(signature: Signature) -> int:
    boxes = shape_of(signature.inputs[0])[0]
    return boxes * min(boxes, int(constant(signature, 2))) * _OVERLAP


def _boxes_and_scores(signature: Signature) -> int:
    return bytes_of_all(signature.inputs[:2])


def _suppressed_per_class(signature: Signature) -> int:
    batch, boxes, classes = shape_of(signature.inputs[1])
    return batch * classes * boxes * min(boxes, int(constant(signature, 2))) * _OVERLAP


_IMAGES: dict[str, Formula] = {
    **of_kinds(
        "ResizeBilinear ScaleAndTranslate CropAndResize", Formula(_BILINEAR * elements_out())
    ),
    **of_kinds(
        "ResizeBilinearGrad ScaleAndTranslateGrad CropAndResizeGradImage CropAndResizeGradBoxes",
        Formula(_BILINEAR * elements_in(0)),
    ),
    "ResizeBicubic": Formula(_BICUBIC * elements_out()),
    "ResizeBicubicGrad": Formula(_BICUBIC * elements_in(0)),
    "ResizeArea": Formula(2 * elements_in(0)),
    "ResizeNearestNeighbor": Formula(),
    "ResizeNearestNeighborGrad": Formula(elements_in(0)),
    **of_kinds(
        "ImageProjectiveTransformV2 ImageProjectiveTransformV3",
        Formula((_BILINEAR + 12 + DIVIDE) * elements_out()),
    ),
    **of_kinds("AdjustContrast AdjustContrastv2", Formula(3 * elements_out())),
    **of_kinds("AdjustHue AdjustSaturation", Formula((DIVIDE + 10) * elements_out())),
    "RGBToHSV": Formula((DIVIDE + 4) * elements_out()),
    "HSVToRGB": Formula(8 * elements_out()),
    # Boxes and scores are read; how many are selected is not known before.
    **of_kinds(
        "NonMaxSuppression NonMaxSuppressionV2 NonMaxSuppressionV3 NonMaxSuppressionV4 "
        "NonMaxSuppressionV5",
        Formula(_suppressed, _boxes_and_scores),
    ),
    "CombinedNonMaxSuppression": Formula(_suppressed_per_class),
}

FORMULAS = _MOVES | _BOOKKEEPING | _GATHERS | TEXT_FORMULAS | _IMAGES
