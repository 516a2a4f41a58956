"""Groups of ops that a search moves together.

A *grouping* divides the ops of a graph; coarse ones make a search fast, fine ones make it thorough.
What it finds under a grouping is the best of the placements that keep its groups together, and
nothing is claimed beyond them.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence, Set

    from numpy.typing import NDArray

    from placement_advisor.graph.op_graph import Op, OpGraph

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouping:
    """Groups in the order of their first op.

    ``group_of`` is the group of each op, ``pairs`` those that exchange tensors. Groups that take
    time are ``movable`` unless one of their ops is fixed; ``weights`` says how often each of these
    is worth a move.
    """

    group_of: Ints
    first_op: Ints
    pairs: Ints
    movable: Ints
    is_fixed: NDArray[np.bool_]
    weights: Floats

    def devices(self, device: Ints) -> Ints:
        """Return the device of each group, given that of each op."""
        return device[self.first_op]

    def keeps_together(self, device: Ints) -> bool:
        """Return whether the placement parts no group."""
        return bool((self.devices(device)[self.group_of] == device).all())


def group_ops(
    graph: OpGraph,
    ops: Sequence[Op],
    key_of: Mapping[str, Hashable],
    time_ns: Mapping[str, int],
    fixed: Set[str],
) -> Grouping:
    """Return the groups of ops with equal keys; an op without a key is a group of its own.

    Ops of one variable or table stay together, whatever their keys, and so do their groups.
    A group with a fixed op is never moved.
    """
    number: dict[Hashable, int] = {}
    parent: list[int] = []

    def find(group: int) -> int:
        while parent[group] != group:
            parent[group] = group = parent[parent[group]]
        return group

    of_op = []
    home: dict[str, int] = {}
    for i, op in enumerate(ops):
        group = number.setdefault(("key", key_of[op.name]) if op.name in key_of else i, len(number))
        if group == len(parent):
            parent.append(group)
        if op.variable is not None:
            parent[find(group)] = find(home.setdefault(op.variable, group))
        of_op.append(group)
    order: dict[int, int] = {}
    group_of = np.array([order.setdefault(find(g), len(order)) for g in of_op], np.int64)
    first = np.unique(group_of, return_index=True)[1].astype(np.int64)
    weight: defaultdict[int, int] = defaultdict(int)
    for op, group in zip(ops, group_of.tolist(), strict=True):
        weight[group] += time_ns.get(op.name, 0)
    is_fixed = np.zeros(len(first), bool)
    is_fixed[[g for op, g in zip(ops, group_of.tolist(), strict=True) if op.name in fixed]] = True
    takes_time = np.array([weight[g] > 0 for g in range(len(first))], bool)
    movable = np.flatnonzero(takes_time & ~is_fixed).astype(np.int64)
    # Between moving all alike and moving by time alone.
    weights = np.sqrt([float(weight[g]) for g in movable.tolist()])
    place = {op.name: i for i, op in enumerate(ops)}
    pairs = {
        (int(group_of[place[e.producer]]), int(group_of[place[e.consumer]]))
        for e in graph.edges
        if e.producer in place and e.consumer in place
    }
    return Grouping(
        group_of=group_of,
        first_op=first,
        pairs=np.array(sorted(p for p in pairs if p[0] != p[1]), np.int64).reshape(-1, 2),
        movable=movable,
        is_fixed=is_fixed,
        weights=weights / weights.sum() if len(weights) else weights,
    )
