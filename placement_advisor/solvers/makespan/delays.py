"""Timetables in the contention-free delay model: what a makespan is, and what a valid timetable.

Model: every op runs once, on one device. A device runs one op at a time, to its end; the order is
free. An op starts once all its inputs are there. A tensor is there at once on the device of its
producer, and ``copy_time`` after the producer's end on any other; at once as well if neither device
pays for copies. Memory is a hard limit: the sizes of all ops of a device together. Groups stay
together. The makespan is the end of the last op.

Left out: copies that queue for a wire, copies that keep a device busy, memory that is freed.

Source: Rayward-Smith, UET scheduling with unit interprocessor communication delays (1987),
https://doi.org/10.1016/0166-218X(87)90051-4; with delays of any size as in Papadimitriou and
Yannakakis (1990), https://doi.org/10.1137/0219021.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from placement_advisor.graph.digraph import topological_order

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from placement_advisor.solvers.problem import Problem

# Beyond it, floating point numbers do not tell whole ones apart.
_MAX_WHOLE = 2.0**53


@dataclass(frozen=True, slots=True, kw_only=True)
class Timetable:
    """The device, the start and the end of each op, in the unit of the problem."""

    device_of: tuple[str, ...]
    start: tuple[float, ...]
    end: tuple[float, ...]

    @property
    def makespan(self) -> float:
        """The end of the last op."""
        return max(self.end, default=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """The ops that each op reads from and is read by, once each, and an order of all."""

    feeders: tuple[tuple[int, ...], ...]
    consumers: tuple[tuple[int, ...], ...]
    order: tuple[int, ...]

    @classmethod
    def of(cls, problem: Problem) -> Flow:
        """Return the flow of a problem, which must have no cycle."""
        count = len(problem.ops)
        feeders: list[list[int]] = [[] for _ in range(count)]
        consumers: list[list[int]] = [[] for _ in range(count)]
        edges = dict.fromkeys(problem.edges)
        for producer, consumer in edges:
            feeders[consumer].append(producer)
            consumers[producer].append(consumer)
        order = topological_order(count, [p for p, _ in edges], [c for _, c in edges])
        assert order is not None
        return cls(
            feeders=tuple(map(tuple, feeders)),
            consumers=tuple(map(tuple, consumers)),
            order=tuple(order),
        )


def delay(problem: Problem, op: int, source: str, target: str) -> float:
    """Return how long after its end the output of an op arrives."""
    if source == target:
        return 0.0
    pools = problem.pool_of
    paid = pools[source].pays_for_copies or pools[target].pays_for_copies
    return problem.copy_time[op] if paid else 0.0


def can_copy_freely(problem: Problem) -> bool:
    """Return whether there are two devices that do not pay for copies between them."""
    return sum(len(pool.devices) for pool in problem.pools if not pool.pays_for_copies) > 1


def whole_unit(problem: Problem) -> float | None:
    """Return the largest number that all times are whole multiples of; None unless all are whole.

    Then the least makespan is a multiple of it as well.
    """
    times = [time for pool in problem.pools for time in pool.work if time is not None]
    times += problem.copy_time
    if sum(times) > _MAX_WHOLE or not all(float(time).is_integer() for time in times):
        return None
    return float(math.gcd(*map(int, times)) or 1)


def in_order(problem: Problem, device_of: Sequence[str], order: Iterable[int]) -> Timetable:
    """Start ops in this order, each as soon as its inputs and its device allow.

    ``device_of`` is by op, and each op can run there; ``order`` has inputs before their readers.
    """
    feeders = Flow.of(problem).feeders
    free = dict.fromkeys(problem.devices, 0.0)
    start = [0.0] * len(problem.ops)
    end = [0.0] * len(problem.ops)
    for op in order:
        device = device_of[op]
        work = problem.pool_of[device].work[op]
        assert work is not None
        arrivals = (
            end[feeder] + delay(problem, feeder, device_of[feeder], device)
            for feeder in feeders[op]
        )
        start[op] = max(free[device], *arrivals, 0.0)
        end[op] = free[device] = start[op] + work
    return Timetable(device_of=tuple(device_of), start=tuple(start), end=tuple(end))


def by_start(start: Sequence[float], end: Sequence[float], flow: Flow) -> list[int]:
    """Return the ops by start; of those that start together, inputs come first.

    An op of no time comes before what starts with it: behind that, it would wait for its end.
    """
    rank = {op: number for number, op in enumerate(flow.order)}
    return sorted(rank, key=lambda op: (start[op], end[op], rank[op]))
