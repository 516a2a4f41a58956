"""Saves a traced step (graph, state, example batches), so that runners need no user code."""

from __future__ import annotations

import pickle
import re
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import node_def_pb2

from placement_advisor.errors import ModelError
from placement_advisor.graph.op import BRANCH_KINDS
from placement_advisor.tf.trace.nodes import Node, Source, typed, unused

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterable, Iterator, Mapping
    from pathlib import Path

    from placement_advisor.graph.op_work.signature import TensorSpec
    from placement_advisor.tf.trace.loops import Loop


_LOOKUP = "LookupTableFindV2"
_TABLE_CHANGES = frozenset(
    {"LookupTableInsertV2", "LookupTableRemoveV2", "LookupTableImportV2", "InitializeTableV2"}
)
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_./-]")
_TABLE = "HashTableV2"


@dataclass(frozen=True, slots=True)
class Variable:
    """A captured variable: its handle, what it holds, and the shape that it was declared with.

    Some declare sizes as unknown, to change them later.
    """

    handle: Any
    shape: tuple[int, ...]
    dtype: Any
    declared: Any

    @property
    def spec(self) -> TensorSpec:
        """The handle's spec, as formulas see it."""
        return typed(self.shape, self.dtype, is_handle=True)

    def value(self) -> Any:
        """Return its value as an array."""
        return array(tf.raw_ops.ReadVariableOp(resource=self.handle, dtype=self.dtype))


@dataclass(frozen=True, slots=True)
class Table:
    """A captured lookup table: its handle, and the types of its keys and values."""

    handle: Any
    key_dtype: Any
    value_dtype: Any

    def content(self) -> tuple[Any, Any]:
        """Return its keys and values as arrays."""
        exported = tf.raw_ops.LookupTableExportV2(
            table_handle=self.handle, Tkeys=self.key_dtype, Tvalues=self.value_dtype
        )
        return array(exported.keys), array(exported.values)


@dataclass(frozen=True, slots=True)
class State:
    """What a step captured, by the name of the placeholder that stands for it in the graph."""

    variables: dict[str, Variable] = field(default_factory=dict)
    tables: dict[str, Table] = field(default_factory=dict)
    constants: dict[str, Any] = field(default_factory=dict)

    def renamed(self, names: Mapping[str, str]) -> State:
        """Return the same state under new names; those that are not in ``names`` stay."""
        return State(*({names.get(n, n): v for n, v in kind.items()} for kind in self._kinds()))

    def only(self, names: Collection[str]) -> State:
        """Return the state that these ops hold."""
        return State(*({n: v for n, v in kind.items() if n in names} for kind in self._kinds()))

    def _kinds(self) -> tuple[dict[str, Any], ...]:
        return self.variables, self.tables, self.constants

    def apply(self, nodes: Iterable[Node]) -> None:
        """Make of nodes what `write` makes of a graph."""
        for node in nodes:
            if node.name in self.variables:
                node.kind, node.outputs = "VarHandleOp", (self.variables[node.name].spec,)
            elif node.name in self.tables:
                node.kind = _TABLE
            elif node.name in self.constants:
                node.kind = "Const"
            else:
                continue
            node.source = _Captured(node.kind, self.constants.get(node.name))

    def write(self, graph_def: Any) -> None:
        """Turn the placeholders of captured tensors into ops that hold the state."""
        for node in graph_def.node:
            if node.name in self.variables:
                variable = self.variables[node.name]
                _become(node, "VarHandleOp", dtype=variable.dtype)
                node.attr["shape"].shape.CopyFrom(variable.declared)
            elif node.name in self.tables:
                table = self.tables[node.name]
                _become(node, _TABLE, key_dtype=table.key_dtype, value_dtype=table.value_dtype)
            elif node.name in self.constants:
                value = self.constants[node.name]
                _become(node, "Const", dtype=value.dtype)
                proto = tf.make_tensor_proto(value.numpy(), dtype=value.dtype)
                node.attr["value"].tensor.CopyFrom(proto)


def find_state(captures: Mapping[str, Any], variables: Container[int], graph_def: Any) -> State:
    """Return what the captured tensors are; ``graph_def`` gives the graph when it is called.

    ``variables`` holds the `id` of handles that are known to be those of variables.

    Raises:
        ModelError: the step holds something that cannot be moved to another device.
    """
    state = State()
    for name, outer in captures.items():
        if outer.dtype not in (tf.resource, tf.variant):
            state.constants[name] = outer
            continue
        is_resource = outer.dtype == tf.resource
        variable = _variable(outer, id(outer) in variables) if is_resource else None
        if variable is not None:
            state.variables[name] = variable
            continue
        table = _table(name, outer, graph_def()) if is_resource else None
        if table is None:
            raise _cannot_move(graph_def(), name)
        state.tables[name] = table
    return state


def array(tensor: Any) -> Any:
    """Return an eager tensor's value as an array, also where it is a single text.

    Numbers are not copied: a variable that changes later does so in memory of its own.
    """
    if tensor.dtype == tf.string:
        return np.array(tensor.numpy(), dtype=object)
    return np.asarray(tensor)


def state_names(
    labels: Mapping[int, str], captured: Mapping[str, Any], taken: Collection[str]
) -> dict[str, str]:
    """Name state as its owner does, instead of by the op that happened to read it first.

    ``labels`` holds the owner's names by the handle's `id`, ``taken`` the names of other ops.
    """
    names: dict[str, str] = {}
    used = set(taken)
    for name, outer in captured.items():
        label = labels.get(id(outer))
        if label is None:
            continue
        names[name] = unused(identifier(label), used, first=2)
    return names


def identifier(name: str) -> str:
    """Return the name as TensorFlow allows it for an op."""
    safe = _NOT_IN_NAMES.sub("_", name)
    return safe if safe[:1].isalnum() or safe.startswith(".") else f"input{safe}"


class _Captured(Source):
    """A captured tensor as the source of a node."""

    def __init__(self, kind: str, constant: Any | None) -> None:
        self._kind, self._constant = kind, constant

    def attribute(self, name: str) -> Any:
        """Return a constant's value; no other attribute is known."""
        is_value = name == "value" and self._constant is not None
        return array(self._constant) if is_value else None

    def definition(self) -> Any:
        """Return a NodeDef of the kind alone."""
        return node_def_pb2.NodeDef(op=self._kind)

    def device(self) -> str:
        """Return nothing: where it stands now says nothing about where it was meant to be."""
        return ""


def _become(node: Any, kind: str, **types: Any) -> None:
    node.op = kind
    node.attr.clear()
    for attribute, dtype in types.items():
        node.attr[attribute].type = dtype.as_datatype_enum
    if kind != "Const":
        node.attr["shared_name"].s = node.name.encode()


def _variable(outer: Any, is_known: bool) -> Variable | None:
    handle = getattr(outer, "_handle_data", None)
    if handle is None or not handle.is_set or len(handle.shape_and_type) != 1:
        return None
    # Other kinds of resources know a shape as well.
    if not is_known and not tf.raw_ops.VarIsInitializedOp(resource=outer):
        return None
    held = handle.shape_and_type[0]
    shape = tf.TensorShape(held.shape)
    dtype = tf.as_dtype(held.dtype)
    if not shape.is_fully_defined():  # As large as it is now.
        shape = tf.raw_ops.ReadVariableOp(resource=outer, dtype=dtype).shape
    return Variable(outer, tuple(shape.as_list()), dtype, held.shape)


def _table(name: str, outer: Any, graph_def: Any) -> Table | None:
    library = {function.signature.name: function for function in graph_def.library.function}
    readers = list(_readers(name, graph_def.node, library))
    lookup = next((reader for reader in readers if reader.op == _LOOKUP), None)
    if lookup is None or any(reader.op in _TABLE_CHANGES for reader in readers):
        return None
    return Table(outer, tf.as_dtype(lookup.attr["Tin"].type), tf.as_dtype(lookup.attr["Tout"].type))


def _readers(name: str, nodes: Iterable[Any], library: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the ops that take a handle, also in the functions that it is handed to."""
    for node in nodes:
        for place, reference in enumerate(node.input):
            if reference.partition(":")[0] != name:
                continue
            yield node
            if node.op == "Identity":
                yield from _readers(node.name, nodes, library)
            for attribute in node.attr.values():
                if attribute.func.name in library:
                    function = library[attribute.func.name]
                    # A branch is not handed the input that chooses it.
                    argument = function.signature.input_arg[place - (node.op in BRANCH_KINDS)]
                    yield from _readers(argument.name, function.node_def, library)


def _cannot_move(graph_def: Any, name: str) -> ModelError:
    readers = (n for n in graph_def.node if name in {i.partition(":")[0] for i in n.input})
    reader = next(readers, None)
    used_by = f" (used by {reader.op} {reader.name!r})" if reader is not None else ""
    return ModelError(
        f"the step holds a resource that cannot be moved to another device: {name!r}{used_by}",
        hint="variables, and lookup tables that the step only reads, can be moved; iterators, "
        "queues, summary writers and tables that change belong outside the step",
    )


_GRAPH = "graph.pb"
_STATE = "state.pickle"


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """How the batch of a step is split, in tensors of the unsplit step.

    ``samples`` are those of each replica. ``finished`` has each tensor that updates or the user are
    given of replicas' work, with the axis of the batch, None where it has none. ``growing`` tensors
    have a part for each sample. ``draws`` and ``takes_statistics`` say what replicas compute of
    their own; one that ``goes_on`` computes with what was put together from all. ``statistics`` are
    the variables that only keep statistics of the batch.
    """

    samples: tuple[int, ...]
    finished: tuple[tuple[str, int | None], ...]
    growing: frozenset[str]
    draws: bool
    takes_statistics: bool
    goes_on: bool
    statistics: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """Everything that is needed to run a step anywhere.

    ``graph_def`` is flat; variables are VarHandleOps, tables HashTableV2s. ``variables`` maps a
    handle's name to its initial value, ``tables`` to keys and values. ``batches`` are flattened,
    in the order of ``inputs``. ``outputs`` are tensors, ``targets`` ops that must run. ``loops``
    maps ops of the op graph to the ops of the graph that they stand for. ``split`` is None for a
    step whose batch is not split.
    """

    graph_def: Any
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    targets: tuple[str, ...]
    variables: dict[str, np.ndarray[Any, Any]]
    tables: dict[str, tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]
    batches: tuple[tuple[np.ndarray[Any, Any], ...], ...]
    loops: dict[str, Loop] = field(default_factory=dict)
    split: Split | None = None

    def save(self, folder: Path) -> None:
        """Write the bundle into a folder."""
        (folder / _GRAPH).write_bytes(self.graph_def.SerializeToString())
        rest = {
            name: getattr(self, name)
            for name in (each.name for each in fields(self))
            if name != "graph_def"
        }
        with (folder / _STATE).open("wb") as file:
            pickle.dump(rest, file, protocol=pickle.HIGHEST_PROTOCOL)

    @classmethod
    def load(cls, folder: Path) -> Bundle:
        """Read a bundle that `save` wrote. Only our own temporary files are read."""
        graph_def = tf.compat.v1.GraphDef()
        graph_def.ParseFromString((folder / _GRAPH).read_bytes())
        with (folder / _STATE).open("rb") as file:
            return cls(graph_def=graph_def, **pickle.load(file))
