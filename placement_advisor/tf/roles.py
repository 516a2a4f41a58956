"""What each op of a step does, told from the structure of the graph.

Backward ops are those that TensorFlow names after the forward op they serve; what comes after
them, and what feeds only that, updates state. An op stands with the variable or table that it
takes; variables that one op takes together (a loop over two of them) can only stand together.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from placement_advisor.graph import Role

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

HANDLE_KINDS = frozenset({"VarHandleOp", "HashTableV2"})
GRADIENT_SCOPE = re.compile(r"^(.*/)?(?:gradient_tape|gradients(?:_\d+)?)/")
GRADIENT_SUFFIX = re.compile(r"_grad(?=/|$)")
# Lists that a loop fills for its gradient, which names them: the forward pass begins with them.
_ACCUMULATOR_KIND = "EmptyTensorList"


def data_readers(operations: list[Any]) -> dict[str, list[Any]]:
    """Return the operations that read each op's tensors, in the order of ``operations``.

    TensorFlow's own list of them changes its order from run to run.
    """
    readers: dict[str, list[Any]] = {op.name: [] for op in operations}
    for op in operations:
        for name in dict.fromkeys(t.op.name for t in op.inputs):
            readers[name].append(op)
    return readers


def variables(operations: Iterable[Any]) -> dict[str, str]:
    """Map each handle, and each op that takes one, to the variable or table that it stands with.

    Of those that must stand together, the first gives its name.
    """
    held: dict[str, tuple[str, ...]] = {}
    together: dict[str, str] = {}

    def first(name: str) -> str:
        while together[name] != name:
            name = together[name]
        return name

    for op in operations:
        if op.type in HANDLE_KINDS:
            held[op.name], together[op.name] = (op.name,), op.name
            continue
        taken = [h for t in op.inputs if t.dtype == tf.resource for h in held.get(t.op.name, ())]
        if taken:
            held[op.name] = tuple(dict.fromkeys(taken))
            for other in taken[1:]:
                one, two = sorted((first(taken[0]), first(other)), key=list(together).index)
                together[two] = one
    return {name: first(handles[0]) for name, handles in held.items()}


def roles(operations: list[Any], inputs: Collection[str]) -> dict[str, Role]:
    """Return the role of every op; ``operations`` stand in topological order."""
    differentiated = _differentiated(operations)
    found: dict[str, Role] = {}
    after_backward: set[str] = set()
    for op in operations:
        # State passes on through control edges: a slot is read again after it was written.
        before = [t.op.name for t in op.inputs] + [c.name for c in op.control_inputs]
        if op.name in inputs:
            found[op.name] = Role.INPUT
        elif op.type == "Const":
            found[op.name] = Role.CONSTANT
        elif op.type in HANDLE_KINDS:
            found[op.name] = Role.VARIABLE
        elif GRADIENT_SCOPE.match(op.name) and op.type != _ACCUMULATOR_KIND:
            found[op.name] = Role.BACKWARD
        elif any(found[i] is Role.BACKWARD or i in after_backward for i in before):
            # A step may go forward again after an update, with a second loss.
            found[op.name] = Role.FORWARD if op.name in differentiated else Role.UPDATE
            after_backward.add(op.name)
        else:
            found[op.name] = Role.FORWARD
    readers = data_readers(operations)
    _what_feeds_a_second_forward_pass(operations, readers, found)
    _sums_of_gradients(operations, readers, found)
    _what_writes_for_updates(operations, found)
    _what_feeds_updates_alone(operations, readers, found)
    _what_writes_for_updates(operations, found)
    return found


def _differentiated(operations: list[Any]) -> set[str]:
    """Return names of ops after which gradient ops are named, with the scopes that they lie in."""
    names: set[str] = set()
    for op in operations:
        match = GRADIENT_SCOPE.match(op.name)
        name = GRADIENT_SUFFIX.sub("", op.name[match.end() :]) if match else ""
        while name and name not in names:
            names.add(name)
            name = name.rpartition("/")[0]
    return names


def _what_feeds_a_second_forward_pass(
    operations: list[Any], readers: dict[str, list[Any]], found: dict[str, Role]
) -> None:
    for op in reversed(operations):
        if found[op.name] is Role.UPDATE and Role.FORWARD in _roles_of(readers[op.name], found):
            found[op.name] = Role.FORWARD


def _sums_of_gradients(
    operations: list[Any], readers: dict[str, list[Any]], found: dict[str, Role]
) -> None:
    """A tensor that is used twice has a gradient that is added up, under no gradient's name."""
    for op in operations:
        given = {found[t.op.name] for t in op.inputs} - {Role.CONSTANT}
        feeds_gradients = Role.BACKWARD in _roles_of(readers[op.name], found)
        if found[op.name] is Role.UPDATE and given == {Role.BACKWARD} and feeds_gradients:
            found[op.name] = Role.BACKWARD


def _what_feeds_updates_alone(
    operations: list[Any], readers: dict[str, list[Any]], found: dict[str, Role]
) -> None:
    """Learning rate, step counter and slot reads belong to the updates."""
    for op in reversed(operations):
        if found[op.name] is Role.FORWARD and _roles_of(readers[op.name], found) == {Role.UPDATE}:
            found[op.name] = Role.UPDATE


def _what_writes_for_updates(operations: list[Any], found: dict[str, Role]) -> None:
    """State is written by updates, also without a gradient, if updates write it or alone read it.

    That is weight decay, and the step counter.
    """
    writers: dict[str, set[Role]] = {}
    readers: dict[str, set[Role]] = {}
    for op in operations:
        users = writers if op.type.startswith("Assign") else readers
        for t in op.inputs:
            if t.op.type in HANDLE_KINDS:
                users.setdefault(t.op.name, set()).add(found[op.name])
    for op in operations:
        if op.type.startswith("Assign") and found[op.name] is Role.FORWARD:
            handle = op.inputs[0].op.name
            if Role.UPDATE in writers[handle] or readers.get(handle) == {Role.UPDATE}:
                found[op.name] = Role.UPDATE


def _roles_of(operations: list[Any], found: dict[str, Role]) -> set[Role]:
    return {found[op.name] for op in operations}
