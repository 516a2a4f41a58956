"""Finds values that follow from the graph alone.

They are loop limits, axes, entries of shapes, and the length and shape of lists of tensors.
"""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any, NamedTuple

import tensorflow as tf

from placement_advisor.graph.op_work.signature import TensorSpec
from placement_advisor.tf.trace.nodes import MAX_ELEMENTS, Node, write_constant

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


_PASSING = frozenset(
    {"Identity", "Cast", "StopGradient", "Enter", "ExpandDims", "Squeeze", "Reshape"}
)
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
    if elements is None or not 0 < elements <= MAX_ELEMENTS:
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


_MADE_EMPTY = "EmptyTensorList"
_MADE_FULL = "TensorListReserve"
_LIST_PASSING = frozenset({"Identity", "ZerosLike", "TensorListSetItem"})
# Where several ops read a list, its gradients are added up: lists of the same length and shapes.
_SUM = "AddN"
_GROWING = {"TensorListPushBack": 1, "TensorListPopBack": -1}
_ITEM_INPUT = {"TensorListSetItem": 2, "TensorListPushBack": 1}


class ListContent(NamedTuple):
    """What one list holds: ``length`` tensors of the shape ``element``; None what is not known."""

    element: tuple[int, ...] | None
    dtype: str
    length: int | None

    @property
    def spec(self) -> TensorSpec | None:
        """The list as one tensor, None if its size is not known."""
        if self.element is None or self.length is None or self.length < 0:
            return None
        size = None if self.dtype in _WITHOUT_SIZE else tf.as_dtype(self.dtype).size
        return TensorSpec((self.length, *self.element), "variant", size)


_WITHOUT_SIZE = frozenset({"string", "variant", "resource"})
Lists = dict[tuple[str, int], ListContent]


def note_list(node: Node, lists: Lists, values: Mapping[tuple[str, int], int]) -> None:
    """Add to ``lists`` what the list that a node puts out holds, if it puts out one.

    ``lists`` and ``values`` (whole numbers) know what stands before the node.
    """
    if node.kind == _SUM:
        found = (lists.get((producer.name, port)) for producer, port in node.inputs)
        content = next((content for content in found if content and content.spec), None)
        if content is not None:
            for producer, port in node.inputs:
                hold(producer, port, content, lists)
    else:
        content = _content(node, lists, values)
    if content is not None:
        hold(node, 0, content, lists)


def hold(node: Node, port: int, content: ListContent, lists: Lists) -> None:
    """Add what an output holds, and give the output its size."""
    lists[node.name, port] = content
    spec = content.spec
    if spec is not None:
        node.outputs = (*node.outputs[:port], spec, *node.outputs[port + 1 :])


def list_made(graph_def: Any, node: Any, content: ListContent) -> None:
    """Turn a NodeDef into the op that makes such a list, so that shapes follow from it."""
    node.op = _MADE_FULL
    node.attr.clear()
    node.attr["element_dtype"].type = tf.as_dtype(content.dtype).as_datatype_enum
    node.attr["shape_type"].type = tf.int32.as_datatype_enum
    for part, value in (("element", content.element), ("length", content.length or 0)):
        constant = graph_def.node.add(name=f"{node.name}/{part}")
        write_constant(constant, value, tf.int32)
        node.input.append(constant.name)


def after_trips(first: ListContent, once: ListContent, trips: int | None) -> ListContent:
    """Return what a list holds after a loop, from what it holds before and after the first trip."""
    length = None
    if first.length is not None and once.length is not None:
        added = once.length - first.length
        if added == 0:
            length = first.length
        elif trips is not None:
            length = first.length + added * trips
    element = once.element if first.element in (None, once.element) else None
    return ListContent(element, once.dtype, length)


def _content(node: Node, lists: Lists, values: Mapping[tuple[str, int], int]) -> ListContent | None:
    if node.kind in (_MADE_EMPTY, _MADE_FULL):
        shape, (sizer, port) = node.inputs[0][0], node.inputs[1]
        length = 0 if node.kind == _MADE_EMPTY else values.get((sizer.name, port))
        return ListContent(_shape(shape), str(node.attribute("element_dtype")), length)
    if node.kind == "TensorListFromTensor":
        given, port = node.inputs[0]
        shape_given, dtype = given.outputs[port].shape, given.outputs[port].dtype
        return ListContent(shape_given[1:], dtype, shape_given[0]) if shape_given else None
    if (node.kind not in _LIST_PASSING and node.kind not in _GROWING) or not node.inputs:
        return None
    before = lists.get((node.inputs[0][0].name, node.inputs[0][1]))
    if before is None:
        return None
    element, length = before.element, before.length
    if node.kind in _ITEM_INPUT:
        item, port = node.inputs[_ITEM_INPUT[node.kind]]
        shape_put = item.outputs[port].shape
        element = shape_put if element in (None, shape_put) else None
        if node.attribute("resize_if_index_out_of_bounds"):
            length = None
    if node.kind in _GROWING and length is not None:
        length += _GROWING[node.kind]
    return ListContent(element, before.dtype, length)


def _shape(node: Node) -> tuple[int, ...] | None:
    """Return the shape that a constant spells out, None if it leaves a size open."""
    if node.kind != "Const":
        return None
    value = node.attribute("value")
    sizes = integers(value)
    if sizes is None or value.ndim != 1 or any(size < 0 for size in sizes):
        return None
    return tuple(sizes)
