"""Which values an input may take, read from the traced graph.

An id that is looked up must lie in its table, a class below the number of classes. Each input is
followed through ops that keep its values, and through calls and loops, to the ops that bound them.
Left out: values that are computed with on the way (an offset that is added to an id).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import function_def_to_graph, tensor_util

from placement_advisor.graph.op import BRANCH_KINDS

if TYPE_CHECKING:
    from collections.abc import Iterator

# Which inputs of an op come out of it as they went in (perhaps in another shape or type).
_KEEPS: dict[str, tuple[int, ...]] = {
    "BroadcastTo": (0,),
    "Cast": (0,),
    "EnsureShape": (0,),
    "Enter": (0,),
    "Exit": (0,),
    "ExpandDims": (0,),
    "Gather": (0,),
    "GatherNd": (0,),
    "GatherV2": (0,),
    "Identity": (0,),
    "MirrorPad": (0,),
    "NextIteration": (0,),
    "Pad": (0,),
    "PadV2": (0, 2),
    "PreventGradient": (0,),
    "RaggedTensorToTensor": (1,),
    "Reshape": (0,),
    "ReverseV2": (0,),
    "Select": (1, 2),
    "SelectV2": (1, 2),
    "Slice": (0,),
    "Snapshot": (0,),
    "Split": (1,),
    "SplitV": (0,),
    "Squeeze": (0,),
    "StopGradient": (0,),
    "StridedSlice": (0,),
    "Switch": (0,),
    "TensorArrayGatherV3": (2,),
    "TensorArrayReadV3": (2,),
    "TensorArrayScatterV3": (2, 3),
    "TensorArrayWriteV3": (2, 3),
    "TensorListFromTensor": (0,),
    "TensorListGetItem": (0,),
    "TensorListSetItem": (0, 2),
    "TensorListStack": (0,),
    "Tile": (0,),
    "Transpose": (0,),
    "Unique": (0,),
    "UniqueV2": (0,),
    "Unpack": (0,),
}
_KEEPS_ALL = frozenset({"ConcatV2", "IdentityN", "Merge", "Pack"})
# Only the first output of these holds the values.
_FIRST_OUTPUT = frozenset({"Unique", "UniqueV2", "Merge"})
# Op kind -> which input is bounded, by the first size of its first input.
_INDEX_OF_FIRST = {
    "Gather": 1,
    "ResourceGather": 1,
    "ResourceScatterAdd": 1,
    "ResourceScatterSub": 1,
    "ResourceScatterUpdate": 1,
    "SparseSegmentMean": 1,
    "SparseSegmentSqrtN": 1,
    "SparseSegmentSum": 1,
}
_CLASS_BY_LAST = {"SparseSoftmaxCrossEntropyWithLogits": (1, 0), "InTopKV2": (1, 0)}
# Op kind -> which input is bounded, by the value of which other.
_BELOW_VALUE = {
    "Bincount": (0, 1),
    "DenseBincount": (0, 1),
    "OneHot": (0, 1),
    "UnsortedSegmentMax": (1, 2),
    "UnsortedSegmentMin": (1, 2),
    "UnsortedSegmentProd": (1, 2),
    "UnsortedSegmentSum": (1, 2),
}
_POINTS_INTO_FIRST = frozenset({"GatherNd", "ResourceGatherNd", "TensorScatterUpdate"})
_LOOKUP = "LookupTableFindV2"
_SAME_VALUE = frozenset({"Identity", "Enter", "Switch", "Cast", "StopGradient"})


@dataclass(slots=True)
class Domain:
    """What an input must be: an integer below ``below``, one of ``members``. None: anything."""

    below: int | None = None
    members: np.ndarray[Any, Any] | None = None

    def bound(self, size: int | None) -> None:
        """Take a further bound, if it is known."""
        if size:
            self.below = size if self.below is None else min(self.below, size)


def input_domains(function: Any) -> list[Domain]:
    """Return the domain of each argument of a concrete function, in order."""
    captured = {id(inner): outer for outer, inner in function.graph.captures}
    graph = _Graph(function.graph, captured=captured)
    found = []
    for tensor in function.inputs:
        if id(tensor) not in captured:
            walk = _Walk()
            walk.follow(tensor, graph)
            found.append(walk.domain)
    return found


@dataclass(slots=True)
class _Graph:
    """A graph, the call that runs it (None for the outermost), and the graphs that it calls."""

    graph: Any
    captured: dict[int, Any] = field(default_factory=dict)
    call: Any = None
    caller: _Graph | None = None
    arguments: dict[int, Any] = field(default_factory=dict)
    called: dict[tuple[str, str], _Graph] = field(default_factory=dict)
    library: dict[str, Any] = field(default_factory=dict)

    def bodies(self, op: Any) -> Iterator[_Graph]:
        """Yield the graphs of the functions that an op calls."""
        names = {v.func.name: None for v in op.node_def.attr.values() if v.func.name}
        for value in op.node_def.attr.values():
            names |= {function.name: None for function in value.list.func}
        for name in names:
            if (op.name, name) not in self.called:
                self.called[op.name, name] = self._body(op, name)
            yield self.called[op.name, name]

    def _body(self, op: Any, name: str) -> _Graph:
        with self.graph.as_default():
            body = function_def_to_graph.function_def_to_graph(self._library()[name])
        given = op.inputs[1:] if op.type in BRANCH_KINDS else op.inputs
        arguments = {id(inner): outer for inner, outer in zip(body.inputs, given, strict=False)}
        return _Graph(body, call=op, caller=self, arguments=arguments)

    def _library(self) -> dict[str, Any]:
        """Return the functions of the outermost graph: it has those of all others."""
        if self.caller is not None:
            return self.caller._library()
        if not self.library:
            functions = self.graph.as_graph_def().library.function
            self.library.update((function.signature.name, function) for function in functions)
        return self.library

    def source(self, tensor: Any) -> tuple[Any, _Graph]:
        """Follow a tensor back to where it comes from, through calls."""
        if id(tensor) in self.arguments and self.caller is not None:
            return self.caller.source(self.arguments[id(tensor)])
        if tensor.op.type in _SAME_VALUE:
            return self.source(tensor.op.inputs[0])
        return tensor, self

    def shape(self, tensor: Any) -> tuple[int | None, ...]:
        """Return the shape of a tensor, or of the variable behind a handle; () if unknown."""
        tensor, graph = self.source(tensor)
        if tensor.op.type == "ReadVariableOp":
            return graph.shape(tensor.op.inputs[0])
        if tensor.dtype != tf.resource:
            return tuple(tensor.shape) if tensor.shape.rank is not None else ()
        handle = getattr(graph.captured.get(id(tensor), tensor), "_handle_data", None)
        if handle is None or not handle.is_set or len(handle.shape_and_type) != 1:
            return ()
        shape = tf.TensorShape(handle.shape_and_type[0].shape)
        return tuple(shape) if shape.rank is not None else ()

    def value(self, tensor: Any) -> int | None:
        """Return the value of an integer that is a constant, else None."""
        value = tensor_util.constant_value(self.source(tensor)[0])
        return None if value is None or np.size(value) != 1 else int(value)


class _Walk:
    """One input's way through the graph."""

    def __init__(self) -> None:
        self.domain = Domain()
        self._seen: set[tuple[int, int]] = set()
        # Python makes a tensor anew for each look; ids count only while it lives.
        self._alive: list[Any] = []

    def follow(self, tensor: Any, graph: _Graph) -> None:
        """Visit all that reads the tensor, and what becomes of it there."""
        ahead = [(tensor, graph)]
        while ahead:
            tensor, graph = ahead.pop()
            if (id(tensor), id(graph)) in self._seen:
                continue
            self._seen.add((id(tensor), id(graph)))
            self._alive.append(tensor)
            ahead += self._leaves(tensor, graph)
            for op in tensor.consumers():
                for place, read in enumerate(op.inputs):
                    if read is tensor:
                        self._bound(op, place, graph)
                        ahead += self._passed_on(op, place, graph)

    def _leaves(self, tensor: Any, graph: _Graph) -> Iterator[tuple[Any, _Graph]]:
        """Yield what a tensor is called outside, if its function returns it."""
        if graph.caller is None:
            return
        outputs = graph.call.outputs
        for place, returned in enumerate(graph.graph.outputs):
            if returned is tensor and place < len(outputs) and outputs[place].dtype == tensor.dtype:
                yield outputs[place], graph.caller
                if "While" in graph.call.type:
                    yield graph.graph.inputs[place], graph

    def _passed_on(self, op: Any, place: int, graph: _Graph) -> Iterator[tuple[Any, _Graph]]:
        if op.type in _KEEPS_ALL or place in _KEEPS.get(op.type, ()):
            outputs = op.outputs[:1] if op.type in _FIRST_OUTPUT else op.outputs
            yield from ((output, graph) for output in outputs)
        place -= op.type in BRANCH_KINDS
        for body in graph.bodies(op):
            if 0 <= place < len(body.graph.inputs):
                yield body.graph.inputs[place], body

    def _bound(self, op: Any, place: int, graph: _Graph) -> None:
        if _INDEX_OF_FIRST.get(op.type) == place:
            self._bound_by_size(op, graph, _batch_dims(op))
        elif op.type == "GatherV2" and place == 1:
            axis = graph.value(op.inputs[2])
            if axis is not None:
                self._bound_by_size(op, graph, axis)
        elif op.type in _POINTS_INTO_FIRST and place == 1:
            depth = graph.shape(op.inputs[1])[-1:]
            for size in graph.shape(op.inputs[0])[: depth[0] if depth else None]:
                self.domain.bound(size)
        elif op.type in _CLASS_BY_LAST and _CLASS_BY_LAST[op.type][0] == place:
            shape = graph.shape(op.inputs[_CLASS_BY_LAST[op.type][1]])
            self.domain.bound(shape[-1] if shape else None)
        elif op.type in _BELOW_VALUE and _BELOW_VALUE[op.type][0] == place:
            self.domain.bound(graph.value(op.inputs[_BELOW_VALUE[op.type][1]]))
        elif op.type == _LOOKUP and place == 1:
            table, home = graph.source(op.inputs[0])
            self.domain.members = _keys(op, home.captured.get(id(table)))

    def _bound_by_size(self, op: Any, graph: _Graph, axis: int) -> None:
        shape = graph.shape(op.inputs[0])
        if -len(shape) <= axis < len(shape):
            self.domain.bound(shape[axis])


def _batch_dims(op: Any) -> int:
    return int(op.node_def.attr["batch_dims"].i) if "batch_dims" in op.node_def.attr else 0


def _keys(op: Any, table: Any) -> np.ndarray[Any, Any] | None:
    """Return the keys of a lookup table, None if there are none to be had."""
    if table is None:
        return None
    kinds = op.node_def.attr
    keys = tf.raw_ops.LookupTableExportV2(
        table_handle=table, Tkeys=kinds["Tin"].type, Tvalues=kinds["Tout"].type
    ).keys.numpy()
    return keys if len(keys) else None
