"""Formulas for ops that move data: copies, gathers, scatters, lists, texts, tables, images."""

from __future__ import annotations

from math import log2, prod

from placement_advisor.graph.op_work import signature as op_signature
from placement_advisor.graph.op_work.elementwise import DIVIDE


def _slice_gradient_bytes(signature: op_signature.Signature) -> int:
    """Fill the output with zeros, then copy the gradient into its part: (…, gradient)."""
    return op_signature.bytes_of(signature.outputs[0]) + 2 * op_signature.bytes_of(
        signature.inputs[-1]
    )


def _slice_update_bytes(signature: op_signature.Signature) -> int:
    """Copy the tensor, then the value into its part: (tensor, begin, end, strides, value)."""
    value = 2 * op_signature.bytes_of(signature.inputs[4])
    return (
        op_signature.bytes_of(signature.inputs[0])
        + op_signature.bytes_of(signature.outputs[0])
        + value
    )


def _slice_assign_bytes(signature: op_signature.Signature) -> int:
    return 2 * op_signature.bytes_of(signature.inputs[4])


_MOVE = op_signature.Formula(op_signature.nothing, op_signature.moved)
_TAKE = op_signature.Formula(op_signature.nothing, op_signature.copied_out)
_FILL = op_signature.Formula(op_signature.nothing, op_signature.written)

_MOVES: dict[str, op_signature.Formula] = {
    **op_signature.of_kinds(
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
    **op_signature.of_kinds(
        "Slice StridedSlice Unpack DiagPart MatrixDiagPart MatrixDiagPartV2 MatrixDiagPartV3 "
        "RaggedGather",
        _TAKE,
    ),
    **op_signature.of_kinds("Fill ZerosLike OnesLike Range LinSpace Empty RaggedRange", _FILL),
    "StridedSliceGrad": op_signature.Formula(op_signature.nothing, _slice_gradient_bytes),
    "TensorStridedSliceUpdate": op_signature.Formula(op_signature.nothing, _slice_update_bytes),
    "ResourceStridedSliceAssign": op_signature.Formula(op_signature.nothing, _slice_assign_bytes),
    "StridedSliceAssign": op_signature.Formula(op_signature.nothing, _slice_assign_bytes),
}


def _copied_in(index: int) -> op_signature.Rule:
    """Read an input and write as much."""

    def rule(signature: op_signature.Signature) -> int:
        return 2 * op_signature.bytes_of(signature.inputs[index])

    return rule


def _copied_first_out(signature: op_signature.Signature) -> int:
    return 2 * op_signature.bytes_of(signature.outputs[0])


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

_BOOKKEEPING: dict[str, op_signature.Formula] = {
    **dict.fromkeys(ALIAS_KINDS | VARIABLE_READ_KINDS, op_signature.FREE),
    **{
        kind: op_signature.FREE
        for kinds in (_SEVERAL_ALIASES, _SHAPES, _SOURCES, _ORDER, _ITEMS)
        for kind in kinds.split()
    },
    **op_signature.of_kinds(
        "TensorListStack TensorListGather TensorArrayPack",
        op_signature.Formula(op_signature.nothing, op_signature.copied_out),
    ),
    **dict.fromkeys(
        ("TensorListConcat", "TensorListConcatV2"),
        op_signature.Formula(op_signature.nothing, _copied_first_out),
    ),
    **op_signature.of_kinds(
        "TensorListFromTensor TensorListScatter TensorListScatterV2 TensorListSplit",
        op_signature.Formula(op_signature.nothing, _copied_in(0)),
    ),
    "TensorListScatterIntoExistingList": op_signature.Formula(op_signature.nothing, _copied_in(1)),
    **{
        f"TensorArrayGather{v}": op_signature.Formula(op_signature.nothing, op_signature.copied_out)
        for v in _VERSIONS
    },
    **{
        f"TensorArrayConcat{v}": op_signature.Formula(op_signature.nothing, _copied_first_out)
        for v in _VERSIONS
    },
    **{
        f"TensorArrayScatter{v}": op_signature.Formula(op_signature.nothing, _copied_in(2))
        for v in _VERSIONS
    },
    **{
        f"TensorArraySplit{v}": op_signature.Formula(op_signature.nothing, _copied_in(1))
        for v in _VERSIONS
    },
    "TensorArrayUnpack": op_signature.Formula(op_signature.nothing, _copied_in(1)),
}


CACHE_LINE_BYTES = 64
# Hash 10, slot 3, comparison and step to the entry 7, on short keys.
PROBE_FLOPS = 20


def probed_bytes(keys: int) -> int:
    """Return the bytes that looking keys up in a hash table moves."""
    return 2 * CACHE_LINE_BYTES * keys


def _gathered(signature: op_signature.Signature) -> int:
    return op_signature.copied_out(signature) + op_signature.bytes_of(signature.inputs[1])


def _summed_anywhere(data: int, places: int) -> op_signature.Rule:
    """Fill the output, then add each row of the data at its place."""

    def rule(signature: op_signature.Signature) -> int:
        rows, indices = signature.inputs[data], signature.inputs[places]
        return (
            3 * op_signature.bytes_of(rows)
            + op_signature.bytes_of(indices)
            + op_signature.bytes_of(signature.outputs[0])
        )

    return rule


def _scattered_copy(passes: int) -> op_signature.Rule:
    """Copy the tensor, then take rows to their places: (tensor, indices, updates)."""

    def rule(signature: op_signature.Signature) -> int:
        tensor, indices, updates = signature.inputs[:3]
        rows = passes * op_signature.bytes_of(updates) + op_signature.bytes_of(indices)
        return op_signature.bytes_of(tensor) + op_signature.bytes_of(signature.outputs[0]) + rows

    return rule


def _scattered_in_place(passes: int) -> op_signature.Rule:
    """Take rows to their places in a variable: (variable, indices, updates)."""

    def rule(signature: op_signature.Signature) -> int:
        _, indices, updates = signature.inputs[:3]
        places = op_signature.elements(indices) * op_signature.item_bytes_of(indices)
        return passes * _addressed(signature) * op_signature.item_bytes_of(updates) + places

    return rule


def _addressed(signature: op_signature.Signature) -> int:
    """Return how many elements of the variable a scatter addresses; one update may serve all."""
    variable, indices, updates = signature.inputs[:3]
    if updates.shape == () and variable.shape is not None:
        return op_signature.elements(indices) * prod(variable.shape[1:])
    return op_signature.elements(updates)


def _picked_rows(signature: op_signature.Signature) -> int:
    """Return the elements of the rows that the indices pick: (data, indices, …)."""
    return op_signature.elements(signature.inputs[1]) * prod(
        op_signature.shape_of(signature.inputs[0])[1:]
    )


def _sparse_segment_bytes(signature: op_signature.Signature) -> int:
    read = _picked_rows(signature) * op_signature.item_bytes_of(signature.inputs[0])
    return (
        read
        + op_signature.bytes_of_all(signature.inputs[1:])
        + op_signature.bytes_of_all(signature.outputs)
    )


def _sparse_segment_gradient_bytes(signature: op_signature.Signature) -> int:
    """Read a row of the gradient and pass over a row of the output per index."""
    rows = _picked_rows(signature) * op_signature.item_bytes_of(signature.inputs[0])
    return (
        3 * rows
        + op_signature.bytes_of_all(signature.inputs[1:])
        + op_signature.bytes_of_all(signature.outputs)
    )


def _unique_flops(signature: op_signature.Signature) -> int:
    return PROBE_FLOPS * op_signature.elements(signature.inputs[0])


def _unique_bytes(signature: op_signature.Signature) -> int:
    """Look every value up and write its place; how many are unique is not known before."""
    values, places = signature.inputs[0], signature.outputs[1]
    return (
        op_signature.bytes_of(values)
        + op_signature.bytes_of(places)
        + probed_bytes(op_signature.elements(values))
    )


def _difference_bytes(signature: op_signature.Signature) -> int:
    left, right = signature.inputs
    return (
        op_signature.bytes_of(left)
        + op_signature.bytes_of(right)
        + probed_bytes(op_signature.elements(left) + op_signature.elements(right))
    )


def _difference_flops(signature: op_signature.Signature) -> int:
    return PROBE_FLOPS * (
        op_signature.elements(signature.inputs[0]) + op_signature.elements(signature.inputs[1])
    )


def _searched(signature: op_signature.Signature) -> int:
    """Halve the sorted row for every value: (sorted, values)."""
    length = op_signature.shape_of(signature.inputs[0])[-1]
    return op_signature.elements(signature.inputs[1]) * max(1, round(log2(max(1, length))))


def _bucketized(signature: op_signature.Signature) -> int:
    boundaries = len(signature.attribute("boundaries"))
    return op_signature.elements(signature.inputs[0]) * max(1, round(log2(max(1, boundaries))))


def _partitioned_bytes(signature: op_signature.Signature) -> int:
    """Read and write all data once; how they divide over the outputs is not known before."""
    return 2 * op_signature.bytes_of(signature.inputs[0]) + op_signature.bytes_of(
        signature.inputs[1]
    )


def _stitched_bytes(signature: op_signature.Signature) -> int:
    """Read all data and their places, write all data: (indices…, data…)."""
    half = len(signature.inputs) // 2
    return op_signature.bytes_of_all(signature.inputs) + op_signature.bytes_of_all(
        signature.inputs[half:]
    )


def _binned_bytes(signature: op_signature.Signature) -> int:
    """Read the values and weights; the bins are small and written once."""
    return op_signature.bytes_of(signature.inputs[0]) + op_signature.bytes_of_all(
        (*signature.inputs[2:], *signature.outputs)
    )


def _sparse_sum(signature: op_signature.Signature) -> int:
    """Merge two lists of values: (indices, values, shape) twice."""
    return op_signature.elements(signature.inputs[1]) + op_signature.elements(signature.inputs[4])


def _sparse_dense_bytes(signature: op_signature.Signature) -> int:
    """Read an element of the dense side per stored value: (indices, values, shape, dense)."""
    indices, values = signature.inputs[:2]
    return op_signature.bytes_of(indices) + 3 * op_signature.bytes_of(values)


_GATHER = op_signature.Formula(op_signature.nothing, _gathered)
_SEGMENT = op_signature.Formula(op_signature.per_input(1), op_signature.moved)
_UNSORTED = op_signature.Formula(op_signature.per_input(1), _summed_anywhere(0, 1))
_SPARSE_SEGMENT = op_signature.Formula(_picked_rows, _sparse_segment_bytes)
_SPARSE_SEGMENT_GRADIENT = op_signature.Formula(_picked_rows, _sparse_segment_gradient_bytes)
_SCATTER_NEW = op_signature.Formula(op_signature.per_input(1, 1), _summed_anywhere(1, 0))
_COMBINE_COPY = op_signature.Formula(op_signature.per_input(1, 2), _scattered_copy(3))
_ASSIGN_COPY = op_signature.Formula(op_signature.nothing, _scattered_copy(2))
_COMBINE = op_signature.Formula(_addressed, _scattered_in_place(3))
_ASSIGN = op_signature.Formula(op_signature.nothing, _scattered_in_place(2))
_UNIQUE = op_signature.Formula(_unique_flops, _unique_bytes)
_COMBINATIONS = ("Add", "Sub", "Mul", "Div", "Min", "Max")
SPARSE_SEGMENTS = ("SparseSegmentSum", "SparseSegmentMean", "SparseSegmentSqrtN")

_GATHERS: dict[str, op_signature.Formula] = {
    **op_signature.of_kinds("Gather GatherV2 GatherNd ResourceGather ResourceGatherNd", _GATHER),
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
    **op_signature.of_kinds("Unique UniqueV2 UniqueWithCounts UniqueWithCountsV2", _UNIQUE),
    "ListDiff": op_signature.Formula(_difference_flops, _difference_bytes),
    "LowerBound": op_signature.Formula(_searched, op_signature.moved),
    "UpperBound": op_signature.Formula(_searched, op_signature.moved),
    "Bucketize": op_signature.Formula(_bucketized, op_signature.moved),
    "DynamicPartition": op_signature.Formula(op_signature.nothing, _partitioned_bytes),
    "DynamicStitch": op_signature.Formula(op_signature.nothing, _stitched_bytes),
    "ParallelDynamicStitch": op_signature.Formula(op_signature.nothing, _stitched_bytes),
    "Bincount": op_signature.Formula(op_signature.per_input(1), _binned_bytes),
    "DenseBincount": op_signature.Formula(op_signature.per_input(1), _binned_bytes),
    **op_signature.of_kinds(
        "SparseBincount RaggedBincount RaggedFillEmptyRowsGrad SparseFillEmptyRowsGrad",
        op_signature.Formula(op_signature.per_input(1, 1), op_signature.moved),
    ),
    "InvertPermutation": op_signature.Formula(op_signature.nothing, op_signature.moved),
    "SparseToDense": op_signature.Formula(op_signature.nothing, _summed_anywhere(2, 0)),
    "SparseAdd": op_signature.Formula(_sparse_sum, op_signature.moved),
    **{
        f"SparseDenseCwise{name}": op_signature.Formula(
            op_signature.per_input(flops, 1), _sparse_dense_bytes
        )
        for name, flops in (("Add", 1), ("Mul", 1), ("Div", DIVIDE))
    },
    "HistogramFixedWidth": op_signature.Formula(op_signature.per_input(5), op_signature.moved),
}


_HASH = 56
_REWRITE = 170
_MATCH = 640
_PRINT = 400
_PARSE = 240


def _looked_up(signature: op_signature.Signature) -> int:
    """Probe the table for every key: (table, keys, default)."""
    hashing = _HASH if signature.inputs[1].dtype == "string" else 0
    return (PROBE_FLOPS + hashing) * op_signature.elements(signature.inputs[1])


def _looked_up_bytes(signature: op_signature.Signature) -> int:
    keys = signature.inputs[1]
    tensors = op_signature.bytes_of_all(signature.inputs[1:]) + op_signature.bytes_of_all(
        signature.outputs
    )
    return tensors + probed_bytes(op_signature.elements(keys))


def _split(signature: op_signature.Signature) -> int:
    """Copy each word; their number is known only where the output's shape is."""
    return _REWRITE * op_signature.elements(signature.outputs[1])


def _split_bytes(signature: op_signature.Signature) -> int:
    return op_signature.bytes_of(signature.inputs[0]) + op_signature.bytes_of_all(signature.outputs)


def _crossed(signature: op_signature.Signature) -> int:
    """Hash each crossed value; their number is known only where the output's shape is."""
    return _HASH * op_signature.elements(signature.outputs[1])


def _joined(signature: op_signature.Signature) -> int:
    return _REWRITE * sum(op_signature.elements(spec) for spec in signature.inputs)


def _reduced(signature: op_signature.Signature) -> int:
    return _REWRITE * op_signature.elements(signature.inputs[0])


def _on_texts(operations: int) -> op_signature.Formula:
    return op_signature.Formula(op_signature.per_input(operations), op_signature.moved)


_LOOKUP = op_signature.Formula(_looked_up, _looked_up_bytes)

TEXT_FORMULAS: dict[str, op_signature.Formula] = {
    **op_signature.of_kinds(
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
    **op_signature.of_kinds(
        "StringLower StringUpper StringStrip Substr UnicodeTranscode", _on_texts(_REWRITE)
    ),
    **op_signature.of_kinds(
        "RegexReplace StaticRegexReplace RegexFullMatch StaticRegexFullMatch", _on_texts(_MATCH)
    ),
    "AsString": op_signature.Formula(op_signature.per_output(_PRINT), op_signature.moved),
    "StringToNumber": _on_texts(_PARSE),
    "StringJoin": op_signature.Formula(_joined, op_signature.moved),
    "ReduceJoin": op_signature.Formula(_reduced, op_signature.moved),
    "StringSplit": op_signature.Formula(_split, _split_bytes),
    "StringSplitV2": op_signature.Formula(_split, _split_bytes),
    **op_signature.of_kinds(
        "SparseCross SparseCrossV2 SparseCrossHashed",
        op_signature.Formula(_crossed, op_signature.moved),
    ),
    "DecodeRaw": op_signature.Formula(op_signature.per_output(0), op_signature.moved),
}


_BILINEAR = 13
_BICUBIC = 2 * 16 + 20
# Corners 4, width and height 4, areas and union 4, one division and a comparison.
_OVERLAP = 13 + DIVIDE


def _suppressed(signature: op_signature.Signature) -> int:
    boxes = op_signature.shape_of(signature.inputs[0])[0]
    return boxes * min(boxes, int(op_signature.constant(signature, 2))) * _OVERLAP


def _suppressed_bytes(signature: op_signature.Signature) -> int:
    """Read boxes and scores; how many are selected is not known before."""
    return op_signature.bytes_of_all(signature.inputs[:2])


def _suppressed_per_class(signature: op_signature.Signature) -> int:
    batch, boxes, classes = op_signature.shape_of(signature.inputs[1])
    return batch * classes * boxes * min(boxes, int(op_signature.constant(signature, 2))) * _OVERLAP


_IMAGES: dict[str, op_signature.Formula] = {
    **op_signature.of_kinds(
        "ResizeBilinear ScaleAndTranslate CropAndResize",
        op_signature.Formula(op_signature.per_output(_BILINEAR), op_signature.moved),
    ),
    **op_signature.of_kinds(
        "ResizeBilinearGrad ScaleAndTranslateGrad CropAndResizeGradImage CropAndResizeGradBoxes",
        op_signature.Formula(op_signature.per_input(_BILINEAR), op_signature.moved),
    ),
    "ResizeBicubic": op_signature.Formula(op_signature.per_output(_BICUBIC), op_signature.moved),
    "ResizeBicubicGrad": op_signature.Formula(op_signature.per_input(_BICUBIC), op_signature.moved),
    "ResizeArea": op_signature.Formula(op_signature.per_input(2), op_signature.moved),
    "ResizeNearestNeighbor": op_signature.Formula(op_signature.nothing, op_signature.moved),
    "ResizeNearestNeighborGrad": op_signature.Formula(
        op_signature.per_input(1), op_signature.moved
    ),
    "ImageProjectiveTransformV2": op_signature.Formula(
        op_signature.per_output(_BILINEAR + 12 + DIVIDE), op_signature.moved
    ),
    "ImageProjectiveTransformV3": op_signature.Formula(
        op_signature.per_output(_BILINEAR + 12 + DIVIDE), op_signature.moved
    ),
    "AdjustContrast": op_signature.Formula(op_signature.per_output(3), op_signature.moved),
    "AdjustContrastv2": op_signature.Formula(op_signature.per_output(3), op_signature.moved),
    "AdjustHue": op_signature.Formula(op_signature.per_output(DIVIDE + 10), op_signature.moved),
    "AdjustSaturation": op_signature.Formula(
        op_signature.per_output(DIVIDE + 10), op_signature.moved
    ),
    "RGBToHSV": op_signature.Formula(op_signature.per_output(DIVIDE + 4), op_signature.moved),
    "HSVToRGB": op_signature.Formula(op_signature.per_output(8), op_signature.moved),
    **op_signature.of_kinds(
        "NonMaxSuppression NonMaxSuppressionV2 NonMaxSuppressionV3 NonMaxSuppressionV4 "
        "NonMaxSuppressionV5",
        op_signature.Formula(_suppressed, _suppressed_bytes),
    ),
    "CombinedNonMaxSuppression": op_signature.Formula(_suppressed_per_class, op_signature.moved),
}

FORMULAS = _MOVES | _BOOKKEEPING | _GATHERS | TEXT_FORMULAS | _IMAGES
