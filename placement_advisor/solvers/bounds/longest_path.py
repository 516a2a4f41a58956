"""The longest chain of ops that each need the one before, at no cost for copies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.solvers.bounds.arguments import PathArgument

if TYPE_CHECKING:
    from placement_advisor.solvers.bounds.step_numbers import Step


def longest_path(step: Step) -> PathArgument:
    """Return the argument of the critical path at zero copy cost."""
    tail_ns = [0] * len(step.ops)
    after: list[int | None] = [None] * len(step.ops)
    outputs: list[list[int]] = [[] for _ in step.ops]
    for tensor in step.tensors:
        outputs[tensor.producer] += tensor.readers
    for op in reversed(range(len(step.ops))):
        rest_ns = min(step.end_ns(place) for place in step.time_ns[op])
        for reader in outputs[op]:
            if after[op] is None or tail_ns[reader] > rest_ns:
                rest_ns, after[op] = tail_ns[reader], reader
        tail_ns[op] = step.least_ns[op] + rest_ns

    def whole_ns(op: int) -> int:
        return tail_ns[op] + min(step.begin_ns(place) for place in step.time_ns[op])

    first: int | None = max(range(len(step.ops)), key=whole_ns, default=None)
    value_ns = 0 if first is None else whole_ns(first)
    path, at = [], first
    while at is not None:
        path.append(step.ops[at].name)
        at = after[at]
    return PathArgument(value_ns=value_ns, ops=tuple(path))
