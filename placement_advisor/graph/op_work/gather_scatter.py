"""Rows picked from a tensor or variable, and rows added up or written at places.

A gather reads the rows that it puts out, not the table. What adds up at places in any order
(UnsortedSegmentSum, ScatterNd) first fills its output with zeros, then reads and writes a row of
the output per row of the input: the rows of the input count three times beside the output.
Sorted segments keep the running sum at hand and write each row once. An update through a handle
touches the rows that it is given.

A hash table's slot and entry lie at random places: each key moves two cache lines.
"""

from __future__ import annotations

from math import log2, prod
from typing import TYPE_CHECKING

from placement_advisor.graph.op_work.arithmetic import DIVIDE
from placement_advisor.graph.op_work.formula_parts import (
    Formula,
    Rule,
    bytes_of,
    bytes_of_all,
    copied_out,
    elements,
    item_bytes_of,
    moved,
    nothing,
    per_input,
    shape_of,
)

if TYPE_CHECKING:
    from placement_advisor.graph.op_work.signature import Signature

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

FORMULAS: dict[str, Formula] = {
    "Gather": _GATHER,
    "GatherV2": _GATHER,
    "GatherNd": _GATHER,
    "ResourceGather": _GATHER,
    "ResourceGatherNd": _GATHER,
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
    "Unique": _UNIQUE,
    "UniqueV2": _UNIQUE,
    "UniqueWithCounts": _UNIQUE,
    "UniqueWithCountsV2": _UNIQUE,
    "ListDiff": Formula(_difference_flops, _difference_bytes),
    "LowerBound": Formula(_searched, moved),
    "UpperBound": Formula(_searched, moved),
    "Bucketize": Formula(_bucketized, moved),
    "DynamicPartition": Formula(nothing, _partitioned_bytes),
    "DynamicStitch": Formula(nothing, _stitched_bytes),
    "ParallelDynamicStitch": Formula(nothing, _stitched_bytes),
    "Bincount": Formula(per_input(1), _binned_bytes),
    "DenseBincount": Formula(per_input(1), _binned_bytes),
    "SparseBincount": Formula(per_input(1, 1), moved),
    "RaggedBincount": Formula(per_input(1, 1), moved),
    "InvertPermutation": Formula(nothing, moved),
    "SparseToDense": Formula(nothing, _summed_anywhere(2, 0)),
    "SparseAdd": Formula(_sparse_sum, moved),
    **{
        f"SparseDenseCwise{name}": Formula(per_input(flops, 1), _sparse_dense_bytes)
        for name, flops in (("Add", 1), ("Mul", 1), ("Div", DIVIDE))
    },
    "RaggedFillEmptyRowsGrad": Formula(per_input(1, 1), moved),
    "SparseFillEmptyRowsGrad": Formula(per_input(1, 1), moved),
    "HistogramFixedWidth": Formula(per_input(5), moved),
}
