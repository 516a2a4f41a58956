"""HEFT: the op with the longest way to the end goes first, to where it ends earliest.

Source: Topcuoglu, Hariri and Wu, Performance-effective and low-complexity task scheduling for
heterogeneous computing (2002), https://doi.org/10.1109/71.993206
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.solvers.makespan.delays import Flow, Timetable
from placement_advisor.solvers.makespan.growing import Growing, upward_rank

if TYPE_CHECKING:
    from placement_advisor.solvers.problem import Problem


def heft(problem: Problem) -> Timetable | None:
    """Return the timetable; None if an op comes to where no device can take its group any more."""
    flow = Flow.of(problem)
    growing = Growing(problem, flow)
    rank = upward_rank(problem, flow)
    number = {op: position for position, op in enumerate(flow.order)}
    for op in sorted(number, key=lambda op: (-rank[op], number[op])):
        best: tuple[float, float, str] | None = None
        for device in growing.devices_for(op):
            start = growing.earliest(op, device)
            work = problem.pool_of[device].work[op]
            assert work is not None
            if best is None or start + work < best[0]:
                best = start + work, start, device
        if best is None:
            return None
        growing.put(op, best[2], best[1])
    return growing.timetable()
