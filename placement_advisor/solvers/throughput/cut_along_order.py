"""Contiguous placements along one order of the groups, the best of which dynamic programming finds.

Every device takes a stretch of the order. What each stretch loads a device of each pool with is
worked out group by group; then the least largest load of the first groups on some devices is that
of fewer groups on one device fewer, or of the stretch that follows on that one.

Source: the linearised program (DPL) of Tarnawski et al. (2020), see `problem`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from placement_advisor.compiled import compiled
from placement_advisor.solvers.flat_rows import flat_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from placement_advisor.solvers.problem import Problem

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]

# The loads of all stretches of more groups would take more than half a gigabyte.
_MAX_STRETCHES = 60_000_000
# Comparisons of one stretch with one number of devices in use; so many take a minute.
_MAX_COMPARISONS = 10**11


def best_along(problem: Problem, order: Sequence[int]) -> tuple[str, ...] | None:
    """Return the device of each group, None if no cut of the order fits the devices.

    None also where there are too many groups or sorts of devices for it.
    """
    stretches = len(problem.pools) * (len(order) + 1) ** 2
    counts = [len(pool.devices) for pool in problem.pools]
    states = math.prod(count + 1 for count in counts)
    if stretches > _MAX_STRETCHES or states * stretches > _MAX_COMPARISONS:
        return None
    read_by = [set[int]() for _ in problem.groups]
    for op, readers in problem.readers.items():
        for group in readers:
            read_by[group].add(op)
    group_start, ops = flat_rows(problem.groups)
    read_start, read = flat_rows([sorted(read_by[group]) for group in range(len(problem.groups))])
    pools = problem.pools
    loads = _stretch_loads(
        np.array(order, np.int64),
        group_start,
        ops,
        read_start,
        read,
        np.array([len(problem.readers.get(t, ())) for t in range(len(problem.ops))], np.int64),
        np.array([[np.inf if w is None else w for w in pool.work] for pool in pools]),
        np.array(problem.copy_time, float),
        np.array([pool.pays_for_copies for pool in pools]),
        np.array(problem.size_bytes, float),
        np.array([np.inf if p.capacity_bytes is None else p.capacity_bytes for p in pools]),
    )
    pool_of, cut = _cuts(loads, np.array(counts, np.int64))
    if not len(cut):
        return None
    free = [list(pool.devices) for pool in pools]
    device_of = [""] * len(order)
    for pool, first, last in zip(pool_of, cut[:-1], cut[1:], strict=True):
        device = free[pool].pop(0)
        for group in order[first:last]:
            device_of[group] = device
    return tuple(device_of)


@compiled(nogil=True)
def _stretch_loads(
    order: Ints,
    group_start: Ints,
    ops: Ints,
    read_start: Ints,
    read: Ints,
    reader_count: Ints,
    work: Floats,
    copy_time: Floats,
    pays: NDArray[np.bool_],
    size_bytes: Floats,
    capacity_bytes: Floats,
) -> Floats:
    """Return by pool, first group and group after the last what a device of it is loaded with."""
    pools, groups = work.shape[0], order.shape[0]
    loads = np.full((pools, groups + 1, groups + 1), np.inf)
    for first in range(groups):
        inside = np.zeros(copy_time.shape[0], np.bool_)
        readers_inside = np.zeros(copy_time.shape[0], np.int64)
        total = np.zeros(pools)
        copies = 0.0
        held_bytes = 0.0
        for last in range(first, groups):
            group = order[last]
            for k in range(group_start[group], group_start[group + 1]):
                op = ops[k]
                inside[op] = True
                held_bytes += size_bytes[op]
                for pool in range(pools):
                    total[pool] += work[pool, op]
                # It came from outside if anything here read it; now it goes there.
                if readers_inside[op]:
                    copies -= copy_time[op]
                if readers_inside[op] < reader_count[op]:
                    copies += copy_time[op]
            for k in range(read_start[group], read_start[group + 1]):
                op = read[k]
                readers_inside[op] += 1
                if inside[op]:
                    if readers_inside[op] == reader_count[op]:
                        copies -= copy_time[op]
                elif readers_inside[op] == 1:
                    copies += copy_time[op]
            for pool in range(pools):
                if held_bytes <= capacity_bytes[pool]:
                    loads[pool, first, last + 1] = total[pool] + (copies if pays[pool] else 0.0)
    return loads


@compiled(nogil=True)
def _cuts(loads: Floats, counts: Ints) -> tuple[Ints, Ints]:
    """Return the pool of each stretch and where stretches begin and end; nothing if none fits."""
    pools, groups = loads.shape[0], loads.shape[1] - 1
    states = 1
    for pool in range(pools):
        states *= counts[pool] + 1
    least = np.full((states, groups + 1), np.inf)
    came_from = np.zeros((states, groups + 1), np.int64)
    by_pool = np.full((states, groups + 1), -1, np.int64)
    least[:, 0] = 0.0
    for state in range(1, states):
        stride, rest = 1, state
        for pool in range(pools):
            used = rest % (counts[pool] + 1)
            rest //= counts[pool] + 1
            if used:
                before = state - stride
                for last in range(1, groups + 1):
                    if least[before, last] < least[state, last]:
                        least[state, last] = least[before, last]
                        came_from[state, last] = came_from[before, last]
                        by_pool[state, last] = -2 - pool
                    for first in range(last):
                        largest = max(least[before, first], loads[pool, first, last])
                        if largest < least[state, last]:
                            least[state, last] = largest
                            came_from[state, last] = first
                            by_pool[state, last] = pool
            stride *= counts[pool] + 1
    pool_of = np.empty(groups, np.int64)
    cut = np.empty(groups + 1, np.int64)
    if least[states - 1, groups] == np.inf:
        return pool_of[:0], cut[:0]
    stretches = 0
    state, last = states - 1, groups
    cut[groups] = groups
    while last:
        pool = by_pool[state, last]
        stride = 1
        for other in range(pool if pool >= 0 else -2 - pool):
            stride *= counts[other] + 1
        state -= stride
        if pool >= 0:
            last = came_from[state + stride, last]
            stretches += 1
            pool_of[groups - stretches] = pool
            cut[groups - stretches] = last
    return pool_of[groups - stretches :], cut[groups - stretches :]
