"""The stages of a pipeline: one order of groups of ops, cut into a stretch for each device.

Model: an op takes a time of its own on the devices of each pool. Its output, one tensor, is
copied once to every other device that reads it, which takes ``copy_time``. A device is loaded
with the work of its ops and with what it sends and gets. What each stretch loads a device of
each pool with is worked out group by group. Then the least largest load of the first groups
on some devices is that of fewer groups on one device fewer, or of the stretch that follows on
that one.

Left out: wires that several copies queue for, and links that differ.

Source: the linearised program (DPL) of Tarnawski, Phanishayee, Devanur, Mahajan and Nina
Paravecino, Efficient algorithms for device placement of DNN graph operators (NeurIPS 2020),
https://arxiv.org/abs/2006.16423.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, chain
from typing import TYPE_CHECKING

import numpy as np

from placement_advisor.compiled import compiled

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]


# The loads of all stretches of more groups would take more than half a gigabyte.
_MAX_STRETCHES = 60_000_000
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


@dataclass(frozen=True, kw_only=True)
class StageProblem:
    """Ops by number, and devices by name. Times are in any one unit.

    ``edges`` are (producer, consumer). ``copy_time`` is for the output of each op, ``size_bytes``
    the memory that the op needs where it is. ``groups`` has each op once.

    Raises:
        ValueError: times or sizes are not one for each op, which compiled code relies on.
    """

    ops: tuple[str, ...]
    edges: tuple[tuple[int, int], ...]
    copy_time: tuple[float, ...]
    size_bytes: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...]
    pools: tuple[Pool, ...]

    def __post_init__(self) -> None:
        of_ops = (self.copy_time, self.size_bytes, *(pool.work for pool in self.pools))
        if any(len(values) != len(self.ops) for values in of_ops):
            raise ValueError("times and sizes are one for each op")

    @cached_property
    def readers(self) -> Mapping[int, tuple[int, ...]]:
        """The other groups that read an op, of ops that are read by any."""
        group_of = {op: number for number, group in enumerate(self.groups) for op in group}
        found: dict[int, dict[int, None]] = defaultdict(dict)
        for producer, consumer in self.edges:
            if group_of[producer] != group_of[consumer]:
                found[producer][group_of[consumer]] = None
        return {op: tuple(groups) for op, groups in found.items()}


def best_stages(problem: StageProblem, order: Sequence[int]) -> tuple[str, ...] | None:
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
    group_start, ops = _flat(problem.groups)
    read_start, read = _flat([sorted(read_by[group]) for group in range(len(problem.groups))])
    pools = problem.pools
    loads = _stretch_loads(
        np.array(order, np.int64),
        group_start,
        ops,
        read_start,
        read,
        np.array([len(problem.readers.get(t, ())) for t in range(len(problem.ops))], np.int64),
        np.array([pool.work for pool in pools], float),
        np.array(problem.copy_time, float),
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


def _flat(rows: Iterable[Sequence[int]]) -> tuple[Ints, Ints]:
    """Return where each row starts, the end of the last one included, and the rows in a line."""
    rows = list(rows)
    starts = np.array([0, *accumulate(map(len, rows))], np.int64)
    return starts, np.array(list(chain.from_iterable(rows)), np.int64)


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
                    loads[pool, first, last + 1] = total[pool] + copies
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
