"""Reads TensorFlow's operations once into light nodes, which are walked many times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2, tensor_pb2, tensor_shape_pb2

from placement_advisor.graph.digraph import reached, topological_order
from placement_advisor.graph.op_work.signature import Signature, TensorSpec

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable


class Source:
    """What a node was made of: an operation of TensorFlow's."""

    __slots__ = ("_op",)

    def __init__(self, op: Any) -> None:
        self._op = op

    def attribute(self, name: str) -> Any:
        """Return an attribute as a plain value: types and functions by name, tensors as arrays.

        None if the op has none of that name.
        """
        try:
            return plain(self._op.get_attr(name))
        except ValueError:
            return None

    def definition(self) -> Any:
        """Return the op as a NodeDef, as it was traced."""
        return self._op.node_def

    def device(self) -> str:
        """Return the device that the user's `tf.device` scopes ask for, as TensorFlow writes it.

        Empty if there is none.
        """
        return str(self._op.device)


class Node:
    """One op: its name, kind, tensors and what must run before it.

    ``inputs`` are (producer, port), ``controls`` the ops that it waits for, ``outputs`` the specs
    of its tensors. ``source`` tells the rest; an op that stands for others has none.
    """

    __slots__ = ("controls", "inputs", "kind", "name", "outputs", "source")

    def __init__(self, name: str, kind: str, source: Source | None = None) -> None:
        self.name, self.kind, self.source = name, kind, source
        self.inputs: list[tuple[Node, int]] = []
        self.controls: list[Node] = []
        self.outputs: tuple[TensorSpec, ...] = ()

    def attribute(self, name: str) -> Any:
        """Return an attribute, see `Source`; None without a source."""
        return None if self.source is None else self.source.attribute(name)

    def before(self) -> list[Node]:
        """Return what must run before this op; an op may come up several times."""
        return [*[producer for producer, _ in self.inputs], *self.controls]

    def __repr__(self) -> str:
        return f"{self.kind} {self.name!r}"


def data_readers(nodes: Iterable[Node]) -> dict[str, list[Node]]:
    """Return the nodes that read each op's tensors, in the order of ``nodes``."""
    nodes = list(nodes)
    readers: dict[str, list[Node]] = {node.name: [] for node in nodes}
    for node in nodes:
        for producer, _ in node.inputs:
            found = readers[producer.name]
            if not found or found[-1] is not node:
                found.append(node)
    return readers


def in_order(nodes: list[Node]) -> list[Node]:
    """Return the nodes with producers first, otherwise as given; they are on no cycle."""
    place = {id(node): i for i, node in enumerate(nodes)}
    sources: list[int] = []
    targets: list[int] = []
    for i, node in enumerate(nodes):
        before = [place[id(other)] for other in node.before()]
        sources += before
        targets += [i] * len(before)
    order = topological_order(len(nodes), sources, targets)
    assert order is not None, "a step has no cycles but loops"
    return [nodes[i] for i in order]


def needed(nodes: Iterable[Node], ends: Collection[str]) -> list[Node]:
    """Return the nodes that an end needs, in their order; TensorFlow runs no others."""
    nodes = list(nodes)
    found = reached((node for node in nodes if node.name in ends), Node.before)
    return [node for node in nodes if node in found]


_NO_FIXED_SIZE = frozenset({tf.string, tf.variant, tf.resource})
_HANDLE = TensorSpec(shape=None, dtype="resource", item_bytes=None, is_handle=True)


def read(operations: Iterable[Any]) -> list[Node]:
    """Return the nodes of TensorFlow's operations, in their order."""
    operations = list(operations)
    nodes = [Node(op.name, op.type, Source(op)) for op in operations]
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


def unused(name: str, taken: set[str], *, first: int = 1) -> str:
    """Return a name that is not taken, numbered from ``first`` if need be, and take it."""
    unique, n = name, first
    while unique in taken:
        unique, n = f"{name}_{n}", n + 1
    taken.add(unique)
    return unique


def named_functions(proto: Any) -> list[Any]:
    """Return the functions that attributes of a NodeDef name, so that they can be renamed."""
    return [
        function
        for attribute in proto.attr.values()
        for function in (attribute.func, *attribute.list.func)
        if function.name
    ]


# A constant with more elements is data; formulas ask for axes, paddings and shapes.
MAX_ELEMENTS = 64


def op_signature(node: Node) -> Signature:
    """Return the signature of an op."""

    def constant_input(i: int) -> Any:
        if not 0 <= i < len(node.inputs):
            return None
        producer, _ = node.inputs[i]
        if producer.kind != "Const" or (producer.outputs[0].elements or 0) > MAX_ELEMENTS:
            return None
        value = producer.attribute("value")
        return None if value is None else value.tolist()

    return Signature(
        node.kind,
        tuple([producer.outputs[port] for producer, port in node.inputs]),
        node.outputs,
        node.attribute,
        constant_input,
    )
