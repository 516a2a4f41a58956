"""Optimizer ops by the variable that they change.

A *slot* is state that only updates touch: a momentum, a step counter. It belongs to the variable
whose change is computed from it. An op belongs to the variable that its results go into, directly
or by way of its slots; one whose results go into several (the learning rate, a clipped norm) is
shared, and so is one whose results go nowhere.

Left out: updates that reach a variable through control edges alone.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from placement_advisor.graph.membership import data_inputs, data_outputs
from placement_advisor.graph.op import variable_of
from placement_advisor.graph.op_graph import Role
from placement_advisor.graph.roles import PASS_ROLES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from placement_advisor.graph.op_graph import OpGraph

# An optimizer keeps at most a handful of slots per variable; what reaches more is shared by
# variables, however many they are.
MAX_AIMS = 8
_MANY: frozenset[str] = frozenset(map(str, range(MAX_AIMS + 1)))


@dataclass(frozen=True, slots=True, kw_only=True)
class VariableUpdate:
    """The ops that change one variable, in graph order, and the slots that belong to it."""

    variable: str
    ops: tuple[str, ...]
    slots: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Updates:
    """The update ops of a step: of each variable, and those of no single one."""

    variables: tuple[VariableUpdate, ...]
    shared: tuple[str, ...]


def updates_by_variable(graph: OpGraph) -> Updates:
    """Return the update ops of the graph by variable, in the order of their first op."""
    touched = _touched(graph)
    aims = _aims(graph, touched)
    owner = _owners(graph, touched, aims)
    ops: dict[str, list[str]] = defaultdict(list)
    shared = []
    for op in graph.ops:
        if op.role is not Role.UPDATE:
            continue
        variables = {owner[aim] for aim in aims[op.name]} if aims[op.name] is not _MANY else {None}
        variable = variables.pop() if len(variables) == 1 else None
        if variable is None:
            shared.append(op.name)
        else:
            ops[variable].append(op.name)
    slots: dict[str, list[str]] = defaultdict(list)
    for slot, variable in owner.items():
        if variable is not None and slot != variable:
            slots[variable].append(slot)
    return Updates(
        variables=tuple(
            VariableUpdate(variable=variable, ops=tuple(some), slots=tuple(slots[variable]))
            for variable, some in ops.items()
        ),
        shared=tuple(shared),
    )


def _touched(graph: OpGraph) -> dict[str, frozenset[str]]:
    """Return the variables that each op holds, reads or updates."""
    touched = {}
    for op in graph.ops:
        found = {
            variable
            for edge in data_inputs(graph, op.name)
            if (producer := graph.op(edge.producer)).role is Role.VARIABLE
            and (variable := variable_of(producer)) is not None
        }
        if op.variable is not None:
            found.add(op.variable)
        touched[op.name] = frozenset(found)
    return touched


def _aims(graph: OpGraph, touched: Mapping[str, frozenset[str]]) -> dict[str, frozenset[str]]:
    """Return the variables, slots included, that each update op's results go into."""
    aims: dict[str, frozenset[str]] = {}
    for op in reversed(graph.ops):
        if op.role is not Role.UPDATE:
            continue
        used = {e.consumer for e in data_outputs(graph, op.name) if e.consumer in aims}
        aims[op.name] = _joined(aims[name] for name in used) if used else touched[op.name]
    return aims


def _owners(
    graph: OpGraph,
    touched: Mapping[str, frozenset[str]],
    aims: Mapping[str, frozenset[str]],
) -> dict[str, str | None]:
    """Return the variable that each slot belongs to; itself for any other, None if shared."""
    touching: dict[str, set[str]] = defaultdict(set)
    for op in graph.ops:
        for variable in sorted(touched[op.name]):
            touching[variable].add(op.name)
    main = {
        variable
        for variable, ops in touching.items()
        if any(graph.op(op).role in PASS_ROLES for op in ops)
    }
    serves = {
        variable: _joined(aims[op] for op in ops if op in aims)
        for variable, ops in touching.items()
    }
    owner: dict[str, str | None] = {}
    for variable, others in serves.items():
        if variable in main:
            owner[variable] = variable
            continue
        # A slot may lead to its variable by way of other slots; each of these names it too.
        mains = others & main
        apart = others - {variable}
        if others is _MANY or len(mains) > 1:
            owner[variable] = None
        elif mains:
            owner[variable] = next(iter(mains))
        elif any(serves.get(other) is _MANY for other in apart):
            owner[variable] = None
        else:
            found = set().union(*(serves.get(other, frozenset()) & main for other in apart))
            owner[variable] = found.pop() if len(found) == 1 else variable
    return owner


def _joined(sets: Iterable[frozenset[str]]) -> frozenset[str]:
    """Return the union; `_MANY` where it is large."""
    joined: frozenset[str] = frozenset()
    for some in sets:
        if some is _MANY:
            return _MANY
        if not some <= joined:
            joined |= some
        if len(joined) > MAX_AIMS:
            return _MANY
    return joined
