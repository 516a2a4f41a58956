"""What each op of a step does, told from the structure of the graph.

Backward ops are those that TensorFlow names after the forward op they serve; what comes after
them, and what feeds only that, updates state. An op stands with the variable or table that it
takes; variables that one op takes together (a loop over two of them) can only stand together.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from placement_advisor.graph.op import Role

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from placement_advisor.tf.trace.nodes import Node

HANDLE_KINDS = frozenset({"VarHandleOp", "HashTableV2"})
_GRADIENT_SCOPE = re.compile(r"^(.*/)?(?:gradient_tape|gradients(?:_\d+)?)/")
GRADIENT_SUFFIX = re.compile(r"_grad(?=/|$)")
# Lists that a loop fills for its gradient, which names them: the forward pass begins with them.
_ACCUMULATOR_KIND = "EmptyTensorList"
# Looking a member up takes a tenth of a microsecond, here up to a million times.
_INPUT, _CONSTANT, _VARIABLE, _FORWARD, _BACKWARD, _UPDATE = Role


def gradient_scope(name: str) -> re.Match[str] | None:
    """Return the part of a name that says that the op belongs to a gradient, None if none does."""
    # Most names hold no such part; looking for the word first is several times faster.
    return _GRADIENT_SCOPE.match(name) if "gradient" in name else None


def variables(operations: Iterable[Node]) -> dict[str, str]:
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
        if op.kind in HANDLE_KINDS:
            held[op.name], together[op.name] = (op.name,), op.name
            continue
        handles = [p for p, port in op.inputs if p.outputs[port].is_handle]
        taken = [h for producer in handles for h in held.get(producer.name, ())]
        if not taken and any(tensor.is_handle for tensor in op.outputs):
            held[op.name], together[op.name] = (op.name,), op.name  # It makes one of its own.
        if taken:
            held[op.name] = tuple(dict.fromkeys(taken))
            for other in taken[1:]:
                one, two = sorted((first(taken[0]), first(other)), key=list(together).index)
                together[two] = one
    return {name: first(handles[0]) for name, handles in held.items()}


def roles(
    operations: list[Node], readers: dict[str, list[Node]], inputs: Collection[str]
) -> dict[str, Role]:
    """Return the role of every op; ``operations`` stand in topological order."""
    differentiated = _differentiated(operations)
    found: dict[str, Role] = {}
    from_backward: set[str] = set()
    for op in operations:
        if op.name in inputs:
            found[op.name] = _INPUT
        elif op.kind == "Const":
            found[op.name] = _CONSTANT
        elif op.kind in HANDLE_KINDS:
            found[op.name] = _VARIABLE
        elif gradient_scope(op.name) and op.kind != _ACCUMULATOR_KIND:
            found[op.name] = _BACKWARD
            from_backward.add(op.name)
        # State passes on through control edges: a slot is read again after it was written.
        elif not from_backward.isdisjoint([before.name for before in op.before()]):
            # A step may go forward again after an update, with a second loss.
            found[op.name] = _FORWARD if op.name in differentiated else _UPDATE
            from_backward.add(op.name)
        else:
            found[op.name] = _FORWARD
    _what_feeds(_FORWARD, operations, readers, found)  # A second forward pass.
    # What feeds a gradient is one, also under no gradient's name. So are the sum of a tensor's
    # gradients, if it is used twice, and all that a custom gradient computes (the swish activation
    # has one).
    _what_feeds(_BACKWARD, operations, readers, found)
    for _ in range(2):  # What feeds an update can be what reads another variable.
        _what_writes_for_updates(operations, readers, found)
        _what_feeds_updates_alone(operations, readers, found)
    return found


def _differentiated(operations: list[Node]) -> set[str]:
    """Return names of ops after which gradient ops are named, with the scopes that they lie in."""
    names: set[str] = set()
    for op in operations:
        match = gradient_scope(op.name)
        name = GRADIENT_SUFFIX.sub("", op.name[match.end() :]) if match else ""
        while name and name not in names:
            names.add(name)
            name = name.rpartition("/")[0]
    return names


def _what_feeds(
    role: Role, operations: list[Node], readers: dict[str, list[Node]], found: dict[str, Role]
) -> None:
    """Give this role to what was taken for an update and is read by an op of the role."""
    for op in reversed(operations):
        if found[op.name] is _UPDATE and any(
            found[reader.name] is role for reader in readers[op.name]
        ):
            found[op.name] = role


def _what_feeds_updates_alone(
    operations: list[Node], readers: dict[str, list[Node]], found: dict[str, Role]
) -> None:
    """Learning rate, step counter and slot reads belong to the updates."""
    for op in reversed(operations):
        if found[op.name] is _FORWARD and _roles_of(readers[op.name], found) == {_UPDATE}:
            found[op.name] = _UPDATE


def _what_writes_for_updates(
    operations: list[Node], readers: dict[str, list[Node]], found: dict[str, Role]
) -> None:
    """State is written by updates, also without a gradient, if updates write it or alone read it.

    That is weight decay, and the step counter; what counts it up reads it for itself.
    """
    forward = [op for op in operations if found[op.name] is _FORWARD]
    assignments = [op for op in forward if op.kind.startswith("Assign")]
    if not assignments:
        return
    counts = _counted_up(forward, readers)
    for op in assignments:
        handle = op.inputs[0][0].name
        takers = readers[handle]
        writers = {found[taker.name] for taker in takers if taker.kind.startswith("Assign")}
        others = {
            found[taker.name]
            for taker in takers
            if not taker.kind.startswith("Assign") and counts.get(taker.name) != handle
        }
        if _UPDATE in writers or others == {_UPDATE}:
            found[op.name] = _UPDATE


def _counted_up(forward: list[Node], readers: dict[str, list[Node]]) -> dict[str, str]:
    """Map forward ops that serve nothing but an assignment to the variable that it assigns."""
    counts: dict[str, str] = {}
    for op in reversed(forward):
        if op.kind.startswith("Assign"):
            counts[op.name] = op.inputs[0][0].name
            continue
        served = {counts.get(reader.name) for reader in readers[op.name]}
        if len(served) == 1 and (variable := served.pop()) is not None:
            counts[op.name] = variable
    return counts


def _roles_of(operations: list[Node], found: dict[str, Role]) -> set[Role]:
    return {found[op.name] for op in operations}
