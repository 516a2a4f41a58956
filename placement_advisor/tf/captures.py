"""What a traced step captured, as ops of its own graph: its state, movable to any device.

Variables become VarHandleOps, which carry their shape; lookup tables that the step only reads
become HashTableV2s; other captured tensors become constants. Anything else that lives outside the
graph (iterators, summary writers, tables that the step changes, Python functions) is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from placement_advisor.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

_LOOKUP = "LookupTableFindV2"
_TABLE_CHANGES = frozenset(
    {"LookupTableInsertV2", "LookupTableRemoveV2", "LookupTableImportV2", "InitializeTableV2"}
)
_CHOICES = frozenset({"If", "StatelessIf", "Case", "StatelessCase"})
_PYTHON_CALLS = frozenset({"PyFunc", "PyFuncStateless", "EagerPyFunc"})


@dataclass(frozen=True, slots=True)
class State:
    """Initial values of variables, and keys and values of tables, by the name of their handle."""

    variables: dict[str, Any] = field(default_factory=dict)
    tables: dict[str, tuple[Any, Any]] = field(default_factory=dict)

    def renamed(self, names: Mapping[str, str]) -> State:
        """Return the same state under new names; those that are not in ``names`` stay."""
        return State(
            {names.get(name, name): value for name, value in self.variables.items()},
            {names.get(name, name): content for name, content in self.tables.items()},
        )

    def only(self, names: Collection[str]) -> State:
        """Return the state that these ops hold."""
        return State(
            {name: value for name, value in self.variables.items() if name in names},
            {name: content for name, content in self.tables.items() if name in names},
        )


def bind(graph_def: Any, captured: Mapping[str, Any]) -> State:
    """Turn the placeholders of captured tensors into ops; return the state that they hold.

    Raises:
        ModelError: the step holds something that cannot be moved to another device.
    """
    _refuse_python(graph_def)
    state = State()
    for node in graph_def.node:
        if node.name not in captured:
            continue
        outer = captured[node.name]
        if outer.dtype == tf.variant:
            raise _cannot_move(graph_def, node.name)
        node.attr.clear()
        if outer.dtype != tf.resource:
            _bind_constant(node, outer)
        elif not (_bind_variable(node, outer, state) or _bind_table(node, outer, state, graph_def)):
            raise _cannot_move(graph_def, node.name)
    return state


def array(tensor: Any) -> Any:
    """Return an eager tensor's value as an array, also where it is a single text."""
    value = tensor.numpy()
    return np.array(value, dtype=object) if tensor.dtype == tf.string else np.asarray(value)


def state_names(
    labels: Mapping[int, str], captured: Mapping[str, Any], taken: Iterable[str]
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
        unique, n = identifier(label), 1
        while unique in used:
            n += 1
            unique = f"{identifier(label)}_{n}"
        used.add(unique)
        names[name] = unique
    return names


def identifier(name: str) -> str:
    """Return the name as TensorFlow allows it for an op."""
    safe = "".join(c if c.isascii() and (c.isalnum() or c in "_./-") else "_" for c in name)
    return safe if safe[:1].isalnum() or safe.startswith(".") else f"input{safe}"


def _bind_constant(node: Any, outer: Any) -> None:
    node.op = "Const"
    node.attr["dtype"].type = outer.dtype.as_datatype_enum
    node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(outer.numpy(), dtype=outer.dtype))


def _bind_variable(node: Any, outer: Any, state: State) -> bool:
    handle = getattr(outer, "_handle_data", None)
    if handle is None or not handle.is_set or len(handle.shape_and_type) != 1:
        return False
    held = handle.shape_and_type[0]
    try:
        value = array(tf.raw_ops.ReadVariableOp(resource=outer, dtype=held.dtype))
    except tf.errors.OpError:  # Another kind of resource that knows its shape.
        return False
    node.op = "VarHandleOp"
    node.attr["dtype"].type = held.dtype
    node.attr["shape"].shape.CopyFrom(held.shape)
    node.attr["shared_name"].s = node.name.encode()
    state.variables[node.name] = value
    return True


def _bind_table(node: Any, outer: Any, state: State, graph_def: Any) -> bool:
    library = {function.signature.name: function for function in graph_def.library.function}
    readers = list(_readers(node.name, graph_def.node, library))
    lookup = next((reader for reader in readers if reader.op == _LOOKUP), None)
    if lookup is None or any(reader.op in _TABLE_CHANGES for reader in readers):
        return False
    keys_type, values_type = lookup.attr["Tin"].type, lookup.attr["Tout"].type
    content = tf.raw_ops.LookupTableExportV2(
        table_handle=outer, Tkeys=keys_type, Tvalues=values_type
    )
    node.op = "HashTableV2"
    node.attr["key_dtype"].type = keys_type
    node.attr["value_dtype"].type = values_type
    node.attr["shared_name"].s = node.name.encode()
    state.tables[node.name] = (array(content.keys), array(content.values))
    return True


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
                    argument = function.signature.input_arg[place - (node.op in _CHOICES)]
                    yield from _readers(argument.name, function.node_def, library)


def _refuse_python(graph_def: Any) -> None:
    for node in _all_nodes(graph_def):
        if node.op in _PYTHON_CALLS:
            raise ModelError(
                f"the step calls back into Python ({node.op} {node.name!r}), which only the "
                f"process that made it can do",
                hint="replace tf.py_function and tf.numpy_function by TensorFlow ops",
            )


def _cannot_move(graph_def: Any, name: str) -> ModelError:
    readers = (n for n in graph_def.node if name in {i.partition(":")[0] for i in n.input})
    reader = next(readers, None)
    used_by = f" (used by {reader.op} {reader.name!r})" if reader is not None else ""
    return ModelError(
        f"the step holds a resource that cannot be moved to another device: {name!r}{used_by}",
        hint="variables, and lookup tables that the step only reads, can be moved; iterators, "
        "queues, summary writers and tables that change belong outside the step",
    )


def _all_nodes(graph_def: Any) -> Iterator[Any]:
    yield from graph_def.node
    for function in graph_def.library.function:
        yield from function.node_def
