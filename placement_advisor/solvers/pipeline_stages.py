"""The stages of a pipeline: one order of groups of ops, cut into a stretch for each device.

Model: an op takes a time of its own on the devices of each pool. Its output, one tensor, is
copied once to every other device that reads it, which takes ``copy_time``. A device is loaded
with the work of its ops and with what it sends and gets. The least largest load of the first
groups on some devices is that of fewer groups on one device fewer, or of the stretch that follows
on that one.

Left out: wires that several copies queue for, and links that differ.

Source: the linearised program (DPL) of Tarnawski, Phanishayee, Devanur, Mahajan and Nina
Paravecino, Efficient algorithms for device placement of DNN graph operators (NeurIPS 2020),
https://arxiv.org/abs/2006.16423.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

import numpy as np

from placement_advisor.compiled import compiled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]


# Comparisons of one stretch with one number of devices in use; so many take a minute.
_MAX_COMPARISONS = 10**11


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Devices that are alike.

    ``work`` is the time that each op takes there; ``capacity_bytes`` is None where memory has no
    limit.
    """

    devices: tuple[str, ...]
    work: tuple[float, ...]
    capacity_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StageProblem:
    """Ops by number, and devices by name. Times are in any one unit.

    ``edges`` are (producer, consumer). ``copy_time`` is for the output of each op, ``size_bytes``
    the memory that the op needs where it is. ``groups`` stand in the order that is to be cut, and
    have each op once.
    """

    ops: tuple[str, ...]
    edges: tuple[tuple[int, int], ...]
    copy_time: tuple[float, ...]
    size_bytes: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...]
    pools: tuple[Pool, ...]


def best_stages(problem: StageProblem) -> tuple[str, ...] | None:
    """Return the device of each group, None if no cut fits the devices.

    None also where there are too many groups or sorts of devices for it.
    """
    counts = [len(pool.devices) for pool in problem.pools]
    stretches = len(counts) * (len(problem.groups) + 1) ** 2
    if math.prod(count + 1 for count in counts) * stretches > _MAX_COMPARISONS:
        return None
    pool_of, cut = _cuts(_stretch_loads(problem), np.array(counts, np.int64))
    if not len(cut):
        return None
    free = [list(pool.devices) for pool in problem.pools]
    device_of: list[str] = []
    for pool, length in zip(pool_of, np.diff(cut).tolist(), strict=True):
        device_of += [free[pool].pop(0)] * length
    return tuple(device_of)


def _stretch_loads(problem: StageProblem) -> Floats:
    """Return by pool, first group and group after the last what a device of it is loaded with."""
    count = len(problem.groups)
    group_of = {op: number for number, group in enumerate(problem.groups) for op in group}
    touched = [{group_of[op]} for op in range(len(problem.ops))]
    for producer, consumer in problem.edges:
        touched[producer].add(group_of[consumer])
    # A stretch has no copy of what is made and read within it, or apart from it.
    within, apart = np.zeros((2, count + 1, count + 1))
    for time, groups in zip(problem.copy_time, touched, strict=True):
        ends = [-1, *sorted(groups), count]
        within[ends[1], ends[-2] + 1] += time
        for before, after in pairwise(ends):
            apart[before + 1, after] += time
    within = within[::-1].cumsum(axis=0)[::-1].cumsum(axis=1)
    apart = apart.cumsum(axis=0)[:, ::-1].cumsum(axis=1)[:, ::-1]
    copies = sum(problem.copy_time) - within - apart

    def of_stretches(of_op: Sequence[float]) -> Floats:
        before = np.array([0.0, *accumulate(sum(of_op[op] for op in g) for g in problem.groups)])
        between: Floats = before - before[:, None]
        return between

    held_bytes = of_stretches(problem.size_bytes)
    return np.array(
        [
            np.where(
                held_bytes <= (math.inf if pool.capacity_bytes is None else pool.capacity_bytes),
                of_stretches(pool.work) + copies,
                math.inf,
            )
            for pool in problem.pools
        ]
    )


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
