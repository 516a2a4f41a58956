"""What is wrong with a timetable of the delay model."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING

from placement_advisor.solvers.makespan.delays import Timetable, delay

if TYPE_CHECKING:
    from collections.abc import Iterable

    from placement_advisor.solvers.problem import Problem


def faults(problem: Problem, timetable: Timetable) -> list[str]:
    """Return what is wrong with a timetable, a sentence each; nothing if it is valid.

    Times that differ by rounding only, a billionth of the makespan, count as equal.
    """
    count = len(problem.ops)
    if any(len(times) != count for times in (timetable.device_of, timetable.start, timetable.end)):
        return ["not every op has one device, one start and one end"]
    unknown = sorted(set(timetable.device_of) - set(problem.devices))
    if unknown:
        return [f"there is no device {device!r}" for device in unknown]
    slack = abs(timetable.makespan) * 1e-9
    return [
        *_wrong_times(problem, timetable, slack),
        *_overlaps(problem, timetable, slack),
        *_early_starts(problem, timetable, slack),
        *_wrong_devices(problem, timetable),
    ]


def _wrong_times(problem: Problem, timetable: Timetable, slack: float) -> Iterable[str]:
    for op, (name, device) in enumerate(zip(problem.ops, timetable.device_of, strict=True)):
        work, start = problem.pool_of[device].work[op], timetable.start[op]
        if work is None:
            yield f"op {name!r} cannot run on {device!r}"
        elif not math.isclose(timetable.end[op], start + work, rel_tol=0, abs_tol=slack):
            yield f"op {name!r} takes {work} on {device!r}, not {timetable.end[op] - start}"
        if start < 0:
            yield f"op {name!r} starts before 0"


def _overlaps(problem: Problem, timetable: Timetable, slack: float) -> Iterable[str]:
    for device in problem.devices:
        inside = [op for op, where in enumerate(timetable.device_of) if where == device]
        inside.sort(key=lambda op: (timetable.start[op], timetable.end[op]))
        for first, second in pairwise(inside):
            if timetable.start[second] < timetable.end[first] - slack:
                names = problem.ops[first], problem.ops[second]
                yield f"{device!r} runs ops {names[0]!r} and {names[1]!r} at a time"


def _early_starts(problem: Problem, timetable: Timetable, slack: float) -> Iterable[str]:
    for producer, consumer in problem.edges:
        ends = timetable.device_of[producer], timetable.device_of[consumer]
        arrival = timetable.end[producer] + delay(problem, producer, *ends)
        if timetable.start[consumer] < arrival - slack:
            names = problem.ops[consumer], problem.ops[producer]
            yield f"op {names[0]!r} starts before the output of {names[1]!r} is there"


def _wrong_devices(problem: Problem, timetable: Timetable) -> Iterable[str]:
    torn = [group for group in problem.groups if len({timetable.device_of[op] for op in group}) > 1]
    for group in torn:
        yield f"ops {', '.join(repr(problem.ops[op]) for op in group)} are not on one device"
    if torn:
        return
    of_groups = [timetable.device_of[group[0]] for group in problem.groups]
    for device, held in problem.held_bytes(of_groups).items():
        capacity = problem.pool_of[device].capacity_bytes
        if capacity is not None and held > capacity:
            yield f"device {device!r} holds {held} bytes, more than {capacity}"
