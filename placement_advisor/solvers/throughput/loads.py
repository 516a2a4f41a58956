"""What copies and ops load each device of a pipeline with: its part of the time per sample.

Model: a device that pays for copies is loaded with the work of its ops, with each output of theirs
that another device reads (once, however many read it), and with each tensor that it gets. One that
does not pay is loaded with work alone. The fullest device limits the throughput.

Source: Tarnawski et al. (2020), see `problem`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from placement_advisor.solvers.problem import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What a device is loaded with, in the problem's unit of time, and the memory it needs."""

    work: float
    copies: float
    held_bytes: int

    @property
    def total(self) -> float:
        """Both together."""
        return self.work + self.copies


def loads(problem: Problem, device_of: Sequence[str]) -> dict[str, Load]:
    """Return the load of each device, given the device of each group.

    Raises:
        ValueError: a group is on a device that cannot run it.
    """
    work = dict.fromkeys(problem.devices, 0.0)
    copies = dict.fromkeys(problem.devices, 0.0)
    for group, device in zip(problem.groups, device_of, strict=True):
        for op in group:
            time = problem.pool_of[device].work[op]
            if time is None:
                raise ValueError(f"op {problem.ops[op]!r} cannot run on {device!r}")
            work[device] += time
    for op, readers in problem.readers.items():
        home = device_of[problem.group_of[op]]
        targets = dict.fromkeys(device_of[reader] for reader in readers)
        targets.pop(home, None)
        for end in (home, *targets) if targets else ():
            if problem.pool_of[end].pays_for_copies:
                copies[end] += problem.copy_time[op]
    held_bytes = problem.held_bytes(device_of)
    return {
        name: Load(work=work[name], copies=copies[name], held_bytes=held_bytes[name])
        for name in problem.devices
    }


def device_loads(problem: Problem, device_of: Sequence[str]) -> dict[str, Load]:
    """Return the load of each device, given the device of each op, by whatever groups."""
    alone = tuple((op,) for op in range(len(problem.ops)))
    return loads(replace(problem, groups=alone), device_of)


def largest_load(problem: Problem, device_of: Sequence[str]) -> float:
    """Return the load of the fullest device.

    Raises:
        ValueError: a group is on a device that cannot run it.
    """
    return max(load.total for load in loads(problem, device_of).values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """What a group sends to the same other groups, as one: its tensors go together or stay."""

    home: int
    readers: tuple[int, ...]
    copy_time: float


def bundles(problem: Problem) -> tuple[Bundle, ...]:
    """Return all that copies can cost; what is free is left out."""
    found: dict[tuple[int, tuple[int, ...]], float] = defaultdict(float)
    for op, readers in problem.readers.items():
        if problem.copy_time[op] > 0:
            found[problem.group_of[op], tuple(sorted(readers))] += problem.copy_time[op]
    return tuple(
        Bundle(home=home, readers=readers, copy_time=copy_time)
        for (home, readers), copy_time in found.items()
    )


def group_work(problem: Problem) -> list[list[float | None]]:
    """Return by pool and group the work of a group there, None where it cannot run."""
    return [
        [
            None
            if any(pool.work[op] is None for op in group)
            else math.fsum(w for op in group if (w := pool.work[op]))
            for group in problem.groups
        ]
        for pool in problem.pools
    ]
