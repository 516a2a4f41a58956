"""m-SCT-like: ETF whose devices wait for the favourite child of what they have just run.

Every op has at most one favourite child, and is that of at most one op. Hanen and Munier take them
from a linear program. Here they are matched greedily, the edge with the longest way from start to
end through its copy first: what it gains from one device counts most, and no solver is needed.

Source: Hanen and Munier, An approximation algorithm for scheduling dependent tasks on m processors
with small communication delays (1995), https://doi.org/10.1109/ETFA.1995.496783; for placements of
deep learning graphs Jeon, Cai, Zhao et al., Baechi (2020), https://doi.org/10.1145/3419111.3421302
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.solvers.makespan.delays import Flow, Timetable
from placement_advisor.solvers.makespan.etf import earliest_first
from placement_advisor.solvers.makespan.growing import mean_work, upward_rank

if TYPE_CHECKING:
    from placement_advisor.solvers.problem import Problem


def msct(problem: Problem) -> Timetable | None:
    """Return the timetable; None if an op comes to where no device can take its group any more."""
    return earliest_first(problem, favourite_children(problem))


def favourite_children(problem: Problem) -> dict[int, int]:
    """Return the favourite child of each op that has one."""
    flow = Flow.of(problem)
    work, below = mean_work(problem), upward_rank(problem, flow)
    above = [0.0] * len(problem.ops)
    for op in flow.order:
        for feeder in flow.feeders[op]:
            above[op] = max(above[op], above[feeder] + work[feeder] + problem.copy_time[feeder])
    edges = [(op, consumer) for op in flow.order for consumer in flow.consumers[op]]
    edges.sort(
        key=lambda e: above[e[0]] + work[e[0]] + problem.copy_time[e[0]] + below[e[1]], reverse=True
    )
    favourite: dict[int, int] = {}
    taken: set[int] = set()
    for op, consumer in edges:
        if op not in favourite and consumer not in taken:
            favourite[op] = consumer
            taken.add(consumer)
    return favourite
