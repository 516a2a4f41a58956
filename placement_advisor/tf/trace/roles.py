"""Finds the role of each op from the graph's structure, and what updates of variables are given."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from placement_advisor.graph.op import Role
from placement_advisor.measurement.verification import AppliedUpdate

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

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
        of_readers = {found[reader.name] for reader in readers[op.name]}
        if found[op.name] is _FORWARD and of_readers == {_UPDATE}:
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


_ASSIGNS = "AssignVariableOp"
_ADDS = ("AssignAddVariableOp", "AssignSubVariableOp", "ResourceApply", "ResourceSparseApply")
_SCATTERS = "ResourceScatter"
_SUMS = frozenset({"Add", "AddV2", "Sub"})
_HANDS_ON = frozenset({"Identity", "StopGradient", "PreventGradient"})
# Of the operands of an assigned sum, those that only carry the old value on.
_CARRIES = frozenset({"Mul", *_HANDS_ON})
# Of larger tensors only some elements are kept: those of four steps and their reference would not
# fit beside a large model. A mistake in all of a tensor, or in one of its rows of many, shows.
_KEPT_ELEMENTS = 1 << 15


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """A tensor that an op adds to a variable; ``rows`` is the tensor of the rows, if it has any.

    ``key`` tells the updates of a variable apart: the kind of ``op``, which of those it is, and the
    place of the tensor among what the op is given.
    """

    variable: str
    op: str
    key: str
    tensor: str
    rows: str | None = None


def updates(nodes: Iterable[Any], variables: Collection[str]) -> list[Update]:
    """Return what updates are given, of the variables of these handles."""
    by_name = {node.name: node for node in nodes}
    found: list[Update] = []
    counts: Counter[tuple[str, str]] = Counter()
    for node in by_name.values():
        inputs = [reference for reference in node.input if not reference.startswith("^")]
        held = [op_of(reference) for reference in inputs if op_of(reference) in variables]
        if not held:
            continue
        given, rows = _given(by_name, node, inputs, variables)
        for variable in held if given else ():
            number = counts[variable, node.op]
            counts[variable, node.op] += 1
            found += [
                Update(
                    variable=variable,
                    op=node.name,
                    key=f"{node.op} {number}.{place}",
                    tensor=tensor,
                    rows=rows if place == len(given) - 1 else None,
                )
                for place, tensor in enumerate(given)
            ]
    return found


def written(nodes: Iterable[Any], variables: Collection[str]) -> set[str]:
    """Return the variables, of those of these handles, that some op updates, known or not."""
    return {
        op_of(reference)
        for node in nodes
        if node.op.startswith((_ASSIGNS, *_ADDS, _SCATTERS))
        for reference in node.input
        if op_of(reference) in variables
    }


def _given(
    by_name: Mapping[str, Any], node: Any, inputs: Sequence[str], variables: Collection[str]
) -> tuple[list[str], str | None]:
    """Return what an op that takes handles is given for the variables, and for which rows."""
    if node.op == _ASSIGNS:
        added = _added(by_name, inputs[1], op_of(inputs[0]))
        return ([] if added is None else [added]), None
    if node.op.startswith(_SCATTERS):
        return [inputs[2]], inputs[1]
    if node.op.startswith(_ADDS):
        others = [reference for reference in inputs if op_of(reference) not in variables]
        return others, others.pop() if "Sparse" in node.op else None
    return [], None


def op_of(reference: str) -> str:
    """Return the op of an input of a NodeDef."""
    return reference.removeprefix("^").partition(":")[0]


def given_in_step(
    wanted: Sequence[Update], values: Mapping[str, Any], step: int
) -> dict[str, list[AppliedUpdate]]:
    """Return what updates were given, by variable, from the values of their tensors."""
    found: dict[str, list[AppliedUpdate]] = {}
    for update in wanted:
        value = np.asarray(values[update.tensor])
        if update.rows is not None and value.ndim:
            value = _summed(np.asarray(values[update.rows]), value)
        given = AppliedUpdate(update=update.key, step=step, value=_kept(value))
        found.setdefault(update.variable, []).append(given)
    return found


def tensors(wanted: Iterable[Update]) -> list[str]:
    """Return the tensors that have to be fetched for updates."""
    found: dict[str, None] = {}
    for update in wanted:
        found |= dict.fromkeys(filter(None, (update.tensor, update.rows)))
    return list(found)


def _added(by_name: Mapping[str, Any], reference: str, variable: str) -> str | None:
    """Return what an assigned sum adds to the variable's old value, or to a share of it."""
    node = by_name[op_of(reference)]
    while node.op in _HANDS_ON:
        node = by_name[op_of(node.input[0])]
    if node.op not in _SUMS:
        return None
    old = [_is_old(by_name, operand, variable) for operand in node.input[:2]]
    return str(node.input[1 - old.index(True)]) if sum(old) == 1 else None


def _is_old(by_name: Mapping[str, Any], reference: str, variable: str) -> bool:
    node = by_name[op_of(reference)]
    if node.op == "ReadVariableOp":
        return op_of(node.input[0]) == variable
    inputs = [other for other in node.input if not other.startswith("^")]
    return node.op in _CARRIES and any(_is_old(by_name, other, variable) for other in inputs)


def _summed(rows: Any, values: Any) -> Any:
    """Return values in the order of their rows, those of one row added up."""
    if rows.ndim != 1 or values.shape[:1] != rows.shape:
        return values
    wide = values.astype(np.float64 if values.dtype.kind == "f" else values.dtype)
    places, inverse = np.unique(rows, return_inverse=True)
    total = np.zeros((len(places), *values.shape[1:]), wide.dtype)
    np.add.at(total, inverse, wide)
    return np.concatenate([places.reshape(len(places), -1), total.reshape(len(places), -1)], axis=1)


def _kept(value: Any) -> Any:
    # An odd number, so that all columns of the usual sizes come up.
    every = -(-value.size // _KEPT_ELEMENTS) | 1
    return value.ravel()[::every].copy() if every > 1 else value


def tensor_name(reference: str) -> str:
    """Return the name that TensorFlow gives the tensor of an input of a NodeDef."""
    return reference if ":" in reference else f"{reference}:0"
