"""What the ops that update variables are given, found in a flat graph.

An update is an op that takes a variable's handle and does more than read it. What it adds is one
of its inputs, in full precision, where the variable itself may be too large to show it. Of an
assignment that is the other operand of the sum that it assigns; what else is assigned, and what
loops and conditionals write within, is not found.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from placement_advisor.measurement.verification import AppliedUpdate

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

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
