"""The annealing by itself, with costs by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from placed_steps import op

from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.solvers.effort import Effort
from placement_advisor.solvers.step_search import Cost, group_ops, improve

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]


class Tempting:
    """With the first op on the second device the step is ten times as short, but does not fit."""

    def guess(self, device: Ints, /) -> Cost:
        return Cost(excess_bytes=0, step_ns=100 if device[0] else 1_000)

    def confirm(self, device: Ints, guessed: Cost, /) -> Cost:
        return replace(guessed, excess_bytes=int(device[0]))

    def chain(self, device: Ints, /) -> Ints:
        return np.flatnonzero(device < 0).astype(np.int64)


def test_a_much_shorter_step_that_turns_out_not_to_fit_is_not_the_answer() -> None:
    graph = OpGraph([op(f"op{i}", 8) for i in range(100)], [])
    time_ns = {each.name: 1 for each in graph.ops}
    grouping = group_ops(graph, graph.ops, {}, time_ns, frozenset())
    start = np.zeros(100, np.int64)

    found = improve(Tempting(), [start], [(grouping, 1.0)], 2, Effort(units=0.05))

    assert found.cost == Cost(excess_bytes=0, step_ns=1_000)
    assert found.device[0] == 0
    assert found.tried > 100
