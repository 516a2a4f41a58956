"""A timetable in the making: what all list placements have in common.

Ops are put on devices one by one, inputs first, into the first gap that is long enough. The first
op of a group settles the device of all, and takes the memory that the group needs there.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from typing import TYPE_CHECKING

from placement_advisor.solvers.makespan.delays import Flow, Timetable, delay

if TYPE_CHECKING:
    from collections.abc import Sequence

    from placement_advisor.solvers.problem import Problem


class Growing:
    """A timetable that ops are added to."""

    def __init__(self, problem: Problem, flow: Flow) -> None:
        self._problem = problem
        self._flow = flow
        self._group_bytes = [
            sum(problem.size_bytes[op] for op in group) for group in problem.groups
        ]
        # By pool the groups that it can run.
        self._able = {
            id(pool): {
                number
                for number, group in enumerate(problem.groups)
                if all(pool.work[op] is not None for op in group)
            }
            for pool in problem.pools
        }
        self._device_of_group: list[str | None] = [None] * len(problem.groups)
        self._free_bytes = {
            device: problem.pool_of[device].capacity_bytes for device in problem.devices
        }
        self._busy: dict[str, list[tuple[float, float]]] = {
            device: [] for device in problem.devices
        }
        self._start = [0.0] * len(problem.ops)
        self._end = [0.0] * len(problem.ops)

    def end(self, op: int) -> float:
        """Return the end of an op that was put."""
        return self._end[op]

    def devices_for(self, op: int) -> Sequence[str]:
        """Return the devices that can take an op, given what they hold."""
        return [device for device in self._problem.devices if self.can_go(op, device)]

    def can_go(self, op: int, device: str) -> bool:
        """Return whether a device can take an op, given what it holds."""
        group = self._problem.group_of[op]
        settled = self._device_of_group[group]
        if settled is not None:
            return settled == device
        free = self._free_bytes[device]
        fits = free is None or self._group_bytes[group] <= free
        return fits and group in self._able[id(self._problem.pool_of[device])]

    def arrival(self, op: int, device: str) -> float:
        """Return when all inputs of an op are on a device."""
        time = 0.0
        for feeder in self._flow.feeders[op]:
            source = self._device_of_group[self._problem.group_of[feeder]]
            assert source is not None
            time = max(time, self._end[feeder] + delay(self._problem, feeder, source, device))
        return time

    def earliest(self, op: int, device: str) -> float:
        """Return when an op could start on a device."""
        start = self.arrival(op, device)
        work = self._work(op, device)
        busy = self._busy[device]
        at = bisect_right(busy, (start, start))
        if at and busy[at - 1][1] > start:
            start = busy[at - 1][1]
        while at < len(busy) and busy[at][0] < start + work:
            start = max(start, busy[at][1])
            at += 1
        return start

    def put(self, op: int, device: str, start: float) -> None:
        """Put an op where ``devices_for`` and ``earliest`` said it can be."""
        group = self._problem.group_of[op]
        if self._device_of_group[group] is None:
            self._device_of_group[group] = device
            free = self._free_bytes[device]
            if free is not None:
                self._free_bytes[device] = free - self._group_bytes[group]
        self._start[op], self._end[op] = start, start + self._work(op, device)
        insort(self._busy[device], (start, self._end[op]))

    def timetable(self) -> Timetable:
        """Return the timetable, all ops having been put."""
        device_of = [self._device_of_group[group] for group in self._problem.group_of]
        return Timetable(
            device_of=tuple(device for device in device_of if device is not None),
            start=tuple(self._start),
            end=tuple(self._end),
        )

    def _work(self, op: int, device: str) -> float:
        work = self._problem.pool_of[device].work[op]
        assert work is not None
        return work


def mean_work(problem: Problem) -> list[float]:
    """Return what each op takes on a device that can run it, on average; 0 where none can."""
    means = []
    for op in range(len(problem.ops)):
        times = [(pool.work[op], len(pool.devices)) for pool in problem.pools]
        able = [(work, count) for work, count in times if work is not None]
        devices = sum(count for _, count in able)
        means.append(sum(work * count for work, count in able) / devices if devices else 0.0)
    return means


def upward_rank(problem: Problem, flow: Flow) -> list[float]:
    """Return the longest way from the start of each op to the end, every copy being paid for."""
    rank = mean_work(problem)
    for op in reversed(flow.order):
        below = max((rank[consumer] for consumer in flow.consumers[op]), default=None)
        if below is not None:
            rank[op] += problem.copy_time[op] + below
    return rank
