"""TensorFlow's operations as nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2, tensor_pb2, tensor_shape_pb2

from placement_advisor.graph.op_work.signature import TensorSpec
from placement_advisor.tf.trace.nodes import Node

if TYPE_CHECKING:
    from collections.abc import Iterable

_NO_FIXED_SIZE = frozenset({tf.string, tf.variant, tf.resource})
_HANDLE = TensorSpec(shape=None, dtype="resource", item_bytes=None, is_handle=True)


class Traced:
    """An operation of TensorFlow's as the source of a node."""

    __slots__ = ("_op",)

    def __init__(self, op: Any) -> None:
        self._op = op

    def attribute(self, name: str) -> Any:
        """Return an attribute as a plain value, None if the op has none of that name."""
        try:
            return plain(self._op.get_attr(name))
        except ValueError:
            return None

    def definition(self) -> Any:
        """Return the NodeDef as traced."""
        return self._op.node_def

    def device(self) -> str:
        """Return the device that was asked for, empty if none was."""
        return str(self._op.device)


def read(operations: Iterable[Any]) -> list[Node]:
    """Return the nodes of TensorFlow's operations, in their order."""
    operations = list(operations)
    nodes = [Node(op.name, op.type, Traced(op)) for op in operations]
    origin: dict[int, tuple[Node, int]] = {}
    by_op: dict[int, Node] = {}
    for node, op in zip(nodes, operations, strict=True):
        by_op[id(op)] = node
        tensors = op.outputs
        node.outputs = tuple([spec(tensor) for tensor in tensors])
        for port, tensor in enumerate(tensors):
            origin[id(tensor)] = (node, port)
    for node, op in zip(nodes, operations, strict=True):
        node.inputs = [origin[id(tensor)] for tensor in op.inputs]
        node.controls = [by_op[id(before)] for before in op.control_inputs]
    return nodes


_items: dict[Any, tuple[str, int | None]] = {}


def spec(tensor: Any) -> TensorSpec:
    """Return the spec of a tensor; what a handle stands for is not known from it."""
    dtype = tensor.dtype
    if dtype is tf.resource:
        return _HANDLE
    shape = tensor.shape
    dims = shape.as_list() if shape.rank is not None else None
    return typed(None if dims is None or None in dims else tuple(dims), dtype)


def typed(shape: tuple[int, ...] | None, dtype: Any, *, is_handle: bool = False) -> TensorSpec:
    """Return the spec of a shape and a type of TensorFlow's."""
    known = _items.get(dtype)
    if known is None:
        known = _items[dtype] = (dtype.name, None if dtype in _NO_FIXED_SIZE else dtype.size)
    return TensorSpec(shape, *known, is_handle)


def write_spec(proto: Any, shape: tuple[int, ...] | None, dtype: str) -> None:
    """Write shape and type into the NodeDef of a placeholder or variable."""
    proto.attr["dtype"].type = tf.as_dtype(dtype).as_datatype_enum
    proto.attr["shape"].shape.CopyFrom(tf.TensorShape(shape).as_proto())


def write_constant(proto: Any, value: Any, dtype: Any) -> None:
    """Turn a NodeDef without inputs into a constant."""
    dtype = tf.as_dtype(dtype or tf.int32)
    proto.op = "Const"
    proto.attr["dtype"].type = dtype.as_datatype_enum
    proto.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value, dtype))


def plain(value: Any) -> Any:
    """Return an attribute's value without TensorFlow's types.

    Types and functions become their names, texts `str`, tensors arrays, shapes lists with None
    where a size is unknown.
    """
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, tf.DType):
        return value.name
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, attr_value_pb2.NameAttrList):
        return value.name
    if isinstance(value, tensor_pb2.TensorProto):
        return tf.make_ndarray(value)
    if isinstance(value, tensor_shape_pb2.TensorShapeProto):
        shape = tf.TensorShape(value)
        return None if shape.rank is None else shape.as_list()
    return value
