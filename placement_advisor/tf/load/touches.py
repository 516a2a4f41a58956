"""What a call of a `tf.function` does to variables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from placement_advisor.tf.answers import UPDATES


@dataclass(frozen=True, slots=True, kw_only=True)
class Touches:
    """What a `tf.function` does to variables, which are told apart by the `id` of their handle.

    One that ``updates`` assigns trainable ones; one that ``differentiates`` has gradients, which it
    may add up in other variables for somebody else to update with.
    """

    reads: frozenset[Any]
    assigns: frozenset[Any]
    updates: bool
    differentiates: bool

    @property
    def trains(self) -> bool:
        """Whether it is part of a training step."""
        return self.updates or (self.differentiates and bool(self.assigns))


def touches(function: Any, args: Any, kwargs: Any) -> Touches:
    """Return what a call of a function does to variables; it was traced before."""
    graph = function.get_concrete_function(*args, **kwargs).graph
    bodies = [node for each in graph.as_graph_def().library.function for node in each.node_def]
    outer = {id(inner): id(outer) for outer, inner in graph.captures}
    assigning = [op for op in graph.get_operations() if op.type.startswith(UPDATES)]
    if any(node.op.startswith(UPDATES) for node in bodies):  # Within a loop or conditional.
        assigned = {id(variable.handle) for variable in graph.variables}
    else:
        assigned = {outer[id(op.inputs[0])] for op in assigning if id(op.inputs[0]) in outer}
    trainable = {id(variable.handle) for variable in graph.variables if variable.trainable}
    names = (op.name for op in graph.get_operations())
    return Touches(
        reads=frozenset(outer.values()),
        assigns=frozenset(assigned),
        updates=bool(assigned & trainable),
        differentiates=any("gradient_tape/" in name or "gradients/" in name for name in names),
    )
