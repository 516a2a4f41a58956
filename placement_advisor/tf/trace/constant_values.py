"""Whole numbers that follow from the graph alone: loop limits, axes, shapes' entries.

Only integers are followed, and only ops that shape arithmetic is made of.
"""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from placement_advisor.tf.trace.nodes import Node

_PASSING = frozenset(
    {"Identity", "Cast", "StopGradient", "Enter", "ExpandDims", "Squeeze", "Reshape"}
)
# Larger constants are data, not shapes.
_MAX_ELEMENTS = 64
_BINARY: Mapping[str, Callable[[int, int], int]] = {
    "Add": operator.add,
    "AddV2": operator.add,
    "Sub": operator.sub,
    "Mul": operator.mul,
    "FloorDiv": operator.floordiv,
    "FloorMod": operator.mod,
    "Maximum": max,
    "Minimum": min,
    "NotEqual": operator.ne,
    "Less": operator.lt,
    "Greater": operator.gt,
}
_REDUCTIONS: Mapping[str, Callable[[Iterable[int]], int]] = {
    "Max": max,
    "Min": min,
    "Sum": sum,
    "Prod": math.prod,
}


def constant_values(
    nodes: Iterable[Node], given: Mapping[tuple[str, int], int] | None = None
) -> dict[tuple[str, int], int]:
    """Return the value of each tensor of one whole number, by op name and port, where known.

    ``given`` holds values that are known already; nodes stand with producers first, but for loops.
    """
    lists: dict[tuple[str, int], list[int]] = {}
    values = dict(given or {})
    lists.update({key: [value] for key, value in values.items()})
    for node in nodes:
        found = _value(node, lists)
        if found is not None:
            lists[node.name, 0] = found
    return {key: found[0] for key, found in lists.items() if len(found) == 1}


def _value(node: Node, lists: Mapping[tuple[str, int], list[int]]) -> list[int] | None:
    if (node.name, 0) in lists or not node.outputs:
        return None
    dtype = node.outputs[0].dtype
    if "int" not in dtype and dtype != "bool":  # A truth value can become a number.
        return None
    elements = node.outputs[0].elements
    if elements is None or not 0 < elements <= _MAX_ELEMENTS:
        return None
    if node.kind == "Const":
        return integers(node.attribute("value"))
    if node.kind in ("Shape", "Size"):
        producer, port = node.inputs[0]
        shape = producer.outputs[port].shape
        if shape is None:
            return None
        return list(shape) if node.kind == "Shape" else [math.prod(shape)]
    inputs = [lists.get((producer.name, port)) for producer, port in node.inputs]
    if not inputs or inputs[0] is None:
        return None
    return _computed(node, inputs)


def _computed(node: Node, inputs: list[list[int] | None]) -> list[int] | None:
    first = inputs[0]
    assert first is not None
    if node.kind in _PASSING:
        return first
    if node.kind in _REDUCTIONS and node.outputs[0].elements == 1:
        return [_REDUCTIONS[node.kind](first)]
    if any(value is None for value in inputs):
        return None
    known = [value for value in inputs if value is not None]
    if node.kind in _BINARY and [len(value) for value in known] == [1, 1]:
        one, other = known[0][0], known[1][0]
        if other == 0 and node.kind in ("FloorDiv", "FloorMod"):
            return None
        return [int(_BINARY[node.kind](one, other))]
    if node.kind == "Pack" and all(len(value) == 1 for value in known):
        return [value[0] for value in known]
    if node.kind == "StridedSlice" and node.attribute("shrink_axis_mask") == 1:
        begin = known[1][0]
        return [first[begin]] if -len(first) <= begin < len(first) else None
    return None


def integers(array: Any) -> list[int] | None:
    """Return the elements of an array of whole numbers, None if it is something else."""
    if array is None or array.dtype.kind not in "iu":
        return None
    return [int(value) for value in array.ravel()]
