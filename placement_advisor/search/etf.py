"""ETF: of all ready ops on all devices, the one that can start earliest goes first.

Ties go to the op with the longest way to the end.

Source: Hwang, Chow, Anger and Lee, Scheduling precedence graphs in systems with interprocessor
communication times (1989), https://doi.org/10.1137/0218016
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

from placement_advisor.search.delays import Flow, Timetable
from placement_advisor.search.growing import Growing, upward_rank

if TYPE_CHECKING:
    from collections.abc import Mapping

    from placement_advisor.search.problem import Problem


def etf(problem: Problem) -> Timetable | None:
    """Return the timetable; None if an op comes to where no device can take its group any more."""
    return earliest_first(problem, {})


def earliest_first(problem: Problem, favourite: Mapping[int, int]) -> Timetable | None:
    """As `etf`, but devices are kept for favourites, a consumer each of some ops.

    After an op that has one, its device takes no other op until the favourite would find its input
    on any other device as well, or is placed.
    """
    flow = Flow.of(problem)
    growing = Growing(problem, flow)
    rank = upward_rank(problem, flow)
    waiting = [len(feeders) for feeders in flow.feeders]
    kept: dict[str, tuple[int, float]] = {}
    placed: set[int] = set()
    # Starts grow while other ops are put: the least one is settled if it is still true.
    queue: list[tuple[float, float, int, str]] = []

    def start(op: int, device: str) -> float:
        keep, until = kept.get(device, (op, 0.0))
        return growing.earliest(op, device, 0.0 if keep in placed or keep == op else until)

    def offer(op: int) -> None:
        for device in growing.devices_for(op):
            heappush(queue, (start(op, device), -rank[op], op, device))

    for op in flow.order:
        if not waiting[op]:
            offer(op)
    while queue:
        expected, _, op, device = heappop(queue)
        if op in placed or device not in growing.devices_for(op):
            continue
        now = start(op, device)
        if now > expected:
            heappush(queue, (now, -rank[op], op, device))
            continue
        growing.put(op, device, now)
        placed.add(op)
        if op in favourite:
            kept[device] = favourite[op], growing.end(op) + problem.copy_time[op]
        for consumer in flow.consumers[op]:
            waiting[consumer] -= 1
            if not waiting[consumer]:
                offer(consumer)
    return growing.timetable() if len(placed) == len(problem.ops) else None
