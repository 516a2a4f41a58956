"""How often a loop runs, from what it counts and compares."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from placement_advisor.tf.trace.nodes import Node

_COMPARISONS: Mapping[str, Callable[[int, int], bool]] = {
    "Less": operator.lt,
    "LessEqual": operator.le,
    "Greater": operator.gt,
    "GreaterEqual": operator.ge,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Induction:
    """A counter that starts somewhere and moves by the same step in each trip; 0 if it stays."""

    start: int
    step: int


def trips_of(condition: Node, value: Callable[[Node, int], Induction | None]) -> int | None:
    """Return how often a loop's body runs while the condition holds; None if that is not known.

    ``value`` tells what is known of a tensor in the condition. Understood are comparisons of a
    counter with a number, and their conjunctions and disjunctions: autograph tests the end of a
    range and the sign of its step. A part that is not known could end the loop at any time.
    """
    first = _first_failure(condition, value)
    return None if first is None or first == _NEVER else first


# More trips than any loop makes: a condition that always holds.
_NEVER = 1 << 62


def _first_failure(node: Node, value: Callable[[Node, int], Induction | None]) -> int | None:
    """Return the first trip before which the condition fails."""
    if node.kind == "Identity":
        return _first_failure(node.inputs[0][0], value)
    if node.kind in ("LogicalAnd", "LogicalOr"):
        parts = [_first_failure(producer, value) for producer, _ in node.inputs]
        known = [part for part in parts if part is not None]
        if node.kind == "LogicalAnd":
            # What fails at once needs no other part; what fails later does.
            return min(known) if len(known) == len(parts) or 0 in known else None
        if _NEVER in known:
            return _NEVER
        return max(known) if len(known) == len(parts) and 0 in known else None
    if node.kind not in _COMPARISONS:
        return None
    one, other = (value(producer, port) for producer, port in node.inputs)
    if one is None or other is None:
        return None
    return _first_trip_without(node.kind, one.start - other.start, one.step - other.step)


def _first_trip_without(kind: str, start: int, step: int) -> int | None:
    """Return the first trip at which ``start + trip · step`` does not compare so with 0."""
    if not _COMPARISONS[kind](start, 0):
        return 0
    towards = step if kind.startswith("Less") else -step
    if towards <= 0:
        return _NEVER
    distance = abs(start) + (1 if kind.endswith("Equal") else 0)
    return -(-distance // towards)
