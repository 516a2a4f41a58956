"""ETF: of all ready ops on all devices, the one that can start earliest goes first.

Ties go to the op with the longest way to the end.

Source: Hwang, Chow, Anger and Lee, Scheduling precedence graphs in systems with interprocessor
communication times (1989), https://doi.org/10.1137/0218016
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

from placement_advisor.solvers.makespan.delays import Flow, Timetable
from placement_advisor.solvers.makespan.growing import Growing, upward_rank

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from placement_advisor.solvers.problem import Problem


def etf(problem: Problem) -> Timetable | None:
    """Return the timetable; None if an op comes to where no device can take its group any more."""
    return earliest_first(problem, {})


def earliest_first(problem: Problem, favourite: Mapping[int, int]) -> Timetable | None:
    """As `etf`, but devices are kept for favourites, a consumer each of some ops.

    After an op that has one, its device takes no other op until the favourite is placed or would
    find its input on any other device as well, but no longer than the op itself took: to wait out
    long copies is worse than any of them. Once the favourite is ready, it is next there.
    """
    flow = Flow.of(problem)
    growing = Growing(problem, flow)
    rank = upward_rank(problem, flow)
    waiting = [len(feeders) for feeders in flow.feeders]
    placed: set[int] = set()
    queues = {device: _Queue(growing, device, placed) for device in problem.devices}

    def offer(op: int) -> None:
        for device in growing.devices_for(op):
            queues[device].add(growing.arrival(op, device), -rank[op], op)

    for op in flow.order:
        if not waiting[op]:
            offer(op)
    while True:
        nexts = [(found, device) for device, queue in queues.items() if (found := queue.next())]
        if not nexts:
            break
        (start, _, op), device = min(nexts, key=lambda item: item[0])
        growing.put(op, device, start)
        placed.add(op)
        queue = queues[device]
        queue.free, queue.keep = growing.end(op), None
        if op in favourite:
            wait = min(problem.copy_time[op], growing.end(op) - start)
            queue.keep = favourite[op], queue.free + wait
        for consumer in flow.consumers[op]:
            waiting[consumer] -= 1
            if not waiting[consumer]:
                offer(consumer)
    return growing.timetable() if len(placed) == len(problem.ops) else None


class _Queue:
    """The ready ops that a device can take: by rank if their inputs are there, else by time."""

    def __init__(self, growing: Growing, device: str, placed: Container[int]) -> None:
        self._growing, self._device, self._placed = growing, device, placed
        self._here: list[tuple[float, int]] = []
        self._coming: list[tuple[float, float, int]] = []
        self._arrival: dict[int, tuple[float, float]] = {}
        self.free = 0.0
        self.keep: tuple[int, float] | None = None

    def add(self, arrival: float, priority: float, op: int) -> None:
        """Add an op whose inputs are there at a time; the least priority comes first."""
        heappush(self._coming, (arrival, priority, op))
        self._arrival[op] = arrival, priority

    def next(self) -> tuple[float, float, int] | None:
        """Return the start, the priority and the number of the op that can start earliest."""
        free = self.free
        if self.keep is not None:
            kept, until = self.keep
            if kept in self._placed:
                self.keep = None
            elif kept in self._arrival and self._can_start(kept):
                arrival, priority = self._arrival[kept]
                return max(free, arrival), priority, kept
            else:
                free = max(free, until)
        while self._coming and self._coming[0][0] <= free:
            _, priority, op = heappop(self._coming)
            heappush(self._here, (priority, op))
        while self._here and not self._can_start(self._here[0][1]):
            heappop(self._here)
        if self._here:
            priority, op = self._here[0]
            # The device may have been kept until then, and no longer be.
            return max(free, self._arrival[op][0]), priority, op
        while self._coming and not self._can_start(self._coming[0][2]):
            heappop(self._coming)
        return self._coming[0] if self._coming else None

    def _can_start(self, op: int) -> bool:
        return op not in self._placed and self._growing.can_go(op, self._device)
