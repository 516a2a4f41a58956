"""Why no placement is possible: the fewest ops that cannot all be placed.

Looked at are where ops can run, which of them stay together, and memory: a group needs a pool that
runs all its ops and has room for them, and the groups of all devices need room together. Left out:
that the stages of a pipeline follow each other, which may need more memory than the least.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain, combinations
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from placement_advisor.solvers.problem import Pool, Problem

# Of the solver's deterministic clock. Packing is hard only where it is nearly possible. Judgement:
# where that is not enough, no conflict is named, and the search itself says what it finds.
_PACKING_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """Ops that cannot all be placed, though all but any one of them can, and why in words."""

    ops: tuple[str, ...]
    reason: str


def find_conflict(problem: Problem) -> Conflict | None:
    """Return a conflict, None if none is found."""
    for group in problem.groups:
        found = _within_group(problem, group)
        if found is not None:
            return found
    return _memory_conflict(problem)


def _within_group(problem: Problem, group: Sequence[int]) -> Conflict | None:
    """Return a conflict of ops that have to stay together."""
    by_pools: dict[frozenset[int], int] = {}
    for op in group:
        runs_on = frozenset(i for i, pool in enumerate(problem.pools) if pool.work[op] is not None)
        by_pools.setdefault(runs_on, op)
    for count in range(1, len(problem.pools) + 1):
        for some in combinations(by_pools, count):
            if not frozenset.intersection(*some):
                ops = tuple(problem.ops[by_pools[pools]] for pools in some)
                reason = "no device can run it"
                if count > 1:
                    reason = "they have to stay together, and no device can run all of them"
                return Conflict(ops=ops, reason=reason)
    possible = [
        problem.pools[i] for i in frozenset.intersection(*by_pools) if not _holds(problem, i, group)
    ]
    if len(possible) < len(frozenset.intersection(*by_pools)):
        return None
    room = max(pool.capacity_bytes or 0 for pool in possible)
    large: list[str] = []
    held_bytes = 0
    for op in sorted(group, key=lambda op: -problem.size_bytes[op]):
        large.append(problem.ops[op])
        held_bytes += problem.size_bytes[op]
        if held_bytes > room:
            break
    together = "they have to stay together and need" if len(large) > 1 else "it needs"
    return Conflict(
        ops=tuple(large),
        reason=f"{together} {held_bytes:,} bytes; the devices for it have {room:,}",
    )


def _holds(problem: Problem, pool: int, group: Sequence[int]) -> bool:
    capacity_bytes = problem.pools[pool].capacity_bytes
    size_bytes = sum(problem.size_bytes[op] for op in group)
    return capacity_bytes is None or size_bytes <= capacity_bytes


def _memory_conflict(problem: Problem) -> Conflict | None:
    """Return groups that do not fit together, found by leaving out what is not needed for it."""
    bound = [
        group
        for group in problem.groups
        if not any(_runs(pool, group) and pool.capacity_bytes is None for pool in problem.pools)
    ]
    bound.sort(key=lambda group: -sum(problem.size_bytes[op] for op in group))
    if not _is_impossible(problem, bound):
        return None
    # Of the largest groups, the fewest that do not fit; then without each that changes nothing.
    few, many = 0, len(bound)
    while many - few > 1:
        middle = (few + many) // 2
        if _is_impossible(problem, bound[:middle]):
            many = middle
        else:
            few = middle
    kept = bound[:many]
    for group in reversed(bound[:many]):
        without = [other for other in kept if other is not group]
        if _is_impossible(problem, without):
            kept = without
    needed = sum(problem.size_bytes[op] for group in kept for op in group)
    there = sum((pool.capacity_bytes or 0) * len(pool.devices) for pool in problem.pools)
    return Conflict(
        ops=tuple(problem.ops[op] for op in chain.from_iterable(kept)),
        reason=f"they need {needed:,} bytes and do not fit the {there:,} of all devices together",
    )


def _runs(pool: Pool, group: Sequence[int]) -> bool:
    return all(pool.work[op] is not None for op in group)


def _is_impossible(problem: Problem, groups: Sequence[Sequence[int]]) -> bool:
    """Return whether the devices have no room for groups that all need one with a limit."""
    sizes = [sum(problem.size_bytes[op] for op in group) for group in groups]
    if not groups:
        return False
    rooms = [(pool, pool.capacity_bytes) for pool in problem.pools for _ in pool.devices]
    if sum(sizes) > sum(room for _, room in rooms if room is not None):
        return True
    if any(
        room is not None and sum(sizes) <= room and all(_runs(pool, group) for group in groups)
        for pool, room in rooms
    ):
        return False
    from ortools.sat.python import cp_model

    from placement_advisor.solvers.cp_sat import new_solver

    model = cp_model.CpModel()
    inside = [[model.new_bool_var("") for _ in rooms] for _ in groups]
    for group, row in zip(groups, inside, strict=True):
        model.add_exactly_one(row)
        for (pool, room), here in zip(rooms, row, strict=True):
            if room is None or not _runs(pool, group):
                model.add(here == 0)
    for (_, room), column in zip(rooms, zip(*inside, strict=True), strict=True):
        if room is not None:
            held = sum(size * here for size, here in zip(sizes, column, strict=True))
            model.add(held <= room)
    solver = new_solver()
    solver.parameters.num_workers = 1
    solver.parameters.max_deterministic_time = _PACKING_SECONDS
    return bool(solver.solve(model) == cp_model.INFEASIBLE)
